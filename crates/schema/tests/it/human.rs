//! Tests of `human`.

use clearstream_schema::human::{bytes, count, factor_level, few, level, list, long_time, rate, time};
use serde_json::Value;

#[test]
fn rates_keep_three_digits() {
    for (bps, text) in [
        (19e9, "19.0 Gb/s"),
        (12.34e9, "12.3 Gb/s"),
        (1.234e9, "1.23 Gb/s"),
        (345.6e6, "346 Mb/s"),
        // What is shown decides about the unit.
        (999.4e6, "999 Mb/s"),
        (999.96e6, "1.00 Gb/s"),
        (9.996e9, "10.0 Gb/s"),
        (99.96e9, "100 Gb/s"),
        (2.5e15, "2500 Tb/s"),
        (8.0, "8.00 b/s"),
        (0.0, "0 b/s"),
        (-1.5e9, "-1.50 Gb/s"),
    ] {
        assert_eq!(rate(bps), text);
    }
}

#[test]
fn whole_sizes_are_exact_and_others_keep_three_digits() {
    for (count, text) in [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1 << 16, "64 KiB"),
        (100 << 20, "100 MiB"),
        (3 << 29, "1.50 GiB"),
        // 19 Gb/s over 17 ms, printed as 40.38 MB in the 40GE report.
        (40_375_000, "38.5 MiB"),
        ((1 << 20) - 1, "1.00 MiB"),
        (u64::MAX, "16.0 EiB"),
    ] {
        assert_eq!(bytes(count), text);
    }
}

#[test]
fn levels_that_are_sizes_have_binary_units() {
    for (value, text, with_factor) in [
        (Value::from("40380000B"), "38.5 MiB", "window=38.5MiB"),
        (Value::from("40.38MB"), "38.5 MiB", "window=38.5MiB"),
        (Value::from("64KiB"), "64 KiB", "window=64KiB"),
        (Value::from("1B-8MiB"), "1B-8MiB", "window=1B-8MiB"),
        (Value::from("17ms"), "17ms", "window=17ms"),
        (Value::from("4k"), "4k", "window=4k"),
        (Value::from(4), "4", "window=4"),
        (Value::from(true), "true", "window=true"),
    ] {
        assert_eq!(level(&value), text);
        assert_eq!(factor_level("window", &value), with_factor);
    }
}

#[test]
fn times_keep_three_digits() {
    for (ns, text) in [
        (0, "0 ns"),
        (850, "850 ns"),
        (1_500, "1.50 us"),
        (150_000, "150 us"),
        (999_960, "1.00 ms"),
        (17_030_000, "17.0 ms"),
        (2_500_000_000, "2.50 s"),
        (90_000_000_000, "90.0 s"),
    ] {
        assert_eq!(time(ns), text);
    }
    assert_eq!(long_time(59), "59 s");
    assert_eq!(long_time(125), "2 min 05 s");
    assert_eq!(long_time(7_260), "2 h 01 min");
}

#[test]
fn counts_and_lists_read_as_sentences() {
    assert_eq!(
        [count(1_usize, "trial"), count(0_u32, "trial"), count(3_u64, "trial")],
        ["1 trial", "0 trials", "3 trials"]
    );
    assert_eq!(list([1, 2, 3]), "1, 2 and 3");
    assert_eq!(list(["one"]), "one");
    assert_eq!(list::<&str>([]), "");
    assert_eq!(few(1..=5), "1, 2, 3, 4 and 5");
    assert_eq!(few(1..=9), "1, 2, 3, 4 and 5 more");
}
