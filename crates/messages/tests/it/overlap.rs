//! Tests of `overlap`.

use clearstream_messages::overlap::{OverlapConfig, OverlapMethod, OverlapTransport};
use clearstream_schema::rdma::RdmaProgress;

#[test]
fn options_are_read_as_a_study_writes_them() {
    let text = r#"{"transport": "iwarp", "method": "post-work-wait", "progress": "offloaded", "work": 1000}"#;
    let config: OverlapConfig = serde_json::from_str(text).unwrap();
    assert_eq!(config.method, OverlapMethod::PostWorkWait);
    assert_eq!((config.transport, config.progress), (OverlapTransport::Iwarp, RdmaProgress::Offloaded));
    assert_eq!(config.work_counts(), [1000], "a factor of numbers");
    let value = serde_json::to_value(&config).unwrap();
    assert_eq!(value["work"], "1000");
    assert_eq!(serde_json::from_value::<OverlapConfig>(value).unwrap(), config);
    assert!(serde_json::from_str::<OverlapConfig>(r#"{"working": 1}"#).is_err());
}

#[test]
fn the_default_sweep_is_six_decades() {
    let counts = OverlapConfig::default().work_counts();
    assert_eq!((counts.len(), counts[0], counts[3], counts[18]), (19, 100, 1000, 100_000_000));
}
