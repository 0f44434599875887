//! Private files: one JSON document each, readable by the owner alone, created atomically and never
//! overwritten.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use clearstream_sys::document;
use serde::{Serialize, de::DeserializeOwned};

use super::PairingError;

/// More than any of our documents needs.
const LIMIT: u64 = 64 << 10;

/// Writes `document` to a new file of mode 0600.
pub(super) fn create_private(path: &Path, document: &impl Serialize) -> Result<(), PairingError> {
    let fail = |source| PairingError::File { step: "write", path: path.to_owned(), source };
    let text = clearstream_schema::json::to_string_pretty(document).map_err(|error| fail(error.into()))?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.draft", std::process::id()));
    let draft = PathBuf::from(draft);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Unlike rename(2), link(2) fails when the name is taken.
        fs::hard_link(&draft, path)
    };
    let result = write();
    match fs::remove_file(&draft) {
        Err(error) if result.is_ok() => Err(fail(error)),
        _ => result.map_err(fail),
    }
}

/// Reads a document and checks its schema, and that nobody else can read it.
pub(super) fn read_private<T: DeserializeOwned>(path: &Path, schema: &str) -> Result<T, PairingError> {
    let fail = |source| PairingError::File { step: "read", path: path.to_owned(), source };
    let unusable = |reason: String| PairingError::Unusable { path: path.to_owned(), reason };
    let file = document::open(path).map_err(fail)?;
    let mode = file.metadata().map_err(fail)?.mode();
    if mode & 0o077 != 0 {
        return Err(unusable(format!("others may read it (mode {:o}): run chmod 600 on it", mode & 0o777)));
    }
    let mut text = Vec::new();
    document::append(&file, &mut text, LIMIT).map_err(fail)?;
    let value: serde_json::Value =
        clearstream_schema::json::from_slice(&text).map_err(|error| unusable(format!("damaged: {error}")))?;
    let found = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or("none");
    if found != schema {
        return Err(unusable(format!("it holds \"{found}\" and not \"{schema}\": use another file")));
    }
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(1) {
        return Err(unusable("it was written by a newer clearstream: install that one here".to_owned()));
    }
    clearstream_schema::json::from_value(value).map_err(|error| unusable(format!("damaged: {error}")))
}

/// Creates a directory of mode 0700 with its parents, unless it exists.
pub(super) fn make_private_folder(path: &Path) -> Result<(), PairingError> {
    clearstream_sys::file::make_folders(path, 0o700).map_err(|source| PairingError::File {
        step: "make folder",
        path: path.to_owned(),
        source,
    })
}

/// The documents in a directory; none when it does not exist.
pub(super) fn documents(folder: &Path) -> Result<Vec<PathBuf>, PairingError> {
    let fail = |source| PairingError::File { step: "list", path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    Ok(paths)
}
