//! `clearstream plan` from end to end on a host of a lab, for settings and for
//! routes, and the other spellings of its verbs beside it. What `sysctl` and `ip`
//! show there is what counts.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{
    Lab, Run, alive, assert_published, children, clearstream, eventually, finish, program, run, signal,
};
use serde_json::{Value, json};

const FABRIC: &str = r#"
schema = "clearstream.fabric"
version = 1
name = "small"
[[network]]
name = "near"
prefixes = ["10.0.0.0/24"]
[[network]]
name = "far"
prefixes = ["10.9.0.0/24"]
[[class]]
name = "gateway"
role = "gateway"
hosts = ["there", "gw2"]
[[class.link]]
network = "near"
interface = "eth0"
addresses = ["10.0.0.[2-3]"]
[[class.link]]
network = "far"
interface = "eth1"
addresses = ["10.9.0.[2-3]"]
[[class]]
name = "storage"
role = "storage"
hosts = ["here"]
[[class.link]]
network = "near"
interface = "eth0"
addresses = ["10.0.0.1"]
[[class]]
name = "compute"
role = "compute"
hosts = ["c1"]
[[class.link]]
network = "far"
interface = "eth0"
addresses = ["10.9.0.1"]
[[route]]
between = ["near", "far"]
via = ["gateway"]
return-path = "none"
"#;

struct Here {
    lab: Lab,
    folder: tempfile::TempDir,
}

impl Here {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { lab: Lab::of_two_hosts(folder.path(), name), folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The program on the host, with journals of its own and no ssh session.
    fn command(&self, line: &str) -> Command {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let exec = ["lab", "exec", &self.lab.0, "here", "--", program().to_str().unwrap()];
        let mut command = clearstream(&[&exec, arguments.as_slice()].concat());
        command.env("CLEARSTREAM_PLANS", self.path("plans"));
        command.env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22").stdin(Stdio::null());
        command
    }

    fn clearstream(&self, line: &str) -> Run {
        finish(self.command(line).spawn().unwrap(), Duration::from_secs(60))
    }

    /// The document of a verb.
    fn json(&self, line: &str) -> Value {
        let document = self.clearstream(&format!("{line} --json")).json();
        assert_published(&document);
        document
    }

    /// What the tools of the system show.
    fn shown(&self) -> String {
        let exec = |line: &str| {
            let arguments: Vec<&str> = line.split_whitespace().collect();
            run(&[&["lab", "exec", &self.lab.0, "here", "--"], arguments.as_slice()].concat()).ok().to_owned()
        };
        let sysctls = exec("sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem net.ipv4.tcp_sack");
        let hashing = exec("sysctl net.ipv4.fib_multipath_hash_policy");
        sysctls + &hashing + &exec("ip -4 route show table all") + &exec("ip nexthop") + &exec("ip rule")
    }

    fn states(&self) -> Vec<String> {
        let journals = self.json("plan history")["journals"].clone();
        let state = |journal: &Value| journal["state"].as_str().unwrap().to_owned();
        journals.as_array().unwrap().iter().map(state).collect()
    }
}

#[test]
fn root_settings_are_planned_applied_verified_confirmed_and_reverted() {
    let here = Here::new("e2e-verb-settings");
    let (file, before) = (here.path("plan.json"), here.shown());
    here.clearstream(&format!("tune plan --rate 40Gb/s --rtt 17ms --out {file}")).ok();
    let planned: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let shown = here.json(&format!("plan show {file}"));
    assert_eq!(shown["steps"], planned["steps"]);
    here.clearstream(&format!("plan verify {file}")).refused_with(8);

    let dry = here.json(&format!("plan apply {file} --dry-run"));
    assert_eq!((&dry["plan"]["steps"], &dry["journal"]), (&planned["steps"], &Value::Null));
    assert_eq!((here.shown(), here.states().len()), (before.clone(), 0));
    here.clearstream(&format!("plan apply {file} --json")).refused(2, &["add --yes or --dry-run"]);

    let applied = here.json(&format!("plan apply {file} --yes"));
    let after = here.shown();
    assert!(applied["changed_count"].as_u64().unwrap() >= 2 && after != before, "{applied}");
    assert!(here.clearstream("plan verify").ok().contains("yes"));
    // The newest journal as a plan, without a name.
    assert_eq!(here.json("plan show")["steps"][0]["setting"], planned["steps"][0]["setting"]);
    let journal = applied["journal"].as_str().unwrap();
    let reverted = here.json(&format!("plan revert {journal}"));
    assert_eq!((here.shown(), &reverted["restored_count"]), (before.clone(), &applied["changed_count"]));

    let waits = here.clearstream(&format!("plan apply {file} --yes --confirm-within 60s"));
    assert!(waits.ok().contains("unless you run: clearstream plan confirm"), "{}", waits.stdout);
    assert_eq!(here.states().last().unwrap(), "pending");
    let confirmed = here.json("plan confirm");
    assert!(confirmed["left_ns"].as_u64().unwrap() > 0, "{confirmed}");
    here.clearstream("plan confirm").refused(2, &["nothing waits for confirmation"]);
    assert_eq!((here.shown(), here.states().pop().unwrap().as_str()), (after, "applied"));
    here.clearstream("plan revert").ok();
    assert_eq!(here.shown(), before);
    // 8 where the format lacks a setting.
    let rendered = here.clearstream(&format!("plan render {file} --as sysctl.d --out {}", here.path("etc")));
    assert!(matches!(rendered.code(), 0 | 8), "{}", rendered.stderr);
}

#[test]
fn root_each_verb_streams_events_and_its_document() {
    let here = Here::new("e2e-verb-streams");
    let file = plan(&here, &json!([step(json!({"sysctl": "net.ipv4.tcp_sack"}), Some("0"))]));
    for (line, document) in [
        (format!("plan show {file}"), "plan"),
        (format!("plan apply {file} --yes --confirm-within 60s"), "applied"),
        ("plan confirm".to_owned(), "confirmed"),
        ("plan verify".to_owned(), "verification"),
        ("plan history".to_owned(), "journals"),
        ("plan revert".to_owned(), "reverted"),
        ("plan recover".to_owned(), "recovered"),
    ] {
        let ended = here.clearstream(&format!("{line} --json-stream"));
        let events: Vec<Value> = ended.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        events.iter().for_each(assert_published);
        let last = events.last().unwrap();
        let verb = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        assert_eq!((&last["kind"], &last["workload"]), (&"result".into(), &verb.as_str().into()));
        assert_eq!(last["payload"]["schema"], format!("clearstream.{document}"));
        assert_published(&last["payload"]);
        let is_change = |event: &Value| event["kind"] == "change";
        assert_eq!(events.iter().any(is_change), verb == "plan apply", "{events:#?}");
    }
}

#[test]
fn root_routes_that_are_planned_are_applied_under_the_guard() {
    let here = Here::new("e2e-verb-routes");
    let (fabric, file, before) = (here.path("small.toml"), here.path("plan.json"), here.shown());
    fs::write(&fabric, FABRIC).unwrap();
    here.clearstream(&format!("route apply {fabric} --dry-run --out {file}")).ok();
    assert!(here.clearstream(&format!("plan show {file}")).ok().contains("route 10.9.0.0/24"));

    // Not confirmed.
    let applied = here.clearstream(&format!("plan apply {file} --yes --confirm-within 2s"));
    assert!(applied.ok().contains("restored in 2s unless you run: clearstream plan confirm"));
    eventually(Duration::from_secs(20), "it is reverted", || here.states() == ["reverted"]);
    assert_eq!(here.shown(), before);
    // Confirmed.
    here.json(&format!("plan apply {file} --yes --confirm-within 60s"));
    let refused = here.clearstream(&format!("route apply {fabric} --yes"));
    refused.refused(4, &["waits for confirmation", "clearstream plan confirm"]);
    here.json("plan confirm");
    here.clearstream("plan verify").ok();
    here.clearstream(&format!("route verify {fabric}")).ok();
    assert!(here.shown().contains("10.9.0.0/24"));
    // A revert that is not confirmed.
    let after = here.shown();
    here.json("plan revert --confirm-within 2s");
    let states = ["reverted", "applied", "reverted"];
    eventually(Duration::from_secs(20), "the revert is reverted", || here.states() == states);
    assert_eq!(here.shown(), after);
    here.json("plan revert");
    assert_eq!(here.shown(), before);

    // What cuts the default route is shown, and refused; forced, it is done.
    exec(&here, "ip route add default via 10.0.0.2");
    let before = here.shown();
    let default = json!({"route": {"table": 254, "destination": "0.0.0.0/0", "metric": 0}});
    let cut = plan(&here, &json!([step(default, None)]));
    let danger = "it would cut the IPv4 default route";
    assert!(here.clearstream(&format!("plan show {cut}")).ok().contains(danger));
    let stream = here.clearstream(&format!("plan show {cut} --json-stream"));
    assert!(stream.ok().lines().any(|line| line.contains(danger) && line.contains("finding")));
    here.clearstream(&format!("plan apply {cut} --yes")).refused(4, &["nothing was changed", danger]);
    assert_eq!(here.shown(), before);
    here.clearstream(&format!("plan apply {cut} --yes --force")).ok();
    assert!(!here.shown().contains("default via"));
    here.clearstream("plan revert --force").ok();
    assert_eq!(here.shown(), before);
}

/// The program and its guardian are killed between two steps: `plan recover` restores,
/// and so does the next start of a verb that changes. nft is made slow for that.
#[test]
fn root_killed_with_its_guardian_a_plan_is_recovered() {
    let here = Here::new("e2e-verb-killed");
    let before = here.shown();
    let (programs, begun) = slow_nft(&here);
    let table = json!({"netfilter-table": {"name": "clearstream_slow"}});
    let chain = "chain leave { type route hook output priority mangle; ct mark != 0 meta mark set ct mark; }";
    let file = plan(
        &here,
        &json!([step(json!({"sysctl": "net.ipv4.tcp_sack"}), Some("0")), step(table, Some(chain))]),
    );
    let mut command = here.command(&format!("plan apply {file} --yes"));
    command.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually(Duration::from_secs(20), "the slow step is reached", || begun.exists());
    assert!(here.shown().contains("tcp_sack = 0"), "the first step is made");
    // `lab exec` has become the program that applies.
    let is_guardian = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("plan\0guard"))
    };
    let below = children(child.id());
    let guardian = below.iter().copied().find(is_guardian).unwrap();
    signal(guardian, "KILL");
    child.kill().unwrap();
    let _ = child.wait();
    eventually(Duration::from_secs(20), "all are gone", || below.iter().all(|pid| !alive(*pid)));
    assert!(here.shown().contains("tcp_sack = 0"));
    let recovered = here.json("plan recover");
    let ended = &recovered["journals"][0];
    assert_eq!((&ended["found"], &ended["now"]), (&"applying".into(), &"reverted".into()));
    assert_eq!((here.shown(), here.states()), (before, vec!["reverted".to_owned()]));
    assert!(here.clearstream("plan recover").ok().contains("nothing was interrupted"));
}

fn exec(here: &Here, line: &str) {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    run(&[&["lab", "exec", &here.lab.0, "here", "--"], arguments.as_slice()].concat()).ok();
}

/// A program `nft` whose writing takes long; the file is there when it is reached.
fn slow_nft(here: &Here) -> (PathBuf, PathBuf) {
    let (programs, begun) = (here.folder.path().join("programs"), here.folder.path().join("begun"));
    fs::create_dir(&programs).unwrap();
    let slow: &Path = &programs.join("nft");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = -f ]; then : >{}; exec sleep 30; fi\nexec /usr/sbin/nft \"$@\"\n",
        begun.display()
    );
    fs::write(slow, text).unwrap();
    fs::set_permissions(slow, fs::Permissions::from_mode(0o755)).unwrap();
    (programs, begun)
}

fn plan(here: &Here, steps: &Value) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let plan = json!({
        "schema": "clearstream.plan", "version": 1, "purpose": "a test",
        "host": {"name": "here", "kernel": kernel.trim()}, "steps": steps,
    });
    let path = here.path("made.json");
    fs::write(&path, plan.to_string()).unwrap();
    path
}

fn step(setting: Value, desired: Option<&str>) -> Value {
    json!({"setting": setting, "desired": desired, "reason": "a test", "effect": "now"})
}
