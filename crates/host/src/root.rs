//! The root of every reader: the running host, or a captured copy of its
//! `/proc` and `/sys`. This module owns paths and limits; it knows no format.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The largest file a reader takes. `/proc/interrupts` of a host with 1024
/// processing units and 2000 vectors is 23 MB.
const LARGEST_FILE_BYTES: u64 = 64 << 20;

/// A file, directory or link below the root that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not there.
    #[error("/{path}: not there")]
    NotThere {
        /// Path below the root.
        path: String,
    },
    /// The system refused.
    #[error("/{path}: {source}")]
    Refused {
        /// Path below the root.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is not text.
    #[error("/{path}: not text (byte {at} is not UTF-8)")]
    NotText {
        /// Path below the root.
        path: String,
        /// Offset of the first byte that is not UTF-8.
        at: usize,
    },
    /// It is larger than any kernel file of its kind.
    #[error("/{path}: larger than {LARGEST_FILE_BYTES} bytes")]
    TooLarge {
        /// Path below the root.
        path: String,
    },
    /// A link leads out of the captured tree.
    #[error("/{path}: leads outside the captured tree")]
    Outside {
        /// Path below the root.
        path: String,
    },
}

impl ReadError {
    /// The path below the root, with its leading slash.
    pub fn path(&self) -> String {
        match self {
            Self::NotThere { path }
            | Self::Refused { path, .. }
            | Self::NotText { path, .. }
            | Self::TooLarge { path }
            | Self::Outside { path } => format!("/{path}"),
        }
    }

    /// The reason alone, for a table that shows the path in its own column.
    pub fn reason(&self) -> String {
        match self {
            Self::NotThere { .. } => "not there".to_owned(),
            Self::Refused { source, .. } => source.to_string(),
            Self::NotText { at, .. } => format!("not text (byte {at} is not UTF-8)"),
            Self::TooLarge { .. } => format!("larger than {LARGEST_FILE_BYTES} bytes"),
            Self::Outside { .. } => "leads outside the captured tree".to_owned(),
        }
    }

    /// The file is absent, which for many kernel files only means "does not
    /// apply here".
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::NotThere { .. })
    }

    /// The same error once more, for a file that failed to open once and is
    /// asked for again. The source keeps its code or kind.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::NotThere { path } => Self::NotThere { path: path.clone() },
            Self::Refused { path, source } => {
                let source = source.raw_os_error().map_or_else(
                    || io::Error::new(source.kind(), source.to_string()),
                    io::Error::from_raw_os_error,
                );
                Self::Refused { path: path.clone(), source }
            }
            Self::NotText { path, at } => Self::NotText { path: path.clone(), at: *at },
            Self::TooLarge { path } => Self::TooLarge { path: path.clone() },
            Self::Outside { path } => Self::Outside { path: path.clone() },
        }
    }

    fn from_io(path: &str, source: io::Error) -> Self {
        match source.kind() {
            // ENOTDIR, ENODEV and ENXIO: the attribute does not exist for this device.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::NotThere { path: path.to_owned() }
            }
            _ => Self::Refused { path: path.to_owned(), source },
        }
    }
}

/// Where `/proc` and `/sys` are read from.
#[derive(Debug, Clone)]
pub struct HostRoot {
    base: PathBuf,
    live: bool,
}

impl HostRoot {
    /// The running host, in the namespaces of the calling process.
    pub fn live() -> Self {
        Self { base: PathBuf::from("/"), live: true }
    }

    /// A captured tree: a directory that holds `proc` and `sys`. Links in it
    /// are followed as long as they stay inside.
    pub fn directory(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        // A path that cannot be resolved stays as given: each read then says why.
        let base = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self { base, live: false }
    }

    /// This is the running host, so that kernel interfaces other than files
    /// (netlink) may be asked too.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// The whole text of a file, `rel` being a path without leading slash
    /// such as `proc/stat`.
    pub fn read(&self, rel: &str) -> Result<String, ReadError> {
        let bytes = self.read_bytes(rel)?;
        String::from_utf8(bytes).map_err(|error| ReadError::NotText {
            path: rel.to_owned(),
            at: error.utf8_error().valid_up_to(),
        })
    }

    /// The whole file as bytes.
    pub fn read_bytes(&self, rel: &str) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        read_whole(&self.open(rel)?, &mut bytes, rel)?;
        Ok(bytes)
    }

    /// A file opened for repeated reads (see [`crate::counters::CounterReader`]).
    pub(crate) fn open(&self, rel: &str) -> Result<fs::File, ReadError> {
        let path = self.resolve(rel)?;
        fs::File::open(path).map_err(|error| ReadError::from_io(rel, error))
    }

    /// Names in a directory, sorted.
    pub fn list(&self, rel: &str) -> Result<Vec<String>, ReadError> {
        let path = self.resolve(rel)?;
        let entries = fs::read_dir(path).map_err(|error| ReadError::from_io(rel, error))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| ReadError::from_io(rel, error))?;
            // Kernel names are ASCII; anything else in a captured tree is not ours.
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Text of a symbolic link, unresolved.
    pub fn link_target(&self, rel: &str) -> Result<String, ReadError> {
        let parent = rel.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.resolve(parent)?;
        let target = fs::read_link(self.base.join(rel)).map_err(|error| ReadError::from_io(rel, error))?;
        Ok(target.to_string_lossy().into_owned())
    }

    /// Something is there, links followed.
    pub fn exists(&self, rel: &str) -> bool {
        self.resolve(rel).is_ok_and(|path| path.exists())
    }

    /// The path to open. In a captured tree links are resolved first and must
    /// stay inside: a bundle comes from somebody else.
    fn resolve(&self, rel: &str) -> Result<PathBuf, ReadError> {
        let path = self.base.join(rel);
        if self.live {
            return Ok(path);
        }
        let resolved = fs::canonicalize(&path).map_err(|error| ReadError::from_io(rel, error))?;
        if resolved.starts_with(&self.base) {
            Ok(resolved)
        } else {
            Err(ReadError::Outside { path: rel.to_owned() })
        }
    }
}

/// Appends the rest of a file to `bytes`, bounded.
pub(crate) fn read_whole(mut file: &fs::File, bytes: &mut Vec<u8>, rel: &str) -> Result<(), ReadError> {
    let read = Read::take(&mut file, LARGEST_FILE_BYTES + 1).read_to_end(bytes);
    let count = read.map_err(|error| ReadError::from_io(rel, error))?;
    if count as u64 > LARGEST_FILE_BYTES {
        return Err(ReadError::TooLarge { path: rel.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn follows_links_inside_and_refuses_those_that_lead_out() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        fs::create_dir_all(base.join("sys/devices/a")).unwrap();
        fs::create_dir_all(base.join("sys/class")).unwrap();
        fs::write(base.join("sys/devices/a/mtu"), "1500\n").unwrap();
        symlink("../devices/a", base.join("sys/class/a")).unwrap();
        symlink("/etc", base.join("sys/class/absolute")).unwrap();
        symlink("../../../../../../../../etc", base.join("sys/class/relative")).unwrap();
        let root = HostRoot::directory(base);
        assert_eq!(root.read("sys/class/a/mtu").unwrap(), "1500\n");
        assert_eq!(root.link_target("sys/class/a").unwrap(), "../devices/a");
        for name in ["absolute", "relative"] {
            let error = root.read(&format!("sys/class/{name}/passwd")).unwrap_err();
            assert!(matches!(error, ReadError::Outside { .. }), "{error}");
            assert!(root.list(&format!("sys/class/{name}")).is_err());
            assert!(root.link_target(&format!("sys/class/{name}/mtab")).is_err());
        }
        let error = root.read("../../../etc/passwd").unwrap_err();
        assert!(matches!(error, ReadError::Outside { .. } | ReadError::NotThere { .. }), "{error}");
    }

    #[test]
    fn names_the_path_and_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mask"), [b'f', 0xff]).unwrap();
        let root = HostRoot::directory(folder.path());
        let error = root.read("mask").unwrap_err();
        assert_eq!((error.path(), error.reason()), ("/mask".into(), "not text (byte 1 is not UTF-8)".into()));
        let error = root.read("proc/stat").unwrap_err();
        assert!(error.is_absent());
        assert_eq!(error.to_string(), "/proc/stat: not there");
    }
}
