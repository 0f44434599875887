//! From every host to every other: a slow host, a slow direction and a slow pair are distinguished.

use crate::common::hosts;
use crate::common::run;
use std::collections::BTreeMap;

use clearstream_report::{html, markdown};
use clearstream_schema::{
    all_pairs::{AllPairsSummary, FailedPair, PairGoodput},
    record::{RunHost, TrialOutcome},
};
use serde_json::json;

const HOSTS: [&str; 4] = ["d", "b", "c", "a"];

/// Page and Markdown of two trials between four hosts; `goodput` is that of a pair in Gb/s, none where it was
/// not measured.
fn report(goodput: impl Fn(&str, &str) -> Option<f64>) -> (String, String) {
    let all = || HOSTS.into_iter().flat_map(|from| HOSTS.map(|to| (from, to)));
    let round: Vec<PairGoodput> = all()
        .filter(|(from, to)| from != to)
        .filter_map(|(from, to)| {
            Some(PairGoodput {
                from: from.to_owned(),
                to: to.to_owned(),
                goodput_bps: goodput(from, to)? * 1e9,
                retransmit_count: Some(3),
                rtt_ns: Some(if from == "c" { 17_000_000 } else { 200_000 }),
            })
        })
        .collect();
    let failed = all().filter(|(from, to)| from != to && goodput(from, to).is_none());
    let failed_pairs: Vec<FailedPair> = failed
        .map(|(from, to)| FailedPair {
            from: from.to_owned(),
            to: to.to_owned(),
            message: "no route to 10.0.0.2".to_owned(),
        })
        .collect();
    let complete = failed_pairs.is_empty();
    let summary = AllPairsSummary { rounds: vec![round], failed_pairs, complete };
    let outcome = || TrialOutcome::Measured(Box::new(summary.outcome().unwrap()));
    let study = run::study_of(json!([
        { "name": "mesh", "title": "Mesh", "workload": "all-pairs", "figure": "pairs" },
    ]));
    let folder = tempfile::tempdir().unwrap();
    let reader = run::write_with(
        folder.path(),
        study,
        (hosts::nehalem("d"), hosts::nehalem("a")),
        vec![run::trial(0, "mesh", 0, &[], outcome()), run::trial(1, "mesh", 0, &[], outcome())],
        &BTreeMap::new(),
        |run| {
            let host = |name: &str| RunHost {
                name: name.to_owned(),
                role: "host".to_owned(),
                report: hosts::nehalem(name),
                capture: None,
            };
            run.hosts = HOSTS.map(host).to_vec();
        },
    );
    (html(&reader).unwrap(), markdown(&reader).unwrap())
}

#[test]
fn a_slow_direction_of_a_host_is_named() {
    let (page, text) = report(|_, to| Some(if to == "b" { 2.0 } else { 10.0 }));
    assert!(
        text.contains(
            "b receives at 2.00 Gb/s (median of its pairs), 0.200x of the 10.0 Gb/s between the other hosts."
        ),
        "{text}"
    );
    assert!(page.contains("<figure id=\"figure-mesh-pairs\">"));
    // The order of the run, and every pair once.
    assert!(text.contains("| d | b | 2.00 |") && text.contains("| a | c | 10.0 |"), "{text}");
    assert!(page.contains("Medians of 2 trials of each pair"));
    // Retransmits of both trials.
    assert!(text.contains("| d | b | 2.00 | 2.00 Gb/s (range of 2) | 6 |"), "{text}");
    assert!(text.contains("| c | a | 17.0 ms | 17.0 ms (range of 2) |"), "{text}");
    assert!(page.contains("d to b: 2.00 Gb/s (median of 2, range of 2: 2.00 Gb/s)"));
    assert!(text.contains("17.0 ms, from c to "), "{text}");
    assert!(!text.contains("no flow") && !text.contains("crosses"), "{text}");
}

#[test]
fn a_slow_pair_is_named_and_no_host_for_it() {
    let (_, text) = report(|from, to| Some(if (from, to) == ("d", "c") { 1.0 } else { 10.0 }));
    assert!(
        text.contains("d to c is slow: 1.00 Gb/s, 0.100x of the median of all pairs (10.0 Gb/s)."),
        "{text}"
    );
}

#[test]
fn equal_pairs_accuse_nobody_and_missing_ones_are_counted() {
    let (page, text) = report(|from, to| {
        (!matches!((from, to), ("a", "b"))).then_some(if from == "d" { 9.0 } else { 10.0 })
    });
    assert!(text.contains("No host and no pair is below half of the others"), "{text}");
    assert!(text.contains("1 of 12 pairs have no flow. No host"), "{text}");
    assert!(text.contains("a to b: no route to 10.0.0.2."), "{text}");
    // A cross is two lines, in each of two sizes and two maps; a host to itself has none.
    assert_eq!(page.matches("class=\"absent\"").count(), 8);
}
