//! Proof on the wire: real flows from every class of hosts through every
//! gateway, and what became of them.
//!
//! - [`ProofAgent`] is the agent's side, which serves [`calls`]: it asks its kernel
//!   which gateway a flow would take, opens and answers flows, and counts what
//!   passes a gateway.
//! - [`prove`] is the controller's side: it chooses flows ([`Crossing`] says
//!   between whom), has them opened while all gateways watch, and concludes.
//!
//! How it is known: the gateway of a flow is the one whose interfaces its
//! packets entered and left by, seen by a packet socket there; the interface
//! counters are a second witness, and the kernel's own lookup (`RTM_GETROUTE`
//! with the ports) a third. A gateway that takes packets and does not pass
//! them on is seen as such.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent;
pub mod calls;
mod crossing;
mod extent;
mod facts;
mod findings;
mod flows;
mod hosts;
mod judge;
mod prove;
mod queries;
mod shares;
mod through;

pub use agent::ProofAgent;
pub use crossing::{Crossing, End, GatewayEnds, Selection};
pub use hosts::ProofError;
pub use prove::{ProofOptions, ProofProgress, prove};
