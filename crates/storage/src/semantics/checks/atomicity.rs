//! Atomicity of creation, appending and renaming, and files that are removed while open.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{No, Yes},
};
use rustix::io::Errno;

use super::{Check, Run, Stage, check, verdict};
use crate::semantics::{
    actor::{Actor, CheckError, Checked, poll},
    calls::{Acted, Operation},
    errno_name,
    races::{RECORD_BYTES, record},
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
    atomicity("exclusive", "O_EXCL has one winner", "POSIX.1-2017 open(), O_EXCL", Run::Pair(exclusive)),
    atomicity("rename", "rename is atomic", "POSIX.1-2017 rename()", Run::Pair(rename)),
    atomicity("unlink-open", "removed file stays open", "POSIX.1-2017 unlink()", Run::Pair(unlink_open)),
];

fn start_at_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + START_DELAY;
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Carries out an operation at each process at the same time.
fn together(
    stage: &mut Stage<'_, '_>,
    first: Operation,
    second: Operation,
) -> Checked<(Checked<Acted>, Checked<Acted>)> {
    let stage_second = match stage.second.as_deref_mut() {
        Some(actor) => actor,
        None => return Err(CheckError::Precondition("there is no second process".to_owned())),
    };
    let stage_first: &mut Actor<'_> = stage.first;
    Ok(thread::scope(|scope| {
        let other = scope.spawn(move || stage_second.act("concurrent operation", second));
        let own = stage_first.act("concurrent operation", first);
        let gone = || Err(CheckError::Precondition("the thread of a process panicked".to_owned()));
        (own, other.join().unwrap_or_else(|_| gone()))
    }))
}

fn append(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    let file = stage.first.open(&name)?;
    stage.first.close(file)?;
    let file = stage.second()?.open_existing(&name, wait)?;
    stage.second()?.close(file)?;
    let start_at_ns = start_at_ns();
    let of = |writer| Operation::Append { name: name.clone(), writer, count: RECORDS, start_at_ns };
    let (one, two) = together(stage, of(1), of(2))?;
    one?;
    two?;
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

fn exclusive(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (prefix, start_at_ns) = (stage.name(), start_at_ns());
    let operation = Operation::CreateExclusive { prefix, count: NAMES, start_at_ns };
    let (one, two) = together(stage, operation.clone(), operation)?;
    let (one, two) = (one?, two?);
    let wins =
        |number: &u32| usize::from(one.created.contains(number)) + usize::from(two.created.contains(number));
    let twice_count = (0..NAMES).filter(|number| wins(number) == 2).count();
    let never_count = (0..NAMES).filter(|number| wins(number) == 0).count();
    let wrong = [&one.errors[..], &two.errors[..]]
        .concat()
        .into_iter()
        .find(|errno| *errno != Errno::EXIST.raw_os_error());
    let detail = match wrong {
        _ if twice_count > 0 => format!("{twice_count} of {NAMES} names have two winners"),
        _ if never_count > 0 => format!("{never_count} of {NAMES} names have no winner"),
        Some(errno) => format!("one winner each, but the other gets {}", errno_name(errno)),
        None => format!("{NAMES} names, {} to {}", one.created.len(), two.created.len()),
    };
    let is_right = twice_count == 0 && never_count == 0 && wrong.is_none();
    let found = SemanticsFound::new(if is_right { Yes } else { No }).with(detail);
    Ok(SemanticsFound { errno: wrong, ..found })
}

fn rename(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    stage.second()?.store(&name, &[b'a'; 4096])?;
    let opened = stage.first.open_existing(&name, wait)?;
    stage.first.close(opened)?;
    let replace = Operation::Replace { name: name.clone(), duration_ms: REPLACE_MS };
    let observe = Operation::Observe { name, duration_ms: REPLACE_MS };
    let (observed, replaced) = together(stage, observe, replace)?;
    let (observed, replaced) = (observed?, replaced?);
    let mut detail = format!("{} renames, {} reads", replaced.number, observed.number);
    if observed.missing_count > 0 {
        detail.push_str(&format!(", name missing {}", observed.missing_count));
    }
    if observed.mixed_count > 0 {
        detail.push_str(&format!(", mixed content {}", observed.mixed_count));
    }
    let errno = observed.errors.first().copied();
    if let Some(errno) = errno {
        detail.push_str(&format!(", reads fail with {}", errno_name(errno)));
    }
    if replaced.number == 0 || observed.number == 0 && errno.is_none() && observed.missing_count == 0 {
        return Err(CheckError::Precondition("no rename met a read in time".to_owned()));
    }
    let is_atomic = observed.missing_count == 0 && observed.mixed_count == 0 && errno.is_none();
    let found = SemanticsFound::new(if is_atomic { Yes } else { No }).with(detail);
    Ok(SemanticsFound { errno, ..found })
}

/// The second process removes the file while the first one has it open.
fn unlink_open(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    let file = stage.first.open(&name)?;
    stage.first.write(file, b"still here")?;
    let other = stage.second()?;
    let opened = other.open_existing(&name, wait)?;
    other.close(opened)?;
    other.remove(&name)?;
    let read = stage.first.attempt_read(file, 10)?;
    let links = stage.first.links(file);
    Ok(match (read, links) {
        (Err(errno), _) => SemanticsFound {
            errno: Some(errno.raw_os_error()),
            ..SemanticsFound::new(No).with("the data can no longer be read")
        },
        (Ok(bytes), _) if bytes != b"still here" => SemanticsFound::new(No).with("the data read is another"),
        (Ok(_), Ok(links)) => {
            verdict(links == 0, "", &format!("readable, but the link count is {links} instead of 0"))
        }
        (Ok(_), Err(CheckError::System { errno, .. })) => SemanticsFound {
            errno: Some(errno.raw_os_error()),
            ..SemanticsFound::new(No).with("readable, but fstat fails")
        },
        (Ok(_), Err(error)) => return Err(error),
    })
}
