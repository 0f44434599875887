//! Plans with the whole binary: the verbs inside a lab's host, and an agent
//! there that carries plans out for a controller.

use std::{fs, process::Command, time::Duration};

use crate::common::{Lab, clearstream, eventually, finish, program, run, signal};
use clearstream_control::spawn;
use clearstream_plan::calls::{
    Applied, Apply, ApplyPending, History, Keep, Read, Recover, Revert, Reverted, Verify,
};
use clearstream_schema::plan::{Effect, JournalState, PLAN_SCHEMA, Plan, PlanHost, Setting, Step, Value};

fn plan() -> Plan {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned();
    let step = |setting: Setting, desired: &str, effect| Step {
        current: None,
        desired: Some(Value::of(&setting, desired)),
        setting,
        reason: "a test".to_owned(),
        effect,
    };
    Plan {
        schema: PLAN_SCHEMA.to_owned(),
        version: 1,
        purpose: "a test".to_owned(),
        host: PlanHost { name: "here".to_owned(), kernel },
        steps: vec![
            step(Setting::Sysctl("net.ipv4.tcp_rmem".to_owned()), "4096 262144 67108864", Effect::Handshake),
            step(Setting::Sysctl("net.ipv4.tcp_timestamps".to_owned()), "0", Effect::Handshake),
            step(Setting::File("sys/class/net/eth0/queues/rx-0/rps_cpus".to_owned()), "1", Effect::Now),
        ],
        advice: Vec::new(),
    }
}

/// What the tools of the system show inside the lab's host.
fn shown(lab: &Lab) -> String {
    let sysctls = ["sysctl", "net.ipv4.tcp_rmem", "net.ipv4.tcp_timestamps"];
    let file = ["cat", "/sys/class/net/eth0/queues/rx-0/rps_cpus"];
    let exec = |arguments: &[&str]| {
        run(&[&["lab", "exec", &lab.0, "here", "--"], arguments].concat()).ok().to_owned()
    };
    exec(&sysctls) + &exec(&file)
}

#[test]
fn root_the_verbs_change_a_labs_host_and_put_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "e2e-plan-verbs");
    let file = folder.path().join("plan.json");
    fs::write(&file, serde_json::to_string(&plan()).unwrap()).unwrap();
    let (file, program) = (file.to_str().unwrap(), program().to_str().unwrap());
    let change = |arguments: &[&str]| {
        let mut command =
            clearstream(&[&["lab", "exec", &lab.0, "here", "--", program, "plan"], arguments].concat());
        command.env("CLEARSTREAM_PLANS", folder.path().join("plans"));
        finish(command.spawn().unwrap(), Duration::from_secs(30))
    };
    let before = shown(&lab);
    change(&["verify", file]).refused_with(8);
    let applied = change(&["apply", file, "--yes", "--json"]).json();
    assert_eq!(applied["changed_count"], 3);
    assert!(shown(&lab).contains("67108864") && shown(&lab).contains("tcp_timestamps = 0"));
    change(&["verify", file]).ok();
    assert_eq!(change(&["apply", file, "--yes", "--json"]).json()["changed_count"], 0);
    // The host around the lab has the same folder and must not be touched.
    let outside = clearstream(&["plan", "revert", applied["journal"].as_str().unwrap(), "--force"])
        .env("CLEARSTREAM_PLANS", folder.path().join("plans"))
        .output()
        .unwrap();
    assert!(!outside.status.success());
    assert!(String::from_utf8_lossy(&outside.stderr).contains("another network namespace"));
    change(&["revert", applied["journal"].as_str().unwrap()]).ok();
    assert_eq!(shown(&lab), before);
}

#[test]
fn root_an_agent_carries_plans_out() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "e2e-plan-agent");
    let mut command = Command::new(program());
    command.args(["lab", "exec", &lab.0, "here", "--"]).arg(program()).arg("agent");
    command.env("CLEARSTREAM_PLANS", folder.path().join("plans"));
    let mut peer = spawn(command, "here").unwrap();
    let (plan, before) = (plan(), shown(&lab));
    let Applied { journal, changed_count } = peer.call(&Apply { plan: plan.clone() }).unwrap();
    let journal = journal.unwrap();
    assert_eq!(changed_count, 3);
    let read = peer.call(&Read { settings: vec![plan.steps[0].setting.clone()] }).unwrap();
    assert_eq!(read.values[0].1, "4096 262144 67108864");
    let verification = peer.call(&Verify { plan }).unwrap();
    assert!(verification.checks.iter().all(|check| check.holds), "{verification:?}");
    let entries = peer.call(&History {}).unwrap().journals;
    assert_eq!((entries[0].state, entries[0].here), (JournalState::Applied, true));
    assert_eq!(peer.call(&Recover {}).unwrap().journals, []);
    assert_eq!(
        peer.call(&Revert { journal, force: false }),
        Ok(Reverted { restored_count: 3, gone: vec![] })
    );
    assert_eq!(shown(&lab), before);
    peer.shutdown();
}

/// A controller can neither force nor confirm, so its agent refuses what would
/// take the connection away.
#[test]
fn root_an_agent_refuses_routes_that_cut_its_controller_off() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "e2e-plan-guard");
    let mut command = Command::new(program());
    command.args(["lab", "exec", &lab.0, "here", "--"]).arg(program()).arg("agent");
    command.env("CLEARSTREAM_PLANS", folder.path().join("plans"));
    command.env("SSH_CONNECTION", "10.0.0.2 50000 10.0.0.1 22");
    let mut peer = spawn(command, "here").unwrap();
    let mut apply = |destination: &str| {
        let mut plan = plan();
        let setting = Setting::Route { table: 254, destination: destination.parse().unwrap(), metric: 0 };
        plan.steps = vec![Step {
            current: None,
            desired: Some(Value::of(&setting, "blackhole proto 117")),
            setting,
            reason: "a test".to_owned(),
            effect: Effect::Now,
        }];
        peer.call(&Apply { plan })
    };
    let routes = || run(&["lab", "exec", &lab.0, "here", "--", "ip", "route"]).ok().to_owned();
    let before = routes();
    let refused = apply("10.0.0.2/32").unwrap_err().to_string();
    assert!(refused.contains("nothing was changed: it would cut the ssh session from 10.0.0.2"), "{refused}");
    assert!(refused.contains("clearstream plan apply"), "{refused}");
    assert_eq!(routes(), before);
    let applied = apply("198.51.100.0/24").unwrap();
    assert!(applied.journal.is_some() && applied.changed_count == 1, "{applied:?}");
    assert!(routes().contains("blackhole 198.51.100.0/24"), "{}", routes());
    peer.shutdown();
}

/// Processes whose journals are in a folder, by their command line.
fn processes(folder: &std::path::Path, command_line: &str) -> Vec<u32> {
    let wanted = format!("CLEARSTREAM_PLANS={}", folder.display());
    let has = |path: String, part: &str| {
        fs::read(path).is_ok_and(|bytes| {
            bytes
                .split(|byte| *byte == 0)
                .collect::<Vec<_>>()
                .join(&b' ')
                .windows(part.len())
                .any(|at| at == part.as_bytes())
        })
    };
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    numbers
        .filter(|pid| {
            has(format!("/proc/{pid}/environ"), &wanted) && has(format!("/proc/{pid}/cmdline"), command_line)
        })
        .collect()
}

/// A change under test goes with its tester, however that one ends: in order, by
/// kill -9, or together with the guardian; kept, it stays.
#[test]
fn root_a_change_under_test_goes_with_its_tester() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "e2e-plan-tested");
    let plans = folder.path().join("plans");
    let begin = || {
        let mut command = Command::new(program());
        command.args(["lab", "exec", &lab.0, "here", "--"]).arg(program()).arg("agent");
        command.env("CLEARSTREAM_PLANS", &plans);
        let mut peer = spawn(command, "here").unwrap();
        let applied = peer.call(&ApplyPending { plan: plan() }).unwrap();
        assert_eq!(applied.changed_count, 3);
        (peer, applied.journal.unwrap())
    };
    let change = |arguments: &[&str]| {
        let here = ["lab", "exec", &lab.0, "here", "--", program().to_str().unwrap(), "plan"];
        let mut command = clearstream(&[&here, arguments].concat());
        command.env("CLEARSTREAM_PLANS", &plans);
        finish(command.spawn().unwrap(), Duration::from_secs(30))
    };
    let before = shown(&lab);
    let is_restored = || {
        eventually(Duration::from_secs(20), "everything is restored", || shown(&lab) == before);
        eventually(Duration::from_secs(20), "no guardian stays", || {
            processes(&plans, "plan guard").is_empty()
        });
        assert!(change(&["recover"]).ok().contains("nothing was interrupted"));
    };
    // The session ends in order.
    let (peer, _) = begin();
    assert!(shown(&lab).contains("67108864"));
    assert!(change(&["history"]).ok().contains("pending"));
    assert!(change(&["recover"]).ok().contains("nothing was interrupted"), "its tester lives");
    assert!(shown(&lab).contains("67108864"));
    peer.shutdown();
    is_restored();
    // The agent is killed: its guardian restores.
    let (peer, _) = begin();
    for pid in processes(&plans, "agent") {
        signal(pid, "KILL");
    }
    is_restored();
    drop(peer);
    // Both are killed: the change stays until it is recovered.
    let (peer, journal) = begin();
    for pid in processes(&plans, "plan guard").into_iter().chain(processes(&plans, "agent")) {
        signal(pid, "KILL");
    }
    drop(peer);
    eventually(Duration::from_secs(20), "they are gone", || processes(&plans, "agent").is_empty());
    assert!(shown(&lab).contains("67108864"));
    let recovered = change(&["recover", "--json"]).json();
    let recovered = &recovered["journals"][0];
    assert_eq!(
        (recovered["journal"].as_str(), recovered["found"].as_str()),
        (Some(&*journal), Some("pending"))
    );
    is_restored();
    // Kept, it stays.
    let (mut peer, journal) = begin();
    let keep = Keep { journal: journal.clone() };
    peer.call(&keep).unwrap();
    assert!(peer.call(&keep).is_err(), "it is not under test any more");
    peer.shutdown();
    assert!(change(&["recover"]).ok().contains("nothing was interrupted"));
    assert!(shown(&lab).contains("67108864"));
    change(&["revert", &journal]).ok();
    is_restored();
}
