//! Causes that limit a path, as typed facts.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{End, Role};

/// Cause that limits a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Cause {
    /// Packets up to the route's MTU are lost without an ICMP error (PMTU black hole).
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
        /// The values appear to be in bytes, or a copy of a triple in bytes.
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
    /// An interface stops the sending device of its link, or is stopped by it (IEEE 802.3 Annex 31B).
    PauseFrames {
        /// On this end.
        end: End,
        /// Interface.
        interface: String,
        /// Direction of the frames.
        direction: PauseDirection,
        /// Frames while the flow ran, of the driver's counter that rose most.
        frame_count: u64,
        /// Upper limit of the fraction of the time that these frames stop a link; absent without a link speed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stopped_time_ratio_max: Option<f64>,
    },
    /// The receiver does not offer more window.
    ReceiverWindow {
        /// Setting that bounds it.
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
        /// Setting that bounds it.
        held_by: BufferLimit,
        /// Send buffer in effect.
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
        /// Fraction of a core that its thread uses, 0 to 1.
        thread_share_ratio: f64,
    },
    /// The program that writes is slow.
    SenderApplication {
        /// Fraction of a core that its thread uses, 0 to 1.
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
        /// Bytes retransmitted / bytes sent.
        loss_ratio: f64,
        /// Goodput allowed by this loss, by `model`.
        bound_bps: f64,
        /// The formula.
        model: LossModel,
        /// Loss at which the goal would be reached.
        tolerable_ratio: f64,
        /// The goal.
        goal_bps: f64,
    },
    /// Packets overtake each other, and the sender takes those that are late for lost.
    Reordering {
        /// Reordering events that the sender noticed (`tcpi_reord_seen`).
        event_count: u64,
        /// Bytes retransmitted / bytes sent.
        resent_ratio: f64,
    },
    /// Packets above a rate are dropped without a queue (a policer).
    Policer {
        /// The rate, as goodput of all flows together.
        rate_bps: f64,
        /// Bytes retransmitted / bytes sent.
        loss_ratio: f64,
    },
    /// The congestion control sends less than an alternative over the same path.
    CongestionControl {
        /// The one in effect.
        name: String,
        /// The alternative that was measured.
        other: String,
        /// Goodput that the alternative reached.
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
        /// Common property of the slow flows.
        shared: SharedBy,
    },
    /// Other processes hold the cores that the flow's threads need.
    Contention {
        /// On this end.
        end: End,
        /// The core, where it is a single one.
        core: Option<u32>,
        /// Fraction of the time that the flow's thread waited for a core.
        waiting_ratio: f64,
        /// Cores' worth of time that other processes used.
        foreign_core_count: f64,
        /// Processes, the busiest first.
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
        /// Fraction of the core that both use together, 0 to 1.
        used_ratio: f64,
        /// Other cores, the nearest first.
        better_cores: Vec<u32>,
    },
    /// The path carries no more: its bottleneck's queue is full.
    PathCapacity {
        /// Its capacity, as goodput.
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
        /// Part.
        role: Role,
        /// On this end.
        end: End,
        /// The core, where one is known.
        core: Option<u32>,
        /// Fraction of the time that the flow's thread ran or waited for a core.
        runnable_ratio: f64,
        /// Fraction of the time that it waited for a core that another thread had.
        waiting_ratio: f64,
    },
    /// Reader and packet processing share a core.
    InterruptCollision {
        /// On this end.
        end: End,
        /// The core.
        core: u32,
        /// Fraction of it used for packet processing, 0 to 1.
        softirq_ratio: f64,
        /// Other cores, the nearest first.
        better_cores: Vec<u32>,
    },
    /// Thread and card are on different NUMA nodes.
    NumaRemote {
        /// Part.
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
    /// Packets are not taken from the NIC's ring in time.
    ReceiveOverrun {
        /// On this end.
        end: End,
        /// Packets dropped in `netdev_max_backlog` or at the card.
        dropped_packet_count: u64,
    },
}

/// Direction of pause frames, as seen from the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PauseDirection {
    /// The interface sent them.
    Sent,
    /// The interface received them.
    Received,
}

/// A process and its fraction of a core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessShare {
    /// Name (`comm`), for several processes of one name once.
    pub name: String,
    /// Number of processes of that name.
    pub process_count: u32,
    /// Cores' worth of time that they used together.
    pub core_count: f64,
}

/// Property that the slow flows of a test have in common and the fast ones lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharedBy {
    /// A leg of the path: its queue, its delay or its loss.
    Path,
    /// The core of the sending threads.
    SenderCore(u32),
    /// The core of the receiving threads.
    ReceiverCore(u32),
    /// No property that the samples show.
    Unknown,
}

/// Setting that bounds a buffer or window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BufferLimit {
    /// The program requested this many bytes (`SO_RCVBUF`, `SO_SNDBUF`, window).
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
