//! What limits a path: the document of `clearstream diagnose`.
//!
//! A [`Diagnosis`] names causes as typed facts, not as prose: the sentence for
//! people stands beside them, and [`Remedy`] says in the same terms what would
//! change, so that another program can act on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow::{Direction, FlowConfig, Notice};

/// Name of the format.
pub const DIAGNOSIS_SCHEMA: &str = "clearstream.diagnosis";

/// What limits a flow, and what would change it.
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
    /// Which end sends.
    pub sender: End,
    /// The flow that was diagnosed, as asked for.
    pub flow: FlowConfig,
    /// Goodput of it, all its flows together.
    pub observed_bps: f64,
    /// Lowest round-trip time seen by probe or flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// What limits most.
    pub primary: Verdict,
    /// What else was found, the heavier first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secondary: Vec<Finding>,
    /// Predicted ceiling of every stage between the two applications, in
    /// their order on the way.
    pub stages: Vec<Stage>,
    /// Ceiling of the next-lowest stage: what fixing the primary limit can
    /// give at most. Absent when no other ceiling is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_bound_bps: Option<f64>,
    /// What the flow may reach without its limit, as a range; absent when
    /// neither end of it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<GainRange>,
    /// What to try, the most informative first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Flows run beside the one diagnosed, and what they gave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<ExperimentResult>,
    /// What could not be gathered, and what to know about the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

impl Diagnosis {
    /// What limits the flow, in one sentence.
    pub fn sentence(&self) -> String {
        match &self.primary {
            Verdict::Found(finding) => finding.sentence.clone(),
            Verdict::Unknown { because, .. } => format!("not known: {because}"),
        }
    }
}

/// What a flow may reach when its primary limit is removed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GainRange {
    /// What an experiment of this run reached, less the scatter of a short flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<GainBound>,
    /// What the rate of line, card or lab, or the next arithmetic limit, allows.
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

/// The answer to "what limits this".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// This.
    Found(Finding),
    /// The evidence does not tell; this one experiment would.
    Unknown {
        /// Why it does not tell, one sentence.
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
    /// What it rests on.
    pub evidence: Vec<EvidenceItem>,
    /// Changes that would remove it, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,
}

/// A number and where it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceItem {
    /// What the number says, one line with the number.
    pub statement: String,
    /// The sample it rests on: `flow 0, intervals 10 to 49 of the first test:
    /// median of tcpi_snd_cwnd`, `server: sysctl net.ipv4.tcp_rmem`.
    pub source: String,
}

/// What limits a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Cause {
    /// Packets as large as the route says do not arrive, and nobody says so.
    PathMtu {
        /// MTU that the sending host takes for the route's.
        route_mtu_bytes: u32,
        /// Largest packet that passes.
        path_mtu_bytes: u32,
    },
    /// TCP's memory of a whole host is used up (`tcp_mem`).
    MemoryPressure {
        /// On this end.
        end: End,
        /// `tcp_mem` pressure threshold, in pages as the kernel reads it.
        pressure_pages: u64,
        /// The same in bytes.
        pressure_bytes: u64,
        /// The values look like bytes, or like a copy of a triple in bytes.
        unit_error: bool,
        /// Pressure threshold that would do, pages.
        needed_pages: u64,
    },
    /// The card's PCIe link.
    Pcie {
        /// On this end.
        end: End,
        /// Interface.
        interface: String,
        /// PCI address.
        device: String,
        /// Lanes in use.
        lane_count: u32,
        /// Lanes that the card has.
        card_lane_count: u32,
        /// Conservative ceiling.
        low_bps: f64,
        /// Optimistic ceiling.
        high_bps: f64,
    },
    /// The interface sends or receives at its line rate.
    LineRate {
        /// On this end.
        end: End,
        /// Interface.
        interface: String,
        /// Its speed.
        speed_bps: u64,
    },
    /// The interface drops or damages packets.
    InterfaceLoss {
        /// On this end.
        end: End,
        /// Interface.
        interface: String,
        /// Errors and drops while the flow ran.
        lost_packet_count: u64,
    },
    /// The receiver does not offer more window.
    ReceiverWindow {
        /// What holds it.
        held_by: BufferLimit,
        /// Window offered.
        window_bytes: u64,
        /// Window needed for `goal_bps`.
        needed_window_bytes: u64,
        /// Receive buffer needed for that window (as `tcp_rmem` counts).
        needed_buffer_bytes: u64,
        /// Rate that the needed sizes are for.
        goal_bps: f64,
    },
    /// The sender's socket does not take more data.
    SendBuffer {
        /// What holds it.
        held_by: BufferLimit,
        /// Send buffer in force.
        buffer_bytes: u64,
        /// Send buffer needed for `goal_bps` (as `tcp_wmem` counts).
        needed_buffer_bytes: u64,
        /// Rate that the needed size is for.
        goal_bps: f64,
    },
    /// The program that reads is slow.
    ReceiverApplication {
        /// Its thread computes rather than waits.
        computes: bool,
        /// Share of a core that its thread uses, 0 to 1.
        thread_share_ratio: f64,
    },
    /// The program that writes is slow.
    SenderApplication {
        /// Share of a core that its thread uses, 0 to 1.
        thread_share_ratio: f64,
    },
    /// Packets are held back to a rate.
    Pacing {
        /// The rate.
        rate_bps: f64,
        /// True when the socket has it (`SO_MAX_PACING_RATE`).
        by_socket: bool,
    },
    /// Lost packets keep the congestion window small.
    Loss {
        /// Bytes sent again / bytes sent.
        loss_ratio: f64,
        /// What this loss allows by `model`.
        bound_bps: f64,
        /// The formula.
        model: LossModel,
        /// Loss at which the goal would be reached.
        tolerable_ratio: f64,
        /// The goal.
        goal_bps: f64,
    },
    /// Packets above a rate are dropped without a queue (a policer).
    Policer {
        /// The rate, as goodput of all flows together.
        rate_bps: f64,
        /// Bytes sent again / bytes sent.
        loss_ratio: f64,
    },
    /// The congestion control sends less than another one over the same path.
    CongestionControl {
        /// The one in force.
        name: String,
        /// The one that was tried beside it.
        other: String,
        /// What the other one reached.
        other_bps: f64,
    },
    /// Flows of one test differ: some share a slow path or core.
    UnevenFlows {
        /// Numbers of the slow flows.
        slow_flows: Vec<u32>,
        /// Median rate of a slow flow.
        slow_bps: f64,
        /// Median rate of the others.
        fast_bps: f64,
        /// What the slow ones share.
        shared: SharedBy,
    },
    /// Other processes hold the cores that the flow's threads need.
    Contention {
        /// On this end.
        end: End,
        /// The core, where it is a single one.
        core: Option<u32>,
        /// Share of the time that the flow's thread waited for a core.
        waiting_ratio: f64,
        /// Cores' worth of time that other processes used.
        foreign_core_count: f64,
        /// Who, the busiest first.
        processes: Vec<ProcessShare>,
    },
    /// The CPU quota of a control group stops the program.
    CpuQuota {
        /// On this end.
        end: End,
        /// Control group that has the quota.
        group: String,
        /// Quota in thousandths of a core.
        quota_millicores: u64,
        /// Enforcement periods in which it was throttled, 0 to 1.
        throttled_ratio: f64,
    },
    /// Writer and reader of one machine share a core.
    SharedCore {
        /// The core.
        core: u32,
        /// Both were pinned to it; otherwise the scheduler placed them.
        pinned: bool,
        /// Share of the core that both use together, 0 to 1.
        used_ratio: f64,
        /// Other cores, the nearest first.
        better_cores: Vec<u32>,
    },
    /// The path carries no more: its bottleneck's queue is full.
    PathCapacity {
        /// What it carries, as goodput.
        rate_bps: f64,
        /// Round-trip time less the lowest: time in the queue.
        queue_ns: u64,
    },
    /// The congestion window was still growing when the flow ended.
    StillRamping {
        /// Time until it would have reached the goal, from the model.
        needed_ns: u64,
    },
    /// The processing of one end.
    Cpu {
        /// Which part.
        role: Role,
        /// On this end.
        end: End,
        /// The core, where one is known.
        core: Option<u32>,
        /// Share of the time that the flow's thread ran or waited for a core.
        runnable_ratio: f64,
        /// Share of the time that it waited for a core: somebody else had it.
        waiting_ratio: f64,
    },
    /// Reader and packet processing share a core.
    InterruptCollision {
        /// On this end.
        end: End,
        /// The core.
        core: u32,
        /// Share of it used for packet processing, 0 to 1.
        softirq_ratio: f64,
        /// Other cores, the nearest first.
        better_cores: Vec<u32>,
    },
    /// Thread and card are on different NUMA nodes.
    NumaRemote {
        /// Which part.
        role: Role,
        /// On this end.
        end: End,
        /// Interface.
        interface: String,
        /// Node of the card.
        nic_node: u32,
        /// Core of the thread.
        core: u32,
        /// Node of the thread.
        thread_node: u32,
        /// Hops between them.
        hop_count: u32,
        /// Cores of the card's node.
        better_cores: Vec<u32>,
    },
    /// Nobody takes packets out of the card in time.
    ReceiveOverrun {
        /// On this end.
        end: End,
        /// Packets dropped in `netdev_max_backlog` or at the card.
        dropped_packet_count: u64,
    },
}

/// A process and its share of a core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessShare {
    /// Name (`comm`), for several processes of one name once.
    pub name: String,
    /// Number of processes of that name.
    pub process_count: u32,
    /// Cores' worth of time that they used together.
    pub core_count: f64,
}

/// What the slow flows of a test have in common and the fast ones do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharedBy {
    /// A leg of the path: its queue, its delay or its loss.
    Path,
    /// The core of the sending threads.
    SenderCore(u32),
    /// The core of the receiving threads.
    ReceiverCore(u32),
}

/// What holds a buffer or window at its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BufferLimit {
    /// The program asked for this many bytes (`SO_RCVBUF`, `SO_SNDBUF`, window).
    Explicit(u64),
    /// The last value of a sysctl.
    Sysctl {
        /// `net.ipv4.tcp_rmem`.
        name: String,
        /// Its value.
        value_bytes: u64,
        /// On this end.
        end: End,
    },
    /// 65535 shifted by the window scale of the handshake (RFC 7323).
    WindowScale(u8),
}

/// Response function of a congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossModel {
    /// `1.22 / sqrt(p)` segments (Mathis, Semke, Mahdavi, Ott 1997).
    Mathis,
    /// `1.054 T^0.75 / p^0.75` segments (RFC 9438, section 5.1).
    Cubic,
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
    /// Something no program can do here: a slot, a cable, another path.
    Physical {
        /// What, one sentence.
        what: String,
    },
}

/// A stage between the two applications.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Which.
    pub name: StageName,
    /// What it can carry as goodput of the flows diagnosed; absent when nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bps: Option<f64>,
    /// True when the flow shows at least this much, and more may be possible.
    #[serde(default)]
    pub at_least: bool,
    /// True for the stage that limits.
    #[serde(default)]
    pub limiting: bool,
    /// Where the ceiling comes from, with the arithmetic.
    pub basis: String,
}

/// Stages in their order on the way.
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
    /// What lies between.
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

/// A flow that would tell or has told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// What it varies.
    pub kind: ExperimentKind,
    /// What it is, and what each outcome would mean.
    pub question: String,
    /// The flow to run.
    pub flow: FlowConfig,
}

/// What an experiment varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentKind {
    /// The flow as asked for.
    AsAsked,
    /// The same again, longer.
    Longer,
    /// Several flows: a limit of each flow, or one that they share?
    SeveralFlows,
    /// The other way.
    Reverse,
    /// Without an explicit window or buffer.
    WithoutWindow,
    /// Without pacing.
    WithoutPacing,
    /// Without pauses of the programs.
    WithoutPauses,
    /// The reader on another core.
    OtherReceiverCore,
    /// The writer on another core.
    OtherSenderCore,
    /// Another congestion control.
    OtherCongestionControl,
    /// The same flow again: does the machine give the same twice?
    Again,
}

/// What an experiment gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentResult {
    /// What it varied.
    pub kind: ExperimentKind,
    /// Direction of its data.
    pub direction: Direction,
    /// Flows.
    pub flow_count: u32,
    /// Goodput.
    pub goodput_bps: f64,
    /// What follows from it, one sentence.
    pub conclusion: String,
}

/// Something to try.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suggestion {
    /// What to do, with the concrete setting, one sentence.
    pub sentence: String,
    /// A command line that does it or shows it, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}
