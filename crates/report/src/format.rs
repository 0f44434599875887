//! Numbers as people read them: decimal Gb/s, binary bytes, milliseconds.
//! Every text here is short, exact enough to compare and never `NaN`.

use serde_json::Value;

/// A number with as many decimals as three to four digits need.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.') { "0".to_owned() } else { text }
}

/// Bits per second with its unit.
pub(crate) fn rate(bps: f64) -> String {
    if bps >= 1e9 && (bps / 1e9).fract() == 0.0 {
        return format!("{} Gb/s", bps / 1e9);
    }
    match bps.abs() {
        size if size >= 1e12 => format!("{} Tb/s", number(bps / 1e12)),
        size if size >= 1e9 || size == 0.0 => format!("{} Gb/s", number(bps / 1e9)),
        size if size >= 1e6 => format!("{} Mb/s", number(bps / 1e6)),
        size if size >= 1e3 => format!("{} kb/s", number(bps / 1e3)),
        _ => format!("{} b/s", number(bps)),
    }
}

/// Gb/s without the unit, for columns and cells.
pub(crate) fn gbps(bps: f64) -> String {
    number(bps / 1e9)
}

/// Bytes in binary units: `38.5 MiB`, `512 KiB`.
pub(crate) fn bytes(count: f64) -> String {
    let (scale, unit) = match count.abs() {
        size if size >= (1u64 << 40) as f64 => ((1u64 << 40) as f64, "TiB"),
        size if size >= (1 << 30) as f64 => ((1 << 30) as f64, "GiB"),
        size if size >= (1 << 20) as f64 => ((1 << 20) as f64, "MiB"),
        size if size >= 1024.0 => (1024.0, "KiB"),
        _ => (1.0, "B"),
    };
    let value = count / scale;
    if value.fract() == 0.0 { format!("{value} {unit}") } else { format!("{} {unit}", number(value)) }
}

/// Nanoseconds as milliseconds: a path's natural unit.
pub(crate) fn milliseconds(ns: f64) -> String {
    let ms = ns / 1e6;
    let decimals = match ms.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{ms:.decimals$} ms")
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

/// `1 trial`, `3 trials`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// `first, second and third`.
pub(crate) fn join(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
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
    let text = level(value);
    match factor {
        "flows" => text.parse().map_or(text.clone(), |n: usize| count(n, "flow")),
        "window" | "send-buffer" | "receive-buffer" | "transfer" => {
            window_bytes(value).map_or(text, |n| bytes(n as f64))
        }
        "sender-cores" => format!("sender core {text}"),
        "receiver-cores" => format!("receiver core {text}"),
        other => format!("{other} {text}"),
    }
}

/// A byte count out of a level.
pub(crate) fn window_bytes(value: &Value) -> Option<u64> {
    serde_json::from_value::<clearstream_schema::ByteCount>(value.clone()).ok().map(|bytes| bytes.0)
}

/// The first core of a core level.
pub(crate) fn core(value: &Value) -> Option<u32> {
    let list: clearstream_schema::CoreList = serde_json::from_value(value.clone()).ok()?;
    list.0.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal_and_bytes_binary() {
        assert_eq!(rate(22_345_000_000.0), "22.3 Gb/s");
        assert_eq!(rate(2_345_000_000.0), "2.35 Gb/s");
        assert_eq!(rate(345_600_000.0), "346 Mb/s");
        assert_eq!(rate(0.0), "0 Gb/s");
        assert_eq!(rate(40e9), "40 Gb/s");
        assert_eq!(range("21.8 Gb/s", "22.6 Gb/s"), "21.8 to 22.6 Gb/s");
        assert_eq!(range("900 Mb/s", "1.10 Gb/s"), "900 Mb/s to 1.10 Gb/s");
        assert_eq!(range("22.2 Gb/s", "22.2 Gb/s"), "22.2 Gb/s");
        // 19 Gb/s x 17 ms / 8 = 40 375 000 bytes, printed as 40.38 MB in the paper.
        assert_eq!(bytes(40_375_000.0), "38.5 MiB");
        assert_eq!(bytes(65_536.0), "64 KiB");
        assert_eq!(milliseconds(17_030_000.0), "17.03 ms");
        assert_eq!(milliseconds(150_000.0), "0.150 ms");
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
    fn levels_read_naturally() {
        assert_eq!(level_of("flows", &1.into()), "1 flow");
        assert_eq!(level_of("window", &"64MiB".into()), "64 MiB");
        assert_eq!(level_of("mtu", &9000.into()), "mtu 9000");
        assert_eq!(core(&"5".into()), Some(5));
        assert_eq!(core(&7.into()), Some(7));
        assert_eq!(core(&"x".into()), None);
    }
}
