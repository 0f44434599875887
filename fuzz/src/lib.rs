//! What is done with hostile input: each reader of what others write is a target, a function of bytes that asserts what
//! holds for all of them. `tests/it` runs them on the corpus and on mutations of it, cargo-fuzz for as long as wanted.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a target that fails ends by panic")]

mod files;
mod host;
#[allow(unreachable_pub, reason = "a module of a test of that crate")]
#[path = "../../crates/iwarp/tests/it/queue_pair/hostile_peer.rs"]
mod hostile_peer;
mod wire;

/// A name, which is that of its folder in `corpus`, and what is done with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 25] = [
    ("capture", files::capture),
    ("config", files::config),
    ("cpulist", |input| host::cpulist(&text(input))),
    ("cpumask", |input| host::cpumask(&text(input))),
    ("fabric", |input| files::fabric(&text(input))),
    ("frame", wire::frame),
    ("host_text", |input| host::small_texts(&text(input))),
    ("interrupts", |input| host::interrupts(&text(input))),
    ("iperf3", wire::iperf3),
    ("iwarp_fpdu", wire::iwarp_fpdu),
    ("iwarp_queue_pair", hostile_peer::run),
    ("iwarp_setup", wire::iwarp_setup),
    ("journal", files::journal),
    ("lab", |input| files::lab(&text(input))),
    ("model", |input| files::model(&text(input))),
    ("nft_table", |input| files::nft_table(&text(input))),
    ("pairing", files::pairing),
    ("pci_config", host::pci_config),
    ("plan", |input| files::plan(&text(input))),
    ("record", files::record),
    ("routing_files", files::routing_files),
    ("rping", wire::rping),
    ("settings", |input| files::settings(&text(input))),
    ("softnet", |input| host::softnet(&text(input))),
    ("study", |input| files::study(&text(input))),
];

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

fn text(input: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(input)
}
