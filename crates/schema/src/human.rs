//! Numbers, counts and lists as people read them in tables and sentences: the
//! same quantity reads the same in every output. What is typed by people or
//! stored is exact instead: [`crate::ByteCount`], [`crate::BitRate`], [`crate::TimeSpan`].
//!
//! Rates have decimal prefixes, memory has binary ones; quantities keep three
//! significant digits.

use std::fmt::Display;

use serde_json::Value;

use crate::ByteCount;

const KIBI: f64 = 1024.0;

/// Bits per second: `12.3 Gb/s`.
pub fn rate(bps: f64) -> String {
    if bps == 0.0 {
        return "0 b/s".to_owned();
    }
    scaled(bps, 1e3, &["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"])
}

/// Bytes per second: `291 MiB/s`.
pub fn byte_rate(bytes_per_second: f64) -> String {
    if bytes_per_second == 0.0 {
        return "0 B/s".to_owned();
    }
    scaled(bytes_per_second, KIBI, &["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"])
}

/// Bytes: `38.5 MiB`. Sizes that are set are whole numbers of their unit, and
/// read so: `64 KiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let whole = UNITS.iter().enumerate().rev().find_map(|(power, unit)| {
        let scale = 1_u64 << (10 * power);
        (count.is_multiple_of(scale) && (1..1024).contains(&(count / scale)))
            .then(|| format!("{} {unit}", count / scale))
    });
    whole.unwrap_or_else(|| match count {
        0 => "0 B".to_owned(),
        _ => scaled(count as f64, KIBI, &UNITS),
    })
}

/// The level of a factor: sizes as [`bytes`] shows them, all others as they were written.
pub fn level(value: &Value) -> String {
    match value {
        Value::String(text) => size(text).map_or_else(|| text.clone(), bytes),
        other => other.to_string(),
    }
}

/// Upper case for the first letter.
pub fn sentence_case(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// A level with its factor, without spaces: `window=38.5MiB`.
pub fn factor_level(factor: &str, value: &Value) -> String {
    let is_size = value.as_str().and_then(size).is_some();
    let text = level(value);
    format!("{factor}={}", if is_size { text.replace(' ', "") } else { text })
}

/// A text that is a size with its unit: a number alone may be anything.
fn size(text: &str) -> Option<u64> {
    text.ends_with('B').then(|| text.parse::<ByteCount>().ok())?.map(|count| count.0)
}

/// Nanoseconds: `17.0 ms`.
pub fn time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        _ => scaled(nanoseconds as f64, 1e3, &["ns", "us", "ms", "s"]),
    }
}

/// A fraction of one: `12.5 %`.
pub fn percent(ratio: f64) -> String {
    format!("{} %", three_digits(ratio * 100.0))
}

/// Seconds of a duration of minutes: `2 min 05 s`.
pub fn long_time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Three significant digits, at most two decimals, and all digits of more than
/// a thousand: `1.23`, `12.3`, `1234`.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// In the unit that leaves the fewest digits before the point. The digits that
/// are shown decide: 999.96 Mb/s are 1.00 Gb/s.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let (last, smaller) = units.split_last().unwrap_or((&"", &[]));
    let mut value = value;
    for unit in smaller {
        if shown(value.abs()) < step {
            return format!("{} {unit}", three_digits(value));
        }
        value /= step;
    }
    format!("{} {last}", three_digits(value))
}

/// As [`three_digits`] shows a number of hundreds.
fn shown(value: f64) -> f64 {
    if value >= 99.95 { value.round() } else { value }
}

/// `1 trial`, `3 trials`.
pub fn count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let s = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// `first, second and third`.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match &items[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The first four and how many more: `a, b, c, d and 12 more`. Five are all named.
pub fn few<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    const NAMED: usize = 4;
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.len() > NAMED + 1 {
        let more = items.len() - NAMED;
        items.truncate(NAMED);
        items.push(format!("{more} more"));
    }
    list(items)
}
