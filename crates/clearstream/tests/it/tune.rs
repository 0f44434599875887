//! `clearstream tune` as a person runs it.

use std::path::{Path, PathBuf};

use crate::common::{Lab, Run, assert_valid, finish, program, run};
use serde_json::Value;

fn fixture(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/configs");
    root.join(path).to_str().unwrap().to_owned()
}

fn ids(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap()).collect()
}

/// The document of a lint that found errors.
fn with_errors(arguments: &[&str]) -> Value {
    let run = run(arguments);
    run.refused(8, &["severity error"]);
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn lints_a_papers_list() {
    let list = fixture("native-client/list.txt");
    let report = with_errors(&["tune", "lint", &list, "--kernel", "6.12", "--json"]);
    assert_valid("lint", &report);
    assert!(ids(&report).contains(&"net.ipv4.tcp_mem:unit:copied-triple"), "{report:#}");
    let human = run(&["tune", "lint", &list, "--kernel", "6.12"]);
    human.refused_with(8);
    for part in ["list.txt:11", "tcp rmem", "16 MiB, 341 MiB, 1 TiB", "[net.ipv4.tcp_mem:unit:copied-triple]"]
    {
        assert!(human.stdout.contains(part), "{part} in:\n{}", human.stdout);
    }
    let log = with_errors(&["tune", "lint", &list, "--sarif"]);
    assert_eq!(log["version"], "2.1.0");
    assert!(!log["runs"][0]["results"].as_array().unwrap().is_empty());
}

#[test]
fn a_host_at_rest_ends_well() {
    let host = fixture("kernel-6.18-defaults");
    let report = run(&["tune", "lint", "--from", &host, "--json"]).json();
    assert_eq!(ids(&report), ["net.ipv4.tcp_wmem:path:asymmetric"]);
    // The same host for a path that its defaults do not carry.
    let report =
        with_errors(&["tune", "lint", "--from", &host, "--rate", "40Gb/s", "--rtt", "17ms", "--json"]);
    assert!(ids(&report).contains(&"net.ipv4.tcp_wmem:path:send-buffer-too-small"));
    // A file as it would be there: only its own lines count.
    let file = fixture("esnet/sysctl.conf");
    let report = run(&["tune", "lint", &file, "--from", &host, "--json"]).json();
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["place"]["file"] == file.as_str()), "{report:#}");
}

#[test]
fn muted_findings_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("a.conf");
    std::fs::write(&conf, "net.ipv4.tcp_sack = 0\n").unwrap();
    let conf = conf.to_str().unwrap();
    let list = folder.path().join("agreed.txt");
    std::fs::write(&list, "net.ipv4.tcp_sack:unsafe:no-sack # lab\n").unwrap();
    run(&["tune", "lint", conf]).refused_with(8);
    let report = run(&["tune", "lint", conf, "--mute-file", list.to_str().unwrap(), "--json"]).json();
    assert_eq!(report["muted_count"], 1);
    run(&["tune", "lint", conf, "--mute", "net.ipv4.*"]).ok();
    run(&["tune", "lint", conf, "--mute", "nonsense"]).refused(2, &["KEY:CLASS:CAUSE"]);
}

#[test]
fn bad_input_gets_one_line() {
    let folder = tempfile::tempdir().unwrap();
    run(&["tune", "lint", "/nonexistent/a.conf"]).refused(7, &["/nonexistent/a.conf"]);
    run(&["tune", "lint", folder.path().to_str().unwrap()]).refused(7, &["a folder"]);
    run(&["tune", "lint", "--rate", "40Gb/s"]).refused_by_usage("--rtt");
    run(&["tune", "plan", "--rate", "0Gb/s", "--rtt", "17ms"]).refused(2, &["above zero"]);
    run(&["tune", "plan", "--rate", "1Gb/s", "--rtt", "17ms", "--profile", "fast"])
        .refused_by_usage("storage");
    let garbage = folder.path().join("plan.json");
    std::fs::write(&garbage, b"\xff\x00 not a plan").unwrap();
    run(&["plan", "apply", garbage.to_str().unwrap(), "--yes"]).refused(7, &["plan.json"]);
    std::fs::write(&garbage, "{\"schema\":\"clearstream.plan\"}").unwrap();
    run(&["plan", "apply", garbage.to_str().unwrap(), "--yes"]).refused(2, &["plan.json", "tune plan"]);
    // Bytes that are no text are reported in their line; the rest is checked.
    let conf = folder.path().join("a.conf");
    std::fs::write(&conf, b"\xff\xfe\x00\nnet.ipv4.tcp_sack = 0\n").unwrap();
    let report = with_errors(&["tune", "lint", conf.to_str().unwrap(), "--json"]);
    assert_eq!(ids(&report), ["line:syntax:unreadable", "net.ipv4.tcp_sack:unsafe:no-sack"]);
}

#[test]
fn plans_for_a_captured_host() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("plan.json");
    let host = fixture("kernel-6.18-defaults");
    let path = ["--rate", "40Gb/s", "--rtt", "17ms", "--flows", "2", "--from", host.as_str()];
    let mut arguments = vec!["tune", "plan"];
    arguments.extend(path);
    arguments.extend(["--out", out.to_str().unwrap()]);
    let shown = run(&arguments);
    for part in ["- 4096 131072 33554432", "+ 4096 131072 170917888", "40.5 MiB", "clearstream plan apply"] {
        assert!(shown.ok().contains(part), "{part} in:\n{}", shown.stdout);
    }
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    assert_valid("plan", &plan);
    // It was made for another host, which is reported before any change.
    let refused = run(&["plan", "apply", out.to_str().unwrap(), "--yes"]);
    refused.refused(2, &["at-rest"]);
    // No confirmation is possible here.
    run(&["plan", "apply", out.to_str().unwrap()]).refused(2, &["--yes"]);
    let files = folder.path().join("files");
    let rendered =
        run(&["plan", "render", out.to_str().unwrap(), "--as", "shell", "--out", files.to_str().unwrap()]);
    assert!(rendered.ok().contains(files.to_str().unwrap()));
    let script = first_file(&files);
    assert!(std::fs::read_to_string(&script).unwrap().contains("170917888"));
    let checked = std::process::Command::new("sh").arg("-n").arg(&script).status().unwrap();
    assert!(checked.success(), "sh -n {}", script.display());
}

/// The one file below a folder.
fn first_file(folder: &Path) -> PathBuf {
    let entry = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    if entry.is_dir() { first_file(&entry) } else { entry }
}

/// A capture has what a plan and a lint of the running host have.
#[test]
fn a_captured_host_is_planned_for_as_the_live_one() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("host.tar.gz");
    let bundle = bundle.to_str().unwrap();
    run(&["inspect", "--capture", bundle]).ok();
    let sysctls = |arguments: &[&str]| {
        let plan = run(arguments).json();
        let steps = plan["steps"].as_array().unwrap().clone();
        let kept = steps.into_iter().filter(|step| step["setting"]["sysctl"].is_string());
        kept.map(|step| (step["setting"].clone(), step["desired"].clone())).collect::<Vec<_>>()
    };
    let live = sysctls(&["tune", "plan", "--rate", "40Gb/s", "--rtt", "17ms", "--json"]);
    let captured =
        sysctls(&["tune", "plan", "--rate", "40Gb/s", "--rtt", "17ms", "--from", bundle, "--json"]);
    assert_eq!(live, captured);
}

/// Runs the program inside the lab's host `here`, with journals of its own.
fn inside(lab: &str, journals: &str, arguments: &[&str]) -> Run {
    let mut command = std::process::Command::new(program());
    command
        .args(["lab", "exec", lab, "here", "--", program().to_str().unwrap()])
        .args(arguments)
        .env("CLEARSTREAM_PLANS", journals)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    finish(command.spawn().unwrap(), std::time::Duration::from_secs(30))
}

#[test]
fn root_applies_verifies_and_reverts_inside_a_lab() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("tune-{}", std::process::id());
    let lab = Lab::of_two_hosts(folder.path(), &name);
    let journals = folder.path().join("journals");
    let journals = journals.to_str().unwrap();
    let plan = folder.path().join("plan.json");
    let plan = plan.to_str().unwrap();
    let wmem = || {
        let run = run(&["lab", "exec", &name, "here", "--", "cat", "/proc/sys/net/ipv4/tcp_wmem"]);
        run.ok().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let before = wmem();
    let shown =
        inside(&name, journals, &["tune", "plan", "--rate", "40Gb/s", "--rtt", "17ms", "--out", plan]);
    assert!(shown.ok().contains("default_qdisc belongs to the host"), "{}", shown.stdout);
    inside(&name, journals, &["plan", "verify", plan]).refused_with(8);
    let applied = inside(&name, journals, &["plan", "apply", plan, "--yes", "--json"]).json();
    assert!(applied["changed_count"].as_u64().unwrap() >= 2, "{applied}");
    // 2 x 85 MB / 0.85 = 200 MB in whole MiB, and twice that where the
    // namespace has taken BBR over from the machine.
    let control =
        run(&["lab", "exec", &name, "here", "--", "cat", "/proc/sys/net/ipv4/tcp_congestion_control"]);
    let expected = if control.ok().starts_with("bbr") { "400556032" } else { "200278016" };
    assert_eq!(wmem()[2], expected);
    inside(&name, journals, &["plan", "verify", plan]).ok();
    // The plan is in the journal, too.
    let journal = applied["journal"].as_str().unwrap();
    let of_journal = inside(&name, journals, &["plan", "verify", journal]);
    assert!(of_journal.ok().contains("tcp_wmem"), "{}", of_journal.stdout);
    inside(&name, journals, &["plan", "verify"]).ok();
    let second = inside(&name, journals, &["plan", "apply", plan, "--yes", "--json"]).json();
    assert_eq!(second["changed_count"], 0);
    let report = inside(&name, journals, &["plan", "history", "--json"]).json();
    assert_eq!(report["journals"].as_array().unwrap().len(), 1, "{report}");
    inside(&name, journals, &["plan", "recover"]).ok();
    inside(&name, journals, &["plan", "revert"]).ok();
    assert_eq!(wmem(), before);
    inside(&name, journals, &["plan", "revert"]).refused(2, &["history"]);
    inside(&name, journals, &["plan", "verify"]).refused(2, &["history"]);
    inside(&name, journals, &["plan", "verify", journal]).refused_with(8);
    drop(lab);
}

#[test]
fn root_a_route_with_a_congestion_control_of_its_own_is_planned_for() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("tune-congctl-{}", std::process::id());
    let lab = Lab::of_two_hosts(folder.path(), &name);
    let journals = folder.path().join("journals");
    let journals = journals.to_str().unwrap();
    let shell = |line: &str| run(&["lab", "exec", &name, "here", "--", "sh", "-c", line]).ok().to_owned();
    // The other host's network by a route of its own, with the kernel's word for what it sets.
    shell(
        "ip route add 203.0.113.0/24 dev $(ip -o -4 route | sed -n 's/.* dev \\([^ ]*\\) .*/\\1/p' | head -1) congctl reno",
    );
    assert!(shell("ip route get 203.0.113.9").contains("congctl reno"));
    let plan = |to: &[&str]| {
        let path = ["tune", "plan", "--rate", "1Gb/s", "--rtt", "20ms", "--json"];
        inside(&name, journals, &[&path, to].concat()).json()
    };
    // The default is to be another one over this path; where the route decides, it is left alone.
    shell("sysctl -qw net.ipv4.tcp_congestion_control=reno");
    let by_default = plan(&[]);
    assert!(by_default["steps"].to_string().contains("tcp_congestion_control"), "{by_default:#}");
    let routed = plan(&["--to", "203.0.113.9"]);
    assert!(!routed["steps"].to_string().contains("tcp_congestion_control"), "{routed:#}");
    assert!(routed.to_string().contains("the route to 203.0.113.9 names reno (congctl)"), "{routed:#}");
    let refused =
        inside(&name, journals, &["tune", "plan", "--rate", "1Gb/s", "--rtt", "20ms", "--to", "2001:db8::1"]);
    refused.refused(2, &["--to 2001:db8::1"]);
    drop(lab);
}
