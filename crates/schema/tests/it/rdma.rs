//! Tests of `rdma`.

use clearstream_schema::ByteCount;
use clearstream_schema::rdma::{RdmaRate, SizeList};

#[test]
fn sizes_are_read_as_people_write_them() {
    assert_eq!("64K".parse(), Ok(SizeList(vec![ByteCount(65536)])));
    assert_eq!("1,64,4KiB".parse(), Ok(SizeList(vec![ByteCount(1), ByteCount(64), ByteCount(4096)])));
    let all: SizeList = "all".parse().unwrap();
    assert_eq!(all.0.len(), 24);
    assert_eq!((all.0[0], all.largest()), (ByteCount(1), 8 << 20));
    for text in ["", "1,,2", "everything", "-1"] {
        let error = text.parse::<SizeList>().unwrap_err().to_string();
        assert!(error.contains("`all`"), "{error}");
    }
}

#[test]
fn sizes_print_as_they_are_read_and_are_stored_so() {
    for text in ["all", "64KiB", "1B,64B,4KiB"] {
        let sizes: SizeList = text.parse().unwrap();
        assert_eq!(sizes.to_string(), text);
        let stored = serde_json::to_string(&sizes).unwrap();
        assert_eq!(stored, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<SizeList>(&stored).unwrap(), sizes);
    }
}

#[test]
fn a_rate_is_bits_and_messages_over_the_time() {
    let rate = RdmaRate::new(1_000, 125_000, 1_000_000_000);
    assert_eq!((rate.goodput_bps, rate.messages_per_second), (1e9, 1e3));
}
