//! Protocol state machine of a connection: two of them against a model,
//! protocol errors, teardown, hostile bytes.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod end;
mod errors;
mod extend;
mod frames;
mod hostile;
mod hostile_peer;
mod lifecycle;
mod model;
mod plan;
mod queues;
mod withdrawn;
