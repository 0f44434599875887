//! What a host does with a packet, by its configuration alone: route lookup,
//! forwarding, source validation. The planner's path simulation and the
//! linter's share it.

pub mod lookup;
pub(crate) mod node;
