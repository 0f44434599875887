//! Atomicity of creation, appending and renaming, and files that are removed while open.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{No, Yes},
};
use rustix::io::Errno;

use clearstream_sys::errno::name as errno_name;

use super::{Check, Run, Stage, check, with_errno};
use crate::semantics::{
    actor::{CheckError, Checked, poll, visible},
    calls::{Acted, Claim, Operation},
    faults::Fault,
    races::{FILE_BYTES, RECORD_BYTES, record},
};

/// Records of each writer.
const RECORDS: u32 = 200;
/// Names that processes race for.
const NAMES: u32 = 100;
/// Duration of replacing and reading.
const REPLACE_MS: u64 = 400;
/// Between the call and the common start of processes.
const START_DELAY: Duration = Duration::from_millis(30);

const fn atomicity(name: &'static str, title: &'static str, standard: &'static str, run: Run) -> Check {
    check(SemanticsArea::Atomicity, name, title, standard, run)
}

pub(super) const CHECKS: &[Check] = &[
    atomicity("append", "O_APPEND keeps records", "POSIX.1-2017 write(), O_APPEND", Run::Pair(append)),
    atomicity(
        "exclusive",
        "O_EXCL has one winner",
        "POSIX.1-2017 open(), O_EXCL",
        Run::Pair(|stage| exclusive(stage, Claim::Open)),
    ),
    atomicity(
        "exclusive-link",
        "link has one winner",
        "POSIX.1-2017 link(), EEXIST",
        Run::Pair(|stage| exclusive(stage, Claim::Link)),
    ),
    atomicity(
        "exclusive-folder",
        "mkdir has one winner",
        "POSIX.1-2017 mkdir(), EEXIST",
        Run::Pair(|stage| exclusive(stage, Claim::Folder)),
    ),
    atomicity("rename-atomic", "rename is atomic", "POSIX.1-2017 rename()", Run::Pair(rename)),
    atomicity("unlink-open", "removed file stays open", "POSIX.1-2017 unlink()", Run::Pair(unlink_open)),
];

fn start_at_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + START_DELAY;
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Carries out an operation at each process at the same time.
fn together(
    stage: &mut Stage<'_, '_>,
    (first_call, first): (&'static str, Operation),
    (second_call, second): (&'static str, Operation),
) -> Checked<(Acted, Acted)> {
    stage.first.begin(first)?;
    stage.second()?.begin(second)?;
    // Both end before either's error does.
    let one = stage.first.end(first_call);
    let two = stage.second()?.end(second_call)?;
    Ok((one?, two))
}

fn append(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    let file = stage.first.open(&name)?;
    stage.first.close(file)?;
    let file = stage.second()?.open_existing(&name, wait)?;
    stage.second()?.close(file)?;
    let start_at_ns = start_at_ns();
    let of = |writer| Operation::Append { name: name.clone(), writer, count: RECORDS, start_at_ns };
    together(stage, ("write(O_APPEND)", of(1)), ("write(O_APPEND)", of(2)))?;
    let expected: BTreeSet<Vec<u8>> = [1, 2]
        .into_iter()
        .flat_map(|writer| (0..RECORDS).map(move |number| record(writer, number)))
        .collect();
    // Both may see the file late: what counts is what it holds in the end.
    let mut bytes = Vec::new();
    let full = 2 * RECORDS as usize * RECORD_BYTES;
    let _ = poll(wait, || {
        bytes = stage.first.read_name(&name)?;
        Ok(bytes.len() >= full)
    })?;
    let mut found = BTreeSet::new();
    let mut torn_count = 0;
    for chunk in bytes.chunks(RECORD_BYTES) {
        if expected.contains(chunk) {
            found.insert(chunk.to_vec());
        } else {
            torn_count += 1;
        }
    }
    let lost_count = expected.len() - found.len();
    let detail = format!("{} records, {lost_count} lost, {torn_count} torn", expected.len());
    let is_whole = lost_count == 0 && torn_count == 0 && bytes.len() == full;
    Ok(SemanticsFound::new(if is_whole { Yes } else { No }).with(detail))
}

fn exclusive(stage: &mut Stage<'_, '_>, by: Claim) -> Checked<SemanticsFound> {
    let (prefix, start_at_ns) = (stage.name(), start_at_ns());
    let operation = Operation::Claim { prefix, by, count: NAMES, start_at_ns };
    let call = match by {
        Claim::Open => "open(O_CREAT|O_EXCL)",
        Claim::Link => "link",
        Claim::Folder => "mkdir",
    };
    let (one, two) = together(stage, (call, operation.clone()), (call, operation))?;
    let wins = |number: u32| {
        let number = i64::from(number);
        usize::from(one.values.contains(&number)) + usize::from(two.values.contains(&number))
    };
    let twice_count = (0..NAMES).filter(|number| wins(*number) == 2).count();
    let never_count = (0..NAMES).filter(|number| wins(*number) == 0).count();
    let wrong = [&one.errors[..], &two.errors[..]]
        .concat()
        .into_iter()
        .find(|errno| *errno != Errno::EXIST.raw_os_error());
    if let Some(errno) = wrong.filter(|_| never_count == NAMES as usize) {
        return Err(Fault { call, errno: Errno::from_raw_os_error(errno) }.into());
    }
    let detail = match wrong {
        _ if twice_count > 0 => format!("{twice_count} of {NAMES} names have two winners"),
        _ if never_count > 0 => format!("{never_count} of {NAMES} names have no winner"),
        Some(errno) => format!("one winner each, but the other gets {}", errno_name(errno)),
        None => format!("{NAMES} names, {} to {}", one.values.len(), two.values.len()),
    };
    let is_right = twice_count == 0 && never_count == 0 && wrong.is_none();
    let found = SemanticsFound::new(if is_right { Yes } else { No }).with(detail);
    Ok(match wrong {
        Some(errno) => with_errno(found, Errno::from_raw_os_error(errno)),
        None => found,
    })
}

fn rename(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    stage.second()?.store(&name, &[b'a'; FILE_BYTES])?;
    let opened = stage.first.open_existing(&name, wait)?;
    stage.first.close(opened)?;
    // Of a client that still has the size of before, all reads would be short.
    if poll(wait, || Ok(stage.first.read_name(&name)?.len() == FILE_BYTES))?.is_err() {
        let text = format!("what the other wrote is not read within {} ms", wait.as_millis());
        return Err(CheckError::Precondition(text));
    }
    let replace = Operation::Replace { name: name.clone(), duration_ms: REPLACE_MS };
    let observe = Operation::Observe { name, duration_ms: REPLACE_MS };
    let (observed, replaced) = together(stage, ("open", observe), ("rename", replace))?;
    let mut detail = format!("{} renames, {} reads", replaced.number, observed.number);
    if observed.missing_count > 0 {
        detail.push_str(&format!(", name missing {}", observed.missing_count));
    }
    if observed.mixed_count > 0 {
        detail.push_str(&format!(", mixed content {}", observed.mixed_count));
    }
    if observed.short_count > 0 {
        detail.push_str(&format!(", too short {}", observed.short_count));
    }
    let errno = observed.errors.first().copied();
    if let Some(errno) = errno {
        detail.push_str(&format!(", reads fail with {}", errno_name(errno)));
    }
    if replaced.number == 0 || observed.number == 0 && errno.is_none() && observed.missing_count == 0 {
        return Err(CheckError::Precondition("no rename met a read in time".to_owned()));
    }
    let is_whole = observed.mixed_count == 0 && observed.short_count == 0;
    let is_atomic = observed.missing_count == 0 && is_whole && errno.is_none();
    let found = SemanticsFound::new(if is_atomic { Yes } else { No }).with(detail);
    Ok(match errno {
        Some(errno) => with_errno(found, Errno::from_raw_os_error(errno)),
        None => found,
    })
}

/// The second process removes the file while the first one has it open.
fn unlink_open(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    let file = stage.first.open(&name)?;
    stage.first.write(file, b"still here")?;
    let other = stage.second()?;
    let opened = other.open_existing(&name, wait)?;
    other.close(opened)?;
    // What cannot be read before is not lost by the removal.
    stage.first.read(file, 10)?;
    stage.second()?.remove(&name)?;
    let text = match stage.first.attempt_read(file, 10)? {
        Err(errno) => {
            return Ok(with_errno(SemanticsFound::new(No).with("the data can no longer be read"), errno));
        }
        Ok(bytes) if bytes != b"still here" => "the data read is another",
        Ok(_) => "",
    };
    if !text.is_empty() {
        return Ok(SemanticsFound::new(No).with(text));
    }
    let mut links = Ok(0);
    let found = visible(wait, || {
        links = stage.first.links(file)?;
        Ok(links == Ok(0))
    })?;
    Ok(match (found.verdict, links) {
        (No, Ok(links)) => found.with(format!("readable, but the link count is {links} instead of 0")),
        (No, Err(errno)) => with_errno(found.with("readable, but fstat fails"), errno),
        _ => found,
    })
}
