//! Tests of `units/counts`.

use clearstream_schema::CountRange;

#[test]
fn a_range_of_counts_has_equal_ratios_and_ends_at_the_largest() {
    let range: CountRange = "1e2-1e4".parse().unwrap();
    assert_eq!(range, CountRange { smallest: 100, largest: 10_000 });
    assert_eq!(range.to_string(), "100-10000");
    assert_eq!(range.counts(1), [100, 1000, 10_000]);
    // 10^(1/3) = 2.154, 10^(2/3) = 4.642.
    assert_eq!(range.counts(3), [100, 215, 464, 1000, 2154, 4642, 10_000]);
    assert_eq!("100-250".parse::<CountRange>().unwrap().counts(3), [100, 215, 250]);
    assert_eq!("7".parse::<CountRange>().unwrap().counts(3), [7]);
    assert_eq!("7".parse::<CountRange>().unwrap().to_string(), "7");
    // Ratios that round to the same count are there once.
    assert_eq!("1-3".parse::<CountRange>().unwrap().counts(10), [1, 2, 3]);
    let all = CountRange { smallest: 1, largest: u64::MAX }.counts(1);
    assert_eq!((all.len(), all.last()), (21, Some(&u64::MAX)));
    for empty in ["0-8", "8-4"] {
        assert!(empty.parse::<CountRange>().unwrap().counts(3).is_empty(), "{empty}");
    }
    for text in ["", "1-", "-", "1-2-3", "1e", "1e20", "1.5", "many"] {
        assert!(text.parse::<CountRange>().is_err(), "{text}");
    }
}
