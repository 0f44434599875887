//! Tests of `units`.

use clearstream_schema::BitRate;
use clearstream_schema::ByteCount;
use clearstream_schema::CoreList;
use clearstream_schema::SizeRange;
use clearstream_schema::TimeSpan;

#[test]
fn a_range_of_sizes_doubles_and_ends_at_the_largest() {
    let range: SizeRange = "1B-8MiB".parse().unwrap();
    assert_eq!(range.sizes().len(), 24);
    assert_eq!((range.sizes()[0], range.sizes()[23]), (1, 8 << 20));
    assert_eq!(range.to_string().parse(), Ok(range));
    assert_eq!("100B-1000B".parse::<SizeRange>().unwrap().sizes(), [100, 200, 400, 800, 1000]);
    assert_eq!("64B".parse::<SizeRange>().unwrap().sizes(), [64]);
    for empty in ["0B-8B", "8B-4B"] {
        assert!(empty.parse::<SizeRange>().unwrap().sizes().is_empty(), "{empty}");
    }
    for text in ["", "1B-", "-", "1B-2B-3B", "1..2"] {
        assert!(text.parse::<SizeRange>().is_err(), "{text}");
    }
}

#[test]
fn reads_what_people_write() {
    assert_eq!("512K".parse(), Ok(ByteCount(512 * 1024)));
    assert_eq!("64MiB".parse(), Ok(ByteCount(64 << 20)));
    assert_eq!("1.5 GiB".parse(), Ok(ByteCount(3 << 29)));
    assert_eq!("1MB".parse(), Ok(ByteCount(1_000_000)));
    assert_eq!("19Gb/s".parse(), Ok(BitRate(19_000_000_000)));
    assert_eq!("2.5g".parse(), Ok(BitRate(2_500_000_000)));
    assert_eq!("0.2ms".parse(), Ok(TimeSpan(200_000)));
    assert_eq!("5min".parse(), Ok(TimeSpan::from_seconds(300)));
    assert_eq!("0-3,8".parse(), Ok(CoreList(vec![0, 1, 2, 3, 8])));
}

#[test]
fn refuses_what_it_would_have_to_guess() {
    for text in ["", "MiB", "-1K", "1..2K", "1.5B", "12 parsecs", "99999999999999T"] {
        assert!(text.parse::<ByteCount>().is_err(), "{text}");
    }
    for text in ["", "3-1", "a", "0-", "0-99999"] {
        assert!(text.parse::<CoreList>().is_err(), "{text}");
    }
    let message = "17 furlongs".parse::<TimeSpan>().expect_err("no unit of time").to_string();
    assert!(message.contains("17ms"), "{message}");
}

#[test]
fn rates_and_times_need_their_unit() {
    for (text, hint) in [("40", "40Gb/s"), ("2.5", "its unit"), ("0", "its unit"), ("5GB/s", "small b")] {
        let error = text.parse::<BitRate>().expect_err(text).to_string();
        assert!(error.contains(text) && error.contains(hint), "{error}");
    }
    for text in ["17", "0.2", "."] {
        let error = text.parse::<TimeSpan>().expect_err(text).to_string();
        assert!(error.contains("17ms"), "{error}");
    }
    assert_eq!("0".parse(), Ok(TimeSpan(0)), "no time needs no unit");
    for text in ["17 furlongs", "", "."] {
        assert!(TimeSpan::or_seconds(text).is_err(), "{text}");
    }
    assert_eq!(TimeSpan::or_seconds("10"), Ok(TimeSpan::from_seconds(10)));
    assert_eq!(TimeSpan::above_zero("10"), Ok(TimeSpan::from_seconds(10)));
    for text in ["0", "0s", "0.0", "-1", ""] {
        assert!(TimeSpan::above_zero(text).is_err(), "{text}");
    }
    assert_eq!(TimeSpan::or_seconds("0.5"), Ok(TimeSpan::from_millis(500)));
    assert_eq!(TimeSpan::or_seconds("10ms"), Ok(TimeSpan::from_millis(10)));
    assert!(serde_json::from_str::<BitRate>("40").is_err(), "neither in files");
}

#[test]
fn every_spelling_of_a_rate_is_taken() {
    for text in ["40Gb/s", "40Gbps", "40Gbit/s", "40Gbit", "40gbps", "40G", "40000 Mbps", "0.04Tbit/s"] {
        assert_eq!(text.parse(), Ok(BitRate(40_000_000_000)), "{text}");
    }
    assert_eq!("500 bps".parse(), Ok(BitRate(500)));
    assert_eq!("64kbps".parse(), Ok(BitRate(64_000)));
}

#[test]
fn prints_exactly_what_it_reads() {
    for value in [0, 1, 1023, 1024, 1 << 20, (1 << 20) + 1, 1 << 40, u64::MAX] {
        assert_eq!(ByteCount(value).to_string().parse(), Ok(ByteCount(value)));
        assert_eq!(BitRate(value).to_string().parse(), Ok(BitRate(value)));
        assert_eq!(TimeSpan(value).to_string().parse(), Ok(TimeSpan(value)));
    }
    let cores = CoreList(vec![4, 0, 1, 2, 7, 7]);
    assert_eq!(cores.to_string(), "4,0-2,7,7");
    assert_eq!(cores.to_string().parse(), Ok(cores));
}
