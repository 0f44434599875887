//! The root of every reader: the running host, or a captured copy of its `/proc` and `/sys`. This module
//! handles paths and limits, no formats.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use clearstream_sys::document;

use crate::{
    capture::{Bundle, Recording},
    drivers::DriverState,
    memory::{Entry, MemoryTree},
};

/// Maximum size of a file. `/proc/interrupts` of a host with 1024 processing units and 2000 vectors is 23 MB.
const LARGEST_FILE_BYTES: u64 = 64 << 20;
/// Initial buffer size: enough for nearly every kernel file in one call, while an empty buffer begins with
/// reads of 32 bytes.
const PAGE_BYTES: usize = 4096;

/// Maximum links followed in one path, as in the kernel (`MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;

/// A file, directory or link below the root that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The path does not exist.
    #[error("/{path}: not found")]
    NotFound {
        /// Path below the root.
        path: String,
    },
    /// The system returned an error.
    #[error("/{path}: {source}")]
    Refused {
        /// Path below the root.
        path: String,
        /// System error.
        source: io::Error,
    },
    /// The content is not UTF-8 text.
    #[error("/{path}: not text (byte {at} is not UTF-8)")]
    NotText {
        /// Path below the root.
        path: String,
        /// Offset of the first byte that is not UTF-8.
        at: usize,
    },
    /// The file is larger than any kernel file of its kind.
    #[error("/{path}: larger than {LARGEST_FILE_BYTES} bytes")]
    TooLarge {
        /// Path below the root.
        path: String,
    },
}

impl ReadError {
    /// The path below the root, with its leading slash.
    pub fn path(&self) -> String {
        match self {
            Self::NotFound { path }
            | Self::Refused { path, .. }
            | Self::NotText { path, .. }
            | Self::TooLarge { path } => format!("/{path}"),
        }
    }

    /// The reason without the path, for tables with a path column.
    pub fn reason(&self) -> String {
        match self {
            Self::NotFound { .. } => "not found".to_owned(),
            Self::Refused { source, .. } => source.to_string(),
            Self::NotText { at, .. } => format!("not text (byte {at} is not UTF-8)"),
            Self::TooLarge { .. } => format!("larger than {LARGEST_FILE_BYTES} bytes"),
        }
    }

    /// Whether the file is absent, which for many kernel files only means "does not apply here".
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Copies the error, for a file that failed to open once and is read a second time. The source keeps its
    /// code or kind.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::NotFound { path } => Self::NotFound { path: path.clone() },
            Self::Refused { path, source } => {
                let source = source.raw_os_error().map_or_else(
                    || io::Error::new(source.kind(), source.to_string()),
                    io::Error::from_raw_os_error,
                );
                Self::Refused { path: path.clone(), source }
            }
            Self::NotText { path, at } => Self::NotText { path: path.clone(), at: *at },
            Self::TooLarge { path } => Self::TooLarge { path: path.clone() },
        }
    }

    fn from_io(path: &str, source: io::Error) -> Self {
        match source.kind() {
            // ENOTDIR: a component of the path is a file, as with `bonding_masters`.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::NotFound { path: path.to_owned() }
            }
            io::ErrorKind::FileTooLarge => Self::TooLarge { path: path.to_owned() },
            _ => Self::Refused { path: path.to_owned(), source },
        }
    }
}

/// Root from which `/proc` and `/sys` are read.
#[derive(Debug, Clone)]
pub struct HostRoot {
    store: Store,
    /// Absent on the running host.
    bundle: Option<Arc<Bundle>>,
    recording: Option<Arc<Mutex<Recording>>>,
}

#[derive(Debug, Clone)]
enum Store {
    Directory(PathBuf),
    Memory(Arc<MemoryTree>),
}

impl HostRoot {
    /// The running host, in the namespaces of the calling process.
    pub fn live() -> Self {
        Self { store: Store::Directory(PathBuf::from("/")), bundle: None, recording: None }
    }

    /// A captured tree: a directory that holds `proc` and `sys`, and optionally the metadata of `inspect
    /// --capture`. Links in it cannot escape: an absolute one starts at the directory, and `..` stops there.
    pub fn directory(path: impl AsRef<Path>) -> Self {
        Self::captured(Store::Directory(path.as_ref().to_owned()))
    }

    /// A captured tree in memory.
    pub fn memory(tree: MemoryTree) -> Self {
        Self::captured(Store::Memory(Arc::new(tree)))
    }

    fn captured(store: Store) -> Self {
        let bundle = Bundle::read(|name| store.bytes(name, LARGEST_FILE_BYTES));
        Self { store, bundle: Some(Arc::new(bundle)), recording: None }
    }

    /// The same root with a recording of everything that is read.
    pub(crate) fn recording(&self, recording: Arc<Mutex<Recording>>) -> Self {
        Self { recording: Some(recording), ..self.clone() }
    }

    /// Whether this is the running host, so that kernel interfaces other than files (netlink) may be queried.
    pub fn is_live(&self) -> bool {
        self.bundle.is_none()
    }

    /// Metadata of a captured tree; absent on the running host.
    pub(crate) fn bundle(&self) -> Option<&Bundle> {
        self.bundle.as_deref()
    }

    /// Reads the whole text of a file; `rel` is a path without leading slash such as `proc/stat`.
    pub fn read(&self, rel: &str) -> Result<String, ReadError> {
        self.read_head(rel, LARGEST_FILE_BYTES)
    }

    /// Reads the first `limit` bytes of a text, for files that are long or slow to generate (`/proc/cpuinfo`
    /// repeats itself for every core).
    pub(crate) fn read_head(&self, rel: &str, limit: u64) -> Result<String, ReadError> {
        let bytes = self.recorded(rel, self.bytes(rel, limit))?;
        String::from_utf8(bytes).map_err(|error| ReadError::NotText {
            path: rel.to_owned(),
            at: error.utf8_error().valid_up_to(),
        })
    }

    /// Reads the whole file as bytes.
    pub(crate) fn read_bytes(&self, rel: &str) -> Result<Vec<u8>, ReadError> {
        self.recorded(rel, self.bytes(rel, LARGEST_FILE_BYTES))
    }

    /// Opens a file of the plain running host for repeated reads; `None` for other roots, which are read by
    /// path each time.
    pub(crate) fn open(&self, rel: &str) -> Option<Result<fs::File, ReadError>> {
        match &self.store {
            Store::Directory(base) if self.is_plain() => {
                Some(document::open(&base.join(rel)).map_err(|error| ReadError::from_io(rel, error)))
            }
            _ => None,
        }
    }

    fn is_plain(&self) -> bool {
        self.is_live() && self.recording.is_none()
    }

    fn bytes(&self, rel: &str, limit: u64) -> Result<Vec<u8>, ReadError> {
        let path = self.resolve(rel, true)?;
        let bytes = self.store.bytes(&path, limit).map_err(|error| ReadError::from_io(rel, error))?;
        if bytes.len() as u64 > LARGEST_FILE_BYTES {
            return Err(ReadError::TooLarge { path: rel.to_owned() });
        }
        self.record(|recording| recording.tree.file(&path, bytes.clone()));
        Ok(bytes)
    }

    /// Names in a directory, sorted.
    pub fn list(&self, rel: &str) -> Result<Vec<String>, ReadError> {
        self.recorded(rel, self.names(rel))
    }

    fn names(&self, rel: &str) -> Result<Vec<String>, ReadError> {
        let path = self.resolve(rel, true)?;
        let names = self.store.names(&path).map_err(|error| ReadError::from_io(rel, error))?;
        self.record(|recording| {
            recording.tree.name(&path);
            names.iter().for_each(|name| recording.tree.name(&format!("{path}/{name}")));
        });
        Ok(names)
    }

    /// Text of a symbolic link, unresolved.
    pub fn link_target(&self, rel: &str) -> Result<String, ReadError> {
        self.recorded(rel, self.target(rel))
    }

    fn target(&self, rel: &str) -> Result<String, ReadError> {
        let path = self.resolve(rel, false)?;
        match self.store.kind(&path).map_err(|error| ReadError::from_io(rel, error))? {
            Kind::Link(target) => {
                self.record(|recording| recording.tree.link(&path, &target));
                Ok(target)
            }
            Kind::Directory | Kind::File => Err(ReadError::NotFound { path: rel.to_owned() }),
        }
    }

    /// Whether a path exists, links followed.
    pub fn exists(&self, rel: &str) -> bool {
        let found = self.resolve(rel, true).ok().filter(|path| self.store.followed(path).is_some());
        if let Some(path) = &found {
            self.record(|recording| recording.tree.name(path));
        }
        found.is_some()
    }

    /// Whether a directory exists, links followed.
    pub(crate) fn is_directory(&self, rel: &str) -> bool {
        let path = self.resolve(rel, true);
        path.is_ok_and(|path| matches!(self.store.followed(&path), Some(Kind::Directory)))
    }

    /// Records the state reported by a driver.
    pub(crate) fn record_driver_state(&self, interface: &str, state: Option<&DriverState>) {
        if let Some(state) = state {
            self.record(|recording| recording.record_driver(interface, state));
        }
    }

    fn record(&self, record: impl FnOnce(&mut Recording)) {
        if let Some(recording) = &self.recording {
            // A reader that panicked left complete entries only.
            record(&mut recording.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Records an error, and returns the result that the captured host will give: a name that was only listed
    /// is an empty file in its bundle.
    fn recorded<T>(&self, rel: &str, result: Result<T, ReadError>) -> Result<T, ReadError> {
        let recorded_error = self.bundle().and_then(|bundle| bundle.recorded_error(rel));
        let result = match recorded_error {
            Some(source) => Err(ReadError::Refused { path: rel.to_owned(), source }),
            None => result,
        };
        if let Err(ReadError::Refused { source, .. }) = &result {
            self.record(|recording| recording.record_error(rel, source));
        }
        result
    }

    /// Resolves the path to open. Outside the plain running host links are resolved here, so that a captured
    /// tree contains its readers and a recording includes the links.
    fn resolve(&self, rel: &str, follow_last: bool) -> Result<String, ReadError> {
        if self.is_plain() {
            return Ok(rel.to_owned());
        }
        let not_there = || ReadError::NotFound { path: rel.to_owned() };
        let mut ahead: Vec<String> = components(rel);
        let mut resolved: Vec<String> = Vec::new();
        let mut link_count = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                resolved.pop();
                continue;
            }
            resolved.push(name);
            let path = resolved.join("/");
            let kind = self.store.kind(&path).map_err(|error| ReadError::from_io(rel, error))?;
            let Kind::Link(target) = kind else { continue };
            if ahead.is_empty() && !follow_last {
                continue;
            }
            link_count += 1;
            if link_count > MOST_LINKS {
                return Err(not_there());
            }
            self.record(|recording| recording.tree.link(&path, &target));
            resolved.pop();
            if target.starts_with('/') {
                resolved.clear();
            }
            ahead.extend(components(&target));
        }
        Ok(resolved.join("/"))
    }
}

/// The components of a path, last first.
fn components(path: &str) -> Vec<String> {
    path.rsplit('/').filter(|name| !matches!(*name, "" | ".")).map(str::to_owned).collect()
}

/// Type of a path, links not followed.
enum Kind {
    File,
    Directory,
    Link(String),
}

impl Store {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        match self {
            Self::Directory(base) => {
                let path = base.join(path);
                let kind = fs::symlink_metadata(&path)?.file_type();
                if kind.is_symlink() {
                    let target = fs::read_link(&path)?.into_os_string();
                    return target.into_string().map(Kind::Link).map_err(|_| io::ErrorKind::NotFound.into());
                }
                Ok(if kind.is_dir() { Kind::Directory } else { Kind::File })
            }
            Self::Memory(tree) => match tree.at(path) {
                Some(Entry::Link(target)) => Ok(Kind::Link(target.clone())),
                Some(Entry::Name) if path.is_empty() || tree.has_below(path) => Ok(Kind::Directory),
                Some(_) => Ok(Kind::File),
                None => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    /// Type of a resolved path. On the plain running host links are left to the system, elsewhere none are
    /// left.
    fn followed(&self, path: &str) -> Option<Kind> {
        match self {
            Self::Directory(base) => {
                let kind = fs::metadata(base.join(path)).ok()?;
                Some(if kind.is_dir() { Kind::Directory } else { Kind::File })
            }
            Self::Memory(_) => self.kind(path).ok(),
        }
    }

    /// At most `limit` bytes of a file, and one more when the file exceeds the limit of all readers.
    fn bytes(&self, path: &str, limit: u64) -> io::Result<Vec<u8>> {
        match self {
            Self::Directory(base) => {
                let file = document::open(&base.join(path))?;
                let mut bytes = Vec::with_capacity(PAGE_BYTES);
                let limit = if limit == LARGEST_FILE_BYTES { limit + 1 } else { limit };
                Read::take(&file, limit).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            Self::Memory(tree) => match tree.at(path) {
                Some(Entry::File(bytes)) => {
                    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                    Ok(bytes.get(..limit).unwrap_or(bytes).to_owned())
                }
                Some(Entry::Name) if tree.has_below(path) => Err(io::ErrorKind::IsADirectory.into()),
                Some(Entry::Name) => Ok(Vec::new()),
                _ => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        match self {
            Self::Directory(base) => {
                let mut names = Vec::new();
                for entry in fs::read_dir(base.join(path))? {
                    // Kernel names are ASCII; anything else in a captured tree is ignored.
                    if let Ok(name) = entry?.file_name().into_string() {
                        names.push(name);
                    }
                }
                names.sort_unstable();
                Ok(names)
            }
            Self::Memory(tree) => match tree.at(path) {
                Some(Entry::Name) => Ok(tree.names(path)),
                Some(_) => Err(io::ErrorKind::NotADirectory.into()),
                None => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }
}

/// Appends the rest of a file to `bytes`, up to the size limit.
pub(crate) fn read_whole(file: &fs::File, bytes: &mut Vec<u8>, rel: &str) -> Result<(), ReadError> {
    document::append(file, bytes, LARGEST_FILE_BYTES).map_err(|error| ReadError::from_io(rel, error))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A captured tree with these files.
    pub(crate) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = HostRoot::directory(folder.path());
        (folder, root)
    }

    #[test]
    fn follows_links_and_never_leaves_the_tree() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        fs::create_dir_all(base.join("sys/devices/a")).unwrap();
        fs::create_dir_all(base.join("sys/class")).unwrap();
        fs::write(base.join("sys/devices/a/mtu"), "1500\n").unwrap();
        symlink("../devices/a", base.join("sys/class/a")).unwrap();
        symlink("/etc", base.join("sys/class/absolute")).unwrap();
        symlink("../../../../../../../../etc", base.join("sys/class/relative")).unwrap();
        symlink("/sys/devices/a", base.join("sys/class/rooted")).unwrap();
        symlink("loop", base.join("sys/class/loop")).unwrap();
        let root = HostRoot::directory(base);
        for name in ["a", "rooted"] {
            assert_eq!(root.read(&format!("sys/class/{name}/mtu")).unwrap(), "1500\n");
        }
        assert_eq!(root.link_target("sys/class/a").unwrap(), "../devices/a");
        for path in
            ["sys/class/absolute/passwd", "sys/class/relative/passwd", "../../etc/passwd", "sys/class/loop"]
        {
            assert!(root.read(path).unwrap_err().is_absent(), "{path}");
            assert!(root.list(path).is_err() && !root.exists(path));
        }
    }

    #[test]
    fn errors_name_the_path_and_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mask"), [b'f', 0xff]).unwrap();
        let root = HostRoot::directory(folder.path());
        let error = root.read("mask").unwrap_err();
        assert_eq!((error.path(), error.reason()), ("/mask".into(), "not text (byte 1 is not UTF-8)".into()));
        let error = root.read("proc/stat").unwrap_err();
        assert!(error.is_absent());
        assert_eq!(error.to_string(), "/proc/stat: not found");
    }
}
