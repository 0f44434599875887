//! Outcome of a trial of any workload: metrics, series,
//! settings, notices, and the workload's own document.

mod setting;

use std::{collections::BTreeMap, fmt};

use crate::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{human, notice::Notice};
pub use setting::SettingValue;

/// Unit of a metric or an axis. Values are stored in these and no others, so
/// that two of the same unit can be compared; people see them scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Unit {
    /// Bits per second.
    #[serde(rename = "b/s")]
    BitsPerSecond,
    /// Bytes per second: what is stored, not what a line carries.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// A share or quotient.
    #[serde(rename = "ratio")]
    Ratio,
    /// A number of things.
    #[serde(rename = "count")]
    Count,
    /// Things per second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// CPU seconds per 10^9 bytes.
    #[serde(rename = "s/GB")]
    SecondsPerGigabyte,
}

/// Units as papers and programs print them, with the stored unit and the factor
/// to it.
const PRINTED: &[(&str, Unit, f64)] = &[
    ("b/s", Unit::BitsPerSecond, 1.0),
    ("kb/s", Unit::BitsPerSecond, 1e3),
    ("Mb/s", Unit::BitsPerSecond, 1e6),
    ("Gb/s", Unit::BitsPerSecond, 1e9),
    ("B/s", Unit::BytesPerSecond, 1.0),
    ("MB/s", Unit::BytesPerSecond, 1e6),
    ("GB/s", Unit::BytesPerSecond, 1e9),
    ("KiB/s", Unit::BytesPerSecond, 1024.0),
    ("MiB/s", Unit::BytesPerSecond, 1_048_576.0),
    ("GiB/s", Unit::BytesPerSecond, 1_073_741_824.0),
    ("ns", Unit::Nanoseconds, 1.0),
    ("us", Unit::Nanoseconds, 1e3),
    ("ms", Unit::Nanoseconds, 1e6),
    ("s", Unit::Nanoseconds, 1e9),
    ("B", Unit::Bytes, 1.0),
    ("KiB", Unit::Bytes, 1024.0),
    ("MiB", Unit::Bytes, 1_048_576.0),
    ("ratio", Unit::Ratio, 1.0),
    ("%", Unit::Ratio, 0.01),
    ("count", Unit::Count, 1.0),
    ("1/s", Unit::PerSecond, 1.0),
    ("s/GB", Unit::SecondsPerGigabyte, 1.0),
];

impl Unit {
    /// The stored unit behind a printed one, and what a printed value is
    /// multiplied by.
    pub fn of_printed(text: &str) -> Option<(Self, f64)> {
        PRINTED.iter().find(|(name, ..)| *name == text).map(|(_, unit, factor)| (*unit, *factor))
    }

    /// What a value printed in `text` is multiplied by to be in this unit: also bytes of a rate in
    /// bits, and the other way.
    pub fn factor_of(self, text: &str) -> Option<f64> {
        let (own, factor) = Self::of_printed(text)?;
        match (own, self) {
            _ if own == self => Some(factor),
            (Self::BytesPerSecond, Self::BitsPerSecond) => Some(factor * 8.0),
            (Self::BitsPerSecond, Self::BytesPerSecond) => Some(factor / 8.0),
            _ => None,
        }
    }

    /// Every printed unit, for messages.
    pub fn printed() -> impl Iterator<Item = &'static str> {
        PRINTED.iter().map(|(name, ..)| *name)
    }

    /// As stored.
    pub fn name(self) -> &'static str {
        let own = PRINTED.iter().find(|(_, unit, factor)| *unit == self && (*factor - 1.0).abs() < 1e-12);
        own.map_or("", |(name, ..)| name)
    }

    /// The largest printed unit of this one in which `value` is at least one,
    /// with its factor: 19e9 b/s are 19 Gb/s.
    pub fn scale_for(self, value: f64) -> (&'static str, f64) {
        let scales: &[&str] = match self {
            Self::BitsPerSecond => &["Gb/s", "Mb/s", "kb/s", "b/s"],
            Self::BytesPerSecond => &["GiB/s", "MiB/s", "KiB/s", "B/s"],
            Self::Nanoseconds => &["s", "ms", "us", "ns"],
            Self::Bytes => &["MiB", "KiB", "B"],
            Self::Ratio => &["%"],
            Self::Count | Self::PerSecond | Self::SecondsPerGigabyte => &[],
        };
        let factor = |name: &&str| Self::of_printed(name).map_or(1.0, |(_, factor)| factor);
        let fitting = scales.iter().find(|name| value.abs() >= factor(name)).or(scales.last());
        fitting.map_or((self.name(), 1.0), |name| (name, factor(name)))
    }

    /// A value for people, as [`human`] writes it everywhere: `19.0 Gb/s`.
    pub fn text(self, value: f64) -> String {
        if value < 0.0 {
            return format!("-{}", self.text(-value));
        }
        match self {
            Self::BitsPerSecond => human::rate(value),
            Self::BytesPerSecond => human::byte_rate(value),
            // A call of the verbs interface takes 35.4 ns.
            Self::Nanoseconds if value < 1e3 && value.fract() != 0.0 => {
                format!("{} ns", human::three_digits(value))
            }
            Self::Nanoseconds => human::time(value.round() as u64),
            Self::Bytes => human::bytes(value.round() as u64),
            Self::Count => format!("{value:.0}"),
            Self::Ratio => human::percent(value),
            _ => format!("{} {}", human::three_digits(value), self.name()),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Direction in which a metric improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// As a rate.
    Higher,
    /// As a delay.
    Lower,
}

/// A named number of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// Kebab-case, as in `goodput` or `delay-p99`.
    pub name: String,
    /// Unit of `value`.
    pub unit: Unit,
    /// The direction that is better.
    pub better: Better,
    /// Never infinite and never "not a number": what was not measured is left out.
    pub value: f64,
}

impl Metric {
    /// A metric of which more is better.
    pub fn higher(name: &str, unit: Unit, value: f64) -> Self {
        Self { name: name.to_owned(), unit, better: Better::Higher, value }
    }

    /// A metric of which less is better.
    pub fn lower(name: &str, unit: Unit, value: f64) -> Self {
        Self { name: name.to_owned(), unit, better: Better::Lower, value }
    }
}

/// A metric without a value: what a workload declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricKind {
    /// [`Metric::name`].
    pub name: &'static str,
    /// [`Metric::unit`].
    pub unit: Unit,
    /// [`Metric::better`].
    pub better: Better,
}

impl MetricKind {
    /// A metric of which more is better.
    pub const fn higher(name: &'static str, unit: Unit) -> Self {
        Self { name, unit, better: Better::Higher }
    }

    /// A metric of which less is better.
    pub const fn lower(name: &'static str, unit: Unit) -> Self {
        Self { name, unit, better: Better::Lower }
    }

    /// The metric with its value, in [`Self::unit`].
    pub fn of(self, value: f64) -> Metric {
        Metric { name: self.name.to_owned(), unit: self.unit, better: self.better, value }
    }

    /// Whether this is the metric's name, unit and direction.
    pub fn is_of(self, metric: &Metric) -> bool {
        metric.name == self.name && metric.unit == self.unit && metric.better == self.better
    }
}

/// Quantity of an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Axis {
    /// Kebab-case, as in `time`.
    pub name: String,
    /// Unit of its values.
    pub unit: Unit,
}

impl Axis {
    /// An axis of this name and unit.
    pub fn new(name: &str, unit: Unit) -> Self {
        Self { name: name.to_owned(), unit }
    }
}

/// A metric over time or over a size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Kebab-case; unique within a trial.
    pub name: String,
    /// Quantity of the x axis.
    pub x: Axis,
    /// Quantity of the y axis.
    pub y: Axis,
    /// In ascending order of x.
    pub points: Vec<(f64, f64)>,
}

/// Points of a series over time, at most. With so many (4 KiB) a trial of minutes is twice as long
/// in `trials.jsonl` as without; every interval is in its samples file.
pub const MAX_TIME_POINTS: usize = 128;

impl Series {
    /// A metric over time: `(end of an interval in nanoseconds, value)`. Where there are more than
    /// [`MAX_TIME_POINTS`], neighbours become one point: their mean, at the end of the last of them.
    pub fn over_time(metric: &Metric, points: &[(f64, f64)]) -> Self {
        let count = points.len().div_ceil(MAX_TIME_POINTS).max(1);
        let mean = |neighbours: &[(f64, f64)]| {
            let sum: f64 = neighbours.iter().map(|(_, value)| value).sum();
            Some((neighbours.last()?.0, sum / neighbours.len() as f64))
        };
        Self {
            name: metric.name.clone(),
            x: Axis::new("time", Unit::Nanoseconds),
            y: Axis::new(&metric.name, metric.unit),
            points: points.chunks(count).filter_map(mean).collect(),
        }
    }
}

/// A workload's own document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Detail {
    /// Name of its format.
    pub schema: String,
    /// Version of that.
    pub version: u32,
    /// The document.
    pub document: Value,
}

/// Outcome of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// False when it ended early or parts are missing; what is there counts.
    pub complete: bool,
    /// The first is the workload's headline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// Metrics over time or size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// Requested and effective settings, by host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingValue>,
    /// Capabilities lost, caveats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// The workload's own document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            complete: true,
            metrics: Vec::new(),
            series: Vec::new(),
            settings: Vec::new(),
            notices: Vec::new(),
            detail: None,
        }
    }
}

impl Outcome {
    /// Of these metrics, the headline first. Values that are no numbers are left out.
    pub fn of(metrics: impl IntoIterator<Item = Metric>) -> Self {
        let metrics = metrics.into_iter().filter(|metric| metric.value.is_finite()).collect();
        Self { metrics, ..Self::default() }
    }

    /// With the workload's own document.
    ///
    /// # Errors
    /// The document cannot be written as JSON.
    pub fn with_detail<T: Serialize>(
        mut self,
        schema: &str,
        version: u32,
        document: &T,
    ) -> Result<Self, serde_json::Error> {
        let document = crate::json::to_value(document)?;
        self.detail = Some(Detail { schema: schema.to_owned(), version, document });
        Ok(self)
    }

    /// The metric of this name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// The workload's headline.
    pub fn headline(&self) -> Option<&Metric> {
        self.metrics.first()
    }

    /// First reason why this is not an outcome of a workload that declares these metrics, the
    /// headline first; `None` when it is. Declared metrics may be missing, others
    /// may not be there, and where there is any the first one is the headline.
    pub fn contradicts(&self, declared: &[MetricKind]) -> Option<String> {
        let first = self.headline().zip(declared.first());
        if let Some((found, kind)) = first.filter(|(found, kind)| !kind.is_of(found)) {
            return Some(format!("the headline is `{}`, declared is `{}`", found.name, kind.name));
        }
        let other =
            self.metrics.iter().find(|metric| !declared.iter().any(|declared| declared.is_of(metric)));
        other.map(|metric| format!("`{}` in {} is not declared", metric.name, metric.unit))
    }

    /// The workload's own document, when it is of this format; an error when it
    /// is and cannot be read.
    pub fn detail<T: DeserializeOwned>(&self, schema: &str) -> Option<Result<T, serde_json::Error>> {
        let detail = self.detail.as_ref().filter(|detail| detail.schema == schema)?;
        Some(T::deserialize(&detail.document))
    }
}

/// Level of each factor of a cell.
pub type Factors = BTreeMap<String, Value>;
