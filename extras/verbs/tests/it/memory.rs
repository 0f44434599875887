//! Registered memory that the program takes away while its peer accesses it.

use crate::common::{Network, Program, SERVER, c};

const LIBRARIES: [&str; 2] = ["-libverbs", "-lrdmacm"];

/// As with siw and with cards, whose drivers hold the pages: the program lives, and what is at the address meanwhile is
/// not touched. Without io_uring an access that fails ends its connection.
#[test]
fn root_memory_that_goes_away_ends_no_program_and_changes_no_other() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/memory.c"), &LIBRARIES);
    for way in ["held", "checked"] {
        for (mode, crc) in [("adaptive", "0"), ("offloaded", "0"), ("inline", "1")] {
            let line = format!("{} {SERVER} {way}", program.path.display());
            let settings = [
                ("CLEARSTREAM_VERBS_MEMORY", way),
                ("CLEARSTREAM_VERBS_PROGRESS", mode),
                ("CLEARSTREAM_VERBS_CRC", crc),
            ];
            let ended = Program::start(&network.server, &settings, &line).succeeds();
            assert_eq!(ended.stdout, "memory\n", "{way}, {mode}, CRC {crc}: {ended:?}");
            assert_eq!(ended.stderr, "", "{way}, {mode}, CRC {crc}");
        }
    }
}
