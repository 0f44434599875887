//! Flow tests with iperf3 programs as the peer: as their client, where ClearStream cannot be installed, and
//! as a server for their clients.
//!
//! - The protocol does no I/O and reads no clock: [`protocol`] (states, cookie, frames), [`Parameters`],
//!   [`Results`], [`datagram`] and the state machines [`ClientMachine`] and [`ServerMachine`].
//! - [`run`] is a test with a server, [`Server`] serves clients. Both move bytes with the data threads of
//!   `clearstream-flow` ([`clearstream_flow::engine`]) and sample with its sampler.
//! - Results of the peer are limited to what its protocol reports: bytes, time, retransmits, datagrams and
//!   the CPU of its process. What it cannot report is listed in every summary.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod client;
mod control;
pub mod datagram_header;
pub mod document;
mod error;
mod object;
mod parameters;
pub mod protocol;
mod results;
mod server;
mod summary;
mod tally;
mod udp;

pub use self::{
    client::{
        Iperf3Event,
        machine::{ClientEvent, ClientMachine},
        run,
    },
    error::{Iperf3Error, ProtocolError},
    parameters::Parameters,
    results::{Omitted, Results, Retransmits, StreamResult},
    server::{
        IDLE_LIMIT, Server, ServerEvent, ServerOptions,
        machine::{ServerEvent as ServerMachineEvent, ServerMachine},
    },
};
