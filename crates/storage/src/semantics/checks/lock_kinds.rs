//! How the three kinds of locks meet, as Linux documents it.

use clearstream_schema::semantics::{
    SemanticsFound,
    SemanticsVerdict::{LeftOpen, No, Yes},
};
use rustix::io::Errno;

use super::{
    Check, Run, Stage, locks,
    locks::{both, must_exclude},
    verdict,
};
use crate::semantics::{
    actor::{Checked, FileNumber},
    calls::{
        LockCall::{self, Description, Flock, Process},
        LockChange, Operation,
    },
    faults::Fault,
};

const MEET: &str = "fcntl_locking(2): conflict with each other";
const APART: &str = "flock(2): no interaction with fcntl(2)";

pub(super) const CHECKS: &[Check] = &[
    locks("ofd-fcntl", "OFD excludes fcntl", MEET, Run::Pair(|stage| exclude(stage, Description, Process))),
    locks("fcntl-ofd", "fcntl excludes OFD", MEET, Run::Pair(|stage| exclude(stage, Process, Description))),
    locks("ofd-fcntl-own", "OFD excludes own fcntl", MEET, Run::One(own)),
    locks("flock-fcntl", "flock beside fcntl", APART, Run::Pair(|stage| apart(stage, Flock, Process))),
    locks("fcntl-flock", "fcntl beside flock", APART, Run::Pair(|stage| apart(stage, Process, Flock))),
    locks("flock-ofd", "flock beside OFD", APART, Run::Pair(|stage| apart(stage, Flock, Description))),
    locks("flock-fcntl-unlock", "unlock of one kind alone", APART, Run::Pair(unlock)),
    locks("ofd-holder", "F_GETLK of an OFD lock", "fcntl_locking(2): l_pid is -1", Run::Pair(holder)),
    locks(
        "fcntl-read-only",
        "fcntl needs open for writing",
        "POSIX.1-2017 fcntl(), EBADF",
        Run::One(read_only_fcntl),
    ),
    locks(
        "flock-read-only",
        "flock of a file open to read",
        "flock(2): whatever the mode",
        Run::One(read_only_flock),
    ),
];

fn exclude(stage: &mut Stage<'_, '_>, held: LockCall, wanted: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, held)?;
    let other = stage.second()?;
    must_exclude(other, second, held)?;
    if other.lock(second, wanted)? {
        return Ok(SemanticsFound::new(No).with("granted to both"));
    }
    let is_granted = other.change_lock(second, wanted, LockChange::Exclusive, 10, 20)?;
    Ok(verdict(is_granted, "other bytes are refused, too"))
}

/// They conflict even by one process on one descriptor.
fn own(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let name = stage.name();
    let file = stage.first.open(&name)?;
    stage.first.must_lock(file, Description)?;
    Ok(verdict(!stage.first.lock(file, Process)?, "both granted to one process"))
}

/// NFS and SMB make locks of the whole file of flock(2), as flock(2) says.
fn meets(stage: &Stage<'_, '_>, text: &str) -> SemanticsFound {
    let is_documented = ["nfs", "cifs", "smb"].iter().any(|kind| stage.first.file_system().starts_with(kind));
    SemanticsFound::new(if is_documented { LeftOpen } else { No }).with(text)
}

fn apart(stage: &mut Stage<'_, '_>, held: LockCall, wanted: LockCall) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, held)?;
    let is_granted = stage.second()?.lock(second, wanted)?;
    Ok(if is_granted { SemanticsFound::new(Yes) } else { meets(stage, "one excludes the other") })
}

/// One descriptor with both kinds, of which one is cleared.
fn unlock(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, Flock)?;
    must_exclude(stage.second()?, second, Flock)?;
    if !stage.first.lock(first, Process)? {
        return Ok(meets(stage, "a process is refused fcntl by its own flock"));
    }
    stage.first.change_lock(first, Process, LockChange::Unlock, 0, 10)?;
    if stage.second()?.lock(second, Flock)? {
        return Ok(meets(stage, "clearing fcntl releases flock"));
    }
    stage.first.must_lock(first, Process)?;
    stage.first.change_lock(first, Flock, LockChange::Unlock, 0, 10)?;
    if stage.second()?.lock(second, Process)? {
        return Ok(meets(stage, "clearing flock releases fcntl"));
    }
    Ok(SemanticsFound::new(Yes))
}

fn holder(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    stage.first.must_lock(first, Description)?;
    must_exclude(stage.second()?, second, Description)?;
    let test = Operation::LockHolder { file: second.0, call: Process, start: 5 };
    let found = stage.second()?.act("fcntl(F_GETLK)", test)?;
    Ok(match found.values.as_slice() {
        [] => SemanticsFound::new(No).with("no holder is reported"),
        _ => verdict(found.number == -1, &format!("process {} is reported", found.number)),
    })
}

fn reading(stage: &mut Stage<'_, '_>) -> Checked<FileNumber> {
    let name = stage.name();
    stage.first.store(&name, b"x")?;
    let opened = stage.first.act("open", Operation::OpenExisting { name, writing: false })?;
    Ok(FileNumber(u32::try_from(opened.number).unwrap_or(0)))
}

fn read_only_fcntl(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let file = reading(stage)?;
    if !stage.first.change_lock(file, Process, LockChange::Shared, 0, 10)? {
        return Ok(SemanticsFound::new(No).with("a shared lock is refused"));
    }
    let (call, change) = (Process, LockChange::Exclusive);
    let lock = Operation::Lock { file: file.0, call, change, start: 0, end: 10, wait: false };
    Ok(match stage.first.attempt("fcntl(F_SETLK)", lock)? {
        Err(Errno::BADF) => SemanticsFound::new(Yes),
        Err(errno) => return Err(Fault { call: "fcntl(F_SETLK) of a file open to read", errno }.into()),
        Ok(_) => SemanticsFound::new(No).with("an exclusive lock is granted"),
    })
}

fn read_only_flock(stage: &mut Stage<'_, '_>) -> Checked<SemanticsFound> {
    let file = reading(stage)?;
    let (call, change) = (Flock, LockChange::Exclusive);
    let lock = Operation::Lock { file: file.0, call, change, start: 0, end: 10, wait: false };
    Ok(match stage.first.attempt("flock", lock)? {
        Ok(_) => SemanticsFound::new(Yes),
        // As a lock of fcntl(2), which it is there.
        Err(errno @ Errno::BADF) => super::with_errno(meets(stage, "an exclusive lock is refused"), errno),
        Err(errno) => return Err(Fault { call: "flock of a file open to read", errno }.into()),
    })
}
