//! Passive diagnosis: what limits connections that other programs have open, by the state that the kernel
//! reports of their sockets. No packet is sent and no setting is changed.
//!
//! [`observe`] samples all sockets; [`explain_connections`] is pure: samples in, findings out.

mod calls;
mod causes;
mod evidence;
mod facts;
mod filter;
mod join;
mod observe;
mod receiver;
mod report;
mod sender;
#[cfg(test)]
mod tests;

pub use calls::{ExplainSockets, ObserveSockets, SocketAgent};
pub use filter::{ConnectionFilter, ParseFilterError};
pub use join::{Ends, busiest_ends, joined};
pub use observe::{ObserveError, ObserveOptions, SocketMonitor, observe};
pub use report::explain_connections;

use clearstream_schema::{
    connections::{SocketOwner, TcpSocket},
    notice::Notice,
};
use serde::{Deserialize, Serialize};

/// Samples of the sockets of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Time between the first and the last sample.
    pub duration_ns: u64,
    /// Samples of all sockets.
    pub sample_count: u32,
    /// Median time between two of these.
    pub interval_ns: u64,
    /// Longest time that one took.
    pub longest_sample_ns: u64,
    /// Each socket with its samples.
    pub(crate) series: Vec<SocketSeries>,
    /// Sockets that are not among these: those of no interest to who requested it.
    #[serde(default)]
    pub(crate) left_out_count: u64,
    /// Facts that could not be gathered.
    pub notices: Vec<Notice>,
}

/// Samples of one socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SocketSeries {
    /// Host whose agent sampled it, where two hosts are observed.
    #[serde(default)]
    pub host: Option<String>,
    /// Process id in whose network namespace it is; absent for that of the observer.
    pub namespace: Option<u32>,
    /// Programs that hold it.
    pub owners: Vec<SocketOwner>,
    /// Maximum of `net.ipv4.tcp_rmem` in its namespace.
    pub receive_buffer_max_bytes: Option<u64>,
    /// Maximum of `net.ipv4.tcp_wmem` in its namespace.
    pub send_buffer_max_bytes: Option<u64>,
    /// In order of time. Of equal ones in sequence only the first and the last are kept.
    pub samples: Vec<SocketSample>,
}

/// A socket at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SocketSample {
    /// Since the begin of the observation.
    pub at_ns: u64,
    /// Its state.
    pub socket: TcpSocket,
}

impl SocketSeries {
    /// Adds a sample.
    fn push(&mut self, at_ns: u64, socket: TcpSocket) {
        if let [.., one, two] = &mut self.samples[..]
            && one.socket == two.socket
            && two.socket == socket
        {
            two.at_ns = at_ns;
        } else {
            self.samples.push(SocketSample { at_ns, socket });
        }
    }
}
