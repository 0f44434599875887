//! Locks: flock(2), fcntl(2) by process and by open file description.

use std::time::Duration;

use clearstream_schema::semantics::{
    SemanticsFound,
    SemanticsVerdict::{No, Yes},
};
use rustix::io::Errno;

use super::{Check, Run, Stage, locks, verdict};
use crate::semantics::{
    actor::{Actor, CheckError, Checked, FileNumber, visible},
    calls::LockCall,
};

/// Time within which a lock in a cycle of waits has to be refused.
const DEADLOCK_TIME: Duration = Duration::from_millis(500);

const FLOCK: &str = "flock(2); not in POSIX.1";
const FCNTL: &str = "POSIX.1-2017 fcntl(), F_SETLK";
const OFD: &str = "POSIX.1-2024 fcntl(), F_OFD_SETLK; fcntl_locking(2)";

pub(super) const CHECKS: &[Check] = &[
    locks("flock-grant", "flock is granted", FLOCK, Run::One(|stage| grant(stage, LockCall::Flock))),
    locks("flock-conflict", "flock excludes", FLOCK, Run::Pair(|stage| conflict(stage, LockCall::Flock))),
    locks("flock-shared", "shared flock coexists", FLOCK, Run::Pair(|stage| shared(stage, LockCall::Flock))),
    locks("flock-close", "flock ends at close", FLOCK, Run::Pair(|stage| close(stage, LockCall::Flock))),
    locks("flock-death", "flock ends at exit", FLOCK, Run::One(|stage| death(stage, LockCall::Flock))),
    locks("fcntl-grant", "fcntl is granted", FCNTL, Run::One(|stage| grant(stage, LockCall::Process))),
    locks("fcntl-conflict", "fcntl excludes", FCNTL, Run::Pair(|stage| conflict(stage, LockCall::Process))),
    locks(
        "fcntl-shared",
        "shared fcntl coexists",
        FCNTL,
        Run::Pair(|stage| shared(stage, LockCall::Process)),
    ),
    locks("fcntl-disjoint", "disjoint ranges", FCNTL, Run::Pair(disjoint)),
    locks("fcntl-holder", "F_GETLK names process", "POSIX.1-2017 fcntl(), F_GETLK", Run::One(holder)),
    locks("fcntl-deadlock", "deadlock is detected", "POSIX.1-2017 fcntl(), EDEADLK", Run::One(deadlock)),
    locks("fcntl-any-close", "any close releases", "POSIX.1-2017 fcntl(), close()", Run::One(any_close)),
    locks("fcntl-close", "fcntl ends at close", FCNTL, Run::Pair(|stage| close(stage, LockCall::Process))),
    locks("fcntl-death", "fcntl ends at exit", FCNTL, Run::One(|stage| death(stage, LockCall::Process))),
    locks("ofd-conflict", "OFD excludes", OFD, Run::Pair(|stage| conflict(stage, LockCall::Description))),
    locks("ofd-one-process", "OFD within a process", OFD, Run::One(one_process)),
    locks("ofd-other-close", "OFD outlives a close", OFD, Run::One(other_close)),
    locks("ofd-close", "OFD ends at close", OFD, Run::Pair(|stage| close(stage, LockCall::Description))),
];

/// One file, open at both processes.
fn both(stage: &mut Stage<'_, '_>) -> Checked<(FileNumber, FileNumber)> {
    let (name, wait) = (stage.name(), stage.wait);
    let first = stage.first.open(&name)?;
    Ok((first, stage.second()?.open_existing(&name, wait)?))
}

fn grant(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let name = stage.name();
    let file = stage.first.open(&name)?;
    Ok(verdict(stage.first.lock(file, call)?, "", "refused although nobody holds it"))
}

fn conflict(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, call)?;
    let is_excluded = !stage.second()?.lock(second, call)?;
    Ok(verdict(is_excluded, "", "granted to both"))
}

fn shared(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    for (is_first, file) in [(true, first), (false, second)] {
        let actor = if is_first { &mut *stage.first } else { stage.second()? };
        if !actor.lock_range(file, call, false, 0, 10)? {
            return Ok(SemanticsFound::new(No).with("a shared lock excludes another one"));
        }
    }
    let is_excluded = !stage.second()?.lock(second, call)?;
    Ok(verdict(is_excluded, "", "shared locks do not exclude an exclusive one"))
}

fn disjoint(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, LockCall::Process)?;
    let other = stage.second()?;
    let is_granted = other.lock_range(second, LockCall::Process, true, 10, 20)?;
    Ok(verdict(is_granted, "", "a lock of other bytes is refused"))
}

fn close(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, call)?;
    if stage.second()?.lock(second, call)? {
        return Err(CheckError::Precondition("the lock does not exclude".to_owned()));
    }
    stage.first.close(first)?;
    let wait = stage.wait;
    released(stage.second()?, second, call, wait)
}

fn death(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    let file = stage.first.open(&name)?;
    let mut other = stage.another()?;
    let held = other.open_existing(&name, wait)?;
    other.must_lock(held, call)?;
    if stage.first.lock(file, call)? {
        return Err(CheckError::Precondition("the lock does not exclude".to_owned()));
    }
    other.kill();
    released(stage.first, file, call, wait)
}

fn released(
    actor: &mut Actor<'_>,
    file: FileNumber,
    call: LockCall,
    wait: Duration,
) -> Checked<SemanticsFound> {
    visible(wait, || actor.lock(file, call))
}

fn holder(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, LockCall::Process)?;
    let (expected, reported) = (i64::from(stage.first.process), stage.second()?.lock_holder(second)?);
    let wrong = match reported {
        0 => "no holder is reported".to_owned(),
        _ => format!("process {reported} is reported instead of {expected}"),
    };
    Ok(verdict(reported == expected, "", &wrong))
}

fn deadlock(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    let (mut one, mut two) = (stage.another()?, stage.another()?);
    let first = one.open(&name)?;
    let second = two.open_existing(&name, wait)?;
    let call = LockCall::Process;
    if !one.lock_range(first, call, true, 0, 1)? || !two.lock_range(second, call, true, 1, 2)? {
        return Err(CheckError::Precondition("disjoint locks are refused".to_owned()));
    }
    // Each waits for the other's byte.
    let waits = one.lock_wait(first, 1, Duration::from_millis(100))?;
    let found = match (waits, two.lock_wait(second, 0, DEADLOCK_TIME)?) {
        (_, Err(Errno::DEADLK)) => SemanticsFound::new(Yes),
        (Ok(true), _) | (_, Ok(true)) => {
            return Err(CheckError::Precondition("the lock does not exclude".to_owned()));
        }
        (Err(errno), _) | (_, Err(errno)) => {
            return Err(CheckError::System { call: "fcntl(F_SETLKW)", errno });
        }
        _ => SemanticsFound::new(No).with(format!("both still wait after {} ms", DEADLOCK_TIME.as_millis())),
    };
    // Threads that wait end with their process.
    one.kill();
    two.kill();
    Ok(found)
}

fn any_close(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    let (name, call) = (stage.name(), LockCall::Process);
    stage.first.must_lock(first, call)?;
    if stage.second()?.lock(second, call)? {
        return Err(CheckError::Precondition("the lock does not exclude".to_owned()));
    }
    let another = stage.first.open(&name)?;
    stage.first.close(another)?;
    let is_released = stage.second()?.lock(second, call)?;
    Ok(verdict(is_released, "", "the lock is kept when another descriptor is closed"))
}

fn one_process(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (name, call) = (stage.name(), LockCall::Description);
    let (one, two) = (stage.first.open(&name)?, stage.first.open(&name)?);
    stage.first.must_lock(one, call)?;
    Ok(verdict(!stage.first.lock(two, call)?, "", "granted to two descriptions of a process"))
}

fn other_close(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    let (name, call) = (stage.name(), LockCall::Description);
    stage.first.must_lock(first, call)?;
    let another = stage.first.open(&name)?;
    stage.first.close(another)?;
    let is_kept = !stage.second()?.lock(second, call)?;
    Ok(verdict(is_kept, "", "closing another descriptor releases it"))
}
