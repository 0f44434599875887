//! Checks of one process, which it carries out by itself.

mod attributes;
mod content;
mod dates;
mod directories;
mod errors;
mod links;
mod mappings;
mod modes;
mod names;
mod owners;
mod space;

use std::{
    fs::File,
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::semantics::{SemanticsFound, SemanticsVerdict};
use rustix::fs::{AtFlags, OFlags, Stat, statat};

use super::Check;
use crate::semantics::{
    actor::in_time,
    faults::{At as _, Fault},
    folder::Folder,
};

/// Between two looks at what changes late.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

type Result<T> = std::result::Result<T, Fault>;

pub(super) fn all() -> impl Iterator<Item = &'static Check> {
    [
        modes::CHECKS,
        owners::CHECKS,
        dates::CHECKS,
        attributes::CHECKS,
        mappings::CHECKS,
        content::CHECKS,
        space::CHECKS,
        links::CHECKS,
        names::CHECKS,
        directories::CHECKS,
        errors::CHECKS,
    ]
    .into_iter()
    .flatten()
}

fn found(verdict: SemanticsVerdict, detail: impl Into<String>) -> Result<SemanticsFound> {
    Ok(SemanticsFound::new(verdict).with(detail))
}

/// Yes with what is worth to be known, or no with what is wrong.
fn verdict(is_right: bool, detail: impl Into<String>) -> Result<SemanticsFound> {
    found(if is_right { SemanticsVerdict::Yes } else { SemanticsVerdict::No }, detail)
}

/// Yes, or no with what is wrong.
fn right(is_right: bool, wrong: impl Into<String>) -> Result<SemanticsFound> {
    if is_right { Ok(SemanticsFound::new(SemanticsVerdict::Yes)) } else { found(SemanticsVerdict::No, wrong) }
}

/// Looks until nothing is wrong: yes at once, late after a time, and no with what was wrong at the end of the wait.
fn within(wait: Duration, mut look: impl FnMut() -> Result<Option<String>>) -> Result<SemanticsFound> {
    let begun = Instant::now();
    let Some(mut wrong) = look()? else { return right(true, "") };
    while begun.elapsed() < wait {
        thread::sleep(POLL_INTERVAL);
        match look()? {
            None => return Ok(in_time(Ok(Some(begun.elapsed())))),
            Some(text) => wrong = text,
        }
    }
    Ok(in_time(Err(wait)).with(format!("{wrong}, for {} ms", wait.as_millis())))
}

/// Yes where nothing is wrong.
fn none_wrong(wrong: &[String]) -> Result<SemanticsFound> {
    Ok(match wrong {
        [] => SemanticsFound::new(SemanticsVerdict::Yes),
        several => SemanticsFound::new(SemanticsVerdict::No).with(several.join("; ")),
    })
}

fn create(folder: &Folder, name: &str) -> Result<File> {
    folder.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL).at("open(O_CREAT|O_EXCL)")
}

/// Attributes of what has the name, not of what a link leads to.
fn stat(folder: &Folder, name: &str) -> Result<Stat> {
    statat(folder.descriptor(), name, AtFlags::SYMLINK_NOFOLLOW).at("stat")
}

/// A name that there is no file for is no fault.
fn exists(folder: &Folder, name: &str) -> bool {
    statat(folder.descriptor(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
