//! A study of gateways in a lab, with the whole binary: a gateway fails, with
//! and without `route watch`.

use std::{fs, time::Duration};

use crate::{
    common::{assert_valid, clearstream, finish, run},
    gateways_scene::{STUDY, lab, trials},
};

#[test]
fn root_a_failing_gateway_is_measured_with_and_without_watch_and_the_lab_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = lab(folder.path(), "e2e-gateways");
    let (study, runs) = (folder.path().join("study.toml"), folder.path().join("runs"));
    fs::write(&study, STUDY).unwrap();
    let inside = |host: &str, line: &str| {
        let arguments = ["lab", "exec", "e2e-gateways", host, "--"].into_iter().chain(line.split(' '));
        run(&arguments.collect::<Vec<&str>>()).ok().to_owned()
    };
    let before = ["ip nexthop", "ip route", "ip rule", "sysctl -n net.ipv4.fib_multipath_hash_policy"];
    let before =
        before.map(|line| ["compute-1", "gw5", "storage-1"].map(|host| (host, line, inside(host, line))));
    let arguments = ["study", "run", study.to_str().unwrap(), "--lab", "e2e-gateways", "--runs"];
    let arguments: Vec<&str> = arguments.into_iter().chain([runs.to_str().unwrap()]).collect();
    let child = clearstream(&arguments).spawn().unwrap();
    finish(child, Duration::from_secs(180)).ok();
    for trial in trials(&runs) {
        assert_valid("trial", &trial);
        let summary = &trial["outcome"]["measured"]["detail"]["document"];
        assert_eq!(
            (&summary["flow_count"], &summary["unanswered_count"]),
            (&36.into(), &0.into()),
            "{trial}"
        );
        let carried: u64 = summary["gateways"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["forward_count"].as_u64().unwrap())
            .sum();
        assert_eq!(carried, 36, "every flow is seen at one gateway");
        // Seeds differ: five of six return elsewhere on average, and never none of 36.
        assert!(summary["other_return_count"].as_u64().unwrap() > 10, "{summary}");
        let effect = &summary["failure"];
        assert_eq!(effect["fault"], serde_json::json!({"host": "gw5", "kind": "no-forwarding"}));
        let (hit, stuck) = (effect["hit_count"].as_u64().unwrap(), effect["stuck_count"].as_u64().unwrap());
        assert!(hit > 0, "{effect}");
        assert_eq!(stuck, if trial["factors"]["watch"] == true { 0 } else { hit }, "{effect}");
        assert_eq!(effect["spared_stuck_count"], 0, "{effect}");
    }
    for (host, line, text) in before.into_iter().flatten() {
        assert_eq!(inside(host, line), text, "{host}: {line}");
    }
    assert!(run(&["lab", "fault", "e2e-gateways", "--clear"]).ok().contains("no fault to clear"));
}
