//! RDMA over TCP in software (iWARP: RFC 5040, 5041, 5044, 6581, 7306).
//!
//! Layers, bottom up: [`stag`] and [`work`] define the common types; [`memory`]
//! holds registered memory and is the only module with unsafe code; [`mpa`],
//! [`ddp`] and [`rdmap`] encode and decode the wire formats; [`queue_pair`] is
//! the protocol state machine of one connection. None of these does I/O or
//! reads a clock, except that `memory` passes its memory to the two socket
//! calls. [`rnic`] drives queue pairs over sockets, and [`verbs`] is the
//! programming interface.

pub mod ddp;
pub mod memory;
pub mod mpa;
pub mod queue_pair;
pub mod rdmap;
pub mod rnic;
pub mod stag;
mod sync;
pub mod verbs;
pub mod work;
