//! Tests of `rdma/options`.

use clearstream_schema::rdma::{RdmaOperation, RdmaOptions};
use serde_json::json;

#[test]
fn the_operation_is_a_key_beside_the_others_and_unknown_keys_are_named() {
    let written = json!({ "operation": "read", "size": "1MiB", "both-ways": true });
    let options: RdmaOptions = serde_json::from_value(written).unwrap();
    assert_eq!((options.operation, options.config.both_ways), (RdmaOperation::Read, true));
    let whole = serde_json::to_value(&options).unwrap();
    assert_eq!((&whole["operation"], &whole["size"]), (&json!("read"), &json!("1MiB")));
    assert_eq!(serde_json::from_value::<RdmaOptions>(whole).unwrap(), options);
    let error = serde_json::from_value::<RdmaOptions>(json!({ "dept": 3 })).unwrap_err().to_string();
    assert!(error.contains("unknown field `dept`") && error.contains("`depth`"), "{error}");
    assert_eq!(serde_json::from_value::<RdmaOptions>(json!({})).unwrap(), RdmaOptions::default());
}
