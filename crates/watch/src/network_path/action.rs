//! What goes in and out of the state machine of a path: its setup, probes, replies, actions and events.

use std::time::Duration;

use clearstream_schema::watch::{OutReason, TargetReason};

use crate::probe_kind::ProbeKind;

/// Initial state of a path.
#[derive(Debug, Clone)]
pub(crate) struct PathSetup {
    /// For each gateway, whether it is among the next hops now.
    pub(crate) members: Vec<bool>,
    /// Remote hosts that can be probed; the first ones are the initial targets.
    pub(crate) candidate_count: usize,
    /// Time between rounds while nothing fails.
    pub(crate) steady: Duration,
    /// The same while a gateway is out and may return: as short as the load on the fabric allows.
    pub(crate) brisk: Duration,
}

/// Origin of a probe reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// The watch of the remote host, through the same gateway.
    Watch,
    /// The remote host's kernel (ICMP echo), by its own route.
    Echo,
}

/// A probe to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Gateway that forwards it.
    pub(crate) gateway: usize,
    /// Remote host: index among the candidates.
    pub(crate) target: usize,
    /// Number of the round.
    pub(crate) round: u64,
    /// Transport, size and port.
    pub(crate) kind: ProbeKind,
    /// Send an ICMP echo request too.
    pub(crate) echo: bool,
}

/// A received probe reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProbeReply {
    /// Gateway that carried it.
    pub(crate) gateway: usize,
    /// Number of the round.
    pub(crate) round: u64,
    /// Origin.
    pub(crate) origin: ReplyKind,
    /// Transport, size and port.
    pub(crate) kind: ProbeKind,
}

/// An action or event that a path requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathAction {
    /// Send this probe.
    Probe(Probe),
    /// Use these gateways as next hops: one flag per gateway, at least one set.
    Members(Vec<bool>),
    /// A gateway was withdrawn.
    Out {
        /// Index of the gateway.
        gateway: usize,
        /// Cause.
        reason: OutReason,
        /// Send time of the first probe that failed.
        since: Option<Duration>,
    },
    /// A gateway was restored.
    In {
        /// Index of the gateway.
        gateway: usize,
    },
    /// A faulty gateway stays, because it is the last one.
    KeptLast {
        /// Index of the gateway.
        gateway: usize,
        /// Fault.
        reason: OutReason,
    },
    /// No target responds through any gateway.
    Silent,
    /// A target responds after [`Self::Silent`].
    Reachable,
    /// Another remote host is probed from now on; indices among the candidates.
    TargetChanged {
        /// Previous target.
        from: usize,
        /// New target.
        to: usize,
        /// Cause.
        reason: TargetReason,
    },
}
