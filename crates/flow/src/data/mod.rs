//! Data threads: transfers, with relaxed stores to counters read by the sampler.

mod custom;
mod datagram;
mod gate;
mod receive;
mod send;
mod thread_counters;
mod worker;

pub use custom::Progress;
pub(crate) use datagram::{DATAGRAM_HEADER_BYTES, SEGMENTS_MAX};
pub(crate) use gate::{Gate, Outcome};
pub(crate) use thread_counters::{Reading, ThreadCounters};
pub(crate) use worker::{AfterRead, Burst, Datagrams, Operation, Task, TransferSize, Worker, WorkerReady};
