//! Times of several ranks: on one clock, from the first begin to the last end, against a log of the calls that a preload
//! makes, and with clocks that differ (time namespaces).

use crate::common;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Logs begin and end of every read and write of the test's transfers (6 KiB) on CLOCK_MONOTONIC, a file per thread.
const LOGGER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
static uint64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static __thread FILE *out;
static void note(char kind, uint64_t begin) {
    uint64_t end = now();
    if (!out) { char path[4096]; snprintf(path, sizeof path, "%s/%ld", getenv("CALLS"), (long)syscall(SYS_gettid)); out = fopen(path, "a"); setlinebuf(out); }
    fprintf(out, "%c %lu %lu\n", kind, begin, end);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off_t o) { static ssize_t (*next)(int, const void *, size_t, off_t); if (!next) next = dlsym(RTLD_NEXT, "pwrite64"); uint64_t t = now(); ssize_t r = next(fd, b, n, o); if (n == 6144) note('w', t); return r; }
ssize_t pread64(int fd, void *b, size_t n, off_t o) { static ssize_t (*next)(int, void *, size_t, off_t); if (!next) next = dlsym(RTLD_NEXT, "pread64"); uint64_t t = now(); ssize_t r = next(fd, b, n, o); if (n == 6144) note('r', t); return r; }
"#;

fn logger(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("logger.c"), folder.join("logger.so"));
    fs::write(&source, LOGGER).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).args([&library, &source]).status();
    assert!(built.unwrap().success());
    library
}

/// First begin and last end of the calls of a kind.
fn span(calls: &Path, kind: &str) -> u64 {
    let (mut first, mut last) = (u64::MAX, 0);
    for entry in fs::read_dir(calls).unwrap().flatten() {
        for line in fs::read_to_string(entry.path()).unwrap().lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            if fields[0] == kind {
                first = first.min(fields[1].parse().unwrap());
                last = last.max(fields[2].parse().unwrap());
            }
        }
    }
    last - first
}

#[test]
fn the_time_of_a_phase_has_every_call_of_every_rank_in_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let library = logger(folder.path());
    for ranks in ["1", "2", "8", "64", "256"] {
        let calls = folder.path().join(format!("calls-{ranks}"));
        let data = folder.path().join(format!("data-{ranks}"));
        fs::create_dir(&calls).unwrap();
        fs::create_dir(&data).unwrap();
        let mut command = Command::new(common::program());
        command
            .args(["storage", "stream"])
            .arg(&data)
            .args(["-N", ranks, "-F", "-b", "60k", "-t", "6k", "--json"]);
        let output = command.env("LD_PRELOAD", &library).env("CALLS", &calls).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        for point in document["points"].as_array().unwrap() {
            let kind = &point["phase"].as_str().unwrap()[..1];
            let (logged, total) = (span(&calls, kind), point["total_ns"].as_u64().unwrap());
            assert!(logged > 0 && total >= logged, "{ranks} ranks: {kind} {total} for {logged} of its calls");
            assert_eq!(point["clock"]["method"], "one-clock");
            let spans: Vec<[u64; 2]> = point["ranks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|rank| ["begin_ns", "end_ns"].map(|key| rank["span"][key].as_u64().unwrap()))
                .collect();
            assert_eq!(spans.iter().map(|[begin, _]| *begin).min(), Some(0), "{point}");
            assert_eq!(spans.iter().map(|[_, end]| *end).max(), Some(total), "{point}");
            // The whole of the parts: no rank is longer than all of them.
            assert!(spans.iter().all(|[begin, end]| begin < end), "{point}");
        }
    }
}

/// Ranks as processes, one of which starts late, or in a time namespace that is a day ahead.
#[test]
fn root_clocks_of_ranks_that_differ_are_joined() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let library = folder.path().join("libclearstream_mpi.so");
    common::build_mpi_library("mpicc.openmpi", &library);
    let wrappers: BTreeMap<&str, &str> = [
        ("one-clock", "[ \"$OMPI_COMM_WORLD_RANK\" = 1 ] && sleep 1; exec \"$@\""),
        (
            "joined-clocks",
            "[ \"$OMPI_COMM_WORLD_RANK\" = 1 ] && exec unshare --time --monotonic 86400 --boottime 86400 \"$@\"; exec \"$@\"",
        ),
    ]
    .into();
    for (method, wrapper) in wrappers {
        for (verb, own) in
            [("metadata", &["-n", "20", "-F"][..]), ("stream", &["-F", "-b", "1m", "-t", "64k"])]
        {
            let data = folder.path().join(format!("{verb}-{method}"));
            fs::create_dir(&data).unwrap();
            let mut command = common::mpirun("mpirun.openmpi", 3);
            command.args(["sh", "-c", wrapper, "sh"]);
            command.arg(common::program()).args(["storage", verb, "--mpi"]).arg(&data).args(own);
            command.arg("--json").arg("--mpi-library").arg(&library);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{method}: {}", String::from_utf8_lossy(&output.stderr));
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            let phases = document["points"].as_array().or(document["phases"].as_array()).unwrap();
            assert!(phases.len() >= 2, "{document}");
            for phase in phases {
                let total = phase["total_ns"].as_u64().unwrap();
                // The start of a process, a second, and a day are in nobody's time.
                assert!(total < 900_000_000, "{method}: {phase}");
                let found = phase["clock"]["method"].as_str().unwrap();
                assert!(found == method || (method == "joined-clocks" && found == "barriers"), "{phase}");
                let uncertain = phase["clock"]["uncertainty_ns"].as_u64().unwrap();
                assert_eq!(uncertain == 0, method == "one-clock", "{phase}");
            }
        }
    }
}
