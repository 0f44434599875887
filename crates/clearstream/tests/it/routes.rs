//! `clearstream route apply` and `verify`, `plan confirm` and `revert` as a person runs
//! them, on a host of a lab: what `ip` shows there is what counts.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{Lab, Run, children, clearstream, eventually, finish, program, run, signal};
use clearstream_control::spawn;
use clearstream_plan::calls::{Revert, Reverted};
use clearstream_testkit::fabric::WITH_ALIASES;
use serde_json::{Value, json};

struct Here {
    lab: Lab,
    folder: tempfile::TempDir,
    fabric: String,
    /// Put before the search path of programs.
    programs: Option<PathBuf>,
}

impl Here {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fabric = folder.path().join("small.toml");
        fs::write(&fabric, WITH_ALIASES).unwrap();
        let here = Self {
            lab: Lab::of_two_hosts(folder.path(), name),
            fabric: fabric.to_str().unwrap().to_owned(),
            folder,
            programs: None,
        };
        // Others' routes, which must never be lost.
        here.exec("here", "ip route add default via 10.0.0.2 proto dhcp");
        here.exec("here", "ip -6 route add default via fd00::2");
        here.exec("here", "ip rule add pref 50 from 10.77.0.0/16 lookup 50");
        here
    }

    fn exec(&self, host: &str, line: &str) -> String {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        run(&[&["lab", "exec", &self.lab.0, host, "--"], arguments.as_slice()].concat()).ok().to_owned()
    }

    fn command(&self, arguments: &[&str], session: Option<&str>) -> Command {
        let program = program().to_str().unwrap();
        let mut command =
            clearstream(&[&["lab", "exec", &self.lab.0, "here", "--", program], arguments].concat());
        command.env("CLEARSTREAM_PLANS", self.plans()).env_remove("SSH_CONNECTION");
        // Independent of the session in which the tests run.
        command.env("SSH_CONNECTION", session.unwrap_or("127.0.0.1 1 127.0.0.1 22"));
        if let Some(programs) = &self.programs {
            command.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
        }
        command
    }

    fn plans(&self) -> PathBuf {
        self.folder.path().join("plans")
    }

    fn route(&self, arguments: &[&str]) -> Run {
        self.route_from(arguments, None)
    }

    fn change(&self, arguments: &[&str]) -> Run {
        self.run_from(&[&["plan"], arguments].concat(), None)
    }

    fn route_from(&self, arguments: &[&str], session: Option<&str>) -> Run {
        self.run_from(&[&["route"], arguments].concat(), session)
    }

    fn run_from(&self, arguments: &[&str], session: Option<&str>) -> Run {
        finish(self.command(arguments, session).spawn().unwrap(), Duration::from_secs(30))
    }

    /// Everything that `ip` knows of this host's routing.
    fn shown(&self) -> String {
        let mut all = Vec::new();
        for line in [
            "ip -j -4 route show table all",
            "ip -j -6 route show table all",
            "ip -j -4 rule",
            "ip -j -6 rule",
            "ip -j nexthop",
            "ip -j -4 address show eth0",
        ] {
            let mut found: Value = serde_json::from_str(&self.exec("here", line)).unwrap();
            found.sort_all_objects();
            all.extend(found.as_array().unwrap().iter().map(Value::to_string));
        }
        // Link-local ones come when the kernel has tried out the address.
        all.retain(|text| !text.contains("fe80") && !text.contains("ff00"));
        all.sort();
        all.join("\n") + &self.exec("here", "sysctl net.ipv4.fib_multipath_hash_policy")
    }

    fn plan(&self, steps: &Value) -> String {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let plan = json!({
            "schema": "clearstream.plan", "version": 1, "purpose": "a test",
            "host": {"name": "here", "kernel": kernel.trim()}, "steps": steps,
        });
        let path = self.folder.path().join("plan.json");
        fs::write(&path, plan.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn step(setting: Value, desired: Option<&str>) -> Value {
    json!({"setting": setting, "desired": desired, "reason": "a test", "effect": "now"})
}

#[test]
fn root_a_host_gets_its_part_of_a_fabric_and_back() {
    let here = Here::new("e2e-route-apply");
    let (fabric, before) = (here.fabric.as_str(), here.shown());
    here.route(&["verify", fabric]).refused_with(8);
    let dry = here.route(&["apply", fabric, "--dry-run", "--json"]).json();
    let count = dry["plan"]["steps"].as_array().unwrap().len();
    assert!(count > 10, "{dry:#}");
    assert_eq!(here.shown(), before);
    let applied = here.route(&["apply", fabric, "--yes", "--json"]).json();
    assert_eq!(applied["changed_count"], count);
    let after = here.shown();
    for part in
        [r#""type":"resilient""#, r#""src":"10.0.0.211""#, r#""local":"10.0.0.212""#, r#""fd09::/64""#]
    {
        assert!(after.contains(part), "{part} is not in\n{after}");
    }
    assert!(
        after.contains(r#""dst":"default","flags":[],"gateway":"10.0.0.2""#)
            && after.contains(r#""src":"10.77.0.0","srclen":16"#)
    );
    here.route(&["verify", fabric]).ok();
    here.route(&["verify"]).ok();
    let second = here.route(&["apply", fabric, "--yes", "--json"]).json();
    assert_eq!((second["changed_count"].as_u64(), second["journal"].as_str()), (Some(0), None), "{second:#}");
    // A gateway's route that is lost is put right, and nothing else is touched.
    here.exec("here", "ip route del 10.9.0.0/24 table 7001");
    let failed = here.route(&["verify", fabric]);
    failed.refused_with(8);
    assert!(failed.stdout.contains("route 10.9.0.0/24 table 7001"), "{}", failed.stdout);
    let repaired = here.route(&["apply", fabric, "--yes", "--json"]).json();
    assert_eq!(repaired["changed_count"], 1, "{repaired:#}");
    assert_eq!(here.shown(), after);
    here.change(&["revert", repaired["journal"].as_str().unwrap()]).ok();
    here.exec("here", "ip route add 10.9.0.0/24 via 10.0.0.2 table 7001 proto 117");
    here.change(&["revert", applied["journal"].as_str().unwrap(), "--force"]).ok();
    assert_eq!(here.shown(), before);
    here.change(&["revert"]).refused(2, &["nothing is applied here"]);
}

/// What somebody else sets beside the plan is named by all that judge it: before it is applied,
/// afterwards, and by the linter.
#[test]
fn root_what_leads_packets_away_from_the_plan_is_named() {
    let here = Here::new("e2e-route-away");
    let fabric = here.fabric.as_str();
    here.route(&["apply", fabric, "--yes"]).ok();
    here.route(&["verify", fabric]).ok();
    assert!(!here.route(&["lint", "--fabric", fabric]).stdout.contains("overridden"));
    for (change, undo, text, owner) in [
        (
            "ip route add 10.9.0.0/25 via 10.0.0.2 proto static",
            "ip route del 10.9.0.0/25",
            "10.9.0.0/25 via 10.0.0.2 dev eth0",
            "proto static",
        ),
        (
            "ip -6 route add fd09::/64 via fd00::3 metric 100 proto ra",
            "ip -6 route del fd09::/64 metric 100",
            "fd09::/64 metric 100 via fd00::3",
            "proto ra",
        ),
        (
            "ip rule add pref 90 from 10.0.0.211 unreachable",
            "ip rule del pref 90",
            "90: from 10.0.0.211 unreachable",
            "ip rule del pref 90",
        ),
    ] {
        here.exec("here", change);
        let verified = here.route(&["verify", fabric]);
        verified.refused_with(8);
        let linted = here.route(&["lint", "--fabric", fabric]);
        linted.refused_with(8);
        let planned = here.route(&["apply", fabric, "--dry-run", "--json"]).json();
        let advice = planned["plan"]["advice"].to_string();
        for said in [&verified.stdout, &linted.stdout, &advice] {
            let plain = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(plain.contains(text) && plain.contains(owner), "{change}: {said}");
        }
        here.exec("here", undo);
        here.route(&["verify", fabric]).ok();
    }
}

#[test]
fn root_numbers_of_others_are_refused_by_name() {
    let here = Here::new("e2e-route-held");
    here.exec("here", "ip route add 10.9.0.0/24 via 10.0.0.9");
    let before = here.shown();
    let refused = here.route(&["apply", &here.fabric, "--yes"]);
    refused.refused(4, &["route 10.9.0.0/24 table 254 belongs to another owner", "via 10.0.0.9"]);
    here.route(&["apply", &here.fabric, "--host", "nobody", "--yes"]).refused_with(9);
    assert_eq!(here.shown(), before);
}

#[test]
fn root_the_guard_keeps_the_session_and_the_default_route() {
    let here = Here::new("e2e-route-guard");
    let (fabric, before) = (here.fabric.as_str(), here.shown());
    // The operator is in the remote network, behind the default route.
    let session = Some("10.9.0.77 50000 10.0.0.1 22");
    let refused = here.route_from(&["apply", fabric, "--yes"], session);
    refused.refused(4, &["the ssh session from 10.9.0.77", "by 10.0.0.2 on eth0 now", "--confirm-within"]);
    assert_eq!(here.shown(), before);
    let default = json!({"route": {"table": 254, "destination": "0.0.0.0/0", "metric": 0}});
    let plan = here.plan(&json!([step(default, None)]));
    let refused = here.route(&["apply", &plan, "--yes", "--confirm-within", "60s"]);
    refused.refused(4, &["cut the IPv4 default route", "--force"]);
    assert_eq!(here.shown(), before);
    here.route(&["apply", &plan, "--yes", "--force"]).ok();
    assert_ne!(here.shown(), before);
    here.change(&["revert", "--force"]).ok();
    assert_eq!(here.shown(), before);
    // Not confirmed: it is restored, whatever became of the session.
    let session = Some("10.9.0.77 50000 10.0.0.1 22");
    let applied = here.route_from(&["apply", fabric, "--yes", "--confirm-within", "3s"], session);
    assert!(applied.ok().contains("restored in 3s"), "{}", applied.stdout);
    assert_ne!(here.shown(), before);
    here.route(&["apply", fabric, "--yes"]).refused(4, &["waits for confirmation"]);
    eventually(Duration::from_secs(15), "the routes are back", || here.shown() == before);
    here.change(&["confirm"]).refused(2, &["nothing waits for confirmation"]);
    // Confirmed: it stays.
    here.route_from(&["apply", fabric, "--yes", "--confirm-within", "3s"], session).ok();
    let after = here.shown();
    assert!(here.change(&["confirm"]).ok().starts_with("kept, with "));
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(here.shown(), after);
}

/// nft is made slow, so that the program can be killed between two steps.
#[test]
fn root_killed_while_it_applies_the_guardian_puts_everything_back() {
    let mut here = Here::new("e2e-route-killed");
    let before = here.shown();
    let programs = here.folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let slow = programs.join("nft");
    let begun = here.folder.path().join("begun");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = -f ]; then : >{}; sleep 30; fi\nexec /usr/sbin/nft \"$@\"\n",
        begun.display()
    );
    fs::write(&slow, text).unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
    here.programs = Some(programs);
    let route = json!({"route": {"table": 254, "destination": "198.51.100.0/24", "metric": 0}});
    let next = here.folder.path().join("next.json").to_str().unwrap().to_owned();
    fs::rename(here.plan(&json!([step(route, Some("blackhole proto 117"))])), &next).unwrap();
    let plan = here.plan(&json!([
        step(json!({"nexthop": {"id": 7001}}), Some("via 10.0.0.2 dev eth0 proto 117")),
        step(
            json!({"route": {"table": 254, "destination": "10.9.0.0/24", "metric": 0}}),
            Some("nhid 7001 proto 117")
        ),
        step(
            json!({"netfilter-table": {"name": "clearstream_slow"}}),
            Some(
                "chain leave { type route hook output priority mangle; ct mark != 0 meta mark set ct mark; }"
            ),
        ),
    ]));
    for verb in ["route", "plan"] {
        let mut command = here.command(&[verb, "apply", &plan, "--yes"], None);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually(Duration::from_secs(20), "the slow step is reached", || begun.exists());
        assert!(here.shown().contains("10.9.0.0/24"), "the first steps are made");
        // `lab exec` has become the program that applies.
        let is_guardian = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("guard"))
        };
        let guardian = children(child.id()).into_iter().find(is_guardian).unwrap();
        signal(guardian, "STOP");
        child.kill().unwrap();
        let _ = child.wait();
        // Another plan at once, while the guardian cannot: it ends first what is left, and is applied on top.
        let applied = here.route(&["apply", &next, "--yes"]);
        applied.ok();
        assert!(applied.stderr.contains("was interrupted"), "{}", applied.stderr);
        signal(guardian, "CONT");
        assert!(!here.shown().contains("10.9.0.0/24"), "on top of what was restored");
        here.change(&["revert"]).ok();
        assert_eq!(here.shown(), before);
        assert!(!here.exec("here", "/usr/sbin/nft list tables").contains("slow"));
        fs::remove_file(&begun).unwrap();
    }
}

/// `tune` and an agent have the guard of `route`, whatever the plan is called.
#[test]
fn root_plans_and_journals_with_routes_have_one_guard() {
    let here = Here::new("e2e-route-one-guard");
    let before = here.shown();
    let session = Some("10.9.0.77 50000 10.0.0.1 22");
    let route = |destination: &str| json!({"route": {"table": 254, "destination": destination, "metric": 0}});
    let cut = here.plan(&json!([step(route("10.9.0.77/32"), Some("blackhole proto 117"))]));
    let change = |arguments: &[&str]| here.run_from(&[&["plan"], arguments].concat(), session);
    let refused = change(&["apply", &cut, "--yes", "--confirm-within", "60s"]);
    refused.refused(4, &["nothing was changed: it would cut the ssh session from 10.9.0.77", "--force"]);
    assert_eq!(here.shown(), before);
    // Forced, the operator is cut off, and cannot confirm: it comes back by itself.
    let applied = change(&["apply", &cut, "--yes", "--force", "--confirm-within", "3s"]);
    assert!(
        applied.ok().contains("restored in 3s unless you run: clearstream plan confirm"),
        "{}",
        applied.stdout
    );
    assert!(here.shown().contains("blackhole"), "{}", here.shown());
    change(&["apply", &cut, "--yes", "--force"]).refused(4, &["waits for confirmation"]);
    eventually(Duration::from_secs(15), "the routes are back", || here.shown() == before);

    // The revert would cut the return path: another program removed the default route.
    let keep = here.plan(&json!([step(route("10.9.0.0/24"), Some("via 10.0.0.2 dev eth0 proto 117"))]));
    let applied = change(&["apply", &keep, "--yes", "--json"]).json();
    let journal = applied["journal"].as_str().unwrap();
    here.exec("here", "ip route del default");
    let after = here.shown();
    change(&["revert", journal]).refused(4, &["cut the ssh session from 10.9.0.77", "--force"]);
    let mut agent = spawn(here.command(&["agent"], session), "here").unwrap();
    let revert = Revert { journal: journal.to_owned(), force: true };
    let refused = agent.call(&revert).unwrap_err().to_string();
    assert!(refused.contains("it would cut the ssh session from 10.9.0.77"), "{refused}");
    assert_eq!(here.shown(), after);
    here.exec("here", "ip route add default via 10.0.0.2 proto dhcp");
    assert_eq!(agent.call(&revert), Ok(Reverted { restored_count: 1, gone: vec![] }));
    assert_eq!(here.shown(), before);
    agent.shutdown();
}

/// Packets over others' default route, one every 10 ms, while ours come and go.
#[test]
fn root_nothing_is_lost_on_the_default_route_meanwhile() {
    let here = Here::new("e2e-route-ping");
    here.exec("there", "ip address add 203.0.113.9/32 dev lo");
    let mut ping = clearstream(&[
        "lab",
        "exec",
        &here.lab.0,
        "here",
        "--",
        "ping",
        "-q",
        "-i",
        "0.01",
        "-c",
        "400",
        "203.0.113.9",
    ]);
    let ping = ping.spawn().unwrap();
    for _ in 0..3 {
        here.route(&["apply", &here.fabric, "--yes", "--json"]).ok();
        here.change(&["revert"]).ok();
    }
    let summary = finish(ping, Duration::from_secs(30));
    assert!(summary.ok().contains("400 received, 0% packet loss"), "{}", summary.stdout);
}

/// Program and guardian died together in a revert: the next revert finishes that
/// journal, and takes no older one.
#[test]
fn root_an_interrupted_revert_is_finished_before_an_older_journal() {
    let here = Here::new("e2e-route-interrupted");
    let route = |destination: &str| json!({"route": {"table": 254, "destination": destination, "metric": 0}});
    let apply = |destination: &str| -> String {
        let plan = here.plan(&json!([step(route(destination), Some("blackhole proto 117"))]));
        let applied = here.route(&["apply", &plan, "--yes", "--json"]).json();
        applied["journal"].as_str().unwrap().to_owned()
    };
    let before = here.shown();
    let first = apply("198.51.100.0/24");
    let with_first = here.shown();
    let second = apply("203.0.113.0/24");
    let interrupt = |journal: &str| {
        let path = here.plans().join(format!("{journal}.jsonl"));
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, b"{\"reverting\":{\"force\":false}}\n").unwrap();
    };
    interrupt(&second);
    let reverted = here.change(&["revert", "--json"]).json();
    assert_eq!(reverted["journal"], second.as_str());
    assert_eq!(here.shown(), with_first);
    // One that was interrupted is ended first, whatever it is of.
    let sysctl = json!({"sysctl": "net.ipv4.tcp_sack"});
    let plan = here.plan(&json!([step(sysctl, Some("0"))]));
    let third = here.run_from(&["plan", "apply", &plan, "--yes", "--json"], None).json();
    let third = third["journal"].as_str().unwrap();
    interrupt(third);
    for journal in [third, &first] {
        assert_eq!(here.change(&["revert", "--json"]).json()["journal"], journal);
    }
    assert_eq!(here.shown(), before);
    here.change(&["revert"]).refused(2, &["nothing is applied here"]);
}

/// A revert with a deadline: the routes are back unless it is confirmed.
#[test]
fn root_a_revert_that_is_not_confirmed_comes_back() {
    let here = Here::new("e2e-route-revert-within");
    let route = json!({"route": {"table": 254, "destination": "198.51.100.0/24", "metric": 0}});
    let plan = here.plan(&json!([step(route, Some("blackhole proto 117"))]));
    let before = here.shown();
    let applied = here.route(&["apply", &plan, "--yes", "--json"]).json();
    let (journal, with) = (applied["journal"].as_str().unwrap(), here.shown());
    let reverted = here.change(&["revert", "--confirm-within", "2s"]);
    assert!(
        reverted.ok().contains("reapplied in 2s unless you run: clearstream plan confirm"),
        "{}",
        reverted.stdout
    );
    // The guardian may have acted already, but never before the deadline.
    eventually(Duration::from_secs(20), "the plan is in effect", || here.shown() == with);
    here.change(&["revert", "--confirm-within", "60s"]).ok();
    assert_eq!(here.shown(), before);
    let confirmed = here.change(&["confirm", "--json"]).json();
    assert_eq!(confirmed["reverted"], journal);
    assert_eq!(here.shown(), before);
    here.change(&["revert", journal]).refused(4, &["was reverted already"]);
    here.change(&["revert"]).refused(2, &["nothing is applied here"]);
}
