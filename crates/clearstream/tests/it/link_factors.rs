//! Factors of a lab's links: what trials get is what ping and the delay line's own counters see.

use std::{fs, path::Path};

use crate::common::{Lab, assert_valid, run};
use serde_json::Value;

/// Two hosts on a delay line of 1 ms, with a study of `workload` over a factor.
fn lab(folder: &Path, name: &str) -> Lab {
    let host = |host: &str| format!("[[host]]\nname = \"{host}\"\n");
    let end = |host: &str, number: u8| {
        format!("{{ host = \"{host}\", interface = \"eth0\", addresses = [\"10.5.0.{number}/24\"] }}")
    };
    let text = format!(
        "schema = \"clearstream.lab\"\nversion = 1\nname = \"{name}\"\ntitle = \"A delay line\"\n{}{}[[link]]\n\
         delay = \"1ms\"\nends = [{}, {}]\n",
        host("a"),
        host("b"),
        end("a", 1),
        end("b", 2)
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    Lab::up(&path, name)
}

/// The trials of a study of this experiment in the lab.
fn trials(folder: &Path, lab: &Lab, experiment: &str) -> Vec<Value> {
    let path = folder.join("factors.toml");
    let head = "schema = \"clearstream.study\"\nversion = 1\nname = \"factors\"\ntitle = \"Factors\"\n";
    fs::write(&path, format!("{head}{experiment}")).unwrap();
    let runs = folder.join("runs");
    let arguments =
        ["study", "run", path.to_str().unwrap(), "--lab", &lab.0, "--runs", runs.to_str().unwrap(), "--json"];
    let ended = run(&arguments).json();
    let lines =
        fs::read_to_string(Path::new(ended["folder"].as_str().unwrap()).join("trials.jsonl")).unwrap();
    let trials: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    trials.iter().for_each(|trial| assert_valid("trial", trial));
    trials
}

fn metric(trial: &Value, name: &str) -> f64 {
    let metrics = trial["outcome"]["measured"]["metrics"].as_array().unwrap();
    metrics.iter().find(|metric| metric["name"] == name).unwrap()["value"].as_f64().unwrap()
}

/// The shortest round trip that ping sees, in milliseconds.
fn ping(lab: &Lab) -> f64 {
    let text =
        run(&["lab", "exec", &lab.0, "a", "--", "ping", "-c", "5", "-i", "0.05", "10.5.0.2"]).ok().to_owned();
    let summary = text.lines().find_map(|line| line.split(" = ").nth(1)).unwrap();
    summary.split('/').next().unwrap().parse().unwrap()
}

#[test]
fn root_delay_and_rate_of_links_are_factors_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let lab = lab(folder.path(), "e2e-link-factors");
    let delays = "[[experiment]]\nname = \"delay\"\ntitle = \"Delay\"\nworkload = \"probe\"\nfigure = \"curve\"\nmetric = \"tcp-delay-min\"\n\
                  [experiment.probe]\ncount = 5\ninterval = \"20ms\"\n[experiment.lab.factors]\nlink-delay = [\"0s\", \"40ms\"]\n";
    for trial in trials(folder.path(), &lab, delays) {
        let round_trip = metric(&trial, "tcp-delay-min") / 1e6;
        match trial["factors"]["link-delay"].as_str().unwrap() {
            "40ms" => assert!(round_trip >= 80.0, "{round_trip} ms"),
            _ => assert!(round_trip < 80.0, "{round_trip} ms"),
        }
    }
    let rates = "[[experiment]]\nname = \"rate\"\ntitle = \"Rate\"\nworkload = \"flow\"\nfigure = \"curve\"\nmetric = \"goodput\"\n\
                 [experiment.flow]\nduration = \"600ms\"\nwarm-up = \"100ms\"\n[experiment.lab.factors]\n\
                 link-rate = [\"20Mb/s\", \"unlimited\"]\n";
    for trial in trials(folder.path(), &lab, rates) {
        let goodput = metric(&trial, "goodput");
        match trial["factors"]["link-rate"].as_str().unwrap() {
            // The queue in front of the limit is empty or full, never beyond it.
            "20Mb/s" => assert!(goodput < 25e6, "{goodput}"),
            _ => assert!(goodput > 25e6, "{goodput}"),
        }
    }
    let shortest = ping(&lab);
    assert!((2.0..80.0).contains(&shortest), "the lab's own delay is back: {shortest} ms");
    let shown = run(&["lab", "show", &lab.0]).ok().to_owned();
    assert!(shown.contains("1.00 ms") && !shown.contains("20.0 Mb/s"), "{shown}");
}

#[test]
fn root_a_veth_pair_has_no_delay_and_the_trial_fails_with_that() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "e2e-no-line");
    let path = folder.path().join("factors.toml");
    let text = "schema = \"clearstream.study\"\nversion = 1\nname = \"factors\"\ntitle = \"Factors\"\n[[experiment]]\n\
                name = \"delay\"\ntitle = \"Delay\"\nworkload = \"flow\"\n[experiment.lab.factors]\nlink-delay = [\"2ms\"]\n";
    fs::write(&path, text).unwrap();
    let runs = folder.path().join("runs");
    let ended =
        run(&["study", "run", path.to_str().unwrap(), "--lab", &lab.0, "--runs", runs.to_str().unwrap()]);
    assert_eq!(ended.code(), 8, "{}", ended.stderr);
    let prose = format!("{} {}", ended.stdout, ended.stderr);
    assert!(prose.contains("no link of the lab e2e-no-line can have a delay"), "{prose}");
}
