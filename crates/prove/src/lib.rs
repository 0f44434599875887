//! Verification of routes by traffic: real flows from every class of hosts through
//! every gateway, and their outcome.
//!
//! - [`ProofAgent`] is the agent's side, which serves [`calls`]: it queries its kernel
//!   for the gateway of a flow, opens flows and responds to them, and counts the packets
//!   that a gateway forwards.
//! - [`prove`] is the controller's side: it chooses flows between the hosts of a
//!   [`TestedRoute`], has them opened while all gateways are observed, and concludes.
//!
//! Evidence: the gateway of a flow is the one whose interfaces its packets entered and
//! left by, observed by a packet socket there. The interface counters are a second
//! source, and the kernel's own lookup (`RTM_GETROUTE` with the ports) a third. A
//! gateway that receives packets and does not forward them is detected as such.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent;
pub mod calls;
mod capacity;
mod decisions;
pub mod document;
mod facts;
mod findings;
mod flows;
mod hosts;
mod judge;
mod measure;
mod prove;
mod queries;
mod shares;
mod tested_route;

pub use agent::ProofAgent;
pub use hosts::ProofError;
pub use prove::{ProofOptions, ProofProgress, prove};
pub use tested_route::{End, GatewayEnds, Selection, TestedRoute};
