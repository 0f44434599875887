//! Locks: flock(2), fcntl(2) by process and by open file description.

use std::time::Duration;

use clearstream_schema::semantics::{
    SemanticsFound,
    SemanticsVerdict::{No, Yes},
};
use rustix::io::Errno;

use super::{Check, Run, Stage, left_open, locks, verdict};
use crate::semantics::{
    actor::{Actor, CheckError, Checked, FileNumber, visible},
    calls::{LockCall, LockChange, Operation},
    faults::Fault,
};

/// Time within which a lock in a cycle of waits has to be refused.
const DEADLOCK_TIME: Duration = Duration::from_millis(500);

pub(super) const FLOCK: &str = "flock(2); not in POSIX.1";
pub(super) const FCNTL: &str = "POSIX.1-2017 fcntl(), F_SETLK";
pub(super) const OFD: &str = "POSIX.1-2024 fcntl(), F_OFD_SETLK; fcntl_locking(2)";
const DEADLOCK: &str = "POSIX.1-2017 fcntl(): EDEADLK is a \"may fail\"";

pub(super) const CHECKS: &[Check] = &[
    locks("flock-grant", "flock is granted", FLOCK, Run::One(|stage| grant(stage, LockCall::Flock))),
    locks("flock-conflict", "flock excludes", FLOCK, Run::Pair(|stage| conflict(stage, LockCall::Flock))),
    locks("flock-shared", "shared flock coexists", FLOCK, Run::Pair(|stage| shared(stage, LockCall::Flock))),
    locks("flock-close", "flock ends at close", FLOCK, Run::Often(|stage| close(stage, LockCall::Flock))),
    locks("flock-death", "flock ends at exit", FLOCK, Run::Pair(|stage| death(stage, LockCall::Flock))),
    locks("fcntl-grant", "fcntl is granted", FCNTL, Run::One(|stage| grant(stage, LockCall::Process))),
    locks("fcntl-conflict", "fcntl excludes", FCNTL, Run::Pair(|stage| conflict(stage, LockCall::Process))),
    locks(
        "fcntl-shared",
        "shared fcntl coexists",
        FCNTL,
        Run::Pair(|stage| shared(stage, LockCall::Process)),
    ),
    locks("fcntl-holder", "F_GETLK names process", "POSIX.1-2017 fcntl(), F_GETLK", Run::One(holder)),
    locks("fcntl-deadlock", "deadlock is detected", DEADLOCK, Run::Pair(deadlock)),
    locks(
        "fcntl-any-close",
        "any close releases",
        "POSIX.1-2017 fcntl(), close()",
        Run::Often(|stage| any_close(stage, false)),
    ),
    locks(
        "fcntl-duplicate-close",
        "close of a dup releases",
        "POSIX.1-2017 fcntl(), close()",
        Run::Often(|stage| any_close(stage, true)),
    ),
    locks("fcntl-close", "fcntl ends at close", FCNTL, Run::Often(|stage| close(stage, LockCall::Process))),
    locks("fcntl-death", "fcntl ends at exit", FCNTL, Run::Pair(|stage| death(stage, LockCall::Process))),
    locks("ofd-conflict", "OFD excludes", OFD, Run::Pair(|stage| conflict(stage, LockCall::Description))),
    locks("ofd-shared", "shared OFD coexists", OFD, Run::Pair(|stage| shared(stage, LockCall::Description))),
    locks(
        "ofd-one-process",
        "OFD within a process",
        OFD,
        Run::One(|stage| within(stage, LockCall::Description)),
    ),
    locks(
        "flock-one-process",
        "flock within a process",
        FLOCK,
        Run::One(|stage| within(stage, LockCall::Flock)),
    ),
    locks(
        "ofd-other-close",
        "OFD outlives a close",
        OFD,
        Run::Pair(|stage| other_close(stage, LockCall::Description)),
    ),
    locks(
        "flock-other-close",
        "flock outlives a close",
        FLOCK,
        Run::Pair(|stage| other_close(stage, LockCall::Flock)),
    ),
    locks("ofd-close", "OFD ends at close", OFD, Run::Often(|stage| close(stage, LockCall::Description))),
    locks("ofd-death", "OFD ends at exit", OFD, Run::Pair(|stage| death(stage, LockCall::Description))),
    locks(
        "flock-fork",
        "flock is shared by fork",
        "flock(2), fork(2)",
        Run::Pair(|stage| fork(stage, LockCall::Flock)),
    ),
    locks("ofd-fork", "OFD is shared by fork", OFD, Run::Pair(|stage| fork(stage, LockCall::Description))),
    locks("fcntl-fork", "fcntl is not inherited", "POSIX.1-2017 fork()", Run::One(not_inherited)),
];

/// One file, open at both processes.
pub(super) fn both(stage: &mut Stage<'_, '_>) -> Checked<(FileNumber, FileNumber)> {
    let (name, wait) = (stage.name(), stage.wait);
    let first = stage.first.open(&name)?;
    Ok((first, stage.second()?.open_existing(&name, wait)?))
}

/// That a lock which is held is in the way of another one is a check of its own.
pub(super) fn must_exclude(other: &mut Actor<'_>, file: FileNumber, call: LockCall) -> Checked<()> {
    match other.lock(file, call)? {
        false => Ok(()),
        true => Err(CheckError::Precondition("the lock does not exclude".to_owned())),
    }
}

fn grant(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let name = stage.name();
    let file = stage.first.open(&name)?;
    Ok(verdict(stage.first.lock(file, call)?, "refused although nobody holds it"))
}

fn conflict(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, call)?;
    let is_excluded = !stage.second()?.lock(second, call)?;
    Ok(verdict(is_excluded, "granted to both"))
}

fn shared(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    for (is_first, file) in [(true, first), (false, second)] {
        let actor = if is_first { &mut *stage.first } else { stage.second()? };
        if !actor.change_lock(file, call, LockChange::Shared, 0, 10)? {
            return Ok(SemanticsFound::new(No).with("a shared lock excludes another one"));
        }
    }
    let is_excluded = !stage.second()?.lock(second, call)?;
    Ok(verdict(is_excluded, "shared locks do not exclude an exclusive one"))
}

fn close(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, call)?;
    must_exclude(stage.second()?, second, call)?;
    stage.first.close(first)?;
    let wait = stage.wait;
    released(stage.second()?, second, call, wait)
}

fn death(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (_, second) = both(stage)?;
    let (name, wait) = (stage.name(), stage.wait);
    let mut holder = stage.another()?;
    let held = holder.open_existing(&name, wait)?;
    holder.must_lock(held, call)?;
    must_exclude(stage.second()?, second, call)?;
    drop(holder);
    released(stage.second()?, second, call, wait)
}

pub(super) fn released(
    actor: &mut Actor<'_>,
    file: FileNumber,
    call: LockCall,
    wait: Duration,
) -> Checked<SemanticsFound> {
    visible(wait, || actor.lock(file, call))
}

fn holder(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    let call = LockCall::Process;
    stage.first.must_lock(first, call)?;
    let test = Operation::LockHolder { file: second.0, call, start: 5 };
    let found = stage.second()?.act("fcntl(F_GETLK)", test)?;
    let expected = i64::from(stage.first.process);
    Ok(match found.values.as_slice() {
        [] => SemanticsFound::new(No).with("no holder is reported"),
        _ if found.number != expected => {
            SemanticsFound::new(No).with(format!("process {} is reported instead of {expected}", found.number))
        }
        [1, 0, 10] => SemanticsFound::new(Yes),
        [kind, start, length] => SemanticsFound::new(No).with(format!(
            "the process is right, but its lock is reported as {} from {start}, length {length}, instead of exclusive from \
             0, length 10",
            if *kind == 1 { "exclusive" } else { "shared" }
        )),
        _ => return Err(CheckError::Precondition("the agent is another version".to_owned())),
    })
}

/// Each waits for the other's byte; the kernel may refuse either.
fn deadlock(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    let (mut one, mut two) = (stage.another()?, stage.another_second()?);
    let first = one.open(&name)?;
    let second = two.open_existing(&name, wait)?;
    let (call, change) = (LockCall::Process, LockChange::Exclusive);
    if !one.change_lock(first, call, change, 0, 1)? || !two.change_lock(second, call, change, 1, 2)? {
        return Err(CheckError::Deviates("locks of different bytes exclude each other".to_owned()));
    }
    let wait_for = |file: FileNumber, start| {
        let (file, end) = (file.0, start + 1);
        Operation::Lock { file, call, change, start, end, wait: true }
    };
    one.begin(wait_for(first, 1))?;
    if let Some(result) = one.ended(Duration::from_millis(100))? {
        return Err(not_waiting(result.err()));
    }
    two.begin(wait_for(second, 0))?;
    let mut refused = two.ended(DEADLOCK_TIME)?;
    if refused.is_none() {
        refused = one.ended(Duration::from_millis(1))?;
    }
    // Those that wait end with their processes.
    match refused {
        Some(Err(Errno::DEADLK)) => Ok(SemanticsFound::new(Yes)),
        Some(result) => Err(not_waiting(result.err())),
        None => Ok(left_open(false, format!("both still wait after {} ms", DEADLOCK_TIME.as_millis()))),
    }
}

/// A wait that ended although the lock is held.
pub(super) fn not_waiting(errno: Option<Errno>) -> CheckError {
    match errno {
        Some(errno) => Fault { call: "fcntl(F_SETLKW)", errno }.into(),
        None => CheckError::Precondition("the lock does not exclude".to_owned()),
    }
}

/// Closing another descriptor of the file, of a description of its own or a duplicate, releases locks of the process.
fn any_close(stage: &mut Stage<'_, '_>, is_duplicate: bool) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    let (name, wait, call) = (stage.name(), stage.wait, LockCall::Process);
    stage.first.must_lock(first, call)?;
    must_exclude(stage.second()?, second, call)?;
    let another = match is_duplicate {
        true => stage.first.duplicate(first)?,
        false => stage.first.open(&name)?,
    };
    stage.first.close(another)?;
    let found = released(stage.second()?, second, call, wait)?;
    Ok(match found.verdict {
        No => found.with("the lock is kept when another descriptor is closed"),
        _ => found,
    })
}

fn within(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let name = stage.name();
    let (one, two) = (stage.first.open(&name)?, stage.first.open(&name)?);
    stage.first.must_lock(one, call)?;
    Ok(verdict(!stage.first.lock(two, call)?, "granted to two descriptions of a process"))
}

/// Neither a description of the file that is closed, nor a duplicate of the descriptor, takes the lock along.
fn other_close(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    let (name, wait) = (stage.name(), stage.wait);
    stage.first.must_lock(first, call)?;
    must_exclude(stage.second()?, second, call)?;
    let another = stage.first.open(&name)?;
    stage.first.close(another)?;
    if stage.second()?.lock(second, call)? {
        return Ok(SemanticsFound::new(No).with("closing another descriptor of the file releases it"));
    }
    let duplicate = stage.first.duplicate(first)?;
    stage.first.close(first)?;
    if stage.second()?.lock(second, call)? {
        return Ok(
            SemanticsFound::new(No).with("closing one of two descriptors of the description releases it")
        );
    }
    stage.first.close(duplicate)?;
    released(stage.second()?, second, call, wait)
}

/// The child has the lock, too, until its last descriptor is closed.
fn fork(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    let wait = stage.wait;
    stage.first.must_lock(first, call)?;
    stage.first.act("fork", Operation::Share { file: first.0, keeps: false })?;
    must_exclude(stage.second()?, second, call)?;
    if !stage.first.lock_by_child(call, LockChange::Exclusive)? {
        return Ok(SemanticsFound::new(No).with("the child is refused its parent's lock"));
    }
    stage.first.close(first)?;
    if stage.second()?.lock(second, call)? {
        return Ok(
            SemanticsFound::new(No).with("a close by the parent releases it, although the child has it open")
        );
    }
    stage.first.act("kill", Operation::EndChild)?;
    released(stage.second()?, second, call, wait)
}

fn not_inherited(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait, call) = (stage.name(), stage.wait, LockCall::Process);
    let file = stage.first.open(&name)?;
    stage.first.must_lock(file, call)?;
    stage.first.act("fork", Operation::Share { file: file.0, keeps: true })?;
    let is_refused = !stage.first.lock_by_child(call, LockChange::Exclusive)?;
    // The end of the child, which closes the file there, leaves the parent's lock as it is.
    stage.first.act("kill", Operation::EndChild)?;
    let other = stage.second()?.open_existing(&name, wait)?;
    let is_kept = !stage.second()?.lock(other, call)?;
    Ok(match (is_refused, is_kept) {
        (false, _) => SemanticsFound::new(No).with("granted to the child of its holder"),
        (true, false) => SemanticsFound::new(No).with("the exit of the child releases its parent's lock"),
        (true, true) => SemanticsFound::new(Yes),
    })
}
