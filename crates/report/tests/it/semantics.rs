//! Verdicts of file semantics: what differs between mounts comes first, and agrees with a count by hand.

use crate::common::hosts;
use crate::common::run;
use clearstream_report::{headlines, html, markdown};
use clearstream_schema::{
    record::{RECORD_VERSION, TRIAL_SCHEMA, TrialDocument},
    semantics::StorageSemantics,
};
use serde_json::{Value, json};

/// Area, check, clients; each is found by a verdict and a detail.
const CHECKS: [(&str, &str, &str); 4] = [
    ("locks", "flock excludes", "two"),
    ("coherence", "size by stat", "to-peer"),
    ("features", "hard links", "one"),
    ("features", "symbolic links", "one"),
];

fn trial(number: u32, cell: u32, directory: &str, found: [(&str, &str); 4]) -> TrialDocument {
    let checks = CHECKS.iter().zip(found).map(|((area, title, clients), (verdict, detail))| {
        let mut check = json!({
            "area": area, "check": title, "title": title, "clients": clients, "verdict": verdict, "standard": "POSIX",
        });
        match verdict {
            "late" => check["stale_ns"] = json!(detail.parse::<u64>().unwrap()),
            _ if !detail.is_empty() => check["detail"] = json!(detail),
            _ => {}
        }
        check
    });
    let found: StorageSemantics = serde_json::from_value(json!({
        "schema": "clearstream.storage-semantics", "version": 1, "wait_ns": 1, "complete": true, "duration_ns": 1,
        "mount": {"directory": "/mnt", "file_system": "mfs"}, "checks": checks.collect::<Vec<Value>>(),
    }))
    .unwrap();
    serde_json::from_value(json!({
        "workload": "storage-semantics", "schema": TRIAL_SCHEMA, "version": RECORD_VERSION, "trial": number,
        "experiment": "semantics", "cell": cell, "repetition": number / 2, "factors": {"directory": directory},
        "started": "2026-01-02T03:04:05Z", "outcome": {"measured": found.outcome().unwrap()},
    }))
    .unwrap()
}

/// A rate of another experiment.
fn rate(number: u32, directory: &str, hosts: &str, value: f64) -> TrialDocument {
    let metric = json!({"name": "file-create", "unit": "1/s", "better": "higher", "value": value});
    serde_json::from_value(json!({
        "workload": "storage-metadata", "schema": TRIAL_SCHEMA, "version": RECORD_VERSION, "trial": number,
        "experiment": "rates", "cell": number, "repetition": 0, "factors": {"directory": directory, "hosts": hosts},
        "started": "2026-01-02T03:04:05Z", "outcome": {"measured": {"complete": true, "metrics": [metric]}},
    }))
    .unwrap()
}

fn record(folder: &std::path::Path, trials: Vec<TrialDocument>) -> clearstream_record::Reader {
    let study = serde_json::from_value(json!({
        "schema": "clearstream.study", "version": 1, "name": "by-hand", "title": "Mounts",
        "experiment": [{
            "name": "semantics", "title": "Semantics", "workload": "storage-semantics", "figure": "semantics",
        }, {
            "name": "rates", "title": "Rates", "workload": "storage-metadata", "figure": "bars", "metric": "file-create",
            "relation": {"factor": "directory", "level": "native", "over": "projected"},
        }],
    }))
    .unwrap();
    run::write(folder, study, (hosts::nehalem("storage-1"), hosts::nehalem("compute-1")), trials)
}

#[test]
fn checks_that_differ_between_two_mounts_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let native = [("yes", ""), ("yes", ""), ("no", "two numbers"), ("yes", "")];
    let projected = |size| [("no", "granted <to> both"), size, ("no", "two numbers"), ("yes", "")];
    let trials = vec![
        trial(0, 0, "native", native),
        trial(1, 1, "projected", projected(("no", "still stale after 2000 ms"))),
        trial(2, 0, "native", native),
        trial(3, 1, "projected", projected(("yes", ""))),
    ];
    let reader = record(folder.path(), trials);
    let text = markdown(&reader).unwrap();
    for part in [
        "2 of 4 checks have different verdicts (1 of locks and 1 of coherence between clients). As the standard has it: \
         3 with native and 1 with projected.",
        "| Check | Clients | native | projected | Area | Standard |",
        "| flock excludes | two | yes | no: granted &lt;to&gt; both |",
        // Trials that disagree are counted.
        "| size by stat | to peer | yes | no 1, yes 1 |",
        "| hard links | one | no: two numbers | no: two numbers |",
        "2 other checks with the same verdict of every cell: in the table.",
    ] {
        assert!(text.contains(part), "\"{part}\" is not in:\n{text}");
    }
    let place = |part: &str| text.find(part).unwrap();
    assert!(place("| size by stat") < place("| hard links"));
    let head = headlines(&reader).unwrap().join("\n");
    assert!(head.contains("differ, native and projected: 2 of 4"), "{head}");
    let page = html(&reader).unwrap();
    assert!(page.contains("projected: no: granted &lt;to&gt; both (POSIX)"), "the drawing has what differs");
    assert!(!page.contains("native: no: two numbers"), "and nothing else");
}

#[test]
fn of_one_mount_what_deviates_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let found = [("yes", ""), ("inconclusive", "no lock"), ("not-supported", ""), ("yes", "")];
    let reader = record(folder.path(), vec![trial(0, 0, "native", found)]);
    let text = markdown(&reader).unwrap();
    assert!(
        text.contains(
            "2 of 4 checks are as the standard has them; the others: 1 of coherence between clients and 1 of features."
        ),
        "{text}"
    );
    assert!(html(&reader).unwrap().contains("mnt: inconclusive: no lock (POSIX)"));
}

/// Neither a deviation nor as the standard has it; the time of what is late is shown.
#[test]
fn late_and_left_open_are_verdicts_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let found = [("yes", ""), ("late", "1020000000"), ("left-open", "1 s"), ("yes", "")];
    let reader = record(folder.path(), vec![trial(0, 0, "native", found)]);
    let text = markdown(&reader).unwrap();
    for part in ["| late: after 1.02 s |", "| left open: 1 s |", "2 of 4 checks are as the standard has them"]
    {
        assert!(text.contains(part), "\"{part}\" is not in:\n{text}");
    }
    let page = html(&reader).unwrap();
    assert!(page.contains("late: as the standard has it, but not at once"), "the legend");
}

#[test]
fn rates_of_two_mounts_are_compared_where_the_clients_agree() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two, several) = ("compute-1", "compute-1,compute-2", "compute-1,compute-2,compute-3");
    let trials = vec![
        rate(0, "native", one, 3000.0),
        rate(1, "projected", one, 1000.0),
        rate(2, "native", several, 2000.0),
        rate(3, "projected", several, 1000.0),
        rate(4, "native", two, 2500.0),
        rate(5, "projected", two, 1000.0),
    ];
    let reader = record(folder.path(), trials);
    let text = markdown(&reader).unwrap().replace('\\', "");
    for part in [
        "with directory native, compute-1 (",
        "File create: native is 3.00 times projected at compute-1, 2.00 at compute-[1-3]; no numbers were published.",
    ] {
        assert!(text.contains(part), "\"{part}\" is not in:\n{text}");
    }
    assert!(html(&reader).unwrap().contains("directory native, compute-[1-3]"));
}
