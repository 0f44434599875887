//! Ranges of counts.

use std::{fmt, str::FromStr};

#[cfg(debug_assertions)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::ParseUnitError;

/// Counts from the smallest to the largest, written as `100-100000000` or `1e2-1e8`; one count when
/// both are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CountRange {
    /// First count.
    pub smallest: u64,
    /// Last count.
    pub largest: u64,
}

impl CountRange {
    /// So many counts in every decade, at equal ratios, up to the largest, which is always
    /// there. Empty when the smallest is zero or above the largest.
    pub fn counts(self, per_decade: u32) -> Vec<u64> {
        let (first, last) = (self.smallest, self.largest);
        if first == 0 || first > last || per_decade == 0 {
            return Vec::new();
        }
        // Whole decades are exact.
        let at = |step: u32| {
            let whole = 10u64.checked_pow(step / per_decade)?.checked_mul(first)?;
            let part = 10f64.powf(f64::from(step % per_decade) / f64::from(per_decade));
            Some((whole as f64 * part).round() as u64)
        };
        let steps = (0..).map_while(at).take_while(|count| *count < last);
        let mut counts: Vec<u64> = steps.chain([last]).collect();
        counts.dedup();
        counts
    }
}

impl FromStr for CountRange {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let count = |part: &str| {
            let (mantissa, exponent) = part.split_once(['e', 'E']).unwrap_or((part, "0"));
            let (mantissa, exponent) = (mantissa.parse::<u64>().ok()?, exponent.parse().ok()?);
            mantissa.checked_mul(10u64.checked_pow(exponent)?)
        };
        let (smallest, largest) = text.split_once('-').unwrap_or((text, text));
        let range = count(smallest).zip(count(largest));
        let example = "a number or a range, as in 1000 or 1e2-1e8";
        let error = || ParseUnitError { kind: "a range of counts", text: text.to_owned(), example };
        range.map(|(smallest, largest)| Self { smallest, largest }).ok_or_else(error)
    }
}

impl fmt::Display for CountRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.smallest == self.largest {
            return f.pad(&self.smallest.to_string());
        }
        f.pad(&format!("{}-{}", self.smallest, self.largest))
    }
}

stored_as_text!(CountRange, "Counts from the smallest to the largest", "100-100000000", |n| {
    Some(CountRange { smallest: n, largest: n })
});
