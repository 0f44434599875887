//! Protocol state machine of a connection: two of them against a model,
//! protocol errors, teardown, hostile bytes.

mod end;
mod errors;
mod extend;
mod frames;
mod hostile;
mod hostile_peer;
mod immediate;
mod lifecycle;
mod model;
mod plan;
mod queues;
mod withdrawn;
