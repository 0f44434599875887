//! Numbers as people read them: rates in decimal Gb/s, memory in binary GiB,
//! times in the unit that keeps three figures.

/// `12.3 Gb/s`.
pub fn rate(bits_per_second: f64) -> String {
    let (value, unit) = match bits_per_second {
        r if r >= 1e12 => (r / 1e12, "Tb/s"),
        r if r >= 1e9 => (r / 1e9, "Gb/s"),
        r if r >= 1e6 => (r / 1e6, "Mb/s"),
        r if r >= 1e3 => (r / 1e3, "kb/s"),
        r => (r, "b/s"),
    };
    format!("{} {unit}", three_figures(value))
}

/// `38.5 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_figures(value), UNITS[unit])
}

/// `17.0 ms`.
pub fn time(nanoseconds: u64) -> String {
    let ns = nanoseconds as f64;
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (ns / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_figures(value))
}

/// `2 min 05 s`, for time left.
pub fn long_time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn three_figures(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_three_figures() {
        assert_eq!(rate(19e9), "19.0 Gb/s");
        assert_eq!(rate(1.234e9), "1.23 Gb/s");
        assert_eq!(rate(999.96e6), "1000 Mb/s");
        assert_eq!(rate(0.0), "0.00 b/s");
        assert_eq!(bytes(40_375_000), "38.5 MiB");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(time(17_030_000), "17.0 ms");
        assert_eq!(time(850), "850 ns");
        assert_eq!(long_time(125), "2 min 05 s");
        assert_eq!(long_time(7_260), "2 h 01 min");
    }
}
