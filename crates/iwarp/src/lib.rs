//! RDMA over TCP in software (iWARP: RFC 5040, 5041, 5044, 6581, 7306).
//!
//! From the bottom up: [`stag`] and [`work`] are the vocabulary; [`memory`]
//! holds registered memory and is the only module with unsafe code; [`mpa`],
//! [`ddp`] and [`rdmap`] are the bytes of the wire; [`queue_pair`] is the
//! protocol of one connection. None of these does I/O or reads a clock, except
//! that `memory` lends its memory to the two calls of a socket. [`rnic`] puts
//! sockets and progress below a queue pair, and [`verbs`] is what a program
//! uses.

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
