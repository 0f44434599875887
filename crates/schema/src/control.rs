//! Messages between a controller and an agent. Framing and the order of
//! messages are the `control` crate's; these are only the shapes.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    flow::{FlowConfig, FlowSettings, Notice, SideInterval},
    host::HostReport,
    plan::{PlanReply, PlanRequest},
    probe::{ProbeConfig, ProbeDirection},
    wire::{RouteReply, RouteRequest},
};

/// Both ends must speak the same major version; a higher minor only adds.
pub const PROTOCOL_MAJOR: u16 = 1;
/// Additions since the major version.
pub const PROTOCOL_MINOR: u16 = 4;

/// First message of each side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// [`PROTOCOL_MAJOR`] of the speaker.
    pub major: u16,
    /// [`PROTOCOL_MINOR`] of the speaker.
    pub minor: u16,
    /// Program version, for messages to people.
    pub version: String,
    /// Host name of the speaker.
    pub host: String,
}

/// One frame's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// First message of each side.
    Hello(Hello),
    /// Controller to agent; answered by exactly one `Reply` with the same id.
    Request {
        /// Chosen by the controller, ascending.
        id: u64,
        /// What to do.
        request: Box<Request>,
    },
    /// Agent to controller.
    Reply {
        /// Id of the request.
        id: u64,
        /// Its outcome.
        outcome: Outcome,
    },
    /// Agent to controller, at any time.
    Event(AgentEvent),
    /// Either way while nothing else is said, so that silence means death.
    KeepAlive,
    /// Agent to controller after its `Hello`: requests are served from now on.
    Ready,
    /// Agent to controller instead of `Ready`, which follows when its turn
    /// comes: the agent is busy and told to let others wait.
    Queued {
        /// Who is served and how many wait, for people.
        reason: String,
    },
    /// The speaker ends the session and says why.
    Goodbye {
        /// For people.
        reason: String,
        /// Set when the session was refused (busy), so that programs can tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<FailureKind>,
    },
}

/// What an agent is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "requests are few and live briefly")]
pub enum Request {
    /// Describe the host.
    Inspect,
    /// Make the scrubbed bundle; it comes as `CaptureChunk` events before the reply.
    Capture,
    /// Make data sockets for a test.
    FlowPrepare(FlowPrepare),
    /// Let data flow.
    FlowStart {
        /// Test number.
        test: u64,
    },
    /// Stop early (also after an error); answered when the threads have ended.
    FlowStop {
        /// Test number.
        test: u64,
    },
    /// Open answering sockets for probes.
    ProbeListen {
        /// Address to bind, the session's own when absent.
        address: Option<IpAddr>,
        /// Port of both sockets, free ones when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// Cookie that probes must carry.
        cookie: Cookie,
    },
    /// Send probes to a listening agent.
    ProbeRun {
        /// What to measure.
        config: ProbeConfig,
        /// The listening agent's UDP address.
        udp: SocketAddr,
        /// The listening agent's TCP address.
        tcp: SocketAddr,
        /// Cookie to carry.
        cookie: Cookie,
    },
    /// Close answering sockets.
    ProbeClose,
    /// Read, apply, verify or revert settings of the host.
    Plan(PlanRequest),
    /// Take part in a proof of routes on the wire.
    Route(RouteRequest),
    /// Be the far end of RDMA tests, until the session ends. Only connections from
    /// `peer` whose private data carries the cookie are served.
    RdmaServe {
        /// Address to listen on.
        address: IpAddr,
        /// Cookie of the tests; without one nothing is opened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cookie: Option<Cookie>,
        /// Address that the tests come from: over TLS the controller's own, which
        /// it is when absent; required on standard streams.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<IpAddr>,
    },
    /// End: the agent drops its handler and exits. Answered at once by the
    /// session, also while another request runs; handlers never see it.
    Shutdown,
}

/// Random 16 bytes in hexadecimal that every data socket must present first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cookie(pub String);

/// Which end of the data connections an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FlowRole {
    /// Waits for connections.
    Server {
        /// Address to bind; any when absent.
        address: Option<IpAddr>,
    },
    /// Connects.
    Client {
        /// Where the server waits.
        server: SocketAddr,
    },
}

/// Make the sockets of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowPrepare {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the data sockets.
    pub cookie: Cookie,
    /// Which end.
    pub role: FlowRole,
    /// The whole test; each side takes what concerns it.
    pub config: FlowConfig,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Done.
    Done(Box<Reply>),
    /// Not done.
    Failed(Failure),
}

/// Answers that carry something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Nothing to say.
    Empty,
    /// The host.
    Host(HostReport),
    /// Server: where it waits. Sent before any client connected.
    FlowListening {
        /// Address and port of the data socket.
        address: SocketAddr,
    },
    /// Client: all flows are connected.
    FlowConnected,
    /// Where probes are answered.
    ProbeListening {
        /// UDP address.
        udp: SocketAddr,
        /// TCP address.
        tcp: SocketAddr,
    },
    /// Probes done.
    Probed(ProbeDirection),
    /// Answer to a [`Request::Plan`].
    Plan(PlanReply),
    /// Answer to a [`Request::Route`].
    Route(RouteReply),
    /// Where RDMA tests may come.
    RdmaListening {
        /// Address and port.
        address: SocketAddr,
    },
}

/// What an agent says by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentEvent {
    /// All flows are connected on this side; settings in force.
    FlowReady {
        /// Test number.
        test: u64,
        /// In force.
        settings: FlowSettings,
        /// Lost capabilities and the like.
        notices: Vec<Notice>,
    },
    /// One interval has passed.
    FlowInterval {
        /// Test number.
        test: u64,
        /// The facts.
        interval: Box<SideInterval>,
    },
    /// This side's threads have ended.
    FlowFinished {
        /// Test number.
        test: u64,
        /// More notices (zero-copy fell back and the like).
        notices: Vec<Notice>,
        /// Why it ended early, if it did.
        failure: Option<Failure>,
    },
    /// Part of a capture (base64 of at most 256 KiB).
    CaptureChunk {
        /// The part.
        base64: String,
    },
    /// Intervals were thrown away because the controller did not take them
    /// fast enough: the series has a gap here.
    EventsDropped {
        /// How many since the last event of this kind.
        count: u64,
    },
}

/// Kind of failure; decides the controller's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The request makes no sense on this host (core offline, unknown congestion control).
    Invalid,
    /// Privilege, kernel feature or program missing.
    Unsupported,
    /// Busy with another test.
    Busy,
    /// Address or port in use.
    InUse,
    /// The pairing's scope, or the families of settings, do not permit it.
    Forbidden,
    /// Data connection refused, reset or timed out.
    Connection,
    /// No route to the other host, or nobody at its address.
    Unreachable,
    /// A fault of the agent.
    Internal,
}

/// Why a request was not done, for people and for the exit code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Kind.
    pub kind: FailureKind,
    /// What, where, what to do.
    pub message: String,
}
