//! Who may start a program: `sys::program` runs it to its end, within a time and a limit of output.

use crate::dependency_rules::{all_but, places};

/// Who may start a program beside `sys::program`, which bounds its time and output: programs that live as long as a
/// session, a lab or a measurement, and those that take this one's place (exec).
const STARTERS: [(&str, &str); 11] = [
    ("crates/sys/src/program/mod.rs", "the place"),
    ("crates/control/src/ssh.rs", "ssh as the transport of an agent"),
    ("crates/clearstream/src/endpoints/mod.rs", "agents on this host"),
    ("crates/clearstream/src/verbs/lab/mod.rs", "keepers of labs; exec"),
    ("crates/clearstream/src/verbs/plan/guard.rs", "guardians of changes"),
    ("crates/clearstream/src/verbs/rdma/run.rs", "exec"),
    ("crates/clearstream/src/verbs/storage/ranks.rs", "guards of files, processes of checks"),
    ("crates/failover/src/routes.rs", "`route watch` for the time of an experiment"),
    ("crates/lab/src/services.rs", "services of labs"),
    ("crates/mpirun/src/launcher.rs", "ranks of a job, which has deadlines of its own"),
    ("crates/storage/src/semantics/workload.rs", "agents in a lab"),
];

#[test]
fn programs_are_run_to_their_end_in_one_place() {
    let found =
        places(&all_but(&["testkit"]), &["Command::new(", ".output()", ".wait_with_output(", ".status()"]);
    let of = |file: &str| format!("{file}: Command::new(");
    let elsewhere: Vec<_> =
        found.iter().filter(|place| !STARTERS.iter().any(|(file, _)| **place == of(file))).collect();
    assert!(elsewhere.is_empty(), "use clearstream_sys::program: {elsewhere:?}");
    for (file, _) in STARTERS {
        assert!(found.contains(&of(file)), "{file} needs no entry any more");
    }
}
