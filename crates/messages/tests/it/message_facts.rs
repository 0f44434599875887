//! Tests of `message/facts`.

use clearstream_messages::message::{
    MESSAGE_SUMMARY_SCHEMA, MessageConfig, MessageLatency, MessagePoint, MessageSideSettings, MessageSummary,
};

fn point(size_bytes: u64, is_perturbed: bool, p50_ns: u64, throughput_bps: f64) -> MessagePoint {
    MessagePoint {
        size_bytes,
        is_perturbed,
        iteration_count: 10,
        server_received_count: 10,
        client_received_count: 10,
        elapsed_ns: 20 * p50_ns,
        latency: Some(MessageLatency {
            min_ns: p50_ns - 1,
            mean_ns: p50_ns,
            p50_ns,
            p99_ns: p50_ns + 5,
            max_ns: p50_ns + 9,
        }),
        throughput_bps: Some(throughput_bps),
        bandwidth_bps: None,
        message_rate_per_second: None,
        client_cpu_ratio: 0.5,
        server_cpu_ratio: 0.25,
        interfaces: None,
    }
}

#[test]
fn metrics_are_of_the_smallest_requested_size_and_the_highest_rate() {
    let summary = MessageSummary {
        requested: MessageConfig::default(),
        complete: true,
        client: MessageSideSettings { core: Some(1), ..MessageSideSettings::default() },
        server: MessageSideSettings::default(),
        mpi: None,
        points: vec![point(61, true, 900, 4e6), point(64, false, 1000, 3e6), point(67, true, 1100, 2e6)],
        notices: Vec::new(),
    };
    let outcome = summary.outcome().unwrap();
    let names: Vec<&str> = outcome.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["latency", "latency-p99", "latency-min", "throughput", "client-cpu", "server-cpu"]);
    assert_eq!(outcome.headline().unwrap().value, 1000.0);
    assert_eq!(outcome.metric("throughput").unwrap().value, 3e6);
    let latency = outcome.series.iter().find(|series| series.name == "latency").unwrap();
    assert_eq!(latency.points, [(61.0, 900.0), (64.0, 1000.0), (67.0, 1100.0)]);
    let settings: Vec<&str> = outcome.settings.iter().map(|setting| setting.name.as_str()).collect();
    assert_eq!(settings, ["nagle", "client-core", "nagle"], "what nobody knows is absent");
    assert_eq!(outcome.detail::<MessageSummary>(MESSAGE_SUMMARY_SCHEMA).unwrap().unwrap(), summary);
}
