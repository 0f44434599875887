//! Tests of `message`.

use clearstream_messages::message::{MessageConfig, MessageMethod};
use clearstream_schema::ByteCount;

fn bytes(config: &MessageConfig) -> Vec<u64> {
    config.message_sizes().iter().map(|size| size.bytes).collect()
}

#[test]
fn sizes_are_perturbed_as_netpipe_does_and_none_comes_twice() {
    let range = MessageConfig { sizes: "1B-16B".parse().unwrap(), ..MessageConfig::default() };
    // 1 - 3 and 2 - 3 are no sizes; 4 - 3 and 1 + 3 are sizes of their own.
    assert_eq!(bytes(&range), [1, 2, 4, 5, 7, 8, 11, 13, 16, 19]);
    let perturbed: Vec<u64> =
        range.message_sizes().iter().filter(|size| size.is_perturbed).map(|size| size.bytes).collect();
    assert_eq!(perturbed, [5, 7, 11, 13, 19]);
    let plain = MessageConfig { perturbation: Some(ByteCount(0)), ..range };
    assert_eq!(bytes(&plain), [1, 2, 4, 8, 16]);
    let one = MessageConfig { size: Some(ByteCount(64)), ..plain.clone() };
    assert_eq!(bytes(&one), [64]);
    let three = MessageConfig { perturbation: Some(ByteCount(3)), ..one };
    assert_eq!(bytes(&three), [61, 64, 67]);
    assert_eq!(bytes(&MessageConfig { size: Some(ByteCount(64)), ..MessageConfig::default() }), [64]);
}

#[test]
fn options_are_read_as_a_study_writes_them() {
    let text = r#"{"kind": "ping-pong", "sizes": "64B-1KiB", "method": "busy-poll", "client-core": 1}"#;
    let config: MessageConfig = serde_json::from_str(text).unwrap();
    assert_eq!((config.method, config.client_core), (MessageMethod::BusyPoll, Some(1)));
    assert_eq!(config.sizes.sizes(), [64, 128, 256, 512, 1024]);
    let value = serde_json::to_value(&config).unwrap();
    assert_eq!(serde_json::from_value::<MessageConfig>(value).unwrap(), config);
    assert!(serde_json::from_str::<MessageConfig>(r#"{"seize": "1B"}"#).is_err());
}
