//! A test with its folder: all ranks as threads.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use clearstream_ranks::threads;
use clearstream_schema::{
    control::{Failure, FailureKind},
    storage::{StreamConfig, StreamPoint},
};

use super::{
    check::check,
    engine::{StreamError, Test},
};
use crate::calls::StorageEnded;

/// A test that can run.
#[derive(Debug)]
pub(crate) struct Prepared {
    config: StreamConfig,
    folder: Folder,
}

impl Prepared {
    /// Checks the options and makes the folder.
    pub(crate) fn new(folder: &str, config: StreamConfig) -> Result<Self, Failure> {
        check(&config)?;
        let folder = Folder::enter(Path::new(&config.directory), folder, &config)?;
        Ok(Self { config, folder })
    }

    /// Runs it and removes the folder.
    pub(crate) fn run(self, stop: &AtomicBool, on_point: &(impl Fn(StreamPoint) + Sync)) -> StorageEnded {
        let result = ranks(&self.config, &self.folder.path, stop, on_point);
        StorageEnded { failure: result.err(), remains: self.folder.leave().err(), metadata: None }
    }
}

/// All ranks; the first problem of any.
fn ranks(
    config: &StreamConfig,
    folder: &Path,
    stop: &AtomicBool,
    on_point: &(impl Fn(StreamPoint) + Sync),
) -> Result<(), Failure> {
    let results = threads(config.tasks as usize, |world| {
        Test::new(world, config, folder, stop)?.run(&mut |point| on_point(point))
    });
    let results = results.map_err(|error| failure(FailureKind::Internal, error.to_string()))?;
    // That of a rank itself comes before what the others see of it.
    let problems = || results.iter().filter_map(|result| result.as_ref().err());
    let own = problems().find(|error| matches!(error, StreamError::OfRank(_)));
    match own.or_else(|| problems().next()) {
        Some(error) => Err(failure(FailureKind::Internal, error.to_string())),
        None => Ok(()),
    }
}

/// The folder of a test's files.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    /// Creates it, or finds that of an earlier test, which is to be read.
    fn enter(directory: &Path, name: &str, config: &StreamConfig) -> Result<Self, Failure> {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if name.is_empty() || name.starts_with('.') || !is_name {
            let message =
                format!("\"{name}\" is no name of a folder: write letters, digits, `-`, `_` and `.`");
            return Err(failure(FailureKind::Invalid, message));
        }
        let path = directory.join(name);
        if config.read && !config.write {
            let found = std::fs::metadata(&path);
            let found =
                found.map_err(|error| Failure::of_system(&format!("open {}", path.display()), &error))?;
            if !found.is_dir() {
                return Err(failure(FailureKind::Invalid, format!("{} is no folder", path.display())));
            }
            return Ok(Self { path, is_kept: config.keep });
        }
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => failure(
                FailureKind::Invalid,
                format!("{} exists already: remove it, or choose another --name", path.display()),
            ),
            _ => Failure::of_system(&format!("make the folder {}", path.display()), &error),
        })?;
        Ok(Self { path, is_kept: config.keep })
    }

    /// Removes it when it is empty: files of others in it stay, and are reported.
    fn leave(&self) -> Result<(), String> {
        if self.is_kept {
            return Ok(());
        }
        std::fs::remove_dir(&self.path)
            .map_err(|error| format!("the folder {} remains: {error}", self.path.display()))
    }
}

fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into() }
}
