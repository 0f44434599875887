//! The protocol machine of a connection: two of them against a model, errors
//! made by hand, ends of connections, hostile bytes.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod end;
mod ends;
mod errors;
mod frames;
mod hostile;
mod hostile_peer;
mod model;
mod plan;
mod queues;
mod taken_back;
