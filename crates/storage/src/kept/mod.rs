//! The record beside files that are kept: what another run needs to use or remove them, with other ranks, on other hosts,
//! after any end of the run that made them. It is there before the first of them is.

mod pieces;

use std::io::{self, Write as _};

use clearstream_schema::control::{Failure, FailureKind};
use clearstream_sys::document;
use rustix::{
    fs::{AtFlags, OFlags, renameat, unlinkat},
    io::Errno,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::folder::Folder;
pub(crate) use pieces::{Piece, joined, shared, whole};

/// Its name in the folder.
pub(crate) const RECORD: &str = "clearstream-kept.json";
/// While it is written.
const NEW: &str = "clearstream-kept.json.new";
const VERSION: u32 = 1;
/// A record of 100 000 ranks has some megabytes.
const BYTES_MAX: u64 = 64 << 20;

/// What a benchmark records.
pub(crate) trait Shape: Serialize + DeserializeOwned {
    /// Name of its format.
    const FORMAT: &'static str;
    /// What is kept, for people.
    const WHAT: &'static str;
    /// What to do about one that is not read.
    const HINT: &'static str;

    /// Whether numbers of it can be computed with.
    fn is_sound(&self) -> bool;
}

#[derive(Serialize, Deserialize)]
struct Document<T> {
    format: String,
    version: u32,
    #[serde(flatten)]
    shape: T,
}

/// Writes it.
pub(crate) fn store<T: Shape>(shape: &T, folder: &Folder) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        let document = Document { format: T::FORMAT.to_owned(), version: VERSION, shape };
        let bytes = clearstream_schema::json::to_vec(&document)?;
        let mut file = folder.open(NEW, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(&bytes)?;
        clearstream_sys::file::close(file)?;
        Ok(renameat(&folder.own, NEW, &folder.own, RECORD)?)
    };
    write()
        .map_err(|error| Failure::of_file(&format!("write {}", folder.path.join(RECORD).display()), &error))
}

/// Reads it; nothing where there is none, as in a folder of other programs.
pub(crate) fn load<T: Shape>(folder: &Folder) -> Result<Option<T>, Failure> {
    let path = folder.path.join(RECORD);
    let file = match folder.open(RECORD, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::of_file(&format!("open {}", path.display()), &error)),
    };
    let mut bytes = Vec::new();
    document::append(&file, &mut bytes, BYTES_MAX)
        .map_err(|error| Failure::of_file(&format!("read {}", path.display()), &error))?;
    let found: Result<Document<T>, _> = clearstream_schema::json::from_slice(&bytes);
    match found {
        Ok(found) if found.format == T::FORMAT && found.version == VERSION && found.shape.is_sound() => {
            Ok(Some(found.shape))
        }
        _ => Err(Failure {
            kind: FailureKind::Invalid,
            message: format!(
                "{} is no record of {} that this version reads: {}",
                path.display(),
                T::WHAT,
                T::HINT
            ),
        }),
    }
}

/// Removes it, behind all that it was of.
pub(crate) fn remove(folder: &Folder) -> Result<(), Failure> {
    for name in [NEW, RECORD] {
        match unlinkat(&folder.own, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                let path = folder.path.join(name);
                return Err(Failure::of_file(&format!("remove {}", path.display()), &error.into()));
            }
        }
    }
    Ok(())
}
