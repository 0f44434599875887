//! Proofs on the wire in namespaces whose routes were made with `ip` and `nft`.
#![allow(clippy::unwrap_used)]

mod directions;
mod faults;
mod net;
