//! Shared mappings of two processes, with and without msync(2).

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{LeftOpen, No},
};

use super::{Check, Run, Stage, check};
use crate::semantics::actor::{CheckError, Checked, FileNumber, visible};

const fn mappings(name: &'static str, title: &'static str, standard: &'static str, run: Run) -> Check {
    check(SemanticsArea::Mappings, name, title, standard, run)
}

const MMAP: &str = "POSIX.1-2017 mmap(), MAP_SHARED";
/// Linux has one page cache for both on a local file system.
const UNSYNCHRONIZED: &str = "POSIX.1-2017 mmap(): left to synchronization";
const MSYNC: &str = "POSIX.1-2017 msync()";

pub(super) const CHECKS: &[Check] = &[
    mappings("mmap-mmap", "mapping to mapping", MMAP, Run::Often(mmap_mmap)),
    mappings(
        "mmap-read",
        "mapping to read",
        UNSYNCHRONIZED,
        Run::Often(|stage| unsynchronized(stage, mmap_read)),
    ),
    mappings(
        "write-mmap",
        "write to mapping",
        UNSYNCHRONIZED,
        Run::Often(|stage| unsynchronized(stage, write_mmap)),
    ),
    mappings("msync-read", "msync to read", MSYNC, Run::Often(msync_read)),
    mappings("msync-open", "msync, close to open", "POSIX.1-2017 msync(); nfs(5)", Run::Often(msync_open)),
    mappings("msync-mmap", "msync to mapping", MSYNC, Run::Often(msync_mmap)),
    mappings("write-msync", "write to mapping by msync", MSYNC, Run::Often(write_msync)),
];

/// A file of a page, open at both; written and closed before, so that clients which are coherent at open alone have it.
fn page(stage: &mut Stage<'_, '_>) -> Checked<(FileNumber, FileNumber)> {
    let (name, wait) = (stage.name(), stage.wait);
    stage.first.store(&name, &[b'.'; 4096])?;
    let first = stage.first.open(&name)?;
    let reader = stage.second()?;
    let second = reader.open_existing(&name, wait)?;
    // A mapping behind the end of the file would end the process.
    match visible(wait, || Ok(reader.read(second, 4096)?.len() == 4096))?.verdict {
        No => Err(CheckError::Deviates("what was written before does not become visible by read".to_owned())),
        _ => Ok((first, second)),
    }
}

/// A page that the second process has mapped and read.
fn mapped(stage: &mut Stage<'_, '_>) -> Checked<(FileNumber, FileNumber)> {
    let (first, second) = page(stage)?;
    let reader = stage.second()?;
    reader.map(second)?;
    reader.map_load(second, 3)?;
    Ok((first, second))
}

/// Without synchronization the standard leaves open whether a change is seen.
fn unsynchronized(
    stage: &mut Stage<'_, '_>,
    run: fn(&mut Stage<'_, '_>) -> Checked<SemanticsFound>,
) -> Checked<SemanticsFound> {
    match run(stage) {
        Ok(found) if found.verdict == No => Ok(SemanticsFound { verdict: LeftOpen, ..found }),
        Err(CheckError::Deviates(text)) => Ok(SemanticsFound::new(LeftOpen).with(text)),
        ended => ended,
    }
}

fn mmap_mmap(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let ((first, second), wait) = (mapped(stage)?, stage.wait);
    stage.first.map(first)?;
    stage.first.map_store(first, b"new")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.map_load(second, 3)? == b"new"))
}

fn mmap_read(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let ((first, second), wait) = (page(stage)?, stage.wait);
    stage.first.map(first)?;
    stage.first.map_store(first, b"new")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.read(second, 3)? == b"new"))
}

fn write_mmap(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let ((first, second), wait) = (mapped(stage)?, stage.wait);
    stage.first.write(first, b"new")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.map_load(second, 3)? == b"new"))
}

fn msync_read(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let ((first, second), wait) = (page(stage)?, stage.wait);
    stage.first.map(first)?;
    stage.first.map_store(first, b"new")?;
    stage.first.map_synchronize(first)?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.read(second, 3)? == b"new"))
}

/// As programs do where clients are coherent at open only: the mapping is written and closed, then the file opened.
fn msync_open(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let ((first, second), wait, name) = (page(stage)?, stage.wait, stage.name());
    stage.second()?.close(second)?;
    stage.first.map(first)?;
    stage.first.map_store(first, b"new")?;
    stage.first.map_synchronize(first)?;
    stage.first.close(first)?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.read_name(&name)?.starts_with(b"new")))
}

/// Both synchronize: the one that stored, and before each look the one that loads (`MS_INVALIDATE`).
fn msync_mmap(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let ((first, second), wait) = (mapped(stage)?, stage.wait);
    stage.first.map(first)?;
    stage.first.map_store(first, b"new")?;
    stage.first.map_synchronize(first)?;
    let reader = stage.second()?;
    visible(wait, || {
        reader.map_synchronize(second)?;
        Ok(reader.map_load(second, 3)? == b"new")
    })
}

fn write_msync(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let ((first, second), wait) = (mapped(stage)?, stage.wait);
    stage.first.write(first, b"new")?;
    let reader = stage.second()?;
    visible(wait, || {
        reader.map_synchronize(second)?;
        Ok(reader.map_load(second, 3)? == b"new")
    })
}
