//! A plan: reversible changes of one host, with the reason of each.
//!
//! Each item that a plan can change is a [`Setting`]: a place on a host that holds one
//! [`Value`]. Reading returns it, writing sets it, and the value that was there before is
//! the inverse of the change, whatever the setting is. Documents hold the texts of values.

use std::{collections::BTreeMap, fmt};

use crate::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

pub use self::{
    setting::{LinkAttribute, Setting, sysctl_path},
    value::Value,
};

mod setting;
mod value;

/// Name of the format.
pub const PLAN_SCHEMA: &str = "clearstream.plan";

/// A list of changes of one host, in the order in which they are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// `clearstream.plan`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Purpose, for people: `40 Gb/s over 17 ms with 2 flows, profile wan`.
    pub purpose: String,
    /// The host that it was made for.
    pub host: PlanHost,
    /// The changes; settings that are right already are not listed.
    pub steps: Vec<Step>,
    /// Changes that no plan can make (a slot, a boot option), and assumptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// Host identity, to reject a plan that was made for another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanHost {
    /// Host name.
    pub name: String,
    /// Kernel release, `6.18.44`.
    pub kernel: String,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The setting.
    pub setting: Setting,
    /// Value when the plan was made; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub current: Option<Value>,
    /// Desired value; absent removes the setting (only where it can be absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub desired: Option<Value>,
    /// Reason, with the arithmetic.
    pub reason: String,
    /// When and for which sockets it takes effect.
    pub effect: Effect,
}

impl<'de> Deserialize<'de> for Step {
    /// The setting tells what its texts mean.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "Step", deny_unknown_fields)]
        struct Written {
            setting: Setting,
            #[serde(default)]
            current: Option<String>,
            #[serde(default)]
            desired: Option<String>,
            reason: String,
            effect: Effect,
        }
        let Written { setting, current, desired, reason, effect } = Written::deserialize(deserializer)?;
        let value = |text: Option<String>| text.map(|text| Value::of(&setting, &text));
        Ok(Self { current: value(current), desired: value(desired), setting, reason, effect })
    }
}

/// What begins the text of a root qdisc that the kernel made by itself.
pub const DEFAULT_QDISC: &str = "default ";

/// Whether the text of a root qdisc names one that the kernel makes by itself.
pub fn is_default_qdisc(text: &str) -> bool {
    text.starts_with(DEFAULT_QDISC)
}

/// Time at which a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// At once, for what runs too.
    Now,
    /// For sockets made afterwards.
    NewSockets,
    /// For connections made afterwards: it is fixed in the handshake.
    Handshake,
    /// For qdiscs made afterwards.
    NewQdiscs,
    /// At once, but the link may go down and up.
    LinkFlap,
    /// After the next boot.
    Boot,
}

/// One fact that [verification](Verification) checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Subject of the check, for people.
    pub subject: String,
    /// Expected value.
    pub expected: String,
    /// Actual value; absent when it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Whether it is as expected.
    pub holds: bool,
    /// Remark: who is not affected by the change, or why it was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Effective settings after a plan was applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    /// Values read back and effective values.
    pub checks: Vec<Check>,
}

/// State of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JournalState {
    /// Applying began and did not end: to be recovered.
    Applying,
    /// All changes were made and read back.
    Applied,
    /// Applied and not confirmed yet: restored at its deadline, or when its test ends.
    Pending,
    /// Reverting began and did not end: to be recovered.
    Reverting,
    /// All settings have their previous values.
    Reverted,
    /// The host was booted since: what was changed is gone with the old kernel.
    Gone,
    /// The file cannot be read as a journal.
    Unreadable,
}

/// One journal in the history of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JournalEntry {
    /// Its name, which `revert` takes.
    pub journal: String,
    /// Start, RFC 3339 in UTC; absent when the file is not readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Purpose of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Host name at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// State.
    pub state: JournalState,
    /// It was written in this network namespace, so that it can be reverted here.
    pub here: bool,
    /// Settings that it changed.
    pub changed_count: u64,
    /// Reason for reverting it, or for its not being readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An object of the kernel that is no more, and what a plan had changed on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gone {
    /// An interface, `interrupt 42`, `queue rx-3 of eth0`, `nexthop 7`.
    pub what: String,
    /// Changes that went with it; they count as restored.
    pub change_count: u64,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, change_count } = self;
        match change_count {
            1 => write!(f, "{what} is gone: its change went with it"),
            count => write!(f, "{what} is gone: its {count} changes went with it"),
        }
    }
}

/// Result of the recovery of one journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recovered {
    /// Its name.
    pub journal: String,
    /// State in which it was found.
    pub found: JournalState,
    /// State in which it is now.
    pub now: JournalState,
    /// Settings that were restored.
    pub restored_count: u64,
    /// What is no more, so that nothing had to be restored on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Gone>,
    /// Reason why it could not be completed, and the suggested correction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Values of settings, by setting.
pub type Values = BTreeMap<Setting, Value>;
