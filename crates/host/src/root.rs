//! The root of every reader: the running host, or a captured copy of its
//! `/proc` and `/sys`. This module owns paths and limits; it knows no format.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    capture::{Bundle, Recording},
    drivers::Answers,
    memory::{Entry, MemoryTree},
};

/// The largest file a reader takes. `/proc/interrupts` of a host with 1024
/// processing units and 2000 vectors is 23 MB.
const LARGEST_FILE_BYTES: u64 = 64 << 20;

/// As many links as the kernel follows in one path (`MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;

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
}

impl ReadError {
    /// The path below the root, with its leading slash.
    pub fn path(&self) -> String {
        match self {
            Self::NotThere { path }
            | Self::Refused { path, .. }
            | Self::NotText { path, .. }
            | Self::TooLarge { path } => format!("/{path}"),
        }
    }

    /// The reason alone, for a table that shows the path in its own column.
    pub fn reason(&self) -> String {
        match self {
            Self::NotThere { .. } => "not there".to_owned(),
            Self::Refused { source, .. } => source.to_string(),
            Self::NotText { at, .. } => format!("not text (byte {at} is not UTF-8)"),
            Self::TooLarge { .. } => format!("larger than {LARGEST_FILE_BYTES} bytes"),
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
        }
    }

    fn from_io(path: &str, source: io::Error) -> Self {
        match source.kind() {
            // ENOTDIR: a part of the path is a file, as with `bonding_masters`.
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

    /// A captured tree: a directory that holds `proc` and `sys`, and perhaps
    /// what `inspect --capture` adds. Links in it never lead out of it: an
    /// absolute one starts at the directory, and `..` stops there.
    pub fn directory(path: impl AsRef<Path>) -> Self {
        Self::captured(Store::Directory(path.as_ref().to_owned()))
    }

    /// The same in memory.
    pub fn memory(tree: MemoryTree) -> Self {
        Self::captured(Store::Memory(Arc::new(tree)))
    }

    fn captured(store: Store) -> Self {
        let bundle = Bundle::read(|name| store.bytes(name, LARGEST_FILE_BYTES));
        Self { store, bundle: Some(Arc::new(bundle)), recording: None }
    }

    /// The same root, keeping what its readers see.
    pub(crate) fn recording(&self, recording: Arc<Mutex<Recording>>) -> Self {
        Self { recording: Some(recording), ..self.clone() }
    }

    /// This is the running host, so that kernel interfaces other than files
    /// (netlink) may be asked too.
    pub fn is_live(&self) -> bool {
        self.bundle.is_none()
    }

    /// What a captured tree says about itself; absent on the running host.
    pub(crate) fn bundle(&self) -> Option<&Bundle> {
        self.bundle.as_deref()
    }

    /// The whole text of a file, `rel` being a path without leading slash
    /// such as `proc/stat`.
    pub fn read(&self, rel: &str) -> Result<String, ReadError> {
        self.read_head(rel, LARGEST_FILE_BYTES)
    }

    /// The first `limit` bytes of a text, for files that are long or slow to
    /// make (`/proc/cpuinfo` repeats itself for every core).
    pub(crate) fn read_head(&self, rel: &str, limit: u64) -> Result<String, ReadError> {
        let bytes = self.noted(rel, self.bytes(rel, limit))?;
        String::from_utf8(bytes).map_err(|error| ReadError::NotText {
            path: rel.to_owned(),
            at: error.utf8_error().valid_up_to(),
        })
    }

    /// The whole file as bytes.
    pub fn read_bytes(&self, rel: &str) -> Result<Vec<u8>, ReadError> {
        self.noted(rel, self.bytes(rel, LARGEST_FILE_BYTES))
    }

    /// A file of the plain running host opened for repeated reads; `None` for
    /// other roots, which are read by path each time.
    pub(crate) fn open(&self, rel: &str) -> Option<Result<fs::File, ReadError>> {
        match &self.store {
            Store::Directory(base) if self.is_plain() => {
                Some(fs::File::open(base.join(rel)).map_err(|error| ReadError::from_io(rel, error)))
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
        self.note(|recording| recording.tree.file(&path, bytes.clone()));
        Ok(bytes)
    }

    /// Names in a directory, sorted.
    pub fn list(&self, rel: &str) -> Result<Vec<String>, ReadError> {
        self.noted(rel, self.names(rel))
    }

    fn names(&self, rel: &str) -> Result<Vec<String>, ReadError> {
        let path = self.resolve(rel, true)?;
        let names = self.store.names(&path).map_err(|error| ReadError::from_io(rel, error))?;
        self.note(|recording| {
            recording.tree.name(&path);
            names.iter().for_each(|name| recording.tree.name(&format!("{path}/{name}")));
        });
        Ok(names)
    }

    /// Text of a symbolic link, unresolved.
    pub fn link_target(&self, rel: &str) -> Result<String, ReadError> {
        self.noted(rel, self.target(rel))
    }

    fn target(&self, rel: &str) -> Result<String, ReadError> {
        let path = self.resolve(rel, false)?;
        match self.store.kind(&path).map_err(|error| ReadError::from_io(rel, error))? {
            Kind::Link(target) => {
                self.note(|recording| recording.tree.link(&path, &target));
                Ok(target)
            }
            Kind::Directory | Kind::File => Err(ReadError::NotThere { path: rel.to_owned() }),
        }
    }

    /// Something is there, links followed.
    pub fn exists(&self, rel: &str) -> bool {
        let found = self.resolve(rel, true).ok().filter(|path| self.store.followed(path).is_some());
        if let Some(path) = &found {
            self.note(|recording| recording.tree.name(path));
        }
        found.is_some()
    }

    /// A directory is there, links followed.
    pub(crate) fn is_directory(&self, rel: &str) -> bool {
        let path = self.resolve(rel, true);
        path.is_ok_and(|path| matches!(self.store.followed(&path), Some(Kind::Directory)))
    }

    /// Keeps a driver's answers in the recording.
    pub(crate) fn note_answers(&self, interface: &str, answers: Option<&Answers>) {
        if let Some(answers) = answers {
            self.note(|recording| recording.answers(interface, answers));
        }
    }

    fn note(&self, note: impl FnOnce(&mut Recording)) {
        if let Some(recording) = &self.recording {
            // A reader that panicked left complete entries only.
            note(&mut recording.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Keeps a refusal in the recording, and answers as the captured host was
    /// answered: a name that was only listed is an empty file in its bundle.
    fn noted<T>(&self, rel: &str, result: Result<T, ReadError>) -> Result<T, ReadError> {
        let refusal = self.bundle().and_then(|bundle| bundle.refusal(rel));
        let result = match refusal {
            Some(source) => Err(ReadError::Refused { path: rel.to_owned(), source }),
            None => result,
        };
        if let Err(ReadError::Refused { source, .. }) = &result {
            self.note(|recording| recording.refused(rel, source));
        }
        result
    }

    /// The path to open. Outside the plain running host links are walked here,
    /// so that a captured tree keeps its readers in and a recording learns of them.
    fn resolve(&self, rel: &str, follow_last: bool) -> Result<String, ReadError> {
        if self.is_plain() {
            return Ok(rel.to_owned());
        }
        let not_there = || ReadError::NotThere { path: rel.to_owned() };
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
            self.note(|recording| recording.tree.link(&path, &target));
            resolved.pop();
            if target.starts_with('/') {
                resolved.clear();
            }
            ahead.extend(components(&target));
        }
        Ok(resolved.join("/"))
    }
}

/// The names of a path, last first.
fn components(path: &str) -> Vec<String> {
    path.rsplit('/').filter(|name| !matches!(*name, "" | ".")).map(str::to_owned).collect()
}

/// What a path is, links not followed.
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

    /// What a resolved path is. On the plain running host links are left to
    /// the system, elsewhere there are none left.
    fn followed(&self, path: &str) -> Option<Kind> {
        match self {
            Self::Directory(base) => {
                let kind = fs::metadata(base.join(path)).ok()?;
                Some(if kind.is_dir() { Kind::Directory } else { Kind::File })
            }
            Self::Memory(_) => self.kind(path).ok(),
        }
    }

    /// At most `limit` bytes of a file, and one more when there are more than
    /// any reader takes.
    fn bytes(&self, path: &str, limit: u64) -> io::Result<Vec<u8>> {
        match self {
            Self::Directory(base) => {
                let file = fs::File::open(base.join(path))?;
                let mut bytes = Vec::new();
                let limit = if limit == LARGEST_FILE_BYTES { limit + 1 } else { limit };
                Read::take(&file, limit).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            Self::Memory(tree) => match tree.at(path) {
                Some(Entry::File(bytes)) => {
                    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                    Ok(bytes[..bytes.len().min(limit)].to_owned())
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
                    // Kernel names are ASCII; anything else in a captured tree is not ours.
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
pub(crate) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A captured tree of these files.
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
