//! Checks of one process: the agent carries each of them out by itself.

use clearstream_schema::semantics::SemanticsArea::{self, Features, Timestamps};

use super::{Check, Run, check};

const fn feature(
    area: SemanticsArea,
    name: &'static str,
    title: &'static str,
    standard: &'static str,
) -> Check {
    check(area, name, title, standard, Run::Feature)
}

pub(super) const CHECKS: &[Check] = &[
    feature(
        Timestamps,
        "timestamps-write",
        "write sets mtime, ctime",
        "POSIX.1-2017 write(), 4.9 File Times Update",
    ),
    feature(Timestamps, "timestamps-granularity", "granularity of 1 ns", "POSIX.1-2017 futimens()"),
    feature(Timestamps, "birth-time", "time of creation", "statx(2), STATX_BTIME"),
    feature(Features, "xattr-user", "attributes user.*", "xattr(7)"),
    feature(Features, "acl", "access control lists", "acl(5), POSIX.1e draft 17"),
    feature(Features, "sparse-blocks", "holes take no space", "lseek(2); POSIX.1-2017 lseek()"),
    feature(Features, "seek-hole", "SEEK_HOLE, SEEK_DATA", "POSIX.1-2024 lseek()"),
    feature(Features, "truncate", "ftruncate extends by 0", "POSIX.1-2017 ftruncate()"),
    feature(Features, "fallocate", "fallocate", "fallocate(2)"),
    feature(Features, "fallocate-keep-size", "FALLOC_FL_KEEP_SIZE", "fallocate(2)"),
    feature(Features, "punch-hole", "FALLOC_FL_PUNCH_HOLE", "fallocate(2)"),
    feature(Features, "direct-io", "O_DIRECT", "open(2)"),
    feature(Features, "tmpfile", "O_TMPFILE", "open(2)"),
    feature(Features, "hard-link", "hard links", "POSIX.1-2017 link()"),
    feature(Features, "symbolic-link", "symbolic links", "POSIX.1-2017 symlink()"),
    feature(Features, "directory", "renamed directory", "POSIX.1-2017 rename()"),
    feature(Features, "name-max", "longest name", "POSIX.1-2017 NAME_MAX"),
    feature(Features, "case-sensitive", "names differ by case", "POSIX.1-2017 3.170 Filename"),
];
