//! A study: experiments, each a workload times factors. This is the file in
//! `studies/`.

use std::{collections::BTreeMap, fmt};

use crate::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

use crate::{
    TimeSpan,
    published::{PublishedTable, Relation},
    record::Published,
};

/// Name of the format.
pub const STUDY_SCHEMA: &str = "clearstream.study";

/// A study file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct StudyFile {
    /// `clearstream.study`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Name: letters, digits and `-`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Description for the report: systems and setup of the original work.
    #[serde(default)]
    pub about: String,
    /// In the order of the report.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
    /// Options that every experiment starts from.
    #[serde(flatten)]
    pub options: WorkloadOptions,
}

/// Tables of options, each below the name of its workload: `[flow]`. The
/// workloads validate them: whether the workload exists, and whether it takes
/// the options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct WorkloadOptions(pub BTreeMap<String, Value>);

impl WorkloadOptions {
    /// The options below a workload's name; none when there is no such table.
    pub fn of(&self, workload: &str) -> BTreeMap<String, Value> {
        let table = self.0.get(workload).and_then(Value::as_object);
        table.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Sets one option.
    pub fn set(&mut self, workload: &str, key: &str, value: Value) {
        let table = self.0.entry(workload.to_owned()).or_insert_with(|| Value::Object(Map::new()));
        table[key] = value;
    }
}

/// Figure type of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Goodput over time, a line per level of the first factor.
    Throughput,
    /// Goodput against window with the model's line and the bandwidth-delay product.
    WindowCurve,
    /// Interface rates over time.
    LiveTraffic,
    /// Sender core x receiver core.
    PinMatrix,
    /// One side's cores as bars.
    PinRow,
    /// Pictures and tables of both hosts.
    Topology,
    /// Delay percentiles.
    Delay,
    /// Responses over time around the failure of a gateway, load distribution, return paths.
    Gateways,
    /// Which checks of file semantics have which verdict, cells side by side.
    Semantics,
    /// From every host to every other, as heat maps.
    Pairs,
    /// A metric against a factor of numbers, a line per level of the others.
    Curve,
    /// A curve, and what it is below the best of the experiment that `beside` names, in percent
    /// of that: what a layer such as MPI costs.
    Overhead,
    /// A metric as bars, one per cell.
    Bars,
    /// A metric over two factors, as a heat map.
    Matrix,
    /// Every metric of every cell.
    Table,
}

/// One experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Experiment {
    /// Name: letters, digits and `-`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Name of the workload.
    pub workload: String,
    /// Figure type (default: that of the workload).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<Figure>,
    /// Metric that is drawn, or a list: each has a figure (default: the workload's headline).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<MetricNames>,
    /// Another experiment whose cells are drawn in the same figure, by the same metric; with the
    /// figures `curve`, `overhead`, `bars` and `table`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// Factor name to levels. A factor is an option of the workload, or one that only a lab has, as
    /// `mtu`, `receive-steering`, `link-delay`, `link-rate` or `routes-over` (`one-gateway`,
    /// `all-gateways`).
    /// For a core factor the level list may be one name: `every-core` or `representative-cores`.
    #[serde(default)]
    pub factors: BTreeMap<String, Levels>,
    /// Measured repetitions of each cell.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// Stop repeating a cell when the 95 % interval of its median is narrower than this share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision_ratio: Option<f64>,
    /// Changes in a lab, made before those of the mode; the only place for lab-only factors
    /// in a study that also runs on real hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lab: Option<Variant>,
    /// Changes for `--quick`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<Variant>,
    /// Changes for `--full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<Variant>,
    /// Published values, drawn beside the measured ones and labelled as published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Published values as the source's tables have them; a study that was read has them in `published`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published_table: Vec<PublishedTable>,
    /// Two levels of a factor whose ratio is the result: published and measured ratios are drawn side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<Relation>,
    /// Fixed options of the workload.
    #[serde(flatten)]
    pub options: WorkloadOptions,
}

/// What an experiment draws.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "the name of a metric, or a list of them")]
pub enum MetricNames {
    /// One.
    One(String),
    /// A figure each, in this order.
    Several(Vec<String>),
}

impl MetricNames {
    /// All of them.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

impl Experiment {
    /// Names of the metrics that are drawn; none where it is the workload's headline.
    pub fn metrics(&self) -> &[String] {
        self.metric.as_ref().map_or(&[], MetricNames::names)
    }

    /// Figure type. A study file that was read with its workloads names it; otherwise it is
    /// what any metric has: a curve, or bars where no factor has numbers.
    pub fn figure(&self) -> Figure {
        self.figure.unwrap_or(Figure::Curve)
    }

    /// Overlays of a run over the experiment as written, in this order: the changes of
    /// the lab where it is in one, then those of the mode (`quick`, `standard`, `full`).
    pub fn variants(&self, in_lab: bool, mode: &str) -> impl Iterator<Item = &Variant> {
        let of_mode = match mode {
            "quick" => self.quick.as_ref(),
            "full" => self.full.as_ref(),
            _ => None,
        };
        self.lab.as_ref().filter(|_| in_lab).into_iter().chain(of_mode)
    }
}

fn one() -> u32 {
    1
}

/// Levels of a factor.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Levels {
    /// Resolved on the host: `every-core`, `representative-cores`.
    Named(String),
    /// As written.
    Listed(Vec<Value>),
}

// Not derived: "data did not match any variant" does not name a valid form.
impl<'de> Deserialize<'de> for Levels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LevelsVisitor;
        impl<'de> de::Visitor<'de> for LevelsVisitor {
            type Value = Levels;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a list of levels such as [1, 2, 4], or \"every-core\" or \"representative-cores\"",
                )
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Levels, E> {
                Ok(Levels::Named(name.to_owned()))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut levels: A) -> Result<Levels, A::Error> {
                let mut listed = Vec::new();
                while let Some(level) = levels.next_element()? {
                    listed.push(level);
                }
                Ok(Levels::Listed(listed))
            }
        }
        deserializer.deserialize_any(LevelsVisitor)
    }
}

/// Changes for a lab, a quick or a full run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case")]
pub struct Variant {
    /// Levels that replace those of the factor.
    pub factors: BTreeMap<String, Levels>,
    /// Repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetitions: Option<u32>,
    /// Stop repeating a cell when the 95 % interval of its median is narrower than this share of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision_ratio: Option<f64>,
    /// Time for the whole experiment: no further repetition begins when it is used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<TimeSpan>,
    /// Lab only: interface of the listening host whose address is measured to (default: its first one).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Options of the workload.
    #[serde(flatten)]
    pub options: WorkloadOptions,
}
