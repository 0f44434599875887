//! Quantities in the notation of tc(8) and in the kernel's units.

/// Quantity of a parameter, with the kernel's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Packets, `1000`; `1000p` is accepted, too.
    Packets,
    /// Plain number.
    Count,
    /// Bytes, `32768b`.
    Bytes,
    /// Bytes per second in the kernel, bits per second in text, `2gbit`.
    Rate,
    /// Microseconds, `5ms`.
    Microseconds,
    /// Nanoseconds, `10us`.
    Nanoseconds,
}

const DECIMAL: [(&str, u64); 5] =
    [("t", 1_000_000_000_000), ("g", 1_000_000_000), ("m", 1_000_000), ("k", 1000), ("", 1)];

impl Measure {
    pub(super) fn parse(self, text: &str) -> Result<u64, String> {
        let lower = text.to_ascii_lowercase();
        let value = match self {
            Self::Packets => whole(lower.strip_suffix('p').unwrap_or(&lower)),
            Self::Count => whole(&lower),
            Self::Bytes => bytes(&lower),
            Self::Rate => rate(&lower),
            Self::Microseconds => time_ns(&lower).map(|ns| ns / 1000),
            Self::Nanoseconds => time_ns(&lower),
        };
        let name = match self {
            Self::Packets | Self::Count => "a whole number",
            Self::Bytes => "a size such as 32768b or 64k",
            Self::Rate => "a rate such as 2gbit or 500mbit",
            Self::Microseconds | Self::Nanoseconds => "a time such as 5ms or 100us",
        };
        let value = value.ok_or_else(|| format!("\"{text}\" is not {name}"))?;
        if self != Self::Rate && value > u64::from(u32::MAX) {
            return Err(format!("{text} is too large"));
        }
        Ok(value)
    }

    pub(super) fn spell(self, value: u64) -> String {
        match self {
            // tc prints `1000p` and accepts `1000`.
            Self::Packets | Self::Count => value.to_string(),
            Self::Bytes => format!("{value}b"),
            Self::Rate => {
                let bits = value.saturating_mul(8);
                let even = |&&(_, unit): &&(&str, u64)| bits >= unit && bits.is_multiple_of(unit);
                let (prefix, unit) = DECIMAL.iter().find(even).copied().unwrap_or(("", 1));
                format!("{}{prefix}bit", bits / unit)
            }
            Self::Microseconds => spell_time(value.saturating_mul(1000)),
            Self::Nanoseconds => spell_time(value),
        }
    }
}

fn whole(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// A number, optionally with a fraction, times a unit.
fn times(number: &str, unit: f64) -> Option<u64> {
    let value = number.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)? * unit;
    (value < 2f64.powi(63)).then_some(value.round() as u64)
}

/// tc(8), sizes: `k`, `kb` are 1024 bytes.
fn bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 7] = [
        ("gb", 1_073_741_824.0),
        ("mb", 1_048_576.0),
        ("kb", 1024.0),
        ("g", 1_073_741_824.0),
        ("m", 1_048_576.0),
        ("k", 1024.0),
        ("b", 1.0),
    ];
    let unit = UNITS.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)));
    unit.map_or_else(|| whole(text), |(number, unit)| times(number, unit))
}

/// tc(8), rates: `bit` and `bps` (bytes), decimal prefixes, `i` for binary ones.
fn rate(text: &str) -> Option<u64> {
    let (number, bits) = match (text.strip_suffix("bit"), text.strip_suffix("bps")) {
        (Some(rest), _) => (rest, 1.0),
        (_, Some(rest)) => (rest, 8.0),
        _ => (text, 1.0),
    };
    let (number, base) = number.strip_suffix('i').map_or((number, 1000.0f64), |rest| (rest, 1024.0));
    let power = [('k', 1), ('m', 2), ('g', 3), ('t', 4)];
    let prefix = power.iter().find_map(|(letter, power)| Some((number.strip_suffix(*letter)?, *power)));
    let (number, power) = prefix.unwrap_or((number, 0));
    times(number, bits * base.powi(power) / 8.0)
}

/// tc(8), times: a plain number is microseconds.
fn time_ns(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 8] = [
        ("nsec", 1.0),
        ("usec", 1e3),
        ("msec", 1e6),
        ("sec", 1e9),
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
    ];
    let unit = UNITS.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)));
    unit.map_or_else(|| times(text, 1e3), |(number, unit)| times(number, unit))
}

fn spell_time(ns: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];
    let even = |&&(_, unit): &&(&str, u64)| ns >= unit && ns.is_multiple_of(unit);
    let (name, unit) = units.iter().find(even).copied().unwrap_or(("us", 1000));
    format!("{}{name}", ns / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of tc(8).
    #[test]
    fn units_are_those_of_tc() {
        assert_eq!(Measure::Rate.parse("1mbit"), Ok(125_000));
        assert_eq!(Measure::Rate.parse("1mibit"), Ok(131_072));
        assert_eq!(Measure::Rate.parse("1kbps"), Ok(1000));
        assert_eq!(Measure::Rate.parse("2.5gbit"), Ok(312_500_000));
        assert_eq!(Measure::Bytes.parse("32kb"), Ok(32_768));
        assert_eq!(Measure::Bytes.parse("1500"), Ok(1500));
        assert_eq!(Measure::Microseconds.parse("100"), Ok(100));
        assert_eq!(Measure::Microseconds.parse("1.5ms"), Ok(1500));
        assert_eq!(Measure::Nanoseconds.spell(10_000), "10us");
        assert_eq!(Measure::Rate.spell(312_500_000), "2500mbit");
        assert_eq!(Measure::Rate.spell(0), "0bit");
        for (measure, text) in [(Measure::Rate, "-1mbit"), (Measure::Packets, "1.5"), (Measure::Bytes, "k")] {
            assert!(measure.parse(text).is_err(), "{text}");
        }
    }
}
