//! Registered memory that the program takes away while its peer accesses it.

use crate::common::{Network, Program, SERVER, c};

const LIBRARIES: [&str; 2] = ["-libverbs", "-lrdmacm"];

/// What the library says where pages are not held, once.
const NOT_HELD: &str = "clearstream-verbs: registered memory is checked, not held: ";

/// As with siw and with cards, whose drivers hold the pages: the program lives, and what is at the address meanwhile is
/// not touched. Checked memory: an access that fails ends its connection.
#[test]
fn root_memory_that_goes_away_ends_no_program_and_changes_no_other() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/memory.c"), &LIBRARIES);
    for (way, mode, crc, lines) in [
        ("held", "adaptive", "0", 1),
        ("held", "offloaded", "1", 1),
        ("checked", "inline", "0", 0),
        ("checked", "adaptive", "1", 0),
    ] {
        let line = format!("{} {SERVER} {way}", program.path.display());
        let settings = [
            ("CLEARSTREAM_VERBS_MEMORY", way),
            ("CLEARSTREAM_VERBS_PROGRESS", mode),
            ("CLEARSTREAM_VERBS_CRC", crc),
        ];
        let ended = Program::start(&network.server, &settings, &line).succeeds();
        assert_eq!(ended.stdout, "memory\n", "{way}, {mode}, CRC {crc}: {ended:?}");
        // It registers more than the table of held memory has entries; and it asks for what is not offered, once.
        assert_eq!(ended.stderr.lines().count(), lines + 1, "{way}, {mode}, CRC {crc}: {ended:?}");
        assert_eq!(ended.stderr.matches("ibv_reg_mr_ex of a file").count(), 1, "{ended:?}");
        assert_eq!(ended.stderr.matches(NOT_HELD).count(), lines, "{ended:?}");
    }
}

/// Traffic of all kinds in several threads, with the memory of both ends taken away at random meanwhile; the program
/// compares each byte. `taken ADDRESS held 600s 1` does so for ten minutes.
#[test]
fn root_no_byte_is_lost_or_elsewhere_while_memory_goes_away_at_random() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/taken.c"), &LIBRARIES);
    for (seed, way, mode, crc) in [
        (1, "held", "adaptive", "0"),
        (2, "held", "offloaded", "1"),
        (3, "checked", "adaptive", "1"),
        (4, "checked", "offloaded", "0"),
    ] {
        let line = format!("{} {SERVER} {way} 600 {seed}", program.path.display());
        let settings = [
            ("CLEARSTREAM_VERBS_MEMORY", way),
            ("CLEARSTREAM_VERBS_PROGRESS", mode),
            ("CLEARSTREAM_VERBS_CRC", crc),
        ];
        let ended = Program::start(&network.server, &settings, &line).succeeds();
        assert_eq!(ended.stdout, "taken\n", "{way}, {mode}, CRC {crc}: {ended:?}");
    }
}

/// The limit of locked memory of a user who is not root.
#[test]
fn root_memory_is_checked_and_the_reason_is_said_where_it_cannot_be_held() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/memory.c"), &LIBRARIES);
    let limited = "prlimit --memlock=65536:65536 setpriv --bounding-set=-ipc_lock";
    let line = format!("{limited} {} {SERVER} checked", program.path.display());
    let ended = Program::start(&network.server, &[], &line).succeeds();
    assert_eq!(ended.stdout, "memory\n", "{ended:?}");
    let expected = format!("{NOT_HELD}the limit of locked memory is too low: raise it (ulimit -l).");
    assert!(ended.stderr.starts_with(&expected), "{ended:?}");
}
