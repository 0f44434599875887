//! Tests of `overlap/facts`.

use clearstream_messages::overlap::{
    OVERLAP_SUMMARY_SCHEMA, OverlapConfig, OverlapMeasured, OverlapMethod, OverlapSideSettings,
    OverlapSummary,
};
use clearstream_schema::outcome::{Axis, Unit};

fn measured(work_count: u64, messages: u64, work_alone_ns: u64) -> OverlapMeasured {
    OverlapMeasured {
        work_count,
        cycle_count: 10,
        server_received_count: messages,
        client_received_count: messages,
        elapsed_ns: 1_000_000_000,
        work_alone_ns,
        client_cpu_ns: 1_500_000_000,
        server_cpu_ns: 250_000_000,
        phases_ns: None,
        interfaces: None,
    }
}

fn summary(points: &[(u64, u64, u64)], method: OverlapMethod) -> OverlapSummary {
    let phases = (method == OverlapMethod::PostWorkWait).then_some([100, 2_000, 30]);
    let point = |&(work, messages, alone): &(u64, u64, u64)| {
        OverlapMeasured { phases_ns: phases, ..measured(work, messages, alone) }.point(1000)
    };
    OverlapSummary {
        requested: OverlapConfig { method, client_core: Some(1), ..OverlapConfig::default() },
        complete: true,
        client: OverlapSideSettings { core: Some(1), ..OverlapSideSettings::default() },
        server: OverlapSideSettings::default(),
        mpi: None,
        points: points.iter().map(point).collect(),
        notices: Vec::new(),
    }
}

#[test]
fn a_point_is_as_computed_by_hand() {
    // In a second 2000 messages of 1000 bytes in each direction: 2 * 2000 * 8000 bits. 0.6 s of the same work alone.
    let point = measured(100, 2000, 600_000_000).point(1000);
    assert_eq!(point.bandwidth_bps, 32e6);
    assert_eq!(point.message_rate_per_second, 4000.0);
    assert_eq!(point.availability_ratio, 0.6);
    assert_eq!((point.client_cpu_ratio, point.server_cpu_ratio), (1.5, 0.25));
    assert_eq!((point.post_ns, point.work_ns, point.wait_ns), (None, None, None));
    assert_eq!(point.per_cycle(point.elapsed_ns), 1e8);
    let unmeasured = OverlapMeasured::default().point(1000);
    assert_eq!((unmeasured.bandwidth_bps, unmeasured.availability_ratio), (0.0, 0.0), "numbers in any case");
}

/// Highest 1000 messages in each direction; 90 % are 900, which 10 000 iterations keep and 100 000 do not.
const SWEEP: &[(u64, u64, u64)] = &[
    (100, 950, 100_000_000),
    (1000, 1000, 400_000_000),
    (10_000, 900, 800_000_000),
    (100_000, 899, 700_000_000),
];

#[test]
fn the_headline_availability_is_that_of_most_work_with_nine_tenths_of_the_bandwidth() {
    let outcome = summary(SWEEP, OverlapMethod::Polling).outcome().unwrap();
    let values: Vec<(&str, f64)> =
        outcome.metrics.iter().map(|metric| (metric.name.as_str(), metric.value)).collect();
    assert_eq!(
        values,
        [
            ("bandwidth", 16e6),
            ("availability", 0.8),
            ("client-cpu", 1.5),
            ("server-cpu", 0.25),
            ("kept-work", 10_000.0)
        ]
    );
    let only = summary(&SWEEP[3..], OverlapMethod::Polling).outcome().unwrap();
    assert_eq!(only.metric("availability").unwrap().value, 0.7, "one interval keeps its own bandwidth");
    assert!(summary(&[], OverlapMethod::Polling).outcome().unwrap().metrics.is_empty());
}

#[test]
fn the_series_are_bandwidth_over_availability_and_the_rest_over_work() {
    let outcome = summary(SWEEP, OverlapMethod::PostWorkWait).outcome().unwrap();
    let series = |name: &str| outcome.series.iter().find(|series| series.name == name).unwrap();
    assert_eq!(series("bandwidth").x, Axis::new("availability", Unit::Ratio));
    assert_eq!(series("bandwidth").points, [(0.1, 15.2e6), (0.4, 16e6), (0.7, 14.384e6), (0.8, 14.4e6)]);
    assert_eq!(series("bandwidth-by-work").points[3], (100_000.0, 14.384e6));
    assert_eq!(series("availability").points[2], (10_000.0, 0.8));
    // Ten cycles.
    assert_eq!(series("post-time").points[0], (100.0, 10.0));
    assert_eq!(series("work-time").points[0], (100.0, 200.0));
    assert_eq!(series("wait-time").points[0], (100.0, 3.0));
    let polling = summary(SWEEP, OverlapMethod::Polling).outcome().unwrap();
    assert!(polling.series.iter().all(|series| !series.name.ends_with("-time")));
    assert_eq!(outcome.contradicts(&summary(SWEEP, OverlapMethod::PostWorkWait).requested.metrics()), None);
}

#[test]
fn settings_are_those_that_are_known_and_the_summary_is_read_back() {
    let summary = summary(SWEEP, OverlapMethod::Polling);
    let outcome = summary.outcome().unwrap();
    let settings: Vec<&str> = outcome.settings.iter().map(|setting| setting.name.as_str()).collect();
    assert_eq!(settings, ["client-core"]);
    assert_eq!(outcome.detail::<OverlapSummary>(OVERLAP_SUMMARY_SCHEMA).unwrap().unwrap(), summary);
}
