//! Published files, and their mistakes. The expectations were derived by hand from
//! the files, before the linter existed.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clearstream_lint::{MuteList, sarif};
use clearstream_netconfig::{
    read,
    routes::{FolderWriter, Format},
};
use clearstream_route::{
    fabric::{self, Fabric},
    lint::{self, Subject},
    planner::Planner,
};
use clearstream_schema::{
    fabric::{HostRole, ReturnPath},
    routing::RouteAction,
    tune::{Finding, LintReport, Severity},
};
use clearstream_tune::Assumed;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/configs")
}

fn hosts(folder: &str, kernel: Option<&str>) -> Vec<Subject> {
    let assumed = Assumed { release: kernel.map(str::to_owned), ..Assumed::default() };
    lint::of_files(read::folder(&fixtures().join(folder)).unwrap(), folder, &assumed)
}

fn report_of(hosts: &[Subject], fabric: Option<&Fabric>) -> LintReport {
    lint::lint(hosts, fabric, &MuteList::default())
}

/// `id file:line`, without the folder.
fn set(report: &LintReport) -> BTreeSet<String> {
    let short = |finding: &Finding| {
        let place = finding.place.as_ref().map_or_else(String::new, |place| {
            let file = Path::new(&place.file).file_name().unwrap().to_string_lossy().into_owned();
            format!(" {file}:{}", place.line)
        });
        format!("{}{place}", finding.id)
    };
    report.findings.iter().map(short).collect()
}

fn expected(ids: &[(&str, &str, &[u32])]) -> BTreeSet<String> {
    let of = |(id, file, lines): &(&str, &str, &[u32])| {
        lines.iter().map(|line| format!("{id} {file}:{line}")).collect::<Vec<_>>()
    };
    ids.iter().flat_map(of).collect()
}

fn without_notes_of_sysctls(report: &LintReport) -> LintReport {
    let mut report = report.clone();
    report.findings.retain(|finding| {
        let is_list = finding.place.as_ref().is_some_and(|place| place.file.ends_with("sysctl.conf"));
        !is_list || finding.severity > Severity::Note
    });
    report
}

/// The rules match gateways' addresses, which no packet of a server carries; the
/// tables hold the compute network as neighbours in front of gateways that are in
/// no network of the servers; 10.10.0.12 has two rules and is missing from the
/// multipath route, the only one that is effective.
const STORAGE: &[(&str, &str, &[u32])] = &[
    ("rule:order:no-priority", "rule-ib1", &[2]),
    ("rule:no-op:shadowed", "rule-ib1", &[3]),
    ("rule:no-op:address-nobody-has", "rule-ib1", &[2, 3, 4, 5, 6, 7, 8]),
    ("route:routing:on-link-beats-default", "route-ib1", &[2, 4, 6, 8, 10, 12]),
    ("gateway:range:outside-every-subnet", "route-ib1", &[3, 5, 7, 9, 11, 13]),
    ("gateway:routing:missing-from-multipath", "route-ib1", &[14]),
    ("return:routing:asymmetric", "route-ib1", &[14]),
    // As in the test of these sysctls in crates/tune/tests/published.rs.
    ("net.ipv4.tcp_timestamps:unsafe:no-paws", "sysctl.conf", &[1]),
    ("net.core.netdev_max_backlog:no-op:not-used-by-nics", "sysctl.conf", &[5]),
    ("net.core.optmem_max:wasteful:too-large", "sysctl.conf", &[8]),
    ("net.ipv4.tcp_mem:unit:copied-triple", "sysctl.conf", &[9]),
    ("net.ipv4.tcp_mem:path:pressure-too-low", "sysctl.conf", &[9]),
    ("net.ipv4.tcp_rmem:syntax:blank-in-name", "sysctl.conf", &[10]),
    ("net.ipv4.tcp_no_metrics_save:syntax:blank-in-name", "sysctl.conf", &[12]),
    ("net.ipv4.tcp_congestion_control:syntax:blank-in-name", "sysctl.conf", &[14]),
    ("net.ipv4.tcp_mtu_probing:syntax:blank-in-name", "sysctl.conf", &[15]),
    ("net.ipv4.tcp_fin_timeout:syntax:blank-in-name", "sysctl.conf", &[16]),
    ("net.ipv4.tcp_tw_recycle:contradiction:without-timestamps", "sysctl.conf", &[17]),
    ("net.ipv4.tcp_tw_reuse:contradiction:without-timestamps", "sysctl.conf", &[18]),
];

/// Its rules were not published, nor its sysctls.
const COMPUTE: &[(&str, &str, &[u32])] = &[
    ("route:routing:on-link-beats-default", "ip-route-show-table-all.txt", &[3, 5, 7, 9, 11, 13]),
    ("table:unverifiable:no-rules-given", "ip-route-show-table-all.txt", &[2]),
    ("net.ipv4.fib_multipath_hash_policy:routing:ignores-ports", "ip-route-show-table-all.txt", &[14]),
];

/// Findings that need the other side, or the fabric.
const OTHER_NETWORK: (&str, &str, &[u32]) =
    ("route:routing:not-the-other-network", "ip-route-show-table-all.txt", &[14]);
const ONE_SIDE: (&str, &str, &[u32]) = ("gateway:routing:one-side-only", "route-ib1", &[14]);

fn the_fabric() -> Fabric {
    fabric::load(fixtures().join("paper-fabric.toml").to_str().unwrap()).unwrap()
}

#[test]
fn the_storage_servers_of_the_paper() {
    // Kernel 3.10 chose the gateway of each lookup by itself: there was no hash policy.
    let report = report_of(&hosts("paper-storage", Some("3.10.0")), None);
    assert_eq!(set(&without_notes_of_sysctls(&report)), expected(STORAGE), "{:#?}", report.findings);
    assert_eq!(report.missing, Vec::<String>::new());
    // On a kernel of today the policy is missing and one key is gone.
    let report = report_of(&hosts("paper-storage", Some("6.12")), None);
    let ids = set(&report);
    assert!(
        ids.contains("net.ipv4.fib_multipath_hash_policy:routing:ignores-ports route-ib1:14"),
        "{ids:#?}"
    );
    assert!(ids.contains("net.ipv4.tcp_tw_recycle:removed:gone sysctl.conf:17"), "{ids:#?}");
}

#[test]
fn the_compute_nodes_of_the_paper() {
    let report = report_of(&hosts("paper-compute", None), None);
    assert_eq!(set(&report), expected(COMPUTE), "{:#?}", report.findings);
    assert_eq!(report.missing, Vec::<String>::new());
}

#[test]
fn both_sides_together_show_the_wrong_network_and_the_missing_gateway() {
    let mut both = hosts("paper-storage", Some("3.10.0"));
    both.extend(hosts("paper-compute", Some("3.12")));
    let report = report_of(&both, None);
    let mut all = [STORAGE, COMPUTE].concat();
    all.extend([OTHER_NETWORK, ONE_SIDE]);
    assert_eq!(set(&without_notes_of_sysctls(&report)), expected(&all), "{:#?}", report.findings);
    let wrong = report.findings.iter().find(|finding| finding.id == OTHER_NETWORK.0).unwrap();
    assert_eq!(wrong.host.as_deref(), Some("paper-compute"));
    assert!(wrong.message.contains("10.10.0.0/24"), "{}", wrong.message);
}

#[test]
fn the_fabric_shows_it_from_one_side_alone() {
    let fabric = the_fabric();
    let report = report_of(&hosts("paper-compute", None), Some(&fabric));
    let all = [COMPUTE, &[OTHER_NETWORK]].concat();
    assert_eq!(set(&report), expected(&all), "{:#?}", report.findings);
    let report = report_of(&hosts("paper-storage", Some("3.10.0")), Some(&fabric));
    assert_eq!(set(&without_notes_of_sysctls(&report)), expected(STORAGE), "{:#?}", report.findings);
    // Now it is certain.
    let outside = report.findings.iter().filter(|finding| finding.id == "gateway:range:outside-every-subnet");
    assert!(outside.into_iter().all(|finding| finding.severity == Severity::Error));
}

#[test]
fn the_corrected_files_have_no_finding() {
    let corrected = hosts("paper-corrected", None);
    assert_eq!(corrected.len(), 8);
    for fabric in [None, Some(&the_fabric())] {
        let together = report_of(&corrected, fabric);
        assert!(together.findings.is_empty(), "{:#?}", together.findings);
        assert_eq!(together.missing, Vec::<String>::new());
        for host in &corrected {
            let alone = report_of(std::slice::from_ref(host), fabric);
            assert!(alone.findings.is_empty(), "{}: {:#?}", host.name, alone.findings);
        }
    }
}

/// What a fabric adds to files: gateways that nothing on the host names, and
/// those that keep connection state.
#[test]
fn the_fabric_knows_gateways_that_a_host_leaves_out() {
    let mut hosts = hosts("paper-corrected", None);
    let compute = hosts.iter_mut().find(|host| host.name == "compute1").unwrap();
    let multipath = compute.routing.routes.iter_mut().find_map(|route| match &mut route.action {
        RouteAction::Gateways(hops) if hops.len() == 6 => Some(hops),
        _ => None,
    });
    multipath.unwrap().pop();
    let compute = [compute.clone()];
    assert!(report_of(&compute, None).findings.is_empty());
    let report = report_of(&compute, Some(&the_fabric()));
    let found: Vec<&str> = report.findings.iter().map(|finding| finding.id.as_str()).collect();
    assert_eq!(found, ["gateway:routing:missing-from-multipath"]);
    assert!(report.findings[0].message.contains("10.100.0.96"), "{}", report.findings[0].message);

    let mut file = the_fabric().file().clone();
    file.classes[0].stateful = true;
    let stateful = Fabric::new(file).unwrap();
    let storage = self::hosts("paper-storage", None);
    let ids = set(&report_of(&storage, Some(&stateful)));
    assert!(ids.contains("return:unsafe:asymmetric-through-stateful route-ib1:14"), "{ids:#?}");
    assert!(!ids.contains("return:routing:asymmetric route-ib1:14"), "{ids:#?}");
}

/// The plans of every built-in fabric have no findings: planner and linter do not
/// share rules. Of large classes a few hosts.
#[test]
fn planned_hosts_have_no_finding() {
    for name in fabric::built_in_names() {
        let fabric = fabric::load(name).unwrap();
        let planner = Planner::new(&fabric);
        let few = (0..fabric.file().classes.len()).flat_map(|class| {
            let most = if fabric.file().classes[class].role == HostRole::Gateway { 64 } else { 3 };
            fabric.class_hosts(class).take(most).collect::<Vec<_>>()
        });
        let hosts: Vec<Subject> = few
            .map(|host| Subject {
                name: fabric.host_name(host),
                routing: planner.routing(host),
                ..Subject::default()
            })
            .collect();
        let count = fabric.file().routes.len();
        let wants_none = (0..count).any(|route| planner.choice(route).return_path == ReturnPath::None);
        for fabric in [None, Some(&fabric)] {
            let mut report = report_of(&hosts, fabric);
            // Without the fabric this cannot be recognised as intended.
            let is_meant = wants_none && fabric.is_none();
            report.findings.retain(|finding| !(is_meant && finding.id == "return:routing:asymmetric"));
            assert!(report.findings.is_empty(), "{name}: {:#?}", report.findings);
        }
    }
}

/// What every renderer writes reads back as hosts between which all paths work.
#[test]
fn rendered_files_have_no_broken_path() {
    for name in ["gateways-6", "dual-stack", "cumulus-wolf"] {
        let fabric = fabric::load(name).unwrap();
        let planner = Planner::new(&fabric);
        let few = (0..fabric.file().classes.len()).flat_map(|class| {
            let most = if fabric.file().classes[class].role == HostRole::Gateway { 64 } else { 2 };
            fabric.class_hosts(class).take(most).collect::<Vec<_>>()
        });
        let routings: Vec<_> = few.map(|host| planner.routing(host)).collect();
        for format in Format::all() {
            let parent = tempfile::tempdir().unwrap();
            let out = parent.path().join("out");
            let mut writer = FolderWriter::create(&out, format).unwrap();
            writer.add(&routings, &|routing| ("class".to_owned(), routing.clone())).unwrap();
            writer.finish().unwrap();
            let hosts = lint::of_files(read::folder(&out).unwrap(), name, &Assumed::default());
            assert_eq!(hosts.len(), routings.len(), "{name} {format}");
            for fabric in [None, Some(&fabric)] {
                let mut report = report_of(&hosts, fabric);
                report.findings.retain(|it| it.severity == Severity::Error || it.id.starts_with("gateway:"));
                assert!(report.findings.is_empty(), "{name} {format}: {:#?}", report.findings);
                let is_path =
                    |missing: &&String| missing.starts_with("paths") || missing.starts_with("some paths");
                assert_eq!(report.missing.iter().find(is_path), None, "{name} {format}");
            }
        }
    }
}

/// The required properties of SARIF 2.1.0, as `tune lint` has them.
#[test]
fn sarif_names_the_rule_the_host_and_the_line() {
    let mut both = hosts("paper-storage", None);
    both.extend(hosts("paper-compute", None));
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../lint/tests/sarif-2.1.0-required.json")).unwrap();
    let log = sarif(&report_of(&both, None), "clearstream route lint");
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&log)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors, Vec::<String>::new());
    let run = &log["runs"][0];
    assert_eq!(run["tool"]["driver"]["name"], "clearstream route lint");
    let shadowed = run["results"].as_array().unwrap().iter().find(|it| it["ruleId"] == "rule:no-op:shadowed");
    let location = &shadowed.unwrap()["locations"][0];
    assert_eq!(location["physicalLocation"]["region"]["startLine"], 3);
    assert_eq!(location["logicalLocations"][0]["fullyQualifiedName"], "paper-storage/rule");
}
