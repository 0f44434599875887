//! The folder of a test: a new one, which the run removes unless it is to stay, or that of an earlier run.

use std::{io, path::Path};

use clearstream_schema::control::{Failure, FailureKind};

use crate::{
    folder::{Folder, Remains, is_name_of_run},
    guard::Guard,
    made::Marks,
    mount::Mount,
};

/// What a run does with its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Purpose {
    /// Created for this test: one that only uses what is there enters a folder that exists.
    pub(crate) is_new: bool,
    /// It stays behind the run.
    pub(crate) is_kept: bool,
}

/// The folder of a test's files.
#[derive(Debug)]
pub(crate) struct TestFolder {
    pub(crate) folder: Folder,
    purpose: Purpose,
}

impl TestFolder {
    /// Creates it, or finds that of an earlier test.
    pub(crate) fn enter(directory: &Path, name: &str, purpose: Purpose) -> Result<Self, Failure> {
        if !is_name_of_run(name) {
            check_name(name)?;
        }
        let path = directory.join(name);
        let Purpose { is_new, is_kept } = purpose;
        let folder = match (is_new, is_kept) {
            (true, true) => Folder::create_to_stay(directory, name),
            (true, false) => Folder::create(directory, name),
            (false, _) => Folder::enter(directory, name).map(Folder::staying),
        };
        let folder = folder.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::new(
                FailureKind::Invalid,
                format!("{} exists already: remove it, or choose another --name", path.display()),
            ),
            io::ErrorKind::NotADirectory if !is_new => {
                Failure::new(FailureKind::Invalid, format!("{} is no folder", path.display()))
            }
            _ => {
                let what = if is_new { "make the folder" } else { "open" };
                Failure::of_file(&format!("{what} {}", path.display()), &error)
            }
        })?;
        let marks = folder.marks_here(Mount::of(directory).is_remote());
        Ok(Self { folder: folder.with_marks(marks), purpose })
    }

    /// That rank 0 has made, or found, with the marks of what is made in it.
    pub(crate) fn of_other_rank(
        directory: &Path,
        name: &str,
        purpose: Purpose,
        marks: Marks,
    ) -> Result<Self, Failure> {
        let path = directory.join(name);
        let entered = Folder::enter(directory, name).map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory => {
                Failure::new(FailureKind::Invalid, format!("{} is no folder", path.display()))
            }
            io::ErrorKind::NotFound => {
                let message = format!(
                    "{}: {error}: rank 0 has it, so that this is not the same directory on every host",
                    path.display()
                );
                Failure::new(FailureKind::Invalid, message)
            }
            _ => Failure::of_file(&format!("open {}", path.display()), &error),
        })?;
        let stays = purpose.is_kept || !purpose.is_new;
        let folder = if stays { entered.staying() } else { entered };
        Ok(Self { folder: folder.with_marks(marks), purpose })
    }

    /// Has it removed after a death of this process, unless it is to stay.
    pub(crate) fn watch(&self, guard: Option<&mut Guard>) {
        if let Some(guard) = guard.filter(|_| !self.stays()) {
            // Without the guard the next start removes it.
            let _ = guard.watch(&self.folder);
        }
    }

    /// Removes it where this run made it and it is not to stay; it is empty then, or files of others stay in it.
    pub(crate) fn leave(&self) -> Result<(), Remains> {
        if self.stays() { Ok(()) } else { self.folder.leave() }
    }

    /// Whether it is there behind the run.
    fn stays(&self) -> bool {
        self.purpose.is_kept || !self.purpose.is_new
    }
}

/// What a user may choose.
fn check_name(name: &str) -> Result<(), Failure> {
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if name.is_empty() || name.starts_with('.') || !is_name {
        let message = format!("\"{name}\" is no name of a folder: write letters, digits, `-`, `_` and `.`");
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    Ok(())
}

/// A failure with what remains of its test.
pub(crate) fn failed_with(failure: Failure, left: Result<(), Remains>) -> Failure {
    match left {
        Ok(()) => failure,
        Err(remains) => Failure { message: format!("{}; {remains}", failure.message), ..failure },
    }
}

/// How a test ended, with what remains of it: what could not be removed is a failure.
pub(crate) fn with_remains(
    failure: Option<Failure>,
    left: Result<(), Remains>,
) -> (Option<Failure>, Option<String>) {
    match (failure, left) {
        (failure, Ok(())) => (failure, None),
        (Some(failure), left) => (Some(failed_with(failure, left)), None),
        (None, Err(Remains::Own(message))) => (Some(Failure { kind: FailureKind::File, message }), None),
        (None, Err(Remains::Others(message))) => (None, Some(message)),
    }
}

/// A problem with the rank that has it.
pub(crate) fn of_rank(problem: &Failure, rank: usize, host: &str) -> Failure {
    Failure { message: format!("rank {rank} on {host}: {problem}"), ..problem.clone() }
}
