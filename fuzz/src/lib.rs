//! What is done with hostile input: each reader of what others write is a target, a function of bytes that asserts what
//! holds for all of them. `tests/it` runs them on the corpus and on mutations of it, cargo-fuzz for as long as wanted.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a target that fails ends by panic")]

mod files;
mod host;
#[allow(unreachable_pub, reason = "a module of a test of that crate")]
#[path = "../../crates/iwarp/tests/it/queue_pair/hostile_peer.rs"]
mod hostile_peer;
mod messages;
mod programs;
mod wire;

/// A name, which is that of its folder in `corpus`, and what is done with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets: a module, and its functions by their names.
macro_rules! targets {
    ($($module:ident: $($name:ident)+;)+) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$($((stringify!($name), $module::$name),)+)+];
    };
}

targets! {
    files: capture config fabric journal lab model nft_table pairing plan record routing_files settings study;
    host: cpulist cpumask host_text interrupts pci_config softnet;
    messages: calls perftest preambles rdma_messages watch_messages;
    programs: bird frr ranks;
    wire: frame iperf3 iwarp_fpdu iwarp_queue_pair iwarp_setup rping;
}

/// Runs a target.
///
/// # Panics
/// There is no target of this name, or what it asserts does not hold.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, run) =
        target.unwrap_or_else(|| panic!("there is no target \"{name}\": see the folders of fuzz/corpus"));
    run(input);
}

fn text_of(input: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(input)
}
