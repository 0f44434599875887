//! Diagnosis of what limits a path: the document of `clearstream diagnose`.
//!
//! A [`Diagnosis`] names causes as typed facts, not as prose: the sentence for
//! people stands beside them, and [`Remedy`] states in the same terms what would
//! change, so that another program can act on it.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow::{Direction, FlowConfig};
use crate::notice::Notice;

mod cause;

pub use cause::{BufferLimit, Cause, LossModel, PauseDirection, ProcessShare, SharedBy};

/// Name of the format.
pub const DIAGNOSIS_SCHEMA: &str = "clearstream.diagnosis";

/// Limits of a flow and their remedies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// [`DIAGNOSIS_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Name of the host that sends.
    pub sender_name: String,
    /// Name of the host that receives.
    pub receiver_name: String,
    /// The sending end.
    pub sender: End,
    /// The flow that was diagnosed, as requested.
    pub flow: FlowConfig,
    /// Goodput of it, all its flows together.
    pub observed_bps: f64,
    /// Lowest round-trip time seen by probe or flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// The primary limit.
    pub primary: Verdict,
    /// Secondary limits, the heavier first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secondary: Vec<Finding>,
    /// Predicted ceiling of every stage between the two applications, in
    /// their order along the path.
    pub stages: Vec<Stage>,
    /// Ceiling of the next-lowest stage: what fixing the primary limit can
    /// give at most. Absent when no other ceiling is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_bound_bps: Option<f64>,
    /// Goodput predicted without the limit, as a range; absent when
    /// neither end of it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<GainRange>,
    /// Remedies, the most informative first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Flows run in addition to the one diagnosed, and their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<ExperimentResult>,
    /// Facts that could not be gathered, and caveats of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

impl Diagnosis {
    /// The limit of the flow, in one sentence.
    pub fn sentence(&self) -> String {
        match &self.primary {
            Verdict::Found(finding) => finding.sentence.clone(),
            Verdict::Unknown { because, .. } => format!("not known: {because}"),
        }
    }
}

/// Goodput predicted when the primary limit is removed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GainRange {
    /// Goodput of an experiment of this run, less the scatter of a short flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<GainBound>,
    /// Allowed by the rate of line, card or lab, or by the next arithmetic limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<GainBound>,
}

/// One end of a [`GainRange`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GainBound {
    /// As goodput of all flows together.
    pub rate_bps: f64,
    /// Experiment or arithmetic that it comes from.
    pub basis: String,
}

/// One end of the control sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The end named first, which connects.
    Client,
    /// The end that waits for connections.
    Server,
}

/// Part of a flow that a host plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It sends the data.
    Sender,
    /// It receives the data.
    Receiver,
}

/// Conclusion about what limits the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// This.
    Found(Finding),
    /// The evidence is inconclusive; this experiment would decide.
    Unknown {
        /// Reason, one sentence.
        because: String,
        /// The most informative experiment.
        experiment: Box<Experiment>,
    },
}

/// A cause with what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The cause and its facts.
    pub cause: Cause,
    /// It and its numbers in one sentence.
    pub sentence: String,
    /// True when something can be set right; false for a path that is used to
    /// its capacity.
    pub fault: bool,
    /// Evidence.
    pub evidence: Vec<EvidenceItem>,
    /// Changes that would remove it, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,
}

/// A number and where it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceItem {
    /// Meaning of the number, one line with the number.
    pub statement: String,
    /// The sample it rests on: `flow 0, intervals 10 to 49 of the first test:
    /// median of tcpi_snd_cwnd`, `server: sysctl net.ipv4.tcp_rmem`.
    pub source: String,
}

/// A change that a program can make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Remedy {
    /// Raise the last value of a sysctl to at least this, on one end.
    RaiseSysctl {
        /// End.
        end: End,
        /// Dotted name.
        name: String,
        /// Place in the value, from 0; `tcp_rmem`'s maximum is 2.
        field: u32,
        /// At least this, in the sysctl's own unit.
        at_least: u64,
    },
    /// Change the flow itself: keys of a flow test and their values, null for
    /// leaving the option out.
    ChangeFlow {
        /// Key, as in a flow configuration.
        key: String,
        /// Value in the spelling of the key; null to leave it out.
        value: serde_json::Value,
    },
    /// Keep the thread of a part off a core.
    MoveThread {
        /// Part.
        role: Role,
        /// End.
        end: End,
        /// Away from here.
        off_core: u32,
        /// Better cores, the best first.
        to_cores: Vec<u32>,
    },
    /// Set the MTU of an end's interface.
    SetMtu {
        /// End.
        end: End,
        /// Interface, where known.
        interface: Option<String>,
        /// Bytes.
        mtu_bytes: u32,
    },
    /// A step that no program can take here: a slot, a cable, another path.
    Physical {
        /// The step, one sentence.
        what: String,
    },
}

/// A stage between the two applications.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Stage.
    pub name: StageName,
    /// Achievable goodput of the flows diagnosed; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bps: Option<f64>,
    /// True when the flow shows at least this much, and more may be possible.
    #[serde(default)]
    pub at_least: bool,
    /// True for the stage that limits.
    #[serde(default)]
    pub limiting: bool,
    /// Source of the ceiling, with the arithmetic.
    pub basis: String,
}

/// Stages in their order along the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StageName {
    /// The program that writes.
    SenderApplication,
    /// The sender's socket.
    SendBuffer,
    /// Congestion window at the loss seen.
    CongestionWindow,
    /// Pacing.
    Pacing,
    /// The sender's core.
    SenderCpu,
    /// The sender's NUMA distance and PCIe link.
    SenderPcie,
    /// The slower of both line rates.
    Nic,
    /// The path between the hosts.
    Path,
    /// The receiver's window.
    ReceiverWindow,
    /// The receiver's PCIe link.
    ReceiverPcie,
    /// The core that takes the receiver's packets.
    ReceiverInterruptCore,
    /// The receiver's core.
    ReceiverCpu,
    /// Copies of the receiving program: memory.
    Copies,
    /// The program that reads.
    ReceiverApplication,
}

/// A flow that decides, or decided, between causes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// The varied parameter.
    pub kind: ExperimentKind,
    /// Hypothesis, and the meaning of each outcome.
    pub question: String,
    /// The flow to run.
    pub flow: FlowConfig,
}

/// Parameter that an experiment varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentKind {
    /// The flow as requested.
    #[serde(rename = "as-asked")]
    AsRequested,
    /// The same flow, longer.
    Longer,
    /// Several flows: separates a limit per flow from a common one.
    SeveralFlows,
    /// The opposite direction.
    Reverse,
    /// Without an explicit window or buffer.
    WithoutWindow,
    /// Without pacing.
    WithoutPacing,
    /// Paced above the measured rate: tests whether losses are those of bursts.
    Paced,
    /// With a larger buffer than the kernel's limits allow, set by a socket option.
    LargerBuffer,
    /// Without pauses of the programs.
    WithoutPauses,
    /// The reader on another core.
    OtherReceiverCore,
    /// The writer on another core.
    OtherSenderCore,
    /// Another congestion control.
    OtherCongestionControl,
    /// The same flow repeated: tests whether the machine is repeatable.
    #[serde(rename = "again")]
    Repeat,
}

/// Result of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentResult {
    /// The varied parameter.
    pub kind: ExperimentKind,
    /// Direction of its data.
    pub direction: Direction,
    /// Flows.
    pub flow_count: u32,
    /// Goodput.
    pub goodput_bps: f64,
    /// Conclusion, one sentence.
    pub conclusion: String,
}

/// A suggested remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suggestion {
    /// The change, with the concrete setting, one sentence.
    pub sentence: String,
    /// A command line that does it or shows it, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}
