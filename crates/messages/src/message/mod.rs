//! Workload `message`: latency and bandwidth by message size.
//!
//! Measurement kinds, on one connection with one thread per side:
//! - *ping-pong*: the client sends a message and waits until it has come back.
//!   Every round trip is timed by the client's monotonic clock; a one-way
//!   latency is half of it. Throughput is size / mean one-way latency, as
//!   NetPIPE computes it.
//! - *stream*: the client sends a window of messages, one system call each, and
//!   waits for an acknowledgement of 4 bytes, which the server sends when its
//!   application has received all of them (as the OSU micro-benchmarks do).
//! - *bidirectional*: both sides concurrently send and receive a window, and
//!   both acknowledge.
//!
//! Number of iterations: the warm-up of each size doubles its iterations until
//! its time is up; the last of them determines how many fit into the duration.
//! Slow paths get at least ten, unless these would take ten times the duration.

mod check;
mod document;
mod engine;
mod facts;
mod formats;
mod mpi;
mod notices;
mod sides;
mod table;
#[cfg(test)]
mod tests;
mod workload;

pub use document::*;
pub use facts::*;
pub use mpi::rank;
pub use sides::Sides;
pub use workload::Message;
