//! A study: experiments, each a workload times factors. This is the file in
//! `studies/`.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use crate::{TimeSpan, record::Published};

/// Name of the format.
pub const STUDY_SCHEMA: &str = "clearstream.study";

/// A study file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StudyFile {
    /// `clearstream.study`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Name: letters, digits and `-`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// What was done where, for the report.
    #[serde(default)]
    pub about: String,
    /// Flow options that every experiment starts from.
    #[serde(default)]
    pub flow: BTreeMap<String, Value>,
    /// In the order of the report.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
}

/// What one trial does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// A flow test.
    Flow,
    /// A probe.
    Probe,
    /// Both hosts described, no traffic.
    Inspect,
    /// Flows through the gateways of a lab, one of which may fail.
    Gateways,
}

/// How the report draws an experiment.
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
    /// Answers over time around the failure of a gateway, shares, ways back.
    Gateways,
}

/// One experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Name: letters, digits and `-`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// What one trial does.
    pub workload: Workload,
    /// How it is drawn.
    pub figure: Figure,
    /// Fixed flow options.
    #[serde(default)]
    pub flow: BTreeMap<String, Value>,
    /// Fixed probe options, for the probe workload.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probe: BTreeMap<String, Value>,
    /// Fixed options of the gateways workload.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gateways: BTreeMap<String, Value>,
    /// Factor name to levels. A factor is an option of the workload, or one that only a lab has:
    /// `mtu`, `receive-steering`, `routes-over` (`one-gateway`, `all-gateways`).
    /// For a core factor the level list may be one word: `every-core` or `representative-cores`.
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
    /// What was published, drawn beside ours and labelled as theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
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

// Not derived: "data did not match any variant" tells nobody what to write.
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

/// What a lab, a quick or a full run changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    /// Flow options.
    pub flow: BTreeMap<String, Value>,
    /// Probe options.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub probe: BTreeMap<String, Value>,
    /// Options of the gateways workload.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gateways: BTreeMap<String, Value>,
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
    /// Lab only: interface of the listening host whose address is measured to; its first one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}
