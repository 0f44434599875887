//! Wire formats, against independent sources: figures and vectors of the RFCs,
//! captures of two Linux siw peers, tshark, and a second, straightforward
//! implementation of the framing.

mod captures;
mod conversation;
mod dissector;
mod figures;
mod properties;
mod replay;
mod rules;
mod setup;
mod teardown;
