//! Workload `overlap`: how much of a core stays free for work while messages move, by the
//! two methods of COMB (W. Lawry, C. Wilson, A. Maccabe, R. Brightwell: "COMB: A
//! Portable Benchmark Suite for Assessing MPI Overlap", Cluster 2002).
//!
//! Work is a loop of counted iterations. Its time alone, divided by the time of
//! the same iterations beside messages, is the availability of the core.
//! - *polling*: the server starts a window of messages and returns each at once;
//!   the client works, and after each interval of work replies to the messages
//!   that arrived.
//! - *post-work-wait*: in each cycle the client posts a window of messages in each
//!   direction, works, and waits for all of them; the server does so without work.
//!
//! Messages go over a transport, TCP or software iWARP, and a TCP connection of its
//! own carries the protocol between client and server; or both go over MPI, between
//! two ranks.

mod check;
mod connect;
mod document;
mod engine;
mod facts;
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
pub use workload::Overlap;
