//! The event: what happens while something runs, in one envelope for every
//! workload, plan and daemon. `--json-stream` prints one per line; the last
//! line is the result, or the error that there was instead.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{exit::ExitCode, notice::Notice};

/// Name of the format of [`Event`].
pub const EVENT_SCHEMA: &str = "clearstream.event";
/// Name of the state that `--live` reports once per second; its detail is what goes on now, absent between phases.
pub const LIVE_STATE: &str = "live";
/// Name of the format of [`ErrorDocument`].
pub const ERROR_SCHEMA: &str = "clearstream.error";

/// One line of `--json-stream`. `R` is the verb's document, whose own `schema`
/// and `version` identify it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event<R = Value> {
    /// [`EVENT_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Time of the report, RFC 3339 in UTC.
    pub time: String,
    /// Name of the host that reports it.
    pub host: String,
    /// The verb, `flow` or `plan apply`; within a trial of a study the trial's workload.
    pub workload: String,
    /// Trial of a study, from 0 as in its record; absent outside of trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<u32>,
    /// The event.
    #[serde(flatten)]
    pub kind: EventKind<R>,
}

/// Kind and payload of an event: the keys `kind` and `payload`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "payload", rename_all = "kebab-case")]
pub enum EventKind<R = Value> {
    /// A state began, ended or changed.
    State(State),
    /// Progress.
    Progress(Progress),
    /// Part of a measurement, as the workload has it: the same document as a
    /// line of the record's samples.
    Interval(Value),
    /// A caveat for the interpretation of the results.
    Notice(Notice),
    /// A conclusion.
    Finding(Finding),
    /// A setting of a host was changed.
    Change(Change),
    /// The last line of what ended with a document.
    Result(R),
    /// The last line of what ended without one.
    Error(ErrorDocument),
}

/// A state that was entered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// Stable kebab-case name: `ready`, `trial-started`, `listening`.
    pub name: String,
    /// Facts of it: a document of the verb or the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
}

/// Progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Current step, for people.
    pub step: String,
    /// Estimated time until everything is done.
    pub left_ns: u64,
}

/// A conclusion; its evidence is in the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Stable name.
    pub id: String,
    /// One line for people.
    pub message: String,
}

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The setting as an operator names it, `net.ipv4.tcp_wmem` or `eth0 mtu`; of a
    /// watch the gateway, of `improve` the change's stable name.
    pub setting: String,
    /// Stable kebab-case name of what was done: `set`, `kept`, `reverted`, `out`.
    pub action: String,
    /// Facts of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
}

/// Error that ended a command without its document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDocument {
    /// [`ERROR_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// The exit code of the command.
    pub exit_code: u8,
    /// Its name, kebab-case: `usage`, `peer-lost`.
    pub name: String,
    /// One line for people.
    pub message: String,
}

impl ErrorDocument {
    /// Of a command that ends with `code`.
    pub fn new(code: ExitCode, message: String) -> Self {
        let name = code.name().to_owned();
        Self { schema: ERROR_SCHEMA.to_owned(), version: 1, exit_code: code as u8, name, message }
    }
}
