//! More than two hosts, by a file of hosts: addresses between them, a workload over
//! all of them, and one that is lost in the middle.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::common::{Lab, assert_valid, clearstream, eventually, finish, run, signal};
use serde_json::Value;

/// Three hosts, each with a link to each other one: no two links have a host's usual
/// address, so that only lanes lead over the third.
fn triangle(folder: &Path, name: &str) -> Lab {
    let host = |host: &str| format!("[[host]]\nname = \"{host}\"\n");
    let end = |host: &str, interface: &str, address: &str| {
        format!("{{ host = \"{host}\", interface = \"{interface}\", addresses = [\"{address}/24\"] }}")
    };
    let link = |one: String, other: String| format!("[[link]]\nends = [{one}, {other}]\n");
    let text = format!(
        "schema = \"clearstream.lab\"\nversion = 1\nname = \"{name}\"\ntitle = \"A triangle\"\n{}{}{}{}{}{}",
        host("a"),
        host("b"),
        host("c"),
        link(end("a", "eth0", "10.1.0.1"), end("b", "eth0", "10.1.0.2")),
        link(end("a", "eth1", "10.2.0.1"), end("c", "eth0", "10.2.0.3")),
        link(end("b", "eth1", "10.3.0.2"), end("c", "eth1", "10.3.0.3")),
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    Lab::up(&path, name)
}

/// The hosts of it with the lanes that their usual addresses (the first ones) are not.
fn hosts_file(folder: &Path, lab: &str) -> String {
    let lane = |from: &str, to: &str, address: &str| {
        format!("[[lane]]\nfrom = \"{from}\"\nto = \"{to}\"\naddress = \"{address}\"\n")
    };
    let hosts = ["a", "b", "c"].map(|name| format!("[[host]]\nname = \"{name}\"\n")).concat();
    let lanes = [lane("c", "a", "10.2.0.1"), lane("b", "c", "10.3.0.3"), lane("c", "b", "10.3.0.2")].concat();
    let path = folder.join("hosts.toml");
    let text = format!("schema = \"clearstream.hosts\"\nversion = 1\nlab = \"{lab}\"\n{hosts}{lanes}");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn study(folder: &Path, duration: &str) -> String {
    let path = folder.join("pairs.toml");
    let text = format!(
        "schema = \"clearstream.study\"\nversion = 1\nname = \"pairs\"\ntitle = \"All pairs\"\n[[experiment]]\n\
         name = \"pairs\"\ntitle = \"All pairs\"\nworkload = \"all-pairs\"\nfigure = \"bars\"\nrepetitions = 1\n\
         [experiment.all-pairs]\nduration = \"{duration}\"\nwarm-up = \"100ms\"\n[experiment.factors]\n\
         at-once = [true, false]\n"
    );
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn received_bytes(lab: &str, host: &str, interface: &str) -> f64 {
    let path = format!("/sys/class/net/{interface}/statistics/rx_bytes");
    run(&["lab", "exec", lab, host, "--", "cat", &path]).ok().trim().parse().unwrap()
}

#[test]
fn root_every_host_of_a_file_sends_to_every_other_over_its_lane() {
    let folder = tempfile::tempdir().unwrap();
    let lab = triangle(folder.path(), "e2e-triangle");
    let (hosts, study) = (hosts_file(folder.path(), &lab.0), study(folder.path(), "300ms"));
    let runs = folder.path().join("runs");
    let ended =
        run(&["study", "run", &study, "--hosts", &hosts, "--runs", runs.to_str().unwrap(), "--json"]).json();
    assert_eq!(ended["done_trial_count"], 2, "{ended}");
    let record = Path::new(ended["folder"].as_str().unwrap()).to_owned();
    let document: Value =
        serde_json::from_str(&fs::read_to_string(record.join("run.json")).unwrap()).unwrap();
    assert_valid("run", &document);
    let roles: Vec<(&str, &str)> = document["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|host| (host["name"].as_str().unwrap(), host["role"].as_str().unwrap()))
        .collect();
    assert_eq!(roles, [("a", "client"), ("b", "host"), ("c", "server")]);
    let mut sent = 0.0;
    for line in fs::read_to_string(record.join("trials.jsonl")).unwrap().lines() {
        let trial: Value = serde_json::from_str(line).unwrap();
        assert_valid("trial", &trial);
        let detail = &trial["outcome"]["measured"]["detail"]["document"];
        assert_valid("all-pairs", detail);
        let rounds = detail["rounds"].as_array().unwrap();
        // Of three hosts one rests in each round: at once or not, one pair at a time.
        let pairs: BTreeSet<(String, String)> = rounds
            .iter()
            .flat_map(|round| round.as_array().unwrap())
            .map(|pair| {
                if pair["from"] == "b" && pair["to"] == "c" {
                    sent += pair["goodput_bps"].as_f64().unwrap() * 0.3 / 8.0;
                }
                (pair["from"].as_str().unwrap().to_owned(), pair["to"].as_str().unwrap().to_owned())
            })
            .collect();
        assert_eq!((rounds.len(), pairs.len()), (6, 6), "{detail}");
    }
    // What b sent to c came over the lane between them: the kernel's own counter.
    assert!(received_bytes(&lab.0, "c", "eth1") >= 0.9 * sent, "{sent}");
    let page = fs::read_to_string(record.join("report.html")).unwrap();
    assert!(page.contains("pair-goodput"), "the workload's metric is drawn");
    // Two of them are the client and the server of everything else.
    let flow = ["flow", "--hosts", &hosts, "--duration", "300ms", "--warm-up", "100ms", "--json"];
    let before = received_bytes(&lab.0, "c", "eth0");
    let received = run(&flow).json()["summary"]["received_bytes"].as_f64().unwrap();
    assert!(received_bytes(&lab.0, "c", "eth0") - before >= received);
}

/// The agent in the namespace of a host.
fn agent_of(lab: &str, host: &str) -> u32 {
    let found = agents_of(lab, host);
    let [agent] = found.as_slice() else { panic!("agents of {host}: {found:?}") };
    *agent
}

fn agents_of(lab: &str, host: &str) -> Vec<u32> {
    let namespace =
        run(&["lab", "exec", lab, host, "--", "readlink", "/proc/self/ns/net"]).ok().trim().to_owned();
    let is_it = |pid: &u32| {
        let inside = fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|link| *link == *namespace);
        let command_line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        inside && command_line.ends_with("clearstream\0agent\0")
    };
    let numbers =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(is_it).collect()
}

/// A study over the triangle, once its first trial measures.
struct Running {
    lab: Lab,
    hosts: String,
    study: String,
    child: std::process::Child,
    record: PathBuf,
}

impl Running {
    fn start(folder: &Path, lab: &str) -> Self {
        let lab = triangle(folder, lab);
        let (hosts, study, runs) = (hosts_file(folder, &lab.0), study(folder, "500ms"), folder.join("runs"));
        let arguments = ["study", "run", &study, "--hosts", &hosts, "--runs", runs.to_str().unwrap()];
        let child = clearstream(&arguments).spawn().unwrap();
        let record = loop {
            let started = fs::read_dir(&runs).ok().and_then(|mut folders| folders.next());
            match started.map(|folder| folder.unwrap().path()) {
                // The first trial has begun when its samples are written.
                Some(record)
                    if fs::read_dir(record.join("samples")).is_ok_and(|mut files| files.next().is_some()) =>
                {
                    break record;
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        Self { lab, hosts, study, child, record }
    }

    /// How it ended, in one line; no agent is left on any host.
    fn ended(self, code: i32) -> Ended {
        let ended = finish(self.child, Duration::from_secs(60));
        assert_eq!(ended.code(), code, "{}", ended.stderr);
        for host in ["a", "b", "c"] {
            eventually(Duration::from_secs(10), "no agent is left", || {
                agents_of(&self.lab.0, host).is_empty()
            });
        }
        let prose = format!("{} {}", ended.stdout, ended.stderr);
        let prose = prose.split_whitespace().collect::<Vec<_>>().join(" ");
        Ended { lab: self.lab, hosts: self.hosts, study: self.study, record: self.record, prose }
    }
}

struct Ended {
    lab: Lab,
    hosts: String,
    study: String,
    record: PathBuf,
    prose: String,
}

impl Ended {
    fn trials(&self) -> String {
        fs::read_to_string(self.record.join("trials.jsonl")).unwrap()
    }

    /// Goes on with the run, which then has both trials.
    fn resume(&self) {
        let record = self.record.to_str().unwrap();
        run(&["study", "run", &self.study, "--hosts", &self.hosts, "--resume", record]).ok();
        let trials = self.trials();
        assert_eq!(trials.matches("\"measured\":{\"complete\":true").count(), 2, "{trials}");
    }
}

#[test]
fn root_a_host_that_is_lost_in_the_middle_is_named_and_the_run_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), "e2e-lost-host");
    signal(agent_of(&running.lab.0, "b"), "KILL");
    let ended = running.ended(6);
    let prose = &ended.prose;
    assert!(prose.contains("b: the connection to its agent was lost"), "{prose}");
    assert!(prose.contains("--resume"), "{prose}");
    ended.resume();
}

/// Frozen, as a host whose kernel hangs: nothing closes a connection.
#[test]
fn root_a_host_that_freezes_in_the_middle_is_named_and_the_run_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), "e2e-frozen-host");
    signal(agent_of(&running.lab.0, "b"), "STOP");
    let ended = running.ended(6);
    let prose = &ended.prose;
    assert!(prose.contains("b: the connection to its agent was lost: nothing was received for"), "{prose}");
    assert!(prose.contains("--resume"), "{prose}");
    ended.resume();
}

/// A cable is cut while control uses another path: pairs over it fail and are named, and
/// the study goes on with what is left of it.
#[test]
fn root_a_path_that_is_cut_in_the_middle_fails_its_pairs_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), "e2e-cut-path");
    run(&["lab", "fault", &running.lab.0, "b:eth1", "cut"]).ok();
    let ended = running.ended(8);
    let prose = &ended.prose;
    assert!(prose.contains("b to c"), "{prose}");
    assert!(!prose.contains("agent was lost"), "{prose}");
    let trials = ended.trials();
    assert_eq!(trials.lines().count(), 2, "the second trial was tried, too: {trials}");
    let documents: Vec<Value> = trials.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    documents.iter().for_each(|trial| assert_valid("trial", trial));
    // The cut came after the first pair of the first trial, and before all of the second one.
    let measured = &documents[1]["outcome"]["measured"];
    assert_eq!(measured["complete"], false, "{measured}");
    let detail = &measured["detail"]["document"];
    assert_valid("all-pairs", detail);
    let ends =
        |pair: &Value| format!("{} to {}", pair["from"].as_str().unwrap(), pair["to"].as_str().unwrap());
    let failed: BTreeSet<String> = detail["failed_pairs"].as_array().unwrap().iter().map(ends).collect();
    assert_eq!(failed, ["b to c".to_owned(), "c to b".to_owned()].into(), "{detail}");
    let rounds = detail["rounds"].as_array().unwrap().iter().flat_map(|round| round.as_array().unwrap());
    let others: BTreeSet<String> = rounds.map(ends).collect();
    assert_eq!(others, ["a to b", "a to c", "b to a", "c to a"].map(str::to_owned).into(), "{detail}");
    assert!(
        detail["failed_pairs"][0]["message"].as_str().unwrap().contains("no connection to 10.3.0."),
        "{detail}"
    );
    run(&["lab", "fault", &ended.lab.0, "--clear"]).ok();
    ended.resume();
}

/// The built-in study `mesh`, with shorter tests of its pairs, in a lab of three hosts and a router on one switch.
#[test]
fn root_a_mesh_is_of_all_hosts_of_a_lab_but_its_routers() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = ["a", "b", "c"].map(|name| format!("[[host]]\nname = \"{name}\"\n")).concat();
    let end = |(number, host): (usize, &str)| {
        format!("{{ host = \"{host}\", interface = \"eth0\", addresses = [\"10.4.0.{}/24\"] }}", number + 1)
    };
    let ends: Vec<String> = ["a", "b", "c", "gate"].into_iter().enumerate().map(end).collect();
    let text = format!(
        "schema = \"clearstream.lab\"\nversion = 1\nname = \"e2e-mesh\"\ntitle = \"One switch\"\n{hosts}[[host]]\n\
         name = \"gate\"\nrouter = true\n[[switch]]\nname = \"net\"\nends = [{}]\n",
        ends.join(", ")
    );
    let path = folder.path().join("e2e-mesh.toml");
    fs::write(&path, text).unwrap();
    let lab = Lab::up(&path, "e2e-mesh");
    let (study, runs) = (folder.path().join("mesh.toml"), folder.path().join("runs"));
    let text = include_str!("../../../../studies/mesh.toml");
    let shorter =
        text.replace("duration = \"1s\", warm-up = \"300ms\"", "duration = \"100ms\", warm-up = \"20ms\"");
    assert_ne!(text, shorter);
    fs::write(&study, shorter).unwrap();
    let study = study.to_str().unwrap();
    let arguments =
        ["study", "run", study, "--lab", &lab.0, "--quick", "--runs", runs.to_str().unwrap(), "--json"];
    let ended = run(&arguments).json();
    assert_eq!((&ended["done_trial_count"], &ended["failed_trial_count"]), (&4.into(), &0.into()), "{ended}");
    let record = Path::new(ended["folder"].as_str().unwrap());
    let first = fs::read_to_string(record.join("trials.jsonl")).unwrap();
    let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    let detail = &first["outcome"]["measured"]["detail"]["document"];
    let rounds = detail["rounds"].as_array().unwrap().iter().flat_map(|round| round.as_array().unwrap());
    let pairs: BTreeSet<(&str, &str)> =
        rounds.map(|pair| (pair["from"].as_str().unwrap(), pair["to"].as_str().unwrap())).collect();
    let expected = [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")];
    assert_eq!(pairs, expected.into());
    let page = fs::read_to_string(record.join("report.html")).unwrap();
    assert!(
        page.contains("<figure id=\"figure-pairs-pairs\">")
            && page.contains("<figure id=\"figure-pairs-pairs-2\">")
    );
    // By its name; and two of them by name are a pair.
    let all = run(&["study", "run", "mesh", "--lab", &lab.0, "--quick", "--dry-run"]);
    assert!(all.ok().contains("4 trials"), "{}", all.stdout);
    let two =
        ["study", "run", "mesh", "--lab", &lab.0, "--client", "a", "--server", "b", "--quick", "--dry-run"];
    run(&two).ok();
}
