//! Bulk goodput: what can be requested, and what one test returns.

mod adaptation;
mod direction;
mod facts;
mod outcome;

use std::net::IpAddr;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

pub use adaptation::*;
pub use direction::*;
pub use facts::*;

use crate::{BitRate, ByteCount, CoreList, Dscp, TimeSpan};

/// Transport protocol of the flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP with segmentation and receive offload, loss counted.
    Udp,
    /// Multipath TCP (`IPPROTO_MPTCP`).
    Mptcp,
}

/// Direction of the data, seen from the side that is named first (the client).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Client to server.
    #[default]
    Forward,
    /// Server to client.
    Reverse,
    /// Both at once, each flow in both directions.
    Both,
}

/// System call that sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum SendMethod {
    /// `write`.
    #[default]
    Copy,
    /// `send` with `MSG_ZEROCOPY`; the fraction that was copied is reported.
    Zerocopy,
    /// `sendfile` from a memory file.
    Sendfile,
    /// `vmsplice` and `splice` through a pipe.
    Splice,
    /// `io_uring` with several sends in flight.
    IoUring,
}

/// System call that receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveMethod {
    /// `read` into memory.
    #[default]
    Copy,
    /// Dropped in the kernel (`MSG_TRUNC`): not goodput in the full sense,
    /// and called `discard` in every table.
    Discard,
    /// `splice()` through a pipe to `/dev/null`.
    Splice,
    /// `io_uring` receives.
    IoUring,
}

/// A flow test as requested. Keys, options and their defaults are these lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(feature = "cli", command(group = clap::ArgGroup::new("buffers").args(["window", "send_buffer", "receive_buffer"]).multiple(true)))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowConfig {
    /// Transport protocol
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = FlowConfig::default().protocol))]
    pub protocol: Protocol,
    /// Direction of the data: forward is from client to server
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = FlowConfig::default().direction))]
    pub direction: Direction,
    /// Number of flows, each with a thread of its own at both ends
    #[cfg_attr(feature = "cli", arg(long, short = 'P', value_name = "COUNT", default_value_t = FlowConfig::default().flows))]
    pub flows: u32,
    /// Time to measure, after the warm-up
    #[cfg_attr(feature = "cli", arg(long, short = 't', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = FlowConfig::default().duration))]
    pub duration: TimeSpan,
    /// Send this much per flow instead of measuring for a time
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'n', value_name = "BYTES", conflicts_with = "duration"))]
    pub bytes: Option<ByteCount>,
    /// Leading part that does not count in the totals
    #[cfg_attr(feature = "cli", arg(long, short = 'O', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = FlowConfig::default().warm_up))]
    pub warm_up: TimeSpan,
    /// Time between samples
    #[cfg_attr(feature = "cli", arg(long, short = 'i', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = FlowConfig::default().interval))]
    pub interval: TimeSpan,
    /// Bytes of one write or read; its optimum moves with the caches (default: the warm-up of `flow` chooses, everything else takes 512KiB)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'l', value_name = "BYTES"))]
    pub transfer: Option<ByteCount>,
    /// System call that sends
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = FlowConfig::default().method))]
    pub method: SendMethod,
    /// System call that receives
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = FlowConfig::default().receive))]
    pub receive: ReceiveMethod,
    /// TCP window: socket buffer of both ends (`SO_SNDBUF`, `SO_RCVBUF`) and the most that is advertised (`TCP_WINDOW_CLAMP`) (default: autotuned)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'w', value_name = "BYTES"))]
    pub window: Option<ByteCount>,
    /// Send buffer alone; wins over --window
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES"))]
    pub send_buffer: Option<ByteCount>,
    /// Receive buffer alone; wins over --window
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES"))]
    pub receive_buffer: Option<ByteCount>,
    /// Set the socket buffers even above net.core.rmem_max and wmem_max (needs CAP_NET_ADMIN)
    #[cfg_attr(feature = "cli", arg(long, requires = "buffers"))]
    pub force_buffers: bool,
    /// Receive low-water mark: wake the reader only for this much
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES"))]
    pub receive_low_water: Option<ByteCount>,
    /// Congestion control of the sending sockets (default: the host's, or that of the route)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'C', value_name = "NAME"))]
    pub congestion_control: Option<String>,
    /// Kernel pacing per flow (`SO_MAX_PACING_RATE`)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "RATE"))]
    pub pacing: Option<BitRate>,
    /// TCP maximum segment size (`TCP_MAXSEG`) of both ends, 88 to 32767 bytes (default: from the MTU)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES"))]
    pub mss: Option<ByteCount>,
    /// Differentiated services code point: 0 to 63, or a name (ef, cs0 to cs7, af11 to af43, le, va)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "DSCP"))]
    pub dscp: Option<Dscp>,
    /// Cores of the sending threads, assigned to the flows round-robin (default: not pinned)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LIST"))]
    pub sender_cores: Option<CoreList>,
    /// Cores of the receiving threads, assigned to the flows round-robin (default: not pinned)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LIST"))]
    pub receiver_cores: Option<CoreList>,
    /// NUMA node of the buffers (default: the thread's own)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NODE"))]
    pub memory_node: Option<u32>,
    /// Source port of flow 0 at the client; the other flows use the ports after it
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "PORT"))]
    pub source_port: Option<u16>,
    /// Source port of each flow at the client, in their order, instead of --source-port
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "PORTS", value_delimiter = ',', conflicts_with = "source_port")
    )]
    pub source_ports: Option<Vec<u16>>,
    /// Choose source ports so that RSS spreads the flows over the server's receive queues (needs a NIC that exposes its RSS key and indirection table)
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "cli", arg(long, conflicts_with_all = ["source_port", "source_ports"]))]
    pub steer: bool,
    /// Interface of the server that receives, where --steer finds several
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", requires = "steer"))]
    pub steer_interface: Option<String>,
    /// Port of the server's data socket, for firewalls (default: any free one)
    #[serde(alias = "port", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long = "port", short = 'p', visible_alias = "destination-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..)))]
    pub destination_port: Option<u16>,
    /// Address the client's data sockets bind to
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "ADDRESS"))]
    pub bind_address: Option<IpAddr>,
    /// Interface the client's data sockets bind to
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub bind_interface: Option<String>,
    /// UDP payload of one datagram on the wire (default: from the path MTU)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES"))]
    pub datagram: Option<ByteCount>,
    /// Number of the flows (the last ones) that send in bursts, as message-passing programs do
    #[cfg_attr(feature = "cli", arg(long, value_name = "COUNT", default_value_t = FlowConfig::default().burst_flows))]
    pub burst_flows: u32,
    /// A bursty flow sends for this long
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", requires = "burst_flows", default_value_t = FlowConfig::default().burst_on))]
    pub burst_on: TimeSpan,
    /// Pause of a bursty flow after each burst
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", requires = "burst_flows", default_value_t = FlowConfig::default().burst_off))]
    pub burst_off: TimeSpan,
    /// Pause of a receiving thread after each read, as in a program that waits for its disk
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME"))]
    pub receiver_pause: Option<TimeSpan>,
    /// A receiving thread computes this long after each read, as a program that works on the data
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME"))]
    pub receiver_work: Option<TimeSpan>,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::Tcp,
            direction: Direction::Forward,
            flows: 1,
            duration: TimeSpan::from_seconds(10),
            bytes: None,
            warm_up: TimeSpan::from_seconds(1),
            interval: TimeSpan::from_seconds(1),
            transfer: None,
            method: SendMethod::Copy,
            receive: ReceiveMethod::Copy,
            window: None,
            send_buffer: None,
            receive_buffer: None,
            force_buffers: false,
            receive_low_water: None,
            congestion_control: None,
            pacing: None,
            mss: None,
            dscp: None,
            sender_cores: None,
            receiver_cores: None,
            memory_node: None,
            source_port: None,
            source_ports: None,
            steer: false,
            steer_interface: None,
            destination_port: None,
            bind_address: None,
            bind_interface: None,
            datagram: None,
            burst_flows: 0,
            burst_on: TimeSpan::from_millis(300),
            burst_off: TimeSpan::from_millis(700),
            receiver_pause: None,
            receiver_work: None,
        }
    }
}

/// A key or value that a flow test does not have.
#[derive(Debug, thiserror::Error)]
#[error("flow option \"{key}\": {source}")]
pub struct FlowOptionError {
    /// The key as written.
    pub key: String,
    /// Reason.
    #[source]
    pub source: serde_json::Error,
}

/// Bytes of one write or read where nobody chose.
const TRANSFER_DEFAULT: ByteCount = ByteCount(512 << 10);

impl FlowConfig {
    /// Bytes of one write or read.
    pub fn transfer(&self) -> ByteCount {
        self.transfer.unwrap_or(TRANSFER_DEFAULT)
    }

    /// Source port of a flow at the client, where one is requested.
    pub fn source_port_of(&self, flow: u32) -> Option<u16> {
        if let Some(ports) = &self.source_ports {
            return ports.get(flow as usize).copied();
        }
        self.source_port.map(|port| port.saturating_add(u16::try_from(flow).unwrap_or(u16::MAX)))
    }

    /// The same test with one key set, as a factor of a study does.
    pub fn with(&self, key: &str, value: serde_json::Value) -> Result<Self, FlowOptionError> {
        let fail = |source| FlowOptionError { key: key.to_owned(), source };
        let mut document = crate::json::to_value(self).map_err(fail)?;
        if let Some(options) = document.as_object_mut() {
            options.insert(key.to_owned(), value);
        }
        crate::json::from_value(document).map_err(fail)
    }
}
