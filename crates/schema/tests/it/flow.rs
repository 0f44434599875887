//! Tests of `flow`.

use clearstream_schema::ByteCount;
use clearstream_schema::CoreList;
use clearstream_schema::flow::FlowConfig;

#[test]
fn one_key_is_set_and_a_wrong_one_is_refused() {
    let base = FlowConfig::default();
    let changed = base.with("window", "64MiB".into()).expect("a key of the type");
    assert_eq!(changed.window, Some(ByteCount(64 << 20)));
    assert_eq!(
        base.with("sender-cores", 3.into()).expect("a bare number").sender_cores,
        Some(CoreList(vec![3]))
    );
    let error = base.with("windw", "1M".into()).expect_err("no such key");
    assert!(error.to_string().contains("windw") && error.source.to_string().contains("window"), "{error}");
    assert!(base.with("window", "big".into()).is_err());
}

#[test]
fn defaults_survive_the_document() {
    let text = serde_json::to_string(&FlowConfig::default()).expect("writes");
    assert_eq!(serde_json::from_str::<FlowConfig>(&text).expect("reads"), FlowConfig::default());
    assert_eq!(serde_json::from_str::<FlowConfig>("{}").expect("reads"), FlowConfig::default());
}
