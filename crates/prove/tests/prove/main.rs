//! Verification by traffic in namespaces whose routes were configured with `ip` and `nft`.
#![allow(clippy::unwrap_used)]

mod directions;
mod faults;
mod marks;
mod net;
mod overridden;
