//! Visibility of a change at another client. The reader has the old state in its cache.

use clearstream_schema::semantics::{SemanticsArea, SemanticsFound, SemanticsVerdict::No};

use super::{Check, Run, Stage, check};
use crate::semantics::{
    actor::{CheckError, Checked, visible},
    calls::{Operation, attribute},
};

const fn coherence(name: &'static str, title: &'static str, standard: &'static str, run: Run) -> Check {
    check(SemanticsArea::Coherence, name, title, standard, run)
}

pub(super) const CHECKS: &[Check] = &[
    coherence("close-to-open", "write, close to open", "nfs(5), close-to-open", Run::Directed(close_to_open)),
    coherence("write-read", "write to open file", "POSIX.1-2017 write()", Run::Directed(write_read)),
    coherence("size", "size by stat", "POSIX.1-2017 stat()", Run::Directed(size)),
    coherence("truncated", "truncated content", "POSIX.1-2017 ftruncate()", Run::Directed(truncate)),
    coherence("mode", "mode by stat", "POSIX.1-2017 chmod()", Run::Directed(mode)),
    coherence("times", "times by stat", "POSIX.1-2017 utimensat()", Run::Directed(times)),
    coherence("links", "link count by stat", "POSIX.1-2017 link()", Run::Directed(links)),
    coherence("create", "created name by stat", "POSIX.1-2017 open()", Run::Directed(create)),
    coherence("folder", "created folder by stat", "POSIX.1-2017 mkdir()", Run::Directed(folder)),
    coherence("list", "created name by readdir", "POSIX.1-2017 readdir()", Run::Directed(list)),
    coherence("remove", "removed name by stat", "POSIX.1-2017 unlink()", Run::Directed(remove)),
    coherence("unlist", "removed name by readdir", "POSIX.1-2017 readdir()", Run::Directed(unlist)),
    coherence("rename", "renamed name by stat", "POSIX.1-2017 rename()", Run::Directed(rename)),
    coherence("replace", "replaced file by open", "POSIX.1-2017 rename()", Run::Directed(replace)),
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
    match visible(wait, || Ok(reader.read_name(&name)? == b"old"))?.verdict {
        No => Err(CheckError::Deviates("the first content does not become visible".to_owned())),
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

/// An attribute that the reader has, the change, and what it is to see.
fn changed(
    stage: &mut Stage<'_, '_>,
    place: usize,
    change: impl Fn(String) -> (&'static str, Operation),
    holds: impl Fn(i64) -> bool,
) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    stage.second()?.attribute(&name, place)?;
    let (call, operation) = change(name.clone());
    stage.first.act(call, operation)?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.attribute(&name, place)?.is_some_and(&holds)))
}

fn size(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let change = |name| ("write", Operation::Store { name, bytes: b"longer than before".to_vec() });
    changed(stage, attribute::SIZE, change, |size| size == 18)
}

fn mode(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let change = |name| ("chmod", Operation::SetMode { name, mode: 0o640 });
    changed(stage, attribute::MODE, change, |mode| mode == 0o640)
}

fn times(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let change = |name| ("utimensat", Operation::SetTimes { name, second: Some(1_000_000_000) });
    changed(stage, attribute::MODIFIED_NS, change, |time| time == 1_000_000_000_000_000_000)
}

fn links(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let change = |name: String| ("link", Operation::Link { to: format!("{name}-2"), from: name });
    changed(stage, attribute::LINKS, change, |links| links == 2)
}

/// The reader has the file open, and its pages.
fn truncate(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    let reading = stage.second()?.open_existing(&name, wait)?;
    stage.second()?.read(reading, 3)?;
    for length in [0, 3] {
        stage.first.act("ftruncate", Operation::Truncate { name: name.clone(), length })?;
    }
    let reader = stage.second()?;
    visible(wait, || Ok(reader.read(reading, 4)? == [0; 3]))
}

fn create(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    // The reader then keeps that there is no such name.
    stage.second()?.size(&name)?;
    stage.first.store(&name, b"new")?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.size(&name)?.is_some()))
}

fn folder(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    stage.second()?.size(&name)?;
    stage.first.act("mkdir", Operation::MakeFolder { name: name.clone() })?;
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

fn unlist(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    stage.second()?.list(&name)?;
    stage.first.remove(&name)?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.list(&name)? == 0))
}

fn rename(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    let new = format!("{name}-new");
    stage.second()?.size(&new)?;
    stage.first.rename(&name, &new)?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.size(&name)?.is_none() && reader.size(&new)?.is_some()))
}

/// As editors and installers do: a new file takes the name of the one that the reader knows.
fn replace(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (cached(stage)?, stage.wait);
    let new = format!("{name}-new");
    stage.first.store(&new, b"new")?;
    stage.first.rename(&new, &name)?;
    let reader = stage.second()?;
    visible(wait, || Ok(reader.read_name(&name)? == b"new"))
}
