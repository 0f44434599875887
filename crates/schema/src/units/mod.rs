//! Quantities as people write them. Each parses from and prints to a short
//! exact text, and that text is also how it is stored.

use std::{fmt, str::FromStr};

#[cfg(debug_assertions)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A quantity that could not be read, with what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {kind} from \"{text}\": write {example}")]
pub struct ParseUnitError {
    kind: &'static str,
    text: String,
    example: &'static str,
}

/// Bytes. `K`, `M`, `G`, `T` and `KiB`.. are powers of 1024, as users of
/// iperf3 expect of buffer sizes; `kB`, `MB`, `GB` are powers of 1000.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

/// Bits per second, decimal prefixes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

/// A span of time, held in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub u64);

/// Processing units in the order given, in the kernel's list form: `0-3,8`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CoreList(pub Vec<u32>);

/// Sizes from the smallest to the largest, written as `1B-8MiB`; one size when both are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SizeRange {
    /// First size.
    pub smallest: ByteCount,
    /// Last size.
    pub largest: ByteCount,
}

const KI: u64 = 1 << 10;
const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;
const TI: u64 = 1 << 40;

const BYTE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", KI),
    ("kib", KI),
    ("m", MI),
    ("mib", MI),
    ("g", GI),
    ("gib", GI),
    ("t", TI),
    ("tib", TI),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];
const RATE_UNITS: &[(&str, u64)] = &[
    ("b/s", 1),
    ("bps", 1),
    ("bit", 1),
    ("bit/s", 1),
    ("k", 1_000),
    ("kb/s", 1_000),
    ("kbps", 1_000),
    ("kbit/s", 1_000),
    ("kbit", 1_000),
    ("m", 1_000_000),
    ("mb/s", 1_000_000),
    ("mbps", 1_000_000),
    ("mbit/s", 1_000_000),
    ("mbit", 1_000_000),
    ("g", 1_000_000_000),
    ("gb/s", 1_000_000_000),
    ("gbps", 1_000_000_000),
    ("gbit/s", 1_000_000_000),
    ("gbit", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("tb/s", 1_000_000_000_000),
    ("tbps", 1_000_000_000_000),
    ("tbit/s", 1_000_000_000_000),
    ("tbit", 1_000_000_000_000),
];
const TIME_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a decimal number with a unit exactly: no floating point, so that
/// `0.2ms` is 200 000 ns. `None` when malformed, fractional below the smallest
/// unit, or too large.
fn parse_scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let scale = u128::from(units.iter().find(|(name, _)| *name == unit)?.1);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 18 || fraction.contains('.') {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let (fraction_value, divisor) = match fraction {
        "" => (0u128, 1u128),
        digits => (digits.parse().ok()?, 10u128.pow(u32::try_from(digits.len()).ok()?)),
    };
    let scaled_fraction = fraction_value.checked_mul(scale)?;
    if scaled_fraction % divisor != 0 {
        return None;
    }
    let total = whole.checked_mul(scale)?.checked_add(scaled_fraction / divisor)?;
    u64::try_from(total).ok()
}

/// Only a unit is missing.
fn is_bare_number(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Prints with the largest unit that divides the value.
fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, scale) = units
        .iter()
        .find(|(_, scale)| value != 0 && value.is_multiple_of(*scale))
        .or(units.last())
        .copied()
        .unwrap_or(("", 1));
    f.pad(&format!("{}{name}", value / scale))
}

impl ByteCount {
    /// Reads a size as everywhere, or as IOR's options have it: `4m` is 4 MiB, `1024` bytes.
    ///
    /// # Errors
    /// As for [`FromStr`].
    pub fn or_ior(text: &str) -> Result<Self, ParseUnitError> {
        const LETTERS: &[(&str, u64)] = &[("", 1), ("k", KI), ("m", MI), ("g", GI), ("t", TI)];
        parse_scaled(text, LETTERS).map(Self).map_or_else(|| text.parse(), Ok)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.0, &[("TiB", TI), ("GiB", GI), ("MiB", MI), ("KiB", KI), ("B", 1)])
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(
            f,
            self.0,
            &[
                ("Tb/s", 1_000_000_000_000),
                ("Gb/s", 1_000_000_000),
                ("Mb/s", 1_000_000),
                ("kb/s", 1_000),
                ("b/s", 1),
            ],
        )
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(
            f,
            self.0,
            &[
                ("h", 3_600_000_000_000),
                ("min", 60_000_000_000),
                ("s", 1_000_000_000),
                ("ms", 1_000_000),
                ("us", 1_000),
                ("ns", 1),
            ],
        )
    }
}

impl FromStr for ByteCount {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_scaled(text, BYTE_UNITS).map(Self).ok_or_else(|| ParseUnitError {
            kind: "a number of bytes",
            text: text.to_owned(),
            example: "a whole number with B, KiB, MiB or GiB, as in 512KiB",
        })
    }
}

impl FromStr for BitRate {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A capital B is bytes everywhere else: eight times as much, or a slip.
        let is_bytes = text.contains('B');
        parse_scaled(text, RATE_UNITS).filter(|_| !is_bytes).map(Self).ok_or_else(|| ParseUnitError {
            kind: "a rate",
            text: text.to_owned(),
            example: match (is_bytes, is_bare_number(text)) {
                (true, _) => "bits per second with a small b, as in 40Gb/s",
                (_, true) => "the number with its unit, Mb/s, Gb/s or Tb/s, as in 40Gb/s",
                _ => "bits per second with Mb/s, Gb/s or Tb/s, as in 40Gb/s",
            },
        })
    }
}

impl FromStr for TimeSpan {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // No time is the same in every unit.
        let zero = (text.trim() == "0").then_some(0);
        zero.or_else(|| parse_scaled(text, TIME_UNITS)).map(Self).ok_or_else(|| ParseUnitError {
            kind: "a time",
            text: text.to_owned(),
            example: match is_bare_number(text) {
                true => "the number with its unit, ns, us, ms, s, min or h, as in 17ms",
                false => "a number with ns, us, ms, s, min or h, as in 17ms",
            },
        })
    }
}

impl FromStr for CoreList {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseUnitError {
            kind: "a list of cores",
            text: text.to_owned(),
            example: "core numbers and ranges with commas, as in 0-3,8",
        };
        let mut cores = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().map_err(|_| fail())?;
            let last: u32 = last.trim().parse().map_err(|_| fail())?;
            // The kernel's largest NR_CPUS is 8192; a longer range is a slip.
            if last < first || last - first > 8192 {
                return Err(fail());
            }
            cores.extend(first..=last);
        }
        Ok(Self(cores))
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut rest = self.0.as_slice();
        while let Some((&first, tail)) = rest.split_first() {
            let run = tail.iter().zip(first + 1..).take_while(|(a, b)| *a == b).count();
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&first.to_string());
            if run > 0 {
                text.push_str(&format!("-{}", first + u32::try_from(run).unwrap_or(0)));
            }
            rest = tail.get(run..).unwrap_or_default();
        }
        f.pad(&text)
    }
}

impl SizeRange {
    /// Powers of two times the smallest size, up to the largest, which is always
    /// there. Empty when the smallest is zero or above the largest.
    pub fn sizes(self) -> Vec<u64> {
        let (first, last) = (self.smallest.0, self.largest.0);
        if first == 0 || first > last {
            return Vec::new();
        }
        let doubled = std::iter::successors(Some(first), |size| size.checked_mul(2));
        doubled.take_while(|size| *size < last).chain([last]).collect()
    }
}

impl FromStr for SizeRange {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let (smallest, largest) = text.split_once('-').unwrap_or((text, text));
        Ok(Self { smallest: smallest.parse()?, largest: largest.parse()? })
    }
}

impl fmt::Display for SizeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.smallest, self.largest))
    }
}

impl TimeSpan {
    /// Reads an option whose bare number every user of iperf3, ping or
    /// perftest takes for seconds: how long, how often.
    ///
    /// # Errors
    /// Neither a number nor a time with its unit.
    pub fn or_seconds(text: &str) -> Result<Self, ParseUnitError> {
        if is_bare_number(text) { format!("{}s", text.trim()).parse() } else { text.parse() }
    }
    /// As [`Self::or_seconds`], for a time within which something has to happen.
    ///
    /// # Errors
    /// Also for zero.
    pub fn above_zero(text: &str) -> Result<Self, ParseUnitError> {
        let kind = "a time longer than zero";
        let wrong = || ParseUnitError { kind, text: text.to_owned(), example: "30s or 500ms" };
        Self::or_seconds(text).and_then(|span| if span.0 > 0 { Ok(span) } else { Err(wrong()) })
    }
    /// A span of whole seconds.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }
    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }
    /// The same as a standard duration.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
    /// Seconds with their fraction.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// Text in documents; a bare whole number is read where its unit cannot be
/// mistaken (bytes, core).
macro_rules! stored_as_text {
    ($type:ident, $name:literal, $example:literal, $number:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "text such as \"{}\"", $example)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$type, E> {
                        let make: fn(u64) -> Option<$type> = $number;
                        make(number).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$type, E> {
                        u64::try_from(number)
                            .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
                            .and_then(|number| self.visit_u64(number))
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
        #[cfg(debug_assertions)]
        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $name, "examples": [$example] })
            }
        }
    };
}
stored_as_text!(ByteCount, "Bytes with their unit", "512KiB", |n| Some(ByteCount(n)));
stored_as_text!(BitRate, "Bits per second with their unit", "19Gb/s", |n| (n == 0).then_some(BitRate(0)));
stored_as_text!(TimeSpan, "Time with its unit", "17ms", |_| None);
stored_as_text!(SizeRange, "Sizes from the smallest to the largest", "1B-8MiB", |n| {
    Some(SizeRange { smallest: ByteCount(n), largest: ByteCount(n) })
});
stored_as_text!(CoreList, "Core numbers in list form", "0-3,8", |n| Some(CoreList(vec![
    u32::try_from(n).ok()?
])));

mod counts;
mod data;

pub use counts::CountRange;
pub use data::DataKind;
