//! A test with its folder: all ranks as threads.

use std::{io, path::Path, sync::atomic::AtomicBool};

use clearstream_ranks::{RankError, World, threads};
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::Notice,
    storage::{StreamConfig, StreamPoint},
};

use super::{
    check::check,
    engine::{StreamError, Test},
    folder_name,
};
use crate::{
    StorageError,
    calls::StorageEnded,
    collective::{gather, share},
    controller::remains,
    folder::{Folder, Remains},
    guard::Guard,
};

/// A test that can run.
#[derive(Debug)]
pub(crate) struct Prepared {
    config: StreamConfig,
    folder: TestFolder,
}

impl Prepared {
    /// Checks the options and makes the folder.
    pub(crate) fn new(folder: &str, config: StreamConfig) -> Result<Self, Failure> {
        check(&config)?;
        let folder = TestFolder::enter(Path::new(&config.directory), folder, &config)?;
        Ok(Self { config, folder })
    }

    /// Runs it and removes the folder.
    pub(crate) fn run(
        self,
        stop: &AtomicBool,
        guard: Option<&mut Guard>,
        on_point: &(impl Fn(StreamPoint) + Sync),
    ) -> StorageEnded {
        self.folder.watch(guard);
        let result = ranks(&self.config, &self.folder.folder, stop, on_point);
        let (mut notices, failure) = match result {
            Ok(notices) => (notices, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let (failure, others) = with_remains(failure, self.folder.leave());
        notices.extend(others.map(remains));
        StorageEnded { failure, notices }
    }
}

/// All ranks; what rank 0 has to say, or the first problem of any.
fn ranks(
    config: &StreamConfig,
    folder: &Folder,
    stop: &AtomicBool,
    on_point: &(impl Fn(StreamPoint) + Sync),
) -> Result<Vec<Notice>, Failure> {
    let results = threads(config.tasks as usize, |world| {
        let mut test = Test::new(world, config, folder, stop)?;
        let notices = test.notices();
        test.run(&mut |point| on_point(point)).map(|()| notices)
    });
    let results = results.map_err(|error| of_ranks(&error))?;
    // That of a rank itself comes before what the others see of it.
    let problems = || results.iter().filter_map(|result| result.as_ref().err());
    let own = problems().find(|error| matches!(error, StreamError::OfRank(_)));
    match own.or_else(|| problems().next()) {
        Some(StreamError::OfRank(failure)) => Err(failure.clone()),
        Some(StreamError::Ranks(error)) => Err(of_ranks(error)),
        None => Ok(results.into_iter().flatten().next().unwrap_or_default()),
    }
}

/// The folder of an MPI job: rank 0 makes it, and all of them see it.
pub(super) fn enter_together(
    world: &mut dyn World,
    config: &StreamConfig,
) -> Result<TestFolder, StorageError> {
    let (directory, rank) = (Path::new(&config.directory), world.rank());
    // Held until this rank has it open as the others: what nobody holds is left over.
    let mut held = None;
    let made = (rank == 0).then(|| {
        let name = folder_name(config);
        TestFolder::enter(directory, &name, config).map(|folder| {
            held = Some(folder);
            name
        })
    });
    let name = share(world, made.as_ref())?.map_err(StorageError::Failed)?;
    let found = TestFolder::of_other_rank(directory, &name, config);
    drop(held);
    let problem = found.as_ref().err().map(|error| format!("rank {rank} on {}: {error}", world.host()));
    let problems = gather(world, &problem)?;
    let first = (rank == 0).then(|| problems.into_iter().flatten().next());
    match share(world, first.as_ref())? {
        Some(message) => {
            if rank == 0
                && let Ok(folder) = found
            {
                // What remains has nothing of the test in it.
                let _ = folder.leave();
            }
            Err(StorageError::Failed(failure(FailureKind::Invalid, message)))
        }
        None => found.map_err(|error| StorageError::Failed(failure(FailureKind::File, error))),
    }
}

/// The folder of a test's files.
#[derive(Debug)]
pub(super) struct TestFolder {
    pub(super) folder: Folder,
    is_kept: bool,
    /// Created for this test.
    is_new: bool,
}

impl TestFolder {
    /// Creates it, or finds that of an earlier test, which is to be read.
    pub(super) fn enter(directory: &Path, name: &str, config: &StreamConfig) -> Result<Self, Failure> {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if name.is_empty() || name.starts_with('.') || !is_name {
            let message =
                format!("\"{name}\" is no name of a folder: write letters, digits, `-`, `_` and `.`");
            return Err(failure(FailureKind::Invalid, message));
        }
        let path = directory.join(name);
        let is_new = makes_folder(config);
        let folder = match (is_new, config.keep) {
            (true, true) => Folder::create_to_stay(directory, name),
            (true, false) => Folder::create(directory, name),
            (false, _) => Folder::enter(directory, name).map(Folder::staying),
        };
        let folder = folder.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => failure(
                FailureKind::Invalid,
                format!("{} exists already: remove it, or choose another --name", path.display()),
            ),
            io::ErrorKind::NotADirectory if !is_new => {
                failure(FailureKind::Invalid, format!("{} is no folder", path.display()))
            }
            _ => {
                let what = if is_new { "make the folder" } else { "open" };
                Failure::of_file(&format!("{what} {}", path.display()), &error)
            }
        })?;
        Ok(Self { folder, is_kept: config.keep, is_new })
    }

    /// That rank 0 has made.
    fn of_other_rank(directory: &Path, name: &str, config: &StreamConfig) -> Result<Self, String> {
        let path = directory.join(name);
        match Folder::enter(directory, name) {
            Ok(folder) => {
                let folder = if config.keep { folder.staying() } else { folder };
                Ok(Self { folder, is_kept: config.keep, is_new: makes_folder(config) })
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                Err(format!("{} is no folder", path.display()))
            }
            Err(error) => Err(format!(
                "{}: {error}: rank 0 has made it, so that this is not the same directory on every host",
                path.display()
            )),
        }
    }

    /// Has it removed after a death of this process, unless it is to stay.
    pub(super) fn watch(&self, guard: Option<&mut Guard>) {
        if let Some(guard) = guard.filter(|_| self.is_new && !self.is_kept) {
            // Without the guard the next start removes it.
            let _ = guard.watch(&self.folder);
        }
    }

    /// Removes it where this run made it and it is not to stay; it is empty then, or files of others stay in it.
    pub(super) fn leave(&self) -> Result<(), Remains> {
        if self.is_kept || !self.is_new { Ok(()) } else { self.folder.leave() }
    }
}

/// Whether the folder is a new one: a run that only reads, or writes over what is there, enters one that exists.
fn makes_folder(config: &StreamConfig) -> bool {
    (config.write || !config.read) && !config.existing
}

/// How a test ended, with what remains of it: what could not be removed is a failure.
pub(super) fn with_remains(
    failure: Option<Failure>,
    left: Result<(), Remains>,
) -> (Option<Failure>, Option<String>) {
    match (failure, left) {
        (failure, Ok(())) => (failure, None),
        (Some(failure), Err(remains)) => {
            (Some(Failure { message: format!("{}; {remains}", failure.message), ..failure }), None)
        }
        (None, Err(Remains::Own(message))) => (Some(Failure { kind: FailureKind::File, message }), None),
        (None, Err(Remains::Others(message))) => (None, Some(message)),
    }
}

/// Of ranks that are threads of this process.
pub(crate) fn of_ranks(error: &RankError) -> Failure {
    let kind = match error {
        RankError::Thread { error, .. } => FailureKind::of_system(error),
        RankError::Load(_) => FailureKind::Unsupported,
        RankError::Lost { .. } | RankError::Library { .. } => FailureKind::Connection,
    };
    failure(kind, error.to_string())
}

fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into() }
}

impl From<StreamError> for StorageError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Ranks(error) => Self::Ranks(error),
            StreamError::OfRank(failure) => Self::Failed(failure),
        }
    }
}
