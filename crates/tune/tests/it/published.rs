//! Settings that were published, and what is wrong with each. The expectations
//! were worked out by hand from the kernel's documentation and sources
//! (`fixtures/configs/README.md`), before there was a linter.

use std::{collections::BTreeSet, path::PathBuf};

use clearstream_host::HostRoot;
use clearstream_lint::{MuteList, sarif};
use clearstream_schema::{
    plan::{Setting, Value},
    tune::{Finding, LintReport, PathGoal, Severity},
};
use clearstream_tune::{Assumed, HostState, Profile, lint, recommend};

const GIB: u64 = 1 << 30;

fn folder(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/configs").join(case)
}

fn file(case: &str, name: &str, kernel: Option<&str>, memory_gib: Option<u64>) -> HostState {
    let text = std::fs::read_to_string(folder(case).join(name)).unwrap();
    let assumed = Assumed {
        release: kernel.map(str::to_owned),
        memory_bytes: memory_gib.map(|gib| gib * GIB),
        page_bytes: None,
    };
    HostState::of_file(name, &text, assumed)
}

fn at_rest() -> HostState {
    HostState::of_host(&HostRoot::directory(folder("kernel-6.18-defaults")))
}

fn goal(rate: &str, rtt: &str, flow_count: u32) -> PathGoal {
    PathGoal { rate: rate.parse().unwrap(), rtt: rtt.parse().unwrap(), flow_count }
}

fn lint_report(state: &HostState, goal: Option<&PathGoal>) -> LintReport {
    lint(state, goal, &MuteList::default())
}

/// Ids without the common prefix, of the findings that are more than notes.
fn grave(report: &LintReport) -> BTreeSet<String> {
    let found = report.findings.iter().filter(|finding| finding.severity > Severity::Note);
    found.map(|finding| finding.id.replace("net.ipv4.", "").replace("net.core.", "")).collect()
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn one<'a>(report: &'a LintReport, id: &str) -> &'a Finding {
    let found: Vec<_> = report.findings.iter().filter(|finding| finding.id == id).collect();
    assert_eq!(found.len(), 1, "{id} in {:#?}", report.findings);
    found[0]
}

/// 649 MiB were planned without naming bbr as the reason.
#[test]
fn a_plan_names_bbr_as_the_reason_for_doubled_buffers() {
    let now = "net.ipv4.tcp_rmem = 4096 131072 268435456\n";
    let reason = |control: &str| {
        let text = format!("{now}net.ipv4.tcp_congestion_control = {control}\n");
        let state = at_rest().with_file("99-test.conf", &text);
        let plan = recommend(&state, &goal("40Gb/s", "17ms", 1), Profile::Lan);
        let step = plan.steps.iter().find(|step| step.setting.to_string() == "net.ipv4.tcp_rmem");
        step.map(|step| step.reason.clone())
    };
    let bbr = reason("bbr").unwrap();
    for part in [
        "BDP per flow: 40.0 Gb/s x 17ms / 8 = 81.1 MiB",
        "x 2 because the default congestion control is bbr",
        // 256 MiB, half of which is window: 128 MiB x 8 / 17 ms.
        "The current maximum of the receive buffer (256 MiB) supports 31.6 Gb/s per flow with bbr, 63.2 Gb/s with cubic",
    ] {
        assert!(bbr.contains(part), "{part}: {bbr}");
    }
    assert!(reason("cubic").is_none_or(|cubic| !cubic.contains("bbr")));
}

#[test]
fn the_40ge_report() {
    let case = |memory| file("clearstream-40ge", "sysctl.conf", Some("2.6.32"), Some(memory));
    let expected = set(&[
        "tcp_timestamps:unsafe:no-paws",
        "tcp_sack:unsafe:no-sack",
        "netdev_max_backlog:no-op:not-used-by-nics",
        "rmem_default:no-op:not-for-tcp",
        "wmem_default:no-op:not-for-tcp",
        "optmem_max:wasteful:too-large",
        "tcp_mem:unit:bytes-for-pages",
        "tcp_mem:order:no-room",
        "tcp_rmem:wasteful:first-buffer",
        "tcp_wmem:wasteful:first-buffer",
    ]);
    // Both hosts have less than the 128 GiB at which pressure would start.
    for memory in [24, 120] {
        let report = lint_report(&case(memory), Some(&goal("19Gb/s", "17ms", 1)));
        assert_eq!(grave(&report), expected, "{memory} GiB: {:#?}", report.findings);
        let unit = one(&report, "net.ipv4.tcp_mem:unit:bytes-for-pages");
        assert!(unit.message.contains("128 GiB, 128 GiB and 256 GiB"), "{}", unit.message);
        assert_eq!(unit.severity, Severity::Error);
        assert_eq!(unit.place.as_ref().unwrap().line, 9);
        let wrap = one(&report, "net.ipv4.tcp_timestamps:unsafe:no-paws");
        assert!(wrap.message.contains("19.0 Gb/s sequence numbers wrap in 1.81 s"), "{}", wrap.message);
        let hole = one(&report, "net.ipv4.tcp_sack:unsafe:no-sack");
        assert!(hole.message.contains("38.5 MiB (4512 segments"), "{}", hole.message);
    }
    // 64 MiB at 75 % is 48 MiB: enough for 19 Gb/s, short of the 25.3 Gb/s that were seen later.
    let report = lint_report(&case(24), Some(&goal("25.3Gb/s", "17ms", 1)));
    let window = one(&report, "net.ipv4.tcp_rmem:path:window-too-small");
    for figure in ["48 MiB", "23.7 Gb/s", "51.3 MiB", "0.75 by tcp_adv_win_scale 2"] {
        assert!(window.message.contains(figure), "{figure}: {}", window.message);
    }
    // With the later default of one half it is 32 MiB and 15.8 Gb/s.
    let state = file("clearstream-40ge", "sysctl.conf", Some("4.14"), Some(24));
    let report = lint_report(&state, Some(&goal("19Gb/s", "17ms", 1)));
    let window = one(&report, "net.ipv4.tcp_rmem:path:window-too-small");
    assert!(window.message.contains("32 MiB") && window.message.contains("15.8 Gb/s"), "{}", window.message);
}

#[test]
fn the_native_client_paper() {
    // Kernel 3.10 still had tcp_tw_recycle, a live tcp_low_latency and tcp_adv_win_scale.
    let report = lint_report(&file("native-client", "list.txt", Some("3.10.0"), None), None);
    let common = [
        "tcp_timestamps:unsafe:no-paws",
        "tcp_tw_reuse:contradiction:without-timestamps",
        "tcp_tw_recycle:contradiction:without-timestamps",
        "netdev_max_backlog:no-op:not-used-by-nics",
        "optmem_max:wasteful:too-large",
        "tcp_mem:unit:copied-triple",
        "tcp_mem:path:pressure-too-low",
        "link.txqueuelen:contradiction:with-fq",
        "tcp_rmem:syntax:blank-in-name",
        "tcp_no_metrics_save:syntax:blank-in-name",
        "tcp_congestion_control:syntax:blank-in-name",
        "tcp_mtu_probing:syntax:blank-in-name",
        "tcp_fin_timeout:syntax:blank-in-name",
    ];
    let mut expected = set(&common);
    assert_eq!(grave(&report), expected, "{:#?}", report.findings);
    let copied = one(&report, "net.ipv4.tcp_mem:unit:copied-triple");
    for figure in ["16 MiB", "341 MiB", "1 TiB"] {
        assert!(copied.message.contains(figure), "{figure}: {}", copied.message);
    }
    for note in [
        "net.ipv4.tcp_tw_recycle:removed:gone",
        "net.ipv4.tcp_low_latency:no-op:dead-key",
        "net.ipv4.tcp_adv_win_scale:no-op:dead-key",
        "net.ipv4.tcp_congestion_control:unverifiable:sender-only",
        "net.ipv4.tcp_fin_timeout:no-op:not-for-rate",
        "net.core.default_qdisc:unverifiable:later",
    ] {
        assert_eq!(one(&report, note).severity, Severity::Note, "{note}");
    }
    // On today's kernel three of its lines are dead, one of them an error.
    let report = lint_report(&file("native-client", "list.txt", Some("6.12.0"), None), None);
    expected.extend(set(&[
        "tcp_tw_recycle:removed:gone",
        "tcp_low_latency:no-op:dead-key",
        "tcp_adv_win_scale:no-op:dead-key",
    ]));
    assert_eq!(grave(&report), expected);
    let gone = one(&report, "net.ipv4.tcp_tw_recycle:removed:gone");
    assert_eq!(gone.severity, Severity::Error);
    assert!(gone.message.starts_with("removed in 4.12"), "{}", gone.message);
    assert!(one(&report, "net.ipv4.tcp_low_latency:no-op:dead-key").message.contains("since 4.14"));
    assert!(one(&report, "net.ipv4.tcp_adv_win_scale:no-op:dead-key").message.contains("since 6.6"));
}

#[test]
fn tuned_network_throughput() {
    let state = file("tuned-network-throughput", "tuned.conf", Some("5.14.0-427.el9"), None);
    let report = lint_report(&state, None);
    assert_eq!(grave(&report), set(&[]), "{:#?}", report.findings);
    assert_eq!(
        one(&report, "include:unverifiable:not-read").value.as_deref(),
        Some("throughput-performance")
    );
    // 16 MiB for all rates: on 6.18 less than the default, and short of 40 Gb/s over 17 ms.
    let state = file("tuned-network-throughput", "tuned.conf", Some("6.18"), None);
    let report = lint_report(&state, Some(&goal("40Gb/s", "17ms", 1)));
    let expected = set(&[
        "tcp_rmem:path:window-too-small",
        "tcp_wmem:path:send-buffer-too-small",
        "tcp_rmem:path:below-default",
    ]);
    assert_eq!(grave(&report), expected, "{:#?}", report.findings);
}

#[test]
fn the_vendors_script() {
    let report = lint_report(&file("mlnx-script", "set.sh", Some("6.1"), None), None);
    let expected = set(&[
        "tcp_timestamps:unsafe:no-paws",
        "netdev_max_backlog:no-op:not-used-by-nics",
        "rmem_default:no-op:not-for-tcp",
        "wmem_default:no-op:not-for-tcp",
        "optmem_max:wasteful:too-large",
        "tcp_low_latency:no-op:dead-key",
        // The script lowers what the kernel gives by itself.
        "tcp_rmem:path:below-default",
    ]);
    assert_eq!(grave(&report), expected, "{:#?}", report.findings);
    assert_eq!(one(&report, "net.ipv4.tcp_low_latency:no-op:dead-key").place.as_ref().unwrap().line, 12);
}

#[test]
fn esnets_values() {
    let state = file("esnet", "sysctl.conf", Some("6.1"), None);
    assert_eq!(grave(&lint_report(&state, None)), set(&[]));
    // 128 MiB at one half carries 53.7 Gb/s over 10 ms, and 5.37 Gb/s over 100 ms.
    assert_eq!(grave(&lint_report(&state, Some(&goal("40Gb/s", "10ms", 1)))), set(&[]));
    let report = lint_report(&state, Some(&goal("10Gb/s", "100ms", 1)));
    assert_eq!(
        grave(&report),
        set(&["tcp_rmem:path:window-too-small", "tcp_wmem:path:send-buffer-too-small"])
    );
    let window = one(&report, "net.ipv4.tcp_rmem:path:window-too-small");
    assert!(window.message.contains("5.37 Gb/s") && window.message.contains("119 MiB"), "{}", window.message);
}

#[test]
fn a_host_at_rest_is_not_accused() {
    let state = at_rest();
    let report = lint_report(&state, None);
    assert_eq!(grave(&report), set(&[]), "{:#?}", report.findings);
    let ids: Vec<&str> = report.findings.iter().map(|finding| finding.id.as_str()).collect();
    assert_eq!(ids, ["net.ipv4.tcp_wmem:path:asymmetric"]);
    // 0.87 * 4 MiB: 1.72 Gb/s at 17 ms, 292 Mb/s at 100 ms.
    let message = &report.findings[0].message;
    assert!(message.contains("1.72 Gb/s at 17 ms") && message.contains("292 Mb/s at 100 ms"), "{message}");
}

/// The formulas of the 40GE path, by hand: 40 Gb/s x 17 ms / 8 / 2 = 42.5 MB;
/// 2 x 42.5 / 0.5 = 170 MB = 163 MiB up; 2 x 42.5 / 0.85 = 100 MB = 96 MiB up.
#[test]
fn a_plan_follows_the_formulas() {
    let plan = recommend(&at_rest(), &goal("40Gb/s", "17ms", 2), Profile::Wan);
    let desired = |key: &str| {
        let step =
            plan.steps.iter().find(|step| matches!(&step.setting, Setting::Sysctl(name) if name == key));
        step.and_then(|step| step.desired.clone())
    };
    let text = |text: &str| Some(Value::Text(text.to_owned()));
    assert_eq!(desired("net.ipv4.tcp_rmem"), text("4096 131072 170917888"));
    assert_eq!(desired("net.ipv4.tcp_wmem"), text("4096 16384 100663296"));
    assert_eq!(desired("net.core.default_qdisc"), text("fq"));
    assert_eq!(desired("net.ipv4.tcp_slow_start_after_idle"), text("0"));
    // Present and right already, or enough: 8 GiB of pressure against 2 x 259 MiB.
    for key in ["net.ipv4.tcp_sack", "net.ipv4.tcp_timestamps", "net.ipv4.tcp_mem", "net.core.rmem_max"] {
        assert_eq!(desired(key), None, "{key}");
    }
    // This kernel offers reno and cubic.
    assert_eq!(desired("net.ipv4.tcp_congestion_control"), None);
    assert!(plan.advice.iter().any(|advice| advice.contains("H-TCP")), "{:?}", plan.advice);
    for step in &plan.steps {
        assert!(step.current.is_some() && !step.reason.is_empty(), "{step:?}");
    }
}

#[test]
fn a_plan_that_was_applied_leaves_nothing_to_plan() {
    let goal = goal("40Gb/s", "17ms", 2);
    for (_, profile) in Profile::ALL {
        let mut state = at_rest();
        for step in recommend(&state, &goal, profile).steps {
            let Setting::Sysctl(key) = step.setting else { continue };
            state.values.get_mut(&key).unwrap().text = step.desired.unwrap().to_string();
        }
        assert_eq!(recommend(&state, &goal, profile).steps, [], "{profile}");
        let after = lint_report(&state, Some(&goal));
        let small: Vec<_> =
            after.findings.iter().filter(|finding| finding.id.contains("too-small")).collect();
        assert!(small.is_empty(), "{profile}: {small:#?}");
    }
}

#[test]
fn more_than_one_window_is_recommended_as_flows() {
    let plan = recommend(&at_rest(), &goal("100Gb/s", "100ms", 1), Profile::Wan);
    assert!(plan.advice.iter().any(|advice| advice.contains("at least 2 flows")), "{:?}", plan.advice);
    // 2 GiB is as much as a 32-bit number holds.
    let wanted = Some(Value::Text("4096 131072 2147483647".to_owned()));
    let rmem = plan.steps.iter().find(|step| step.desired == wanted);
    assert!(rmem.is_some(), "{:#?}", plan.steps);
}

#[test]
fn h_tcp_is_chosen_where_it_is_offered() {
    let mut state = at_rest();
    let offered = "net.ipv4.tcp_available_congestion_control";
    state.values.get_mut(offered).unwrap().text = "reno cubic htcp".to_owned();
    let key = "net.ipv4.tcp_congestion_control";
    let chosen = |rtt: &str, profile| {
        let plan = recommend(&state, &goal("19Gb/s", rtt, 1), profile);
        plan.steps.into_iter().find(|step| matches!(&step.setting, Setting::Sysctl(name) if name == key))
    };
    let step = chosen("17ms", Profile::Wan).unwrap();
    assert_eq!(step.desired, Some(Value::Text("htcp".to_owned())));
    assert!(step.reason.contains("15.0 s") && step.reason.contains("7.3 s"), "{}", step.reason);
    assert_eq!(chosen("1ms", Profile::Wan), None);
    assert_eq!(chosen("17ms", Profile::Storage), None);
}

#[test]
fn nothing_is_recommended_that_a_namespace_cannot_set() {
    let mut state = at_rest();
    state.own_network_namespace = Some(true);
    for key in ["net.core.default_qdisc", "net.ipv4.tcp_mem"] {
        state.values.remove(key);
        state.present.as_mut().unwrap().remove(key);
    }
    let plan = recommend(&state, &goal("40Gb/s", "17ms", 1), Profile::Wan);
    let hosts_own = plan.steps.iter().any(|step| {
        matches!(&step.setting, Setting::Sysctl(name)
            if name.starts_with("net.core") || name.contains("tcp_mem"))
    });
    assert!(!hosts_own, "{:#?}", plan.steps);
    assert!(
        plan.advice.iter().any(|advice| advice.contains("default_qdisc belongs to the host")),
        "{:?}",
        plan.advice
    );
    let given = state.with_file("a.conf", "net.core.default_qdisc = fq\nnet.ipv4.tcp_sack = 1\n");
    let report = lint_report(&given, None);
    assert_eq!(one(&report, "net.core.default_qdisc:scope:host-only").severity, Severity::Error);
}

#[test]
fn presence_decides_before_version() {
    // A distribution may carry a key back, or keep one.
    let mut state = at_rest();
    state.present.as_mut().unwrap().insert("net.ipv4.tcp_tw_recycle".to_owned());
    let report = lint_report(&state.clone().with_file("a.conf", "net.ipv4.tcp_tw_recycle = 0\n"), None);
    assert_eq!(one(&report, "net.ipv4.tcp_tw_recycle:removed:gone").severity, Severity::Note);
    state.present.as_mut().unwrap().remove("net.ipv4.tcp_tw_recycle");
    let report = lint_report(&state.with_file("a.conf", "net.ipv4.tcp_tw_recycle = 0\n"), None);
    assert_eq!(one(&report, "net.ipv4.tcp_tw_recycle:removed:gone").severity, Severity::Error);
}

#[test]
fn a_muted_finding_is_counted_and_gone() {
    let state = file("mlnx-script", "set.sh", Some("6.1"), None);
    let all = lint_report(&state, None);
    let mute: MuteList = "net.ipv4.tcp_timestamps:unsafe:no-paws # agreed\nnet.core.*\n".parse().unwrap();
    let some = lint(&state, None, &mute);
    assert_eq!(some.findings.len() + usize::try_from(some.muted_count).unwrap(), all.findings.len());
    assert!(some.findings.iter().all(|finding| !finding.key.starts_with("net.core.")));
    assert!(some.muted_count >= 5);
}

/// The required properties of SARIF 2.1.0 (sections 3.13 to 3.30), written out
/// from the specification.
#[test]
fn sarif_has_what_the_specification_requires() {
    let schema = serde_json::from_str(include_str!("../../../lint/tests/sarif-2.1.0-required.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for state in [file("native-client", "list.txt", None, None), at_rest()] {
        let log = sarif(&lint_report(&state, None), "clearstream tune lint");
        let errors: Vec<String> = validator.iter_errors(&log).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
        let run = &log["runs"][0];
        for result in run["results"].as_array().unwrap() {
            let rule = &run["tool"]["driver"]["rules"]
                [usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap()];
            assert_eq!(rule["id"], result["ruleId"]);
        }
    }
}

#[test]
fn every_invalid_line_is_reported_and_the_rest_is_checked() {
    let text = "\u{0}\u{1}\u{2}\nnet.ipv4.tcp_sack = 0\nnot a setting\nnet.ipv4.tcp_rmem = 4096 87380 64M\n= = =\n\
                net.ipv4.tcp_wmem = 4096 16384\nnet.core.rmem_max = 4294967296\nnet.ipv4.tcp_timestamp = 1\n";
    let report = lint_report(&HostState::of_file("bad.conf", text, Assumed::default()), None);
    let mut seen: Vec<(u32, &str)> = report
        .findings
        .iter()
        .map(|finding| (finding.place.as_ref().unwrap().line, finding.id.as_str()))
        .collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            (1, "line:syntax:unreadable"),
            (2, "net.ipv4.tcp_sack:unsafe:no-sack"),
            (3, "line:syntax:unreadable"),
            (4, "net.ipv4.tcp_rmem:range:not-a-number"),
            (5, "line:syntax:unreadable"),
            (6, "net.ipv4.tcp_wmem:range:value-count"),
            (7, "net.core.rmem_max:range:refused"),
            (8, "net.ipv4.tcp_timestamp:unknown:misspelt"),
        ]
    );
}
