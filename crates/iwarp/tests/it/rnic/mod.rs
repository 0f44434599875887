//! Software RNIC over loopback: every operation end to end in each progress
//! mode, connection setup with correct and faulty peers, faults, many queue
//! pairs, and the guarantees of the safe tier for buffers.

mod adaptive;
mod capture;
mod channels;
mod closing;
mod extend;
mod faults;
mod given_up;
mod many;
mod older_peers;
mod operations;
mod processes;
mod settling;
mod setup;
pub(crate) mod sides;
mod threads;
mod waiting;
mod withdrawn;
