//! Files that hold settings, below a root.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use clearstream_host::{HostRoot, ReadError};
use clearstream_schema::plan::Value;

use crate::{Fault, texts::plain};

/// A root directory that holds `proc` and `sys`.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    base: PathBuf,
    root: HostRoot,
}

impl Files {
    pub(crate) fn live() -> Self {
        Self { base: PathBuf::from("/"), root: HostRoot::live() }
    }

    pub(crate) fn directory(base: &Path) -> Self {
        Self { base: base.to_owned(), root: HostRoot::directory(base) }
    }

    pub(crate) fn text(&self, rel: &str) -> Result<String, ReadError> {
        self.root.read(rel).map(|text| text.trim().to_owned())
    }

    pub(crate) fn path(&self, rel: &str) -> PathBuf {
        self.base.join(rel)
    }

    /// The text of a file; `None` when it does not exist.
    pub(crate) fn read(&self, rel: &str) -> Result<Option<String>, Fault> {
        match self.root.read(rel) {
            Ok(text) => Ok(Some(plain(&text))),
            Err(error) if error.is_absent() => Ok(None),
            Err(ReadError::Refused { source, .. }) => Err(Fault::Unreadable { source }),
            Err(other) => Err(Fault::Invalid { reason: other.to_string() }),
        }
    }

    /// Writes in one call, as the kernel takes values.
    pub(crate) fn write(&self, rel: &str, value: &Value) -> Result<(), Fault> {
        let mut file = self.open(rel, true)?;
        file.write_all(format!("{value}\n").as_bytes()).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Fault::NotPermitted,
            _ => Fault::Rejected { value: value.to_string(), source },
        })
    }

    /// Opens for writing and writes nothing.
    pub(crate) fn check(&self, rel: &str) -> Result<(), Fault> {
        self.open(rel, false).map(|_| ())
    }

    fn open(&self, rel: &str, truncate: bool) -> Result<File, Fault> {
        let path = self.inside(rel)?;
        let file = OpenOptions::new().write(true).truncate(truncate).open(&path);
        file.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Fault::Absent,
            io::ErrorKind::ReadOnlyFilesystem => Fault::ReadOnly { path },
            io::ErrorKind::PermissionDenied if is_root() => Fault::ReadOnly { path },
            io::ErrorKind::PermissionDenied => Fault::NotPermitted,
            _ => Fault::Unreadable { source },
        })
    }

    /// The file after all links, which must not lead out of the root's `proc` and
    /// `sys`, nor to an attribute of another name: `/sys/class/net/eth0` is a link
    /// to a device, and what is below it is not.
    fn inside(&self, rel: &str) -> Result<PathBuf, Fault> {
        let base = self.base.canonicalize().map_err(|_| Fault::Absent)?;
        let path = self.base.join(rel).canonicalize().map_err(|_| Fault::Absent)?;
        let tail = rel.strip_prefix("sys/class/").or_else(|| rel.strip_prefix("proc/"));
        let is_inside = ["sys", "proc"].iter().any(|top| path.starts_with(base.join(top)));
        if is_inside && tail.is_none_or(|tail| path.ends_with(tail)) {
            return Ok(path);
        }
        let reason = format!("leads to {}, which is another place", path.display());
        Err(Fault::Invalid { reason })
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a path names one file and no parent: neither blanks nor control characters, no name
/// below `/proc/sys` and none of an interface (dev_valid_name) has them.
pub(crate) fn is_plain(path: &str) -> bool {
    path.split('/').all(|name| !matches!(name, "" | "." | ".."))
        && !path.contains(|letter: char| letter.is_whitespace() || letter.is_control())
}
