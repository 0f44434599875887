//! The public functions of libibverbs and librdmacm for queue pairs of type RC
//! that the connection manager joins, over [`clearstream_iwarp`]: preloaded
//! into unmodified programs.
//!
//! Each object that a program sees begins with the structure of the public
//! header ([`abi`]); what follows it is ours. Functions that receive such an
//! object are all here: those of the real libraries would read members that are
//! not there. What is not offered returns EOPNOTSUPP ([`refused`]).
//!
//! Progress: the thread that polls a completion queue reads its sockets; the
//! RNIC's helper does so when no thread has polled for a moment. A thread of this
//! library ([`helper`]) drives connection setups.
#![allow(unsafe_code, reason = "an interface for C takes pointers")]
#![allow(
    clippy::missing_safety_doc,
    reason = "requirements on pointers are those of the manual pages of rdma-core"
)]

pub mod abi;
pub mod address;
pub mod async_events;
pub mod channel;
pub mod cm;
pub mod completion;
pub mod context;
pub mod device;
pub mod handle;
pub mod helper;
pub mod kernel;
pub mod memory;
pub mod modify;
pub mod post;
pub mod queue_pair;
pub mod refused;
pub mod report;
pub mod runtime;
pub mod settings;
pub mod shared_receives;
pub mod sockets;
pub mod statistics;
