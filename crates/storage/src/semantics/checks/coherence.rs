//! Visibility of a change at another client. The reader has the old state in its cache.

use clearstream_schema::semantics::{SemanticsArea, SemanticsFound};

use super::{Check, Run, Stage, check};
use crate::semantics::actor::{CheckError, Checked, FileNumber, visible};

const fn coherence(name: &'static str, title: &'static str, standard: &'static str, run: Run) -> Check {
    check(SemanticsArea::Coherence, name, title, standard, run)
}

const fn mappings(name: &'static str, title: &'static str, standard: &'static str, run: Run) -> Check {
    check(SemanticsArea::Mappings, name, title, standard, run)
}

const MMAP: &str = "POSIX.1-2017 mmap(), MAP_SHARED";
/// POSIX.1 requires msync(); Linux has one page cache for both on a local file system.
const MMAP_AND_READ: &str = "msync(2); beyond POSIX.1-2017 mmap()";

pub(super) const CHECKS: &[Check] = &[
    mappings("mmap-mmap", "mapping to mapping", MMAP, Run::Pair(mmap_mmap)),
    mappings("mmap-read", "mapping to read", MMAP_AND_READ, Run::Pair(mmap_read)),
    mappings("write-mmap", "write to mapping", MMAP_AND_READ, Run::Pair(write_mmap)),
    coherence("close-to-open", "write, close to open", "nfs(5), close-to-open", Run::Directed(close_to_open)),
    coherence("write-read", "write to open file", "POSIX.1-2017 write()", Run::Directed(write_read)),
    coherence("size", "size by stat", "POSIX.1-2017 stat()", Run::Directed(size)),
    coherence("create", "created name by open", "POSIX.1-2017 open()", Run::Directed(create)),
    coherence("list", "created name by readdir", "POSIX.1-2017 readdir()", Run::Directed(list)),
    coherence("remove", "removed name by stat", "POSIX.1-2017 unlink()", Run::Directed(remove)),
    coherence("rename", "renamed name by stat", "POSIX.1-2017 rename()", Run::Directed(rename)),
];

/// A file with old content that the reader has read. The first process writes, the second one reads.
fn cached(stage: &mut Stage<'_, '_>) -> Checked<String> {
    let (name, wait) = (stage.name(), stage.wait);
    stage.first.store(&name, b"old")?;
    let reader = stage.second()?;
    let file = reader.open_existing(&name, wait)?;
    let bytes = reader.read(file, 3)?;
    reader.close(file)?;
    if bytes == b"old" {
        return Ok(name);
    }
    // The size may be that of before the write.
    let found = visible(wait, || Ok(reader.read_name(&name)? == b"old"))?;
    match found.stale_ns {
        Some(stale) if u128::from(stale) >= wait.as_nanos() => {
            Err(CheckError::Precondition("the first content does not become visible".to_owned()))
        }
        _ => Ok(name),
    }
}

fn close_to_open(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    // The size stays the same, so that no attribute but the time says that there is new content.
    stage.first.store(&name, b"new")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.read_name(&name)? == b"new"))
}

fn write_read(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    let reading = stage.second()?.open_existing(&name, wait)?;
    stage.second()?.read(reading, 3)?;
    let writing = stage.first.open_existing(&name, wait)?;
    stage.first.write(writing, b"new")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.read(reading, 3)? == b"new"))
}

fn size(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    stage.second()?.size(&name)?;
    stage.first.store(&name, b"longer than before")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.size(&name)? == Some(18)))
}

fn create(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    // The reader then keeps that there is no such name.
    stage.second()?.size(&name)?;
    stage.first.store(&name, b"new")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.size(&name)?.is_some()))
}

fn list(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    stage.second()?.list(&name)?;
    stage.first.store(&name, b"new")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.list(&name)? == 1))
}

fn remove(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    stage.second()?.size(&name)?;
    stage.first.remove(&name)?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.size(&name)?.is_none()))
}

fn rename(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    let new = format!("{name}-new");
    stage.second()?.size(&new)?;
    stage.first.rename(&name, &new)?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.size(&name)?.is_none() && reader.size(&new)?.is_some()))
}

/// A file of a page, open at both.
fn page(stage: &mut Stage<'_, '_>) -> Checked<(FileNumber, FileNumber)> {
    let (name, wait) = (stage.name(), stage.wait);
    let first = stage.first.open(&name)?;
    stage.first.write(first, &[b'.'; 4096])?;
    let reader = stage.second()?;
    let second = reader.open_existing(&name, wait)?;
    // A mapping behind the end of the file would end the process.
    if visible(wait, || Ok(reader.read(second, 4096)?.len() == 4096))?
        .stale_ns
        .is_some_and(|stale| u128::from(stale) >= wait.as_nanos())
    {
        return Err(CheckError::Precondition("the first content does not become visible".to_owned()));
    }
    Ok((first, second))
}

fn mmap_mmap(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let ((first, second), wait) = (page(stage)?, stage.wait);
    stage.first.map(first)?;
    let reader = stage.second()?;
    reader.map(second)?;
    reader.map_load(second, 3)?;
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
    let ((first, second), wait) = (page(stage)?, stage.wait);
    let reader = stage.second()?;
    reader.map(second)?;
    reader.map_load(second, 3)?;
    stage.first.write(first, b"new")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.map_load(second, 3)? == b"new"))
}
