//! JSON Lines, read one line at a time; a torn last line is skipped.

use std::{
    fs::File,
    io,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use clearstream_sys::{document, lines::Lines};
use serde::de::DeserializeOwned;

use crate::RecordError;

/// Maximum length of a line: an interval of two 8192-core hosts is about 4 MiB; longer lines are rejected
/// before they use memory.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// The documents of a JSON Lines file in order. Holds one line at a time.
///
/// A last line without its newline that is not a complete document was torn by a crash and is skipped, see
/// [`Records::torn`]. Any other unreadable line is an error with its line number, after which the iteration
/// ends.
pub struct Records<T> {
    path: PathBuf,
    file: Option<Lines<File>>,
    line: u64,
    torn: bool,
    kind: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for Records<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").field("path", &self.path).field("line", &self.line).finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Records<T> {
    /// Opens a file; a missing one has no documents.
    pub(crate) fn open(path: &Path) -> Result<Self, RecordError> {
        let file = match document::open(path) {
            Ok(file) => Some(Lines::new(file, MAX_LINE_BYTES)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(RecordError::read(path, source)),
        };
        Ok(Self { path: path.to_owned(), file, line: 0, torn: false, kind: PhantomData })
    }

    /// Whether the last line was torn and skipped.
    pub fn torn(&self) -> bool {
        self.torn
    }

    /// The text of the last document.
    pub(crate) fn text(&self) -> &[u8] {
        self.file.as_ref().map_or(&[], Lines::last)
    }

    fn read(&mut self) -> Result<Option<T>, RecordError> {
        let Some(file) = &mut self.file else { return Ok(None) };
        loop {
            self.line += 1;
            let malformed = |message: String| RecordError::Malformed {
                path: self.path.clone(),
                line: self.line,
                message,
            };
            let line = match file.whole() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(malformed(error.to_string()));
                }
                Err(source) => return Err(RecordError::read(&self.path, source)),
            };
            let is_ended = line.is_ended;
            if line.bytes.trim_ascii().is_empty() {
                continue;
            }
            return match serde_json::from_slice(line.bytes) {
                Ok(document) => Ok(Some(document)),
                Err(_) if !is_ended => {
                    self.torn = true;
                    Ok(None)
                }
                Err(error) => Err(malformed(error.to_string())),
            };
        }
    }
}

impl<T: DeserializeOwned> Iterator for Records<T> {
    type Item = Result<T, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.file = None;
        }
        item
    }
}
