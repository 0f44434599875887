//! A whole queue pair whose peer is hostile: what the property test of the
//! same driver looks for, for as long as there is time.
#![no_main]

#[path = "../../crates/iwarp/tests/queue_pair/hostile_peer.rs"]
mod hostile_peer;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile_peer::run(data));
