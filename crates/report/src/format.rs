//! Numbers as people read them, beyond what `schema::human` has: cells, ranges,
//! percentages and levels.
//! Every text here is short, exact enough to compare and never `NaN`.

use clearstream_schema::human;
pub(crate) use clearstream_schema::human::{count, list as join, rate, sentence_case};
use serde_json::Value;

/// A number in three digits; nothing is minus zero.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    let text = human::three_digits(value);
    if text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.') { "0".to_owned() } else { text }
}

/// Three significant digits, below one too: `0.109`.
pub(crate) fn significant(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() || !(1e-6..0.9995).contains(&size) {
        return number(value);
    }
    let decimals = (2.0 - size.log10().floor()) as usize;
    format!("{value:.decimals$}")
}

/// Gb/s without the unit, for columns and cells.
pub(crate) fn gbps(bps: f64) -> String {
    significant(bps / 1e9)
}

/// Computed bytes, as [`human::bytes`] shows them.
pub(crate) fn bytes(count: f64) -> String {
    human::bytes(count as u64)
}

/// Nanoseconds that were computed, as [`human::time`] shows them.
pub(crate) fn time(ns: f64) -> String {
    human::time(ns as u64)
}

/// A percentage to a tenth, below one to a hundredth.
fn hundredfold(ratio: f64) -> String {
    let value = ratio * 100.0;
    let text = if !(1.0..100.0).contains(&value.abs()) { number(value) } else { format!("{value:.1}") };
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// A ratio as a signed percentage: `+9.7 %`, `-3.1 %`.
pub(crate) fn signed_percent(ratio: f64) -> String {
    let text = hundredfold(ratio.abs());
    match text.as_str() {
        "0" => "0 %".to_owned(),
        _ if ratio > 0.0 => format!("+{text} %"),
        _ => format!("\u{2212}{text} %"),
    }
}

/// A ratio as a percentage without sign.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{} %", hundredfold(ratio))
}

/// `21.8 to 22.6 Gb/s`: the unit once where both ends have the same.
pub(crate) fn range(low: &str, high: &str) -> String {
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        _ if low == high => low.to_owned(),
        (Some((value, unit)), Some((_, same))) if unit == same => format!("{value} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// The level of a factor as it was written.
pub(crate) fn level(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A level for a person: byte counts and core lists read naturally.
pub(crate) fn level_of(factor: &str, value: &Value) -> String {
    let text = human::level(value);
    match factor {
        "flows" => text.parse().map_or(text.clone(), |n: usize| count(n, "flow")),
        "window" | "send-buffer" | "receive-buffer" | "transfer" => {
            window_bytes(value).map_or(text, |n| bytes(n as f64))
        }
        "tasks" => text.parse().map_or(text.clone(), |n: usize| count(n, "task")),
        "sender-cores" => format!("sender core {text}"),
        "receiver-cores" => format!("receiver core {text}"),
        "hosts" => host_range(&text),
        other => format!("{other} {text}"),
    }
}

/// As [`hosts`].
pub(crate) fn hosts_of<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    hosts(&names.into_iter().map(String::as_str).collect::<Vec<_>>())
}

/// Names of hosts: numbered ones in short, others one by one.
fn hosts(names: &[&str]) -> String {
    let list = names.join(",");
    match host_range(&list) {
        short if short != list => short,
        _ => join(names),
    }
}

/// Names that are numbered one after the other in the form of Slurm, `node[1-4]`; others as they are.
fn host_range(list: &str) -> String {
    let numbered = |name: &str| {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, number) = name.split_at(name.len() - digits);
        Some((prefix.to_owned(), number.parse::<u64>().ok().filter(|parsed| parsed.to_string() == number)?))
    };
    let all: Option<Vec<(String, u64)>> = list.split(',').map(|name| numbered(name.trim())).collect();
    match all.as_deref() {
        Some([(prefix, first), more @ .., (_, last)])
            if more.iter().all(|(other, _)| other == prefix)
                && list
                    .split(',')
                    .zip(*first..)
                    .all(|(name, number)| name.trim() == format!("{prefix}{number}")) =>
        {
            format!("{prefix}[{first}-{last}]")
        }
        _ => list.to_owned(),
    }
}

/// A byte count out of a level.
pub(crate) fn window_bytes(value: &Value) -> Option<u64> {
    clearstream_schema::json::from_value::<clearstream_schema::ByteCount>(value.clone())
        .ok()
        .map(|bytes| bytes.0)
}

/// The first core of a core level.
pub(crate) fn core(value: &Value) -> Option<u32> {
    let list: clearstream_schema::CoreList = clearstream_schema::json::from_value(value.clone()).ok()?;
    list.0.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_its_unit_once() {
        assert_eq!(range("21.8 Gb/s", "22.6 Gb/s"), "21.8 to 22.6 Gb/s");
        assert_eq!(range("900 Mb/s", "1.10 Gb/s"), "900 Mb/s to 1.10 Gb/s");
        assert_eq!(range("22.2 Gb/s", "22.2 Gb/s"), "22.2 Gb/s");
    }

    #[test]
    fn signs_are_kept_and_nothing_is_minus_zero() {
        assert_eq!(signed_percent(0.0971), "+9.7 %");
        assert_eq!(signed_percent(-0.031), "\u{2212}3.1 %");
        assert_eq!(signed_percent(-0.000001), "0 %");
        assert_eq!(number(-0.001), "0");
        assert_eq!(number(f64::NAN), "not a number");
    }

    #[test]
    fn small_numbers_keep_three_digits() {
        assert_eq!(
            [0.109_4, 0.030_91, 0.999_6, 1.0, 0.0].map(significant),
            ["0.109", "0.0309", "1.00", "1.00", "0"]
        );
        assert_eq!([gbps(109e6), gbps(100e6), gbps(91e6)], ["0.109", "0.100", "0.0910"]);
        assert_eq!(significant(f64::NAN), "not a number");
    }

    #[test]
    fn levels_read_naturally() {
        assert_eq!(level_of("flows", &1.into()), "1 flow");
        assert_eq!(level_of("window", &"64MiB".into()), "64 MiB");
        assert_eq!(level_of("message-size", &"40380000B".into()), "message-size 38.5 MiB");
        assert_eq!(level_of("mtu", &9000.into()), "mtu 9000");
        assert_eq!(level_of("hosts", &"compute-9,compute-10,compute-11".into()), "compute-[9-11]");
        for names in ["compute-1", "a1,a3", "a1,b2", "a1,a02", "here,there"] {
            assert_eq!(level_of("hosts", &names.into()), names);
        }
        assert_eq!(core(&"5".into()), Some(5));
        assert_eq!(core(&7.into()), Some(7));
        assert_eq!(core(&"x".into()), None);
    }
}
