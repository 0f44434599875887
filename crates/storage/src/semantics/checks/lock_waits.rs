//! Waits for locks, and how they end.

use std::time::{Duration, Instant};

use clearstream_schema::semantics::{
    SemanticsFound,
    SemanticsVerdict::{No, Yes},
};
use rustix::io::Errno;

use super::{
    Check, Run, Stage, locks,
    locks::{FLOCK, OFD, both, not_waiting, released},
};
use crate::semantics::{
    actor::{Actor, Checked, FileNumber, in_time},
    calls::{LockCall, LockChange, Operation},
    faults::Fault,
};

/// After this a process that has not got the lock waits for it.
const SETTLED: Duration = Duration::from_millis(25);
/// A wait that ends within it ends at once: processes are scheduled meanwhile, on loaded machines too.
const PROMPT: Duration = Duration::from_millis(250);

const FCNTL_WAIT: &str = "POSIX.1-2017 fcntl(), F_SETLKW";
const INTERRUPTED: &str = "POSIX.1-2017 fcntl(), EINTR";

pub(super) const CHECKS: &[Check] = &[
    locks(
        "flock-wait",
        "flock waits until unlock",
        FLOCK,
        Run::Pair(|stage| unlocked(stage, LockCall::Flock)),
    ),
    locks(
        "fcntl-wait",
        "fcntl waits until unlock",
        FCNTL_WAIT,
        Run::Pair(|stage| unlocked(stage, LockCall::Process)),
    ),
    locks(
        "ofd-wait",
        "OFD waits until unlock",
        OFD,
        Run::Pair(|stage| unlocked(stage, LockCall::Description)),
    ),
    locks(
        "flock-wait-close",
        "flock waits until close",
        FLOCK,
        Run::Pair(|stage| closed(stage, LockCall::Flock)),
    ),
    locks(
        "fcntl-wait-close",
        "fcntl waits until close",
        FCNTL_WAIT,
        Run::Pair(|stage| closed(stage, LockCall::Process)),
    ),
    locks(
        "flock-wait-death",
        "flock waits until exit",
        FLOCK,
        Run::Pair(|stage| died(stage, LockCall::Flock)),
    ),
    locks(
        "fcntl-wait-death",
        "fcntl waits until exit",
        FCNTL_WAIT,
        Run::Pair(|stage| died(stage, LockCall::Process)),
    ),
    locks(
        "flock-wait-readers",
        "unlock lets flock readers in",
        FLOCK,
        Run::Pair(|stage| readers(stage, LockCall::Flock)),
    ),
    locks(
        "fcntl-wait-readers",
        "unlock lets fcntl readers in",
        FCNTL_WAIT,
        Run::Pair(|stage| readers(stage, LockCall::Process)),
    ),
    locks(
        "fcntl-wait-part",
        "unlock of the part waited for",
        FCNTL_WAIT,
        Run::Pair(|stage| {
            ends(
                stage,
                LockCall::Process,
                |stage, file| {
                    stage.first.change_lock(file, LockCall::Process, LockChange::Unlock, 0, 5).map(drop)
                },
                (0, 5),
            )
        }),
    ),
    locks(
        "flock-interrupted",
        "flock ends by a signal",
        "flock(2), EINTR",
        Run::Pair(|stage| interrupted(stage, LockCall::Flock)),
    ),
    locks(
        "fcntl-interrupted",
        "fcntl ends by a signal",
        INTERRUPTED,
        Run::Pair(|stage| interrupted(stage, LockCall::Process)),
    ),
    locks(
        "ofd-interrupted",
        "OFD ends by a signal",
        "fcntl(2), EINTR",
        Run::Pair(|stage| interrupted(stage, LockCall::Description)),
    ),
    locks(
        "flock-killed",
        "killed waiter gets no flock",
        FLOCK,
        Run::Pair(|stage| killed(stage, LockCall::Flock)),
    ),
    locks(
        "fcntl-killed",
        "killed waiter gets no fcntl",
        FCNTL_WAIT,
        Run::Pair(|stage| killed(stage, LockCall::Process)),
    ),
];

/// Begins to wait for a lock, which another process holds.
fn begin<'a>(
    mut waiter: Actor<'a>,
    file: FileNumber,
    call: LockCall,
    change: LockChange,
    (start, end): (i64, i64),
) -> Checked<Actor<'a>> {
    waiter.begin(Operation::Lock { file: file.0, call, change, start, end, wait: true })?;
    match waiter.ended(SETTLED)? {
        None => Ok(waiter),
        Some(result) => Err(not_waiting(result.err())),
    }
}

/// A process that waits for the exclusive lock of the first one, with the files of the first process and of the second.
fn waiting<'a>(
    stage: &mut Stage<'_, 'a>,
    call: LockCall,
    range: (i64, i64),
) -> Checked<(FileNumber, FileNumber, Actor<'a>)> {
    let (first, second) = both(stage)?;
    let (name, wait) = (stage.name(), stage.wait);
    stage.first.must_lock(first, call)?;
    let mut waiter = stage.another_second()?;
    let file = waiter.open_existing(&name, wait)?;
    Ok((first, second, begin(waiter, file, call, LockChange::Exclusive, range)?))
}

/// Verdict on the end of a wait that something since `begun` has to end.
fn granted(waiter: &mut Actor<'_>, begun: Instant, wait: Duration) -> Checked<SemanticsFound> {
    Ok(match waiter.ended(wait.max(PROMPT))? {
        Some(Ok(_)) if begun.elapsed() <= PROMPT => SemanticsFound::new(Yes),
        Some(Ok(_)) => in_time(Ok(Some(begun.elapsed()))),
        Some(Err(errno)) => return Err(Fault { call: "lock that waits", errno }.into()),
        None => in_time(Err(wait.max(PROMPT))),
    })
}

/// The wait ends by what `release` does.
fn ends(
    stage: &mut Stage<'_, '_>,
    call: LockCall,
    release: fn(&mut Stage<'_, '_>, FileNumber) -> Checked<()>,
    range: (i64, i64),
) -> Checked<SemanticsFound> {
    let (first, _, mut waiter) = waiting(stage, call, range)?;
    let begun = Instant::now();
    release(stage, first)?;
    granted(&mut waiter, begun, stage.wait)
}

fn unlocked(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, _, mut waiter) = waiting(stage, call, (0, 10))?;
    let begun = Instant::now();
    stage.first.change_lock(first, call, LockChange::Unlock, 0, 10)?;
    granted(&mut waiter, begun, stage.wait)
}

fn closed(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    ends(stage, call, |stage, file| stage.first.close(file).map(drop), (0, 10))
}

fn died(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (name, wait) = (stage.name(), stage.wait);
    let mut holder = stage.another()?;
    let held = holder.open(&name)?;
    holder.must_lock(held, call)?;
    let mut waiter = stage.another_second()?;
    let file = waiter.open_existing(&name, wait)?;
    let mut waiter = begin(waiter, file, call, LockChange::Exclusive, (0, 10))?;
    let begun = Instant::now();
    drop(holder);
    granted(&mut waiter, begun, wait)
}

fn readers(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, _) = both(stage)?;
    let (name, wait) = (stage.name(), stage.wait);
    stage.first.must_lock(first, call)?;
    let mut waiters = Vec::new();
    for waiter in [stage.another_second()?, stage.another()?] {
        let mut waiter = waiter;
        let file = waiter.open_existing(&name, wait)?;
        waiters.push(begin(waiter, file, call, LockChange::Shared, (0, 10))?);
    }
    let begun = Instant::now();
    stage.first.change_lock(first, call, LockChange::Unlock, 0, 10)?;
    let mut found = SemanticsFound::new(Yes);
    for waiter in &mut waiters {
        match granted(waiter, begun, wait)? {
            one if one.verdict == Yes => {}
            one => found = one,
        }
    }
    Ok(found)
}

/// The signal ends the wait, and nothing of it stays at the server.
fn interrupted(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second, mut waiter) = waiting(stage, call, (0, 10))?;
    let (begun, wait) = (Instant::now(), stage.wait.max(PROMPT));
    // Again, where the process had not come to the call yet.
    let ended = loop {
        waiter.interrupt()?;
        match waiter.ended(SETTLED)? {
            None if begun.elapsed() < wait => {}
            ended => break ended,
        }
    };
    let found = match ended {
        Some(Err(Errno::INTR)) if begun.elapsed() <= PROMPT => SemanticsFound::new(Yes),
        Some(Err(Errno::INTR)) => in_time(Ok(Some(begun.elapsed()))),
        Some(Err(errno)) => return Err(Fault { call: "lock that waits", errno }.into()),
        Some(Ok(_)) => return Err(not_waiting(None)),
        None => {
            let text = format!("the wait goes on for {} ms after the signal", wait.as_millis());
            SemanticsFound { stale_ns: in_time(Err(wait)).stale_ns, ..SemanticsFound::new(No).with(text) }
        }
    };
    if found.verdict == No {
        return Ok(found);
    }
    let left = left_behind(stage, first, second, call)?;
    Ok(if left.verdict == Yes {
        found
    } else {
        left.with("the lock is kept for the wait that was interrupted")
    })
}

fn killed(stage: &mut Stage<'_, '_>, call: LockCall) -> Checked<SemanticsFound> {
    let (first, second, waiter) = waiting(stage, call, (0, 10))?;
    drop(waiter);
    left_behind(stage, first, second, call)
}

/// After the unlock another process gets the lock.
fn left_behind(
    stage: &mut Stage<'_, '_>,
    first: FileNumber,
    second: FileNumber,
    call: LockCall,
) -> Checked<SemanticsFound> {
    stage.first.change_lock(first, call, LockChange::Unlock, 0, 10)?;
    let wait = stage.wait;
    released(stage.second()?, second, call, wait)
}
