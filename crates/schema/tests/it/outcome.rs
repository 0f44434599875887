//! Tests of `outcome`.

use clearstream_schema::outcome::{Metric, MetricKind, Outcome, Series, Unit};

#[test]
fn printed_units_have_one_stored_unit_and_values_scale() {
    assert_eq!(Unit::of_printed("Gb/s"), Some((Unit::BitsPerSecond, 1e9)));
    assert_eq!(Unit::of_printed("us"), Some((Unit::Nanoseconds, 1e3)));
    assert_eq!(Unit::of_printed("furlongs"), None);
    for unit in [Unit::BitsPerSecond, Unit::Nanoseconds, Unit::Bytes, Unit::Ratio, Unit::Count] {
        assert_eq!(serde_json::to_value(unit).unwrap(), unit.name());
        assert_eq!(Unit::of_printed(unit.name()), Some((unit, 1.0)));
    }
    for (unit, value, text) in [
        (Unit::BitsPerSecond, 19e9, "19.0 Gb/s"),
        (Unit::BitsPerSecond, 1.234e9, "1.23 Gb/s"),
        (Unit::Nanoseconds, 17_000_000.0, "17.0 ms"),
        (Unit::Nanoseconds, 850.0, "850 ns"),
        (Unit::Nanoseconds, 35.42, "35.4 ns"),
        (Unit::Nanoseconds, -17_000_000.0, "-17.0 ms"),
        (Unit::BitsPerSecond, 999.96e6, "1.00 Gb/s"),
        (Unit::BitsPerSecond, 2.5e12, "2.50 Tb/s"),
        (Unit::Ratio, 0.125, "12.5 %"),
        (Unit::Count, 3.0, "3"),
        (Unit::PerSecond, 1250.0, "1250 1/s"),
        (Unit::Bytes, 65_536.0, "64 KiB"),
    ] {
        assert_eq!(unit.text(value), text);
    }
}

#[test]
fn an_outcome_may_have_less_than_declared_never_more_or_other() {
    const RATE: MetricKind = MetricKind::higher("rate", Unit::PerSecond);
    const DELAY: MetricKind = MetricKind::lower("delay", Unit::Nanoseconds);
    let outcome = Outcome::of([RATE.of(1.0)]);
    assert_eq!(outcome.contradicts(&[RATE, DELAY]), None);
    assert!(outcome.contradicts(&[DELAY, RATE]).unwrap().contains("headline"));
    let more = Outcome::of([RATE.of(1.0), Metric::lower("delay", Unit::Count, 1.0)]);
    assert_eq!(more.contradicts(&[RATE, DELAY]).unwrap(), "`delay` in count is not declared");
    assert_eq!(Outcome::default().contradicts(&[]), None);
}

#[test]
fn a_long_series_has_a_bounded_number_of_points_and_the_same_mean() {
    let rate = Metric::higher("rate", Unit::PerSecond, 0.0);
    let points = |count: u32| (1..=count).map(|at| (f64::from(at) * 1e9, f64::from(at))).collect::<Vec<_>>();
    let short = Series::over_time(&rate, &points(128));
    assert_eq!(short.points, points(128));
    assert_eq!((short.name.as_str(), short.y.unit), ("rate", Unit::PerSecond));
    let long = Series::over_time(&rate, &points(300));
    assert_eq!(long.points.len(), 100);
    assert_eq!(long.points[..2], [(3e9, 2.0), (6e9, 5.0)]);
    assert!(Series::over_time(&rate, &[]).points.is_empty());
}

#[test]
fn a_detail_is_read_by_its_own_format_only() {
    let outcome = Outcome::of([Metric::higher("goodput", Unit::BitsPerSecond, f64::NAN)])
        .with_detail("clearstream.test", 1, &vec![1, 2])
        .unwrap();
    assert!(outcome.metrics.is_empty() && outcome.complete);
    assert_eq!(outcome.detail::<Vec<u32>>("clearstream.test").unwrap().unwrap(), [1, 2]);
    assert!(outcome.detail::<Vec<u32>>("clearstream.other").is_none());
    assert!(outcome.detail::<String>("clearstream.test").unwrap().is_err());
}
