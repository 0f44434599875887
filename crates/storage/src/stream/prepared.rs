//! A test with its folder: all ranks as threads.

use std::{path::Path, sync::atomic::AtomicBool};

use clearstream_ranks::{World, threads};
use clearstream_schema::{
    control::Failure,
    failure::Classified,
    notice::Notice,
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
    folder::Folder,
    guard::Guard,
    live::Live,
    test_folder::{Purpose, TestFolder, of_rank, with_remains},
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
        let folder = TestFolder::enter(Path::new(&config.directory), folder, purpose(&config))?;
        Ok(Self { config, folder })
    }

    /// Runs it and removes the folder.
    pub(crate) fn run(
        self,
        stop: &AtomicBool,
        guard: Option<&mut Guard>,
        live: &Live,
        on_point: &(impl Fn(StreamPoint) + Sync),
    ) -> StorageEnded {
        self.folder.watch(guard);
        let result = ranks(&self.config, &self.folder.folder, stop, live, on_point);
        let (mut notices, failure) = match result {
            Ok(notices) => (notices, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let (failure, others) = with_remains(failure, self.folder.leave());
        notices.extend(others.map(remains));
        StorageEnded { failure, notices, ..StorageEnded::default() }
    }
}

/// All ranks; what rank 0 has to say, or the first problem of any.
fn ranks(
    config: &StreamConfig,
    folder: &Folder,
    stop: &AtomicBool,
    live: &Live,
    on_point: &(impl Fn(StreamPoint) + Sync),
) -> Result<Vec<Notice>, Failure> {
    let results = threads(config.tasks as usize, |world| {
        let mut test = Test::new(world, config, folder, stop, live)?;
        let result = test.run(&mut |point| on_point(point));
        result.map(|()| test.notices())
    });
    let results = results.map_err(|error| error.to_failure())?;
    // That of a rank itself comes before what the others see of it.
    let problems = || results.iter().filter_map(|result| result.as_ref().err());
    let own = problems().find(|error| matches!(error, StreamError::OfRank(_)));
    match own.or_else(|| problems().next()) {
        Some(StreamError::OfRank(failure)) => Err(failure.clone()),
        Some(StreamError::Ranks(error)) => Err(error.to_failure()),
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
        TestFolder::enter(directory, &name, purpose(config)).map(|made| {
            let marks = made.folder.marks;
            held = Some(made);
            (name, marks)
        })
    });
    let (name, marks) = share(world, made.as_ref())?.map_err(StorageError::Failed)?;
    let found = TestFolder::of_other_rank(directory, &name, purpose(config), marks);
    drop(held);
    let problem = found.as_ref().err().map(|error| of_rank(error, rank, world.host()));
    let problems = gather(world, &problem)?;
    let first = (rank == 0).then(|| problems.into_iter().flatten().next());
    match share(world, first.as_ref())? {
        Some(problem) => {
            if rank == 0
                && let Ok(folder) = found
            {
                // What remains has nothing of the test in it.
                let _ = folder.leave();
            }
            Err(StorageError::Failed(problem))
        }
        None => found.map_err(StorageError::Failed),
    }
}

/// Whether the folder is a new one: a run that only reads, or writes over what is there, enters one that exists.
fn purpose(config: &StreamConfig) -> Purpose {
    Purpose { is_new: (config.write || !config.read) && !config.existing, is_kept: config.keep }
}

impl From<StreamError> for StorageError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Ranks(error) => Self::Ranks(error),
            StreamError::OfRank(failure) => Self::Failed(failure),
        }
    }
}
