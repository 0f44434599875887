//! The bytes of the wire, against what others wrote: figures and vectors of the
//! RFCs, conversations of two Linux siw peers, tshark, and a second framing
//! that was written as plainly as the RFC's text.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod captures;
mod conversation;
mod dissector;
mod endings;
mod figures;
mod properties;
mod replay;
mod rules;
mod setup;
