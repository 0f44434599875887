//! Exploration of state spaces by many ranks: a real application whose messages are small and many.
//!
//! A model (`language`, for people in `docs/guide/explore.md`) becomes a [`Program`], whose states the
//! `engine` finds: each rank owns a part of them by hash, as the model checkers of the class of DiVinE do.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod compile;
pub mod document;
mod engine;
mod language;
pub mod live_traffic;
mod program;
pub mod ranks;
mod store;
mod workload;

pub use engine::{ExploreConfig, ExploreError, explore};
pub use language::{ModelError, Place};
pub use live_traffic::LiveTraffic;
pub use program::{Fault, Program};
pub use workload::Explore;

/// Models that come with the program: name and text.
pub const MODELS: [(&str, &str); 5] = [
    ("philosophers", include_str!("../../../models/philosophers.model")),
    ("peterson", include_str!("../../../models/peterson.model")),
    ("bakery", include_str!("../../../models/bakery.model")),
    ("leader", include_str!("../../../models/leader.model")),
    ("sliding_window", include_str!("../../../models/sliding_window.model")),
];
