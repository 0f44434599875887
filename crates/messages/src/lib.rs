//! Messages between two hosts, over TCP, software iWARP or MPI, in two workloads:
//! - [`Message`]: latency and bandwidth by message size ([`message`]);
//! - [`Overlap`]: how much of a core stays free for work while messages move ([`overlap`]).
//!
//! Each is a measurement of two sides ([`clearstream_workload::two_sided`]), or of two ranks of an MPI job, which are
//! this program too and measure by themselves (`message::rank`, `overlap::rank`), with the same engine. What both need is
//! here: data connections ([`connection`]) and contents that are generated and verified ([`Traffic`]).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod connection;
mod costs;
pub mod message;
pub mod overlap;
mod ranks;
mod traffic;

pub use message::Message;
pub use overlap::Overlap;
pub use ranks::Say;
pub use traffic::{Damage, Traffic};

pub(crate) use costs::{Costs, ProcessCosts};

use clearstream_schema::control::{Failure, FailureKind};

/// Rejects options of MPI beside another transport.
fn refuse_options_of_mpi(is_mpi: bool, options: [(&str, bool); 2]) -> Result<(), Failure> {
    match options.iter().find(|(_, is_set)| *is_set) {
        Some((option, _)) if !is_mpi => {
            let message = format!("{option} is for MPI: leave it out, or write --transport mpi");
            Err(Failure::new(FailureKind::Invalid, message))
        }
        _ => Ok(()),
    }
}
