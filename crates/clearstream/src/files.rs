//! Files that a person named: read with an upper bound, written whole or not
//! at all, with errors that name them.

use std::{fs::File, io, io::Write as _, path::Path};

use clearstream_sys::{document, file};

use crate::exit::CommandError;

fn failed(what: &str, path: &Path) -> impl Fn(io::Error) -> CommandError {
    let (what, path) = (what.to_owned(), path.to_owned());
    move |source| CommandError::File { what: what.clone(), path: path.clone(), source }
}

/// Reads a file of at most [`document::DOCUMENT_BYTES`].
pub fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    document::read(path, document::DOCUMENT_BYTES).map_err(failed("read", path))
}

/// Reads a text of at most [`document::DOCUMENT_BYTES`].
pub fn read_text(path: &Path) -> Result<String, CommandError> {
    document::read_text(path, document::DOCUMENT_BYTES).map_err(failed("read", path))
}

/// Replaces or makes a file; a full disk leaves the old one.
pub fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    file::replace(path, text.as_bytes()).map_err(failed("write", path))
}

/// As [`write()`], with this mode.
pub fn write_with_mode(path: &Path, text: &str, mode: u32) -> Result<(), CommandError> {
    file::replace_with(path, Some(mode), |file| file.write_all(text.as_bytes()))
        .map_err(failed("write", path))
}

/// As [`write()`], with what `fill` writes.
pub fn write_with<E>(path: &Path, fill: impl FnOnce(&mut File) -> Result<(), E>) -> Result<(), CommandError>
where
    CommandError: From<E>,
{
    /// Separates errors of the file from those of the writing function.
    enum Failure<E> {
        File(io::Error),
        Fill(E),
    }
    impl<E> From<io::Error> for Failure<E> {
        fn from(error: io::Error) -> Self {
            Self::File(error)
        }
    }
    let filled = file::replace_with(path, None, |file| fill(file).map_err(Failure::Fill));
    filled.map_err(|failure| match failure {
        Failure::File(source) => failed("write", path)(source),
        Failure::Fill(error) => error.into(),
    })
}
