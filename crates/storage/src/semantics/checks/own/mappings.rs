//! Mappings of one process: ends of files, truncation, and what a new descriptor reads.

use std::{
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    time::Duration,
};

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{Inconclusive, No},
};
use clearstream_sys::file_map::SharedFileMap;

use super::{Check, Result, create, found, right};
use crate::semantics::{
    calls::{Acted, Operation},
    checks::{Run, check, with_errno},
    faults::{At as _, Fault},
    folder::Folder,
    operations::Hands,
};

const PAGE: usize = 4096;
/// Time of an access.
const ACCESS_TIME: Duration = Duration::from_secs(5);

const fn mappings(name: &'static str, title: &'static str, standard: &'static str, run: Run) -> Check {
    check(SemanticsArea::Mappings, name, title, standard, run)
}

const MMAP: &str = "POSIX.1-2017 mmap()";

pub(super) const CHECKS: &[Check] = &[
    mappings("mmap-msync-read", "msync to a new descriptor", "POSIX.1-2017 msync()", Run::Alone(msync_read)),
    mappings(
        "mmap-after-close",
        "mapping outlives its file",
        "POSIX.1-2017 mmap(), close()",
        Run::Alone(after_close),
    ),
    mappings("mmap-tail", "zeros behind the end", "POSIX.1-2017 mmap(): last page", Run::Alone(tail)),
    mappings(
        "mmap-truncate",
        "mapping after truncation",
        "POSIX.1-2017 ftruncate(), mmap()",
        Run::Alone(truncated),
    ),
    mappings("mmap-extend", "mapping of a grown file", MMAP, Run::Alone(extended)),
    mappings("mmap-end", "SIGBUS behind the end", "POSIX.1-2017 mmap(): SIGBUS", Run::Own(behind_end)),
];

fn mapped(file: &std::fs::File, length: usize) -> Result<SharedFileMap> {
    SharedFileMap::new(file.as_fd(), length).at("mmap")
}

fn msync_read(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "mmap-msync-read")?;
    file.write_all_at(&[b'.'; PAGE], 0).at("pwrite")?;
    let map = mapped(&file, PAGE)?;
    map.store(100, b"new");
    map.synchronize().at("msync")?;
    let bytes = folder.read("mmap-msync-read", PAGE).at("open and read")?;
    if bytes.get(100..103) != Some(b"new") {
        return found(No, "another descriptor reads the old content after msync");
    }
    file.write_all_at(b"two", 200).at("pwrite")?;
    right(map.load(200, 3) == b"two", "a write by the descriptor is not in its mapping")
}

fn after_close(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "mmap-after-close")?;
    file.write_all_at(&[b'.'; PAGE], 0).at("pwrite")?;
    let map = mapped(&file, PAGE)?;
    drop(file);
    map.store(0, b"late");
    drop(map);
    let bytes = folder.read("mmap-after-close", PAGE).at("open and read")?;
    right(bytes.starts_with(b"late"), "what is stored after the close is lost")
}

/// The rest of the last page is zeros, and what is stored there is never in the file.
fn tail(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "mmap-tail")?;
    file.write_all_at(b"short", 0).at("pwrite")?;
    let map = mapped(&file, PAGE)?;
    if map.load(5, PAGE - 5).iter().any(|byte| *byte != 0) {
        return found(No, "behind the end are other bytes than zeros");
    }
    map.store(5, b"behind");
    map.synchronize().at("msync")?;
    drop(map);
    let bytes = folder.read("mmap-tail", PAGE).at("open and read")?;
    right(bytes == b"short", format!("the file has {} bytes instead of 5", bytes.len()))
}

fn truncated(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "mmap-truncate")?;
    file.write_all_at(&[b'.'; PAGE], 0).at("pwrite")?;
    let map = mapped(&file, PAGE)?;
    map.store(0, b"stored");
    file.set_len(0).and_then(|()| file.set_len(PAGE as u64)).at("ftruncate")?;
    let bytes = folder.read("mmap-truncate", PAGE).at("open and read")?;
    if bytes.iter().any(|byte| *byte != 0) {
        return found(No, "the file has bytes from before the truncation");
    }
    right(map.load(0, 6) == [0; 6], "the mapping has bytes from before the truncation")
}

fn extended(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "mmap-extend")?;
    file.write_all_at(b"x", 0).at("pwrite")?;
    let map = mapped(&file, 4 * PAGE)?;
    file.set_len(4 * PAGE as u64).at("ftruncate")?;
    // On a page that was behind the end when it was mapped.
    map.store(3 * PAGE, b"grown");
    map.synchronize().at("msync")?;
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 3 * PAGE as u64).at("pread")?;
    right(&bytes == b"grown", "what is stored on the new page is not in the file")
}

/// An access to a page wholly behind the end ends a process of its own.
fn behind_end(hands: &mut Hands, _: Duration) -> Result<SemanticsFound> {
    let mut process = hands.start(None).at("start of a process")?;
    let mut act = |call, operation| -> Result<Acted> {
        let acted = process.act(&operation, ACCESS_TIME);
        match acted.errno {
            Some(errno) => Err(Fault { call, errno: rustix::io::Errno::from_raw_os_error(errno) }),
            None => Ok(acted),
        }
    };
    let name = "mmap-end".to_owned();
    let file = act("open(O_CREAT)", Operation::Open { name })?;
    let file = u32::try_from(file.number).unwrap_or(0);
    // The file is empty: its first page is behind its end.
    act("mmap", Operation::Map { file })?;
    let loaded = act("mmap", Operation::MapLoad { file, offset: 0, length: 1 })?;
    match loaded.ended_by {
        Some(7) => right(true, ""),
        Some(signal) => found(No, format!("the process gets signal {signal} instead of SIGBUS")),
        None if loaded.pending => Ok(with_errno(
            SemanticsFound::new(Inconclusive).with("the access does not return"),
            rustix::io::Errno::TIMEDOUT,
        )),
        None => found(No, "the page can be read"),
    }
}
