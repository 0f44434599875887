//! Tests of `prefix`.

use clearstream_schema::prefix::Prefix;

#[test]
fn prefix_reads_and_prints() {
    for text in ["10.0.0.1/24", "0.0.0.0/0", "fd00::1/64", "::/0", "192.0.2.7/32"] {
        assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
    }
    for text in ["10.0.0.1", "10.0.0.1/33", "fd00::/129", "a/8", "10.0.0.1/-1", ""] {
        assert!(text.parse::<Prefix>().is_err(), "{text}");
    }
}

#[test]
fn network_is_what_the_mask_leaves() {
    let network = |text: &str| text.parse::<Prefix>().unwrap().network().to_string();
    assert_eq!(network("10.1.2.3/24"), "10.1.2.0/24");
    assert_eq!(network("10.1.2.3/0"), "0.0.0.0/0");
    assert_eq!(network("10.1.2.3/32"), "10.1.2.3/32");
    assert_eq!(network("fd00:1::9/64"), "fd00:1::/64");
    let prefix: Prefix = "10.1.2.3/24".parse().unwrap();
    assert!(prefix.contains("10.1.2.200".parse().unwrap()));
    assert!(!prefix.contains("10.1.3.1".parse().unwrap()));
    assert!(!prefix.contains("::1".parse().unwrap()));
}
