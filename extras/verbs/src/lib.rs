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
//!
//! # Safety
//!
//! The contract of this library, for each function that a program calls, is that of the manual pages of rdma-core:
//!
//! - An object is of the function of this library that creates it. The call that destroys it with success is the last
//!   one with it, of all threads but those that have an event about it: it waits until they acknowledge them, seconds at
//!   most. Device and context are never freed.
//! - An object outlives those that were created with it: the destruction of a domain, a queue or a channel that is in
//!   use is refused with EBUSY.
//! - A structure or variable of the program is valid and initialised for what is read of it, and has room for what is
//!   written, during the call; what is returned there replaces what was there. It is not NULL where nothing says so.
//! - Contexts of the program (`cq_context` and the like) are passed back and never followed. Arguments whose names
//!   begin with `_` are not looked at: they may be anything.
//! - All threads may call at once, also with the same object, but see [`cm`] for identifiers.

#![allow(unsafe_code, reason = "an interface for C takes pointers")]

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
pub mod refusing;
pub mod report;
pub mod runtime;
pub mod settings;
pub mod shared_receives;
pub mod sockets;
pub mod statistics;
