//! The document of the costs of verbs calls.

use clearstream_rdma::{VerbsConfig, VerbsSummary};

#[test]
fn the_headline_is_the_median_of_the_samples() {
    let summary = VerbsSummary {
        requested: VerbsConfig::default(),
        calls_per_sample_count: 1,
        clock_ns: 20,
        times_ns: vec![5.0, 1.0, 9.0, 3.0, 100.0],
        complete: true,
        notices: Vec::new(),
    };
    let outcome = summary.outcome().unwrap();
    let value = |name: &str| outcome.metric(name).unwrap().value;
    assert_eq!(outcome.headline().unwrap().name, "time");
    assert_eq!([value("time"), value("time-min"), value("time-max")], [5.0, 1.0, 100.0]);
    assert_eq!([value("time-p25"), value("time-p75")], [3.0, 9.0]);
    assert_eq!(outcome.series[0].points[1], (2.0, 1.0), "in the order of the calls");
    let none = VerbsSummary { times_ns: Vec::new(), complete: false, ..summary };
    assert_eq!(none.outcome().unwrap().metrics, []);
}
