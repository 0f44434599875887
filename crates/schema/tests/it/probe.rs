//! Tests of `probe`.

use clearstream_schema::probe::{
    ClockSource, DelayRange, DelayStats, LatencyUnderLoad, ProbeConfig, ProbeDirection, ProbeSummary,
};
use serde_json::json;

fn stats(p50_ns: u64, p99_ns: u64, queueing_ns: Option<u64>) -> DelayStats {
    let range = DelayRange { min_ns: 1, mean_ns: p50_ns, p50_ns, p90_ns: p99_ns, p99_ns, max_ns: p99_ns };
    let own = DelayStats::new(range, 99, 100, ClockSource::Kernel);
    let with =
        queueing_ns.map(|wait| DelayRange { p50_ns: p50_ns + wait, p99_ns: p99_ns + wait, ..own.range() });
    DelayStats { with_local_queueing: with, ..own }
}

#[test]
fn settings_are_those_of_each_host_that_sent() {
    let direction = |udp: Option<DelayStats>| ProbeDirection {
        from: "a".to_owned(),
        to: "b".to_owned(),
        udp,
        tcp: None,
        from_address: None,
        to_address: None,
        route_mtu_bytes: None,
        path_mtu_bytes: None,
        hop_count: None,
        notices: Vec::new(),
    };
    let requested = ProbeConfig { count: 120, ..ProbeConfig::default() };
    let directions = vec![direction(Some(stats(100, 200, None))), direction(None)];
    let summary = ProbeSummary { requested, directions, bandwidth_delay_product_bytes: None };
    let settings = summary.outcome().unwrap().settings;
    let of = |role: &str, name: &str| {
        let mut found = settings.iter().filter(|one| one.role.as_deref() == Some(role) && one.name == name);
        let one = found.next()?;
        Some((one.requested.clone(), one.effective.clone()))
    };
    assert_eq!(of("client", "udp-count"), Some((Some(json!(120)), Some(json!(100)))), "{settings:?}");
    assert_eq!(of("client", "udp-clock"), Some((None, Some(json!("kernel")))));
    assert_eq!(of("server", "udp-count"), Some((Some(json!(120)), None)), "nothing was sent");
}

#[test]
fn load_adds_the_difference_of_the_same_kind_of_delay() {
    let own = LatencyUnderLoad::of(&stats(100, 300, Some(1)), &stats(150, 900, Some(5000)));
    assert_eq!((own.added_p50_ns, own.added_p99_ns), (5049, 5599));
    assert!(own.includes_local_queueing);
    // Stamped in one of the two only: compared without it.
    let without = LatencyUnderLoad::of(&stats(100, 300, None), &stats(90, 900, Some(5000)));
    assert_eq!((without.added_p50_ns, without.added_p99_ns), (-10, 600));
    assert!(!without.includes_local_queueing);
}
