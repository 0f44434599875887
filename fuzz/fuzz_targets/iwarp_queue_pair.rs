//! A queue pair with a hostile peer: the checks of the property test with the
//! same harness.
#![no_main]

#[path = "../../crates/iwarp/tests/it/queue_pair/hostile_peer.rs"]
mod hostile_peer;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile_peer::run(data));
