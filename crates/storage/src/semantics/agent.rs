//! Agent part: carries out file operations in the folder of the checks.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{
        fd::AsFd as _,
        unix::fs::{FileExt as _, MetadataExt as _},
    },
    path::Path,
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use clearstream_control::{CallContext, Done, Registration, Service};
use clearstream_schema::control::{Failure, FailureKind};
use clearstream_sys::{
    file_lock::{self, LockKind, LockOwner, LockRange},
    file_map::SharedFileMap,
};
use rustix::{
    fs::{AtFlags, FlockOperation, OFlags, flock, statat},
    io::Errno,
};

use super::{
    calls::{Act, Acted, Enter, Entered, Leave, LockCall, Operation},
    features,
    folder::{Folder, raw},
    races,
};
use crate::{guard::Guard, mount::Mount};

/// Bytes of a mapping.
const MAP_BYTES: usize = 4096;
/// Maximum bytes of one read.
const MAX_READ: usize = 1 << 20;
/// Maximum duration of an operation that repeats.
const MAX_DURATION: Duration = Duration::from_secs(10);

/// Carries out operations of one controller in one folder. Dropping it removes the folder where it created it; where
/// this process is killed, another one removes it.
#[derive(Debug)]
pub struct SemanticsAgent {
    /// Command of that process ([`crate::guard`]).
    guardian: fn() -> io::Result<Command>,
    // Dropped first: an open file may keep the folder from being removed.
    files: BTreeMap<u32, File>,
    maps: BTreeMap<u32, SharedFileMap>,
    next: u32,
    folder: Option<Folder>,
    guard: Option<Guard>,
}

impl Service for SemanticsAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::enter).on(Self::act).on(|agent, Leave {}, _| agent.leave());
    }
}

impl SemanticsAgent {
    /// `guardian` is the command of a process that calls [`crate::guard::guard`].
    pub fn new(guardian: fn() -> io::Result<Command>) -> Self {
        let (files, maps) = (BTreeMap::new(), BTreeMap::new());
        Self { guardian, files, maps, next: 0, folder: None, guard: None }
    }

    fn enter(&mut self, call: Enter, _: &CallContext<'_>) -> Result<Entered, Failure> {
        self.leave()?;
        let directory = Path::new(&call.directory);
        let folder = Folder::enter(directory, &call.folder, call.create).map_err(|errno| {
            Failure::of_file(&format!("open {} in {}", call.folder, call.directory), &errno.into())
        })?;
        if call.create {
            let guard = (self.guardian)().and_then(Guard::start);
            let mut guard =
                guard.map_err(|error| Failure::of_system("start the guard of the files", &error))?;
            // Without the guard the next start removes it.
            let _ = guard.watch(folder.place());
            self.guard = Some(guard);
        }
        self.folder = Some(folder);
        Ok(Entered { file_system: Mount::of(directory).name, process: std::process::id() })
    }

    fn leave(&mut self) -> Result<Done, Failure> {
        self.files.clear();
        self.maps.clear();
        if let Some(mut folder) = self.folder.take() {
            folder
                .leave()
                .map_err(|errno| Failure::of_file("remove the folder of the checks", &errno.into()))?;
        }
        if let Some(guard) = self.guard.take() {
            guard.release();
        }
        Ok(Done {})
    }

    fn act(&mut self, call: Act, _: &CallContext<'_>) -> Result<Acted, Failure> {
        if self.folder.is_none() {
            let message = "no folder is open here: call semantics-enter first".to_owned();
            return Err(Failure { kind: FailureKind::Invalid, message });
        }
        Ok(self
            .carry_out(call.operation)
            .unwrap_or_else(|errno| Acted { errno: Some(errno.raw_os_error()), ..Acted::default() }))
    }

    fn carry_out(&mut self, operation: Operation) -> Result<Acted, Errno> {
        match operation {
            Operation::Open { .. }
            | Operation::OpenExisting { .. }
            | Operation::Close { .. }
            | Operation::Map { .. }
            | Operation::Reset => self.descriptors(operation),
            Operation::Lock { .. }
            | Operation::Unlock { .. }
            | Operation::LockWait { .. }
            | Operation::LockHolder { .. } => self.locks(operation),
            Operation::Write { .. }
            | Operation::Read { .. }
            | Operation::Links { .. }
            | Operation::MapStore { .. }
            | Operation::MapLoad { .. } => self.data(operation),
            other => names(self.folder.as_ref().ok_or(Errno::BADF)?, other),
        }
    }

    fn descriptors(&mut self, operation: Operation) -> Result<Acted, Errno> {
        let folder = self.folder.as_ref().ok_or(Errno::BADF)?;
        match operation {
            Operation::Open { name } => {
                let file = folder.open(&name, OFlags::RDWR | OFlags::CREATE)?;
                Ok(self.keep(file))
            }
            Operation::OpenExisting { name } => {
                let file = folder.open(&name, OFlags::RDWR)?;
                Ok(self.keep(file))
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
                self.files.clear();
                Ok(Acted::default())
            }
        }
    }

    fn keep(&mut self, file: File) -> Acted {
        self.next += 1;
        self.files.insert(self.next, file);
        number(self.next.into())
    }

    fn file(&self, file: u32) -> Result<&File, Errno> {
        self.files.get(&file).ok_or(Errno::BADF)
    }

    fn locks(&mut self, operation: Operation) -> Result<Acted, Errno> {
        match operation {
            Operation::Lock { file, call, exclusive, start, end } => {
                let kind = if exclusive { LockKind::Exclusive } else { LockKind::Shared };
                set_lock(self.file(file)?, call, kind, start, end)?;
                Ok(Acted::default())
            }
            Operation::Unlock { file, call, start, end } => {
                set_lock(self.file(file)?, call, LockKind::Unlock, start, end)?;
                Ok(Acted::default())
            }
            Operation::LockHolder { file, start } => {
                let range = LockRange { start, length: 1 };
                let file = self.file(file)?.as_fd();
                let holder = file_lock::test(file, LockOwner::Process, LockKind::Exclusive, range);
                Ok(number(holder.map_err(|error| raw(&error))?.map_or(0, |holder| holder.process.into())))
            }
            Operation::LockWait { file, start, timeout_ms } => {
                // fcntl(2) has no timeout. A thread that still waits ends with the process; locks are those of
                // the process, whichever thread sets them.
                let file = self.file(file)?.try_clone().map_err(|error| raw(&error))?;
                let (sender, receiver) = mpsc::channel();
                thread::spawn(move || {
                    let range = LockRange { start, length: 1 };
                    let _ = sender.send(file_lock::wait(file.as_fd(), LockKind::Exclusive, range));
                    // Closing it would release the lock.
                    std::mem::forget(file);
                });
                match receiver.recv_timeout(Duration::from_millis(timeout_ms).min(MAX_DURATION)) {
                    Ok(Ok(())) => Ok(number(1)),
                    Ok(Err(error)) => Err(raw(&error)),
                    Err(_) => Ok(number(0)),
                }
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
            Operation::Links { file } => {
                let found = self.file(file)?.metadata().map_err(|error| raw(&error))?;
                Ok(number(i64::try_from(found.nlink()).unwrap_or(i64::MAX)))
            }
            Operation::MapStore { file, offset, bytes } => {
                self.maps.get(&file).ok_or(Errno::BADF)?.store(offset, &bytes);
                Ok(Acted::default())
            }
            Operation::MapLoad { file, offset, length } => {
                let bytes = self.maps.get(&file).ok_or(Errno::BADF)?.load(offset, length);
                Ok(Acted { bytes, ..Acted::default() })
            }
            _ => Err(Errno::INVAL),
        }
    }
}

/// Operations by name.
fn names(folder: &Folder, operation: Operation) -> Result<Acted, Errno> {
    match operation {
        Operation::ReadName { name, length } => {
            Ok(Acted { bytes: folder.read(&name, length.min(MAX_READ))?, ..Acted::default() })
        }
        Operation::Store { name, bytes } => folder.store(&name, &bytes).map(|()| Acted::default()),
        Operation::Size { name } => {
            let found = statat(folder.descriptor(), name.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(number(found.st_size))
        }
        Operation::List { prefix } => Ok(number(folder.list(&prefix)?.len() as i64)),
        Operation::Remove { name } => folder.remove(&name).map(|()| Acted::default()),
        Operation::Rename { from, to } => folder.rename(&from, &to).map(|()| Acted::default()),
        Operation::Append { name, writer, count, start_at_ns } => {
            races::append(folder, &name, writer, count, start_at_ns)
        }
        Operation::CreateExclusive { prefix, count, start_at_ns } => {
            races::create_exclusive(folder, &prefix, count, start_at_ns)
        }
        Operation::Replace { name, duration_ms } => {
            races::replace(folder, &name, Duration::from_millis(duration_ms).min(MAX_DURATION))
        }
        Operation::Observe { name, duration_ms } => {
            races::observe(folder, &name, Duration::from_millis(duration_ms).min(MAX_DURATION))
        }
        Operation::Feature { check } => {
            Ok(Acted { found: Some(features::run(folder, &check)?), ..Acted::default() })
        }
        _ => Err(Errno::INVAL),
    }
}

fn set_lock(file: &File, call: LockCall, kind: LockKind, start: i64, end: i64) -> Result<(), Errno> {
    let range = LockRange { start, length: end - start };
    let owner = match call {
        LockCall::Flock => {
            let operation = match kind {
                LockKind::Shared => FlockOperation::NonBlockingLockShared,
                LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
                LockKind::Unlock => FlockOperation::NonBlockingUnlock,
            };
            return flock(file, operation);
        }
        LockCall::Process => LockOwner::Process,
        LockCall::Description => LockOwner::Description,
    };
    file_lock::set(file.as_fd(), owner, kind, range).map_err(|error| raw(&error))
}

fn number(number: i64) -> Acted {
    Acted { number, ..Acted::default() }
}
