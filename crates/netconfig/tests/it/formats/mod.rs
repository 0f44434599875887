//! Configurations in the style of other people (how-tos, questions, images, tickets), in our own words and addresses:
//! what their tool makes of each, and what the linter says of it. Nothing that works has a warning or an error; each
//! known mistake is found, and nothing else.
//!
//! What a tool makes of a row comes from the tool where it runs here (`ip` and the kernel, systemd-networkd, netplan), else
//! from its source and tests.

mod commands;
mod documents;
mod networkd;
mod others;
mod profiles;
mod scripts;

use std::{collections::BTreeSet, path::Path, process::Command};

use clearstream_lint::MuteList;
use clearstream_netconfig::read::{self, ReadError, Reading};
use clearstream_route::lint;
use clearstream_schema::{
    routing::{HostRouting, RouteAction, RouteEntry, RuleAction, files::Loader},
    tune::{LintReport, Severity},
};
use clearstream_tune::Assumed;

use crate::tools::private;

/// A configuration, what its tool makes of it, and what is said of it.
struct Case {
    /// Where such a file stands, and what becomes of it.
    what: &'static str,
    /// Files by their paths below the host's root.
    files: &'static [(&'static str, &'static str)],
    /// Routes that the tool makes, as `DESTINATION via GATEWAY dev IF table N metric N`, main table and metric 0 left out.
    routes: &'static [&'static str],
    /// Ids of all warnings and errors.
    found: &'static [&'static str],
}

fn all() -> Vec<&'static Case> {
    [profiles::CASES, networkd::CASES, documents::CASES, commands::CASES, scripts::CASES, others::CASES]
        .into_iter()
        .flatten()
        .collect()
}

fn install(case: &Case, root: &Path) {
    for (path, text) in case.files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn reading(case: &Case) -> Reading {
    let root = tempfile::tempdir().unwrap();
    install(case, root.path());
    read::folder(root.path()).unwrap_or_else(|error| panic!("{}: {error}", case.what))
}

fn report(reading: Reading) -> LintReport {
    let hosts = lint::of_files(reading, "host", &Assumed::default());
    lint::lint(&hosts, None, &MuteList::default())
}

fn warned(report: &LintReport) -> Vec<&str> {
    let mut ids: Vec<&str> = report
        .findings
        .iter()
        .filter(|finding| finding.severity > Severity::Note)
        .map(|finding| finding.id.as_str())
        .collect();
    ids.sort_unstable();
    ids
}

fn text(route: &RouteEntry) -> String {
    let destination = match route.destination.length {
        0 => "default".to_owned(),
        _ => route.destination.to_string(),
    };
    let mut text = destination;
    match &route.action {
        RouteAction::Gateways(hops) => {
            for (number, hop) in hops.iter().enumerate() {
                let weight = if hops.len() > 1 { format!("*{}", hop.weight) } else { String::new() };
                let interface = hop.interface.as_deref().unwrap_or("?");
                text.push_str(if number == 0 { " via " } else { "," });
                text.push_str(&format!("{}{weight} dev {interface}", hop.via));
            }
        }
        RouteAction::Link { interface } => text.push_str(&format!(" dev {interface}")),
        RouteAction::Nexthop(id) => text.push_str(&format!(" nhid {id}")),
        other => text.push_str(&format!(" {}", other.type_keyword().unwrap())),
    }
    if route.table != 254 {
        text.push_str(&format!(" table {}", route.table));
    }
    // The kernel's own of IPv6 (RTNETLINK, IP6_RT_PRIO_USER).
    if route.metric != 0 && !(route.destination.address.is_ipv6() && route.metric == 1024) {
        text.push_str(&format!(" metric {}", route.metric));
    }
    text
}

fn texts(host: &HostRouting) -> BTreeSet<String> {
    host.routes.iter().map(text).collect()
}

#[test]
fn what_works_has_no_warning_and_every_mistake_is_found() {
    let cases = all();
    assert!(cases.len() >= 120, "{}", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let reading = reading(case);
        let routes: BTreeSet<String> = reading.hosts.iter().flat_map(texts).collect();
        let expected: BTreeSet<String> = case.routes.iter().map(|route| (*route).to_owned()).collect();
        if routes != expected {
            wrong.push(format!(
                "{}: read as {routes:#?}\nnot as {expected:#?}\n{:?}",
                case.what, reading.unread
            ));
        }
        assert_eq!(reading.not_understood, [""; 0], "{}", case.what);
        let report = report(reading);
        let mut expected = case.found.to_vec();
        expected.sort_unstable();
        if warned(&report) != expected {
            wrong.push(format!("{}: {:#?}\nnot {expected:?}", case.what, report.findings));
        }
        let counted = report.checked.unwrap();
        assert_eq!(counted.setting_count(), report.setting_count);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Every row of a script that the kernel can play, in a namespace of its own: its routes are those that were read, and
/// where it refuses a command there is an error.
#[test]
fn root_the_kernel_does_with_scripts_what_is_read() {
    let mut wrong = Vec::new();
    for case in all().into_iter().filter(|case| case.files.iter().any(|(path, _)| *path == "play.sh")) {
        let script = case.files.iter().find(|(path, _)| *path == "play.sh").unwrap().1;
        let output = private::run(&format!("{}{script}{}", commands::LINKS, private::SHOW));
        let kernel = private::states(&output.stdout).remove(0);
        let refused = output.stderr.contains("Error:") || output.stderr.contains("RTNETLINK answers");
        let reading = reading(case);
        let files = &reading.hosts[0].files;
        let known: BTreeSet<String> = texts(&reading.hosts[0]);
        let of_kernel: BTreeSet<String> = kernel
            .routes
            .iter()
            .filter(|route| {
                let mut unknown = files.unknown_in(route.table);
                !unknown.any(|it| it.destination.is_none_or(|it| it == route.destination))
            })
            .map(text)
            .collect();
        let report = report(reading);
        let has_error = report.findings.iter().any(|finding| finding.severity == Severity::Error);
        // What is refused is read, and has its error.
        if !refused && known != of_kernel || !of_kernel.is_subset(&known) {
            wrong.push(format!("{}: {of_kernel:#?}, read {known:#?}\n{}", case.what, output.stderr));
        }
        if refused != has_error {
            wrong.push(format!("{}: refused {refused}: {}{:#?}", case.what, output.stderr, report.findings));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// systemd-networkd with the files of a row that has all its kinds of sections: what it adds is what was read, and what it
/// ignores or the kernel refuses has a finding at its line.
#[test]
fn root_networkd_adds_what_is_read() {
    let root = tempfile::tempdir().unwrap();
    install(&networkd::PLAYED, root.path());
    let kernel = networkd::played(root.path());
    let reading = read::folder(root.path()).unwrap();
    let report =
        lint::lint(&lint::of_files(reading.clone(), "host", &Assumed::default()), None, &MuteList::default());
    let refused: Vec<u32> = report
        .findings
        .iter()
        .filter(|finding| finding.id.contains(":range:") || finding.id.ends_with(":not-taken"))
        .filter_map(|finding| finding.place.as_ref().map(|place| place.line))
        .collect();
    let is_taken =
        |route: &&RouteEntry| !route.place.as_ref().is_some_and(|it| refused.contains(&it.line.unwrap()));
    let ours: BTreeSet<String> = reading.hosts[0].routes.iter().filter(is_taken).map(text).collect();
    // The kernel joins routes of IPv6 that differ in their gateway.
    let one_by_one = |route: &RouteEntry| match &route.action {
        RouteAction::Gateways(hops) => hops
            .iter()
            .map(|hop| {
                text(&RouteEntry { action: RouteAction::Gateways(vec![hop.clone()]), ..route.clone() })
            })
            .collect::<Vec<_>>(),
        _ => vec![text(route)],
    };
    let theirs: BTreeSet<String> = kernel.routes.iter().flat_map(one_by_one).collect();
    assert_eq!(ours, theirs, "{:#?}", report.findings);
    let tables = |host: &HostRouting| -> BTreeSet<u32> {
        let table = |rule: &clearstream_schema::routing::RuleEntry| match rule.action {
            RuleAction::Table(table) => Some(table),
            RuleAction::Other(_) => None,
        };
        host.rules.iter().filter_map(table).collect()
    };
    assert_eq!(tables(&reading.hosts[0]), tables(&kernel));
    assert!(reading.hosts[0].routes.iter().all(|route| route.place.as_ref().unwrap().by == Loader::Networkd));
}

/// netplan refuses the files that are said to be refused, and takes the others.
#[test]
fn netplan_refuses_what_is_said_to_be_refused() {
    for case in all().into_iter().filter(|case| case.files.iter().any(|(path, _)| path.contains("netplan"))) {
        let root = tempfile::tempdir().unwrap();
        install(case, root.path());
        let output = Command::new("netplan")
            .args(["generate", "--root-dir"])
            .arg(root.path())
            .output()
            .expect("netplan: run .ci/install test");
        let refused =
            report(reading(case)).findings.iter().any(|finding| finding.id == "file:no-op:not-taken");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(!output.status.success(), refused, "{}: {stderr}", case.what);
    }
}

/// A file of which nothing is understood, or of no known kind, is no host without mistakes.
#[test]
fn nothing_understood_is_said_with_the_nearest_form() {
    for (name, text, nearest) in [
        ("vars.yml", "foo: bar\n", "netplan has \"network:\""),
        ("play.yml", "- hosts: all\n  tasks:\n    - name: x\n      debug: msg=1\n", "Ansible"),
        ("deploy.yaml", "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 1}\n", "kind Deployment"),
        ("user-data.yaml", "#cloud-config\nruncmd: [ls]\n", "user data of cloud-init"),
        (
            "host_vars.yml",
            "netplan_configuration:\n  network:\n    version: 2\n    ethernets: {eth0: {dhcp4: true}}\n",
            "netplan inside of the variable netplan_configuration",
        ),
        ("staticd.conf", "ip route 10.2.0.0/16 10.1.0.1\n", "FRR"),
        ("startup.cfg", "hostname leaf\nip route 10.2.0.0/16 10.1.0.1\n", "FRR or a switch"),
        ("show.txt", "leaf#show ip route\nC   10.1.0.0/24 is directly connected, Vlan10\n", "show ip route"),
        ("route.txt", "Routing tables\n\nInternet:\nDestination Gateway Flags Netif\n", "BSD"),
        ("print.txt", "IPv4 Route Table\n====\nActive Routes:\n", "Windows"),
        (
            "ifconfig.txt",
            "eth0: flags=4163<UP>  mtu 1500\n        inet 10.1.0.5  netmask 255.255.255.0\n",
            "ifconfig",
        ),
        ("nmcli.txt", "connection.id: eth0\nipv4.method: manual\n", "nmcli"),
        (
            "net",
            "config_eth0=\"10.1.0.5/24\"\nroutes_eth0=\"default via 10.1.0.1\n10.2.0.0/16 via 10.1.0.2\"\n",
            "Gentoo",
        ),
        ("config", "config interface 'lan'\n\toption device 'eth0'\n", "OpenWrt"),
        ("config.set", "set protocols static route 10.2.0.0/16 next-hop 10.1.0.1\n", "VyOS"),
        ("dhcpcd.conf", "interface eth0\nstatic ip_address=10.1.0.5/24\n", "dhcpcd"),
        ("vpn.conf", "dev tun\nroute 10.2.0.0 255.255.0.0\n", "OpenVPN"),
        (
            "spaces.sh",
            "#!/bin/sh\nip netns add a\nip link add va type veth peer name vb\nip -n a route add default via 10.0.0.2\n",
            "network namespace",
        ),
        (
            "setup.sh",
            "#!/bin/bash\nnmcli con mod back +ipv4.routes \"10.3.0.0/16 10.2.0.254\"\nnmcli con up back\n",
            "script",
        ),
        ("frr.conf", "frr version 8.4\nrouter bgp 65000\n", "FRR"),
        ("bird.conf", "protocol static {\n}\n", "BIRD"),
        (
            "keepalived.conf",
            "vrrp_instance V1 {\n  virtual_routes {\n    10.2.0.0/16 via 10.1.0.1 dev eth0\n  }\n}\n",
            "keepalived",
        ),
        ("start.sh", "#!/bin/sh\nA=1\nwhile sleep 1; do\n  /opt/x/run $A\ndone\n", "script"),
        ("motd", "welcome\n", "no configuration of a known kind"),
        ("eth.network", "[Route]\nGateway=10.0.0.1\n", "[Match]"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(name);
        std::fs::write(&path, text).unwrap();
        match read::files(std::slice::from_ref(&path)) {
            Err(error @ ReadError::Nothing { .. }) => {
                let message = error.to_string();
                assert!(message.contains(nearest) && message.contains(name), "{name}: {message}");
            }
            other => panic!("{name}: {other:?}"),
        }
        // Beside a file that is understood it is named.
        let good = root.path().join("good.sh");
        std::fs::write(&good, "ip route add 10.0.0.0/8 via 10.1.0.1 dev eth0\n").unwrap();
        let reading = read::files(&[path.clone(), good]).unwrap();
        assert_eq!(reading.not_understood, [path.display().to_string()], "{name}");
        let said = reading.unread.iter().any(|it| it.reason.contains("nothing in it was understood"));
        assert!(said, "{name}: {:?}", reading.unread);
    }
}

/// Hosts of a document of several; each has its name.
#[test]
fn a_document_of_several_hosts_is_as_many() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("agent-config.yaml"), documents::AGENT).unwrap();
    let reading = read::files(&[root.path().join("agent-config.yaml")]).unwrap();
    let names: Vec<&str> = reading.hosts.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(names, ["node-a", "node-b"]);
    assert!(reading.hosts.iter().all(|host| host.routes.len() == 1 && host.interfaces.len() == 1));
}
