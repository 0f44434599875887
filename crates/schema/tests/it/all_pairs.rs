//! Tests of `all_pairs`.

use clearstream_schema::all_pairs::{AllPairsSummary, PairGoodput};

#[test]
fn metrics_are_those_of_the_pairs_and_of_the_rounds() {
    let pair = |from: &str, to: &str, goodput_bps| PairGoodput {
        from: from.into(),
        to: to.into(),
        goodput_bps,
        retransmit_count: None,
        rtt_ns: None,
    };
    let rounds =
        vec![vec![pair("a", "b", 1e9), pair("c", "d", 4e9)], vec![pair("b", "a", 2e9), pair("d", "c", 9e9)]];
    let outcome = AllPairsSummary { rounds, complete: true, ..AllPairsSummary::default() }.outcome().unwrap();
    let values: Vec<(&str, f64)> =
        outcome.metrics.iter().map(|metric| (metric.name.as_str(), metric.value)).collect();
    // Sums of 5 and 11 Gb/s.
    let expected =
        [("pair-goodput", 3e9), ("pair-goodput-min", 1e9), ("pair-goodput-max", 9e9), ("round-goodput", 8e9)];
    assert_eq!(values, expected);
    assert!(!AllPairsSummary::default().outcome().unwrap().complete);
}
