//! The lock of what has one writer (a record, a running watch, a lab): flock(2) on a file of its own, which has the
//! process id of the holder. The kernel releases it when the holder ends, for any reason.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

use crate::file;

/// A lock that is held. Dropping it removes the file.
#[derive(Debug)]
pub struct WriterLock {
    path: PathBuf,
    _file: File,
}

/// The lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it.
    Held {
        /// Its process id, if it is readable.
        process: Option<u32>,
    },
    /// The file cannot be made or locked.
    File(io::Error),
}

impl WriterLock {
    /// Takes the lock of this file, which is made if it is not there. Where the file system has no locks (flock(2)
    /// `ENOLCK`, `EOPNOTSUPP`, as Lustre without `-o flock`), nothing is excluded.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(path: &Path) -> Result<Self, LockError> {
        loop {
            let mut file = file::open(path, OFlags::RDWR, 0o644).map_err(LockError::File)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(Errno::WOULDBLOCK) => return Err(LockError::Held { process: holder(&mut file) }),
                Err(error) => return Err(LockError::File(error.into())),
            }
            // Its last holder may have removed it between the two steps.
            let place = |found: std::fs::Metadata| (found.dev(), found.ino());
            let own = file.metadata().map(place).map_err(LockError::File)?;
            if std::fs::symlink_metadata(path).map(place).is_ok_and(|there| there == own) {
                // On a full disk the lock holds without the number.
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                return Ok(Self { path: path.to_owned(), _file: file });
            }
        }
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // While it is held: whoever opened it before finds another file there. One that remains is harmless.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The process id that the holder wrote.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// `process 123`, or what is known.
pub fn name_of(process: Option<u32>) -> String {
    process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused_with_the_first_ones_number_until_that_ends() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("writer-lock");
        // What a killed writer leaves, with a number of more digits.
        std::fs::write(&path, "4294967295\n").expect("file");
        let first = WriterLock::take(&path).expect("free");
        match WriterLock::take(&path) {
            Err(LockError::Held { process }) => assert_eq!(process, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        assert!(!path.exists());
        drop(WriterLock::take(&path).expect("free again"));
    }
}
