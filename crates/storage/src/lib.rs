//! Storage measurements on mounted file systems: file semantics ([`semantics`]), streaming by many ranks with
//! IOR's model ([`stream`]), and metadata with that of mdtest ([`metadata`]).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent;
mod benchmark;
pub mod calls;
mod clock;
mod collective;
mod controller;
mod data;
mod folder;
pub mod guard;
mod job;
mod journal;
mod kept;
mod latency;
mod live;
mod made;
mod metadata;
mod mount;
mod operations_log;
mod resources;
pub mod semantics;
mod stream;
mod test_folder;
mod trial;

pub use agent::StorageAgent;
pub use benchmark::{CommonOptions, RankBenchmark, RankSummary};
pub use controller::{Ran, StorageError};
pub use job::JobPlace;
pub use latency::Latency;
pub use live::{Live, OnLive, has_lost_ranks, watched_rank};
pub use metadata::StorageMetadataWorkload;
pub use stream::StorageStream;
