//! The process that carries out operations: one thread, one after the other, in one folder.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write as _},
    os::{
        fd::AsFd,
        unix::{fs::FileExt as _, net::UnixStream},
    },
    path::Path,
    process::Command,
    time::Duration,
};

use clearstream_schema::{json, semantics::SemanticsFound};
use clearstream_sys::{
    file_lock::{self, LockKind, LockOwner, LockRange},
    file_map::SharedFileMap,
    lines::Lines,
    process::let_alarm_interrupt,
};
use rustix::{
    fs::{
        AtFlags, FlockOperation, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, Uid, chmodat,
        chownat, flock, fstat, ftruncate, statat, utimensat,
    },
    io::Errno,
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use super::{
    calls::{Acted, LockCall, LockChange, Operation},
    checks,
    faults::Fault,
    folder::{Folder, Records, raw},
    process::{MAX_MESSAGE, Process, Shared},
    races,
};
use crate::journal::Journal;

/// Bytes of a mapping.
const MAP_BYTES: usize = 4096;
/// Maximum bytes of one read.
const MAX_READ: usize = 1 << 20;
/// Maximum duration of an operation that repeats.
const MAX_DURATION: Duration = Duration::from_secs(10);
/// Maximum duration of an operation of a child.
const CHILD_TIME: Duration = Duration::from_secs(10);

/// Number of the file whose description the process shares with the one that started it.
pub(super) const SHARED: u32 = 0;

/// Carries out operations that come in at a socket, one a line, until there are no more; `command` starts this program again
/// as another one of these. What is made is noted in a journal. `shared` is the file of the one that started it, if any.
///
/// # Errors
/// Those of the socket.
pub fn serve_operations(
    command: fn() -> io::Result<Command>,
    socket: impl AsFd,
    journal: impl AsFd,
    shared: impl AsFd,
) -> io::Result<()> {
    let_alarm_interrupt()?;
    // Of its own: what a check opens, and closes, is apart.
    let shared = File::from(shared.as_fd().try_clone_to_owned()?);
    let mut output = UnixStream::from(socket.as_fd().try_clone_to_owned()?);
    let mut hands = Hands {
        command,
        journal: Journal::of(journal.as_fd().try_clone_to_owned()?),
        entered: None,
        folder: None,
        files: BTreeMap::from([(SHARED, shared)]),
        maps: BTreeMap::new(),
        child: None,
        last: SHARED,
        dates: Vec::new(),
    };
    let mut lines = Lines::new(output.try_clone()?, MAX_MESSAGE);
    while let Some(line) = lines.whole()? {
        let operation: Operation = json::from_slice(line.bytes)?;
        let acted = hands.carry_out(operation);
        let acted =
            acted.unwrap_or_else(|errno| Acted { errno: Some(errno.raw_os_error()), ..Acted::default() });
        let mut message = json::to_vec(&acted)?;
        message.push(b'\n');
        output.write_all(&message)?;
    }
    Ok(())
}

/// What the process has open.
pub(super) struct Hands {
    command: fn() -> io::Result<Command>,
    journal: Journal,
    /// By which another process opens the folder.
    entered: Option<Operation>,
    folder: Option<Folder>,
    files: BTreeMap<u32, File>,
    maps: BTreeMap<u32, SharedFileMap>,
    child: Option<Process>,
    last: u32,
    /// Verdicts on times of files, by check.
    pub(super) dates: Vec<(&'static str, Result<SemanticsFound, Fault>)>,
}

impl Hands {
    fn carry_out(&mut self, operation: Operation) -> Result<Acted, Errno> {
        match operation {
            Operation::Enter { ref directory, ref folder, is_alone } => {
                let journal = self.journal.try_clone().map_err(|error| raw(&error))?;
                let records = Records::new(journal, is_alone);
                self.folder = Some(Folder::enter(Path::new(directory), folder, records)?);
                self.entered = Some(operation);
                Ok(Acted::default())
            }
            Operation::Descend { name } => {
                self.folder = Some(self.folder()?.inner(&name)?);
                Ok(Acted::default())
            }
            Operation::Become { user, groups } => become_user(user, &groups),
            Operation::Share { .. } | Operation::Child { .. } | Operation::EndChild => {
                self.children(operation)
            }
            Operation::Feature { check, wait_ms } => {
                let wait = Duration::from_millis(wait_ms).min(MAX_DURATION);
                Ok(Acted { found: Some(checks::own(&check, self, wait)?), ..Acted::default() })
            }
            Operation::Lock { .. } | Operation::LockHolder { .. } => self.locks(operation),
            Operation::Write { .. }
            | Operation::Read { .. }
            | Operation::AttributesOf { .. }
            | Operation::MapStore { .. }
            | Operation::MapLoad { .. }
            | Operation::MapSynchronize { .. } => self.data(operation),
            Operation::Open { .. }
            | Operation::Create { .. }
            | Operation::OpenExisting { .. }
            | Operation::Close { .. }
            | Operation::Duplicate { .. }
            | Operation::Map { .. }
            | Operation::Reset => self.descriptors(operation),
            other => names(self.folder()?, other),
        }
    }

    /// The folder of the checks.
    pub(super) fn folder(&self) -> Result<&Folder, Errno> {
        self.folder.as_ref().ok_or(Errno::BADF)
    }

    /// Starts another process in the folder.
    pub(super) fn start(&self, shared: Option<Shared>) -> Result<Process, Errno> {
        let enter = self.entered.as_ref().ok_or(Errno::BADF)?;
        let started = || Process::start((self.command)()?, self.journal.try_clone()?, shared);
        let mut process = started().map_err(|error| raw(&error))?;
        let entered = process.act(enter, CHILD_TIME);
        match entered.errno {
            Some(errno) => Err(Errno::from_raw_os_error(errno)),
            None => Ok(process),
        }
    }

    fn children(&mut self, operation: Operation) -> Result<Acted, Errno> {
        match operation {
            Operation::Share { file, keeps } => {
                let shared = self.file(file)?.try_clone().map_err(|error| raw(&error))?;
                self.child = Some(self.start(Some(Shared { file: shared.into(), keeps }))?);
                Ok(Acted::default())
            }
            Operation::Child { operation } => {
                Ok(self.child.as_mut().ok_or(Errno::CHILD)?.act(&operation, CHILD_TIME))
            }
            _ => {
                self.child.iter_mut().for_each(Process::end);
                Ok(Acted::default())
            }
        }
    }

    fn descriptors(&mut self, operation: Operation) -> Result<Acted, Errno> {
        let folder = self.folder()?;
        match operation {
            Operation::Open { name } => {
                let file = folder.open(&name, OFlags::RDWR | OFlags::CREATE)?;
                Ok(self.keep(file))
            }
            Operation::Create { name, mode } => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
                let file = folder.open_with(&name, flags, Mode::from_raw_mode(mode))?;
                Ok(self.keep(file))
            }
            Operation::OpenExisting { name, writing } => {
                let file = folder.open(&name, if writing { OFlags::RDWR } else { OFlags::RDONLY })?;
                Ok(self.keep(file))
            }
            Operation::Duplicate { file } => {
                let other = self.file(file)?.try_clone().map_err(|error| raw(&error))?;
                Ok(self.keep(other))
            }
            Operation::Close { file } => {
                self.maps.remove(&file);
                self.files.remove(&file).map(|_| Acted::default()).ok_or(Errno::BADF)
            }
            Operation::Map { file } => {
                let map = SharedFileMap::new(self.file(file)?.as_fd(), MAP_BYTES);
                self.maps.insert(file, map.map_err(|error| raw(&error))?);
                Ok(Acted::default())
            }
            _ => {
                self.maps.clear();
                self.files.retain(|number, _| *number == SHARED);
                self.child = None;
                Ok(Acted::default())
            }
        }
    }

    fn keep(&mut self, file: File) -> Acted {
        self.last += 1;
        self.files.insert(self.last, file);
        number(self.last.into())
    }

    fn file(&self, file: u32) -> Result<&File, Errno> {
        self.files.get(&file).ok_or(Errno::BADF)
    }

    fn locks(&mut self, operation: Operation) -> Result<Acted, Errno> {
        match operation {
            Operation::Lock { file, call, change, start, end, wait } => {
                set_lock(self.file(file)?, call, change, LockRange { start, length: end - start }, wait)?;
                Ok(Acted::default())
            }
            Operation::LockHolder { file, call, start } => {
                let owner = match call {
                    LockCall::Description => LockOwner::Description,
                    _ => LockOwner::Process,
                };
                let range = LockRange { start, length: 1 };
                let holder = file_lock::test(self.file(file)?.as_fd(), owner, LockKind::Exclusive, range);
                Ok(match holder.map_err(|error| raw(&error))? {
                    None => Acted::default(),
                    Some(holder) => {
                        let is_exclusive = i64::from(holder.kind == LockKind::Exclusive);
                        let values = vec![is_exclusive, holder.range.start, holder.range.length];
                        Acted { values, ..number(holder.process.into()) }
                    }
                })
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn data(&mut self, operation: Operation) -> Result<Acted, Errno> {
        match operation {
            Operation::Write { file, offset, bytes } => {
                self.file(file)?.write_all_at(&bytes, offset).map_err(|error| raw(&error))?;
                Ok(Acted::default())
            }
            Operation::Read { file, offset, length } => {
                let mut buffer = vec![0; length.min(MAX_READ)];
                let count = self.file(file)?.read_at(&mut buffer, offset).map_err(|error| raw(&error))?;
                buffer.truncate(count);
                Ok(Acted { bytes: buffer, ..Acted::default() })
            }
            Operation::AttributesOf { file } => Ok(attributes(&fstat(self.file(file)?)?)),
            Operation::MapStore { file, offset, bytes } => {
                self.maps.get(&file).ok_or(Errno::BADF)?.store(offset, &bytes);
                Ok(Acted::default())
            }
            Operation::MapLoad { file, offset, length } => {
                let bytes = self.maps.get(&file).ok_or(Errno::BADF)?.load(offset, length);
                Ok(Acted { bytes, ..Acted::default() })
            }
            Operation::MapSynchronize { file } => {
                let map = self.maps.get(&file).ok_or(Errno::BADF)?;
                map.synchronize().map(|()| Acted::default()).map_err(|error| raw(&error))
            }
            _ => Err(Errno::INVAL),
        }
    }
}

/// Operations by name.
fn names(folder: &Folder, operation: Operation) -> Result<Acted, Errno> {
    let done = |result: Result<(), Errno>| result.map(|()| Acted::default());
    let duration = |milliseconds| Duration::from_millis(milliseconds).min(MAX_DURATION);
    match operation {
        Operation::ReadName { name, length } => {
            Ok(Acted { bytes: folder.read(&name, length.min(MAX_READ))?, ..Acted::default() })
        }
        Operation::Store { name, bytes } => done(folder.store(&name, &bytes)),
        Operation::Attributes { name } => {
            Ok(attributes(&statat(folder.descriptor(), folder.name(&name)?, AtFlags::SYMLINK_NOFOLLOW)?))
        }
        Operation::SetMode { name, mode } => {
            let mode = Mode::from_raw_mode(mode);
            done(chmodat(folder.descriptor(), folder.name(&name)?, mode, AtFlags::empty()))
        }
        Operation::SetOwner { name, user, group } => {
            let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
            done(chownat(folder.descriptor(), folder.name(&name)?, user, group, AtFlags::empty()))
        }
        Operation::SetTimes { name, second } => {
            let time = match second {
                Some(second) => Timespec { tv_sec: second, tv_nsec: 0 },
                None => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            };
            let times = Timestamps { last_access: time, last_modification: time };
            done(utimensat(folder.descriptor(), folder.name(&name)?, &times, AtFlags::empty()))
        }
        Operation::Truncate { name, length } => done(ftruncate(&folder.open(&name, OFlags::WRONLY)?, length)),
        Operation::Link { from, to } => done(folder.link(folder.name(&from)?, folder.name(&to)?)),
        Operation::MakeFolder { name } => {
            done(folder.make_folder(folder.name(&name)?, Mode::from_raw_mode(0o700)))
        }
        Operation::List { prefix } => {
            Ok(number(i64::try_from(folder.list(&prefix)?.len()).unwrap_or(i64::MAX)))
        }
        Operation::Remove { name } => done(folder.remove(&name)),
        Operation::Rename { from, to } => done(folder.rename(&from, &to)),
        Operation::Append { name, writer, count, start_at_ns } => {
            races::append(folder, &name, writer, count, start_at_ns)
        }
        Operation::Claim { prefix, by, count, start_at_ns } => {
            races::claim(folder, &prefix, by, count, start_at_ns)
        }
        Operation::Replace { name, duration_ms } => races::replace(folder, &name, duration(duration_ms)),
        Operation::Observe { name, duration_ms } => races::observe(folder, &name, duration(duration_ms)),
        _ => Err(Errno::INVAL),
    }
}

/// Real, effective and saved IDs, and the groups; this process has one thread, whose they are.
fn become_user(user: u32, groups: &[u32]) -> Result<Acted, Errno> {
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
    set_thread_groups(&groups)?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    Ok(Acted::default())
}

fn set_lock(
    file: &File,
    call: LockCall,
    change: LockChange,
    range: LockRange,
    wait: bool,
) -> Result<(), Errno> {
    let kind = match change {
        LockChange::Shared => LockKind::Shared,
        LockChange::Exclusive => LockKind::Exclusive,
        LockChange::Unlock => LockKind::Unlock,
    };
    let owner = match call {
        LockCall::Flock => {
            return flock(
                file,
                match (change, wait) {
                    (LockChange::Shared, false) => FlockOperation::NonBlockingLockShared,
                    (LockChange::Shared, true) => FlockOperation::LockShared,
                    (LockChange::Exclusive, false) => FlockOperation::NonBlockingLockExclusive,
                    (LockChange::Exclusive, true) => FlockOperation::LockExclusive,
                    (LockChange::Unlock, _) => FlockOperation::Unlock,
                },
            );
        }
        LockCall::Process => LockOwner::Process,
        LockCall::Description => LockOwner::Description,
    };
    let set = if wait { file_lock::wait } else { file_lock::set };
    set(file.as_fd(), owner, kind, range).map_err(|error| raw(&error))
}

/// In the order of [`super::calls::attribute`].
fn attributes(found: &Stat) -> Acted {
    let links = i64::try_from(found.st_nlink).unwrap_or(i64::MAX);
    let part = i64::try_from(found.st_mtime_nsec).unwrap_or(0);
    let modified = found.st_mtime.saturating_mul(1_000_000_000).saturating_add(part);
    let mode = i64::from(found.st_mode & 0o7777);
    let values = vec![mode, found.st_uid.into(), found.st_gid.into(), links, found.st_size, modified];
    Acted { values, ..Acted::default() }
}

fn number(number: i64) -> Acted {
    Acted { number, ..Acted::default() }
}
