//! Tests of `storage/stream`.

use clearstream_schema::storage::{
    StorageClock, StreamConfig, StreamPhase, StreamPoint, StreamSummary, stream_statistics,
};

fn point(iteration: u32, phase: StreamPhase, bandwidth_bps: f64) -> StreamPoint {
    StreamPoint {
        iteration,
        phase,
        bytes: 1000,
        operation_count: 10,
        clock: StorageClock::default(),
        stonewall: None,
        total_ns: 1_000_000,
        bandwidth_bps,
        operations_per_second: 10_000.0,
        latency: None,
        mix: None,
        ranks: Vec::new(),
    }
}

#[test]
fn declared_metrics_are_those_of_the_outcome() {
    let points = vec![point(0, StreamPhase::Write, 8e9), point(0, StreamPhase::Read, 16e9)];
    let summary = StreamSummary {
        requested: StreamConfig::default(),
        failure: None,
        complete: true,
        host: None,
        file_system: "ext4 on /dev/vda".to_owned(),
        kept_folder: None,
        statistics: stream_statistics(&points),
        points,
        notices: Vec::new(),
    };
    let outcome = summary.outcome().unwrap();
    assert_eq!(outcome.contradicts(&summary.requested.metrics()), None);
    assert_eq!(
        outcome.headline().map(|metric| (metric.name.as_str(), metric.value)),
        Some(("write-bandwidth", 1e9))
    );
    assert_eq!(outcome.metric("read-bandwidth").map(|metric| metric.value), Some(2e9));
    let read = StreamConfig { read: true, ..StreamConfig::default() };
    assert_eq!(read.metrics().first().map(|kind| kind.name), Some("read-bandwidth"));
}
