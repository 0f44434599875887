//! Data threads: transfers, and relaxed stores that tell the sampler of them.

mod custom;
mod datagram;
mod gate;
mod receive;
mod send;
mod slot;
mod worker;

pub use custom::Progress;
pub(crate) use datagram::{DATAGRAM_HEADER_BYTES, SEGMENTS_MAX};
pub(crate) use gate::{Gate, Outcome};
pub(crate) use slot::Reading;
pub(crate) use worker::{AfterRead, Burst, Datagrams, Task, Way, Worker, WorkerReady};
