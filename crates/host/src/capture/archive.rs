//! The bundle as a file: written as `.tar.gz`, read into memory.

use std::{
    fs,
    io::{self, Read, Write},
    ops::Deref,
    path::{Component, Path},
};

use clearstream_sys::document;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use super::{
    CAPTURE_SCHEMA, CAPTURE_VERSION, CaptureError, ETHTOOL, MANIFEST, Manifest, ROUTING, json,
    redact::Redacted,
};
use crate::{
    memory::{Entry, MemoryTree},
    root::HostRoot,
};

/// Limits for reading untrusted bundles: a megabyte can unpack to a gigabyte. A host with 1024 processing
/// units gives about 20 000 entries and 40 MB.
const LIMITS: Limits = Limits { entry_count: 200_000, bytes: 80 << 20 };

#[derive(Debug, Clone, Copy)]
struct Limits {
    entry_count: usize,
    /// Unpacked, headers and padding included.
    bytes: u64,
}

/// A reader that fails when more is read than allowed: contents, or the names and headers that the tar reader
/// buffers by itself.
struct Bounded<R> {
    reader: R,
    left: u64,
    limit: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(into)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            let reason = format!("it unpacks to more than {} MiB", self.limit >> 20);
            io::Error::new(io::ErrorKind::FileTooLarge, reason)
        })?;
        Ok(count)
    }
}

/// Writes the metadata files and the tree.
pub(super) fn write(manifest: &Manifest, redacted: &Redacted, out: impl Write) -> io::Result<()> {
    let tree = &redacted.tree;
    let mut bundle = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    file(&mut bundle, MANIFEST, clearstream_schema::json::to_string_pretty(manifest)?.as_bytes())?;
    file(&mut bundle, ETHTOOL, clearstream_schema::json::to_string_pretty(&redacted.drivers)?.as_bytes())?;
    if let Some(routing) = &redacted.routing {
        file(&mut bundle, ROUTING, clearstream_schema::json::to_string_pretty(routing)?.as_bytes())?;
    }
    for (path, entry) in &tree.entries {
        match entry {
            Entry::File(bytes) => file(&mut bundle, path, bytes)?,
            Entry::Link(target) => {
                let mut header = header(tar::EntryType::Symlink, 0);
                bundle.append_link(&mut header, path, target)?;
            }
            // A name is a directory when a path below it was read.
            Entry::Name if !tree.has_below(path) => file(&mut bundle, path, &[])?,
            Entry::Name => {}
        }
    }
    bundle.into_inner()?.finish()?.flush()
}

fn file<W: Write>(tar: &mut tar::Builder<W>, path: &str, bytes: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(tar::EntryType::Regular, bytes.len() as u64), path, bytes)
}

/// A header without owner and time: captures of equal state are equal.
fn header(kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header
}

/// A captured host, opened: a root for the readers.
#[derive(Debug, Clone)]
pub struct Captured {
    root: HostRoot,
}

impl Captured {
    /// The root for the readers.
    pub fn root(&self) -> &HostRoot {
        &self.root
    }
}

impl Deref for Captured {
    type Target = HostRoot;
    fn deref(&self) -> &HostRoot {
        &self.root
    }
}

/// Opens a bundle, a `.tar.gz` of `proc` and `sys` of another origin, or a directory that holds them. A
/// bundle is kept in memory, never unpacked to disk.
pub fn open(path: &Path) -> Result<Captured, CaptureError> {
    let read_error = |source| CaptureError::Read { path: path.to_owned(), source };
    let is_directory = fs::metadata(path).map_err(read_error)?.is_dir();
    let root = if is_directory {
        let base = base(&fs_names(path), &|name| fs_names(&path.join(name)));
        HostRoot::directory(path.join(base.ok_or_else(|| no_trees(path))?))
    } else {
        let bundle = document::open(path).map_err(read_error)?;
        let tree = load(path, bundle, LIMITS)?;
        let base = base(&tree.names(""), &|name| tree.names(name)).ok_or_else(|| no_trees(path))?;
        HostRoot::memory(tree.inside(&base))
    };
    check(path, &root)?;
    Ok(Captured { root })
}

fn fs_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Finds `proc` and `sys`: at the top, or in the only folder.
fn base(names: &[String], below: &dyn Fn(&str) -> Vec<String>) -> Option<String> {
    let holds_trees = |names: &[String]| names.iter().any(|name| name == "proc" || name == "sys");
    match names {
        names if holds_trees(names) => Some(String::new()),
        [only] if holds_trees(&below(only)) => Some(only.clone()),
        _ => None,
    }
}

fn not_a_capture(path: &Path, reason: impl Into<String>) -> CaptureError {
    CaptureError::NotACapture { path: path.to_owned(), reason: reason.into() }
}

fn no_trees(path: &Path) -> CaptureError {
    not_a_capture(path, "it holds neither proc nor sys")
}

/// Rejects a foreign or too new manifest; trees of another origin have none.
fn check(path: &Path, root: &HostRoot) -> Result<(), CaptureError> {
    if !root.exists(MANIFEST) {
        return Ok(());
    }
    let text = root.read_bytes(MANIFEST).map_err(|error| not_a_capture(path, error.to_string()))?;
    let manifest: Manifest =
        json(Ok(text)).map_err(|error| not_a_capture(path, format!("{MANIFEST}: {error}")))?;
    if manifest.schema != CAPTURE_SCHEMA {
        return Err(not_a_capture(path, format!("its {MANIFEST} has the schema {}", manifest.schema)));
    }
    if manifest.version > CAPTURE_VERSION {
        return Err(CaptureError::Version { path: path.to_owned(), found: manifest.version });
    }
    Ok(())
}

/// Reads files, directories and links; other kinds are skipped.
fn load(path: &Path, bundle: impl Read, limits: Limits) -> Result<MemoryTree, CaptureError> {
    let reader = GzDecoder::new(io::BufReader::new(bundle));
    let mut tar = tar::Archive::new(Bounded { reader, left: limits.bytes, limit: limits.bytes });
    let mut tree = MemoryTree::default();
    let damaged = |error: io::Error| match error.kind() {
        io::ErrorKind::FileTooLarge => not_a_capture(path, error.to_string()),
        _ => not_a_capture(path, format!("no readable .tar.gz ({error})")),
    };
    for (number, entry) in tar.entries().map_err(damaged)?.enumerate() {
        let mut entry = entry.map_err(damaged)?;
        if number >= limits.entry_count {
            return Err(not_a_capture(path, format!("it holds more than {} entries", limits.entry_count)));
        }
        if entry.size() > limits.bytes {
            let reason = format!("it unpacks to more than {} MiB", limits.bytes >> 20);
            return Err(not_a_capture(path, reason));
        }
        let name = plain(&entry.path().map_err(damaged)?);
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        match entry.header().entry_type() {
            tar::EntryType::Directory => tree.name(&name),
            tar::EntryType::Regular => {
                // The capacity is not taken from the header: its size is untrusted.
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).map_err(damaged)?;
                tree.file(&name, bytes);
            }
            tar::EntryType::Symlink => {
                let target = entry.link_name().map_err(damaged)?;
                if let Some(target) = target.as_deref().and_then(Path::to_str) {
                    tree.link(&name, target);
                }
            }
            _ => {}
        }
    }
    Ok(tree)
}

/// The path of an entry as text; `None` for one that is not below the top.
fn plain(name: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle of `file_count` files with `bytes` zeros each.
    fn bundle(file_count: usize, bytes: usize) -> Vec<u8> {
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for number in 0..file_count {
            file(&mut tar, &format!("proc/{number}"), &vec![0; bytes]).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn small_bundles_that_unpack_to_too_much_are_rejected() {
        let limits = Limits { entry_count: 10, bytes: 2 << 20 };
        let load = |bundle: &[u8]| load(Path::new("x.tar.gz"), bundle, limits).map_err(|e| e.to_string());
        assert_eq!(load(&bundle(10, 100 << 10)).unwrap().entries.len(), 10);
        let large = bundle(3, 1 << 20);
        assert!(large.len() < 64 << 10, "the file itself is small");
        assert!(load(&large).unwrap_err().contains("more than 2 MiB"));
        assert!(load(&bundle(11, 1)).unwrap_err().contains("more than 10 entries"));
        // A name of 3 MiB, which the tar reader buffers by itself.
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut long = header(tar::EntryType::GNULongName, 3 << 20);
        tar.append_data(&mut long, "x", &vec![b'n'; 3 << 20][..]).unwrap();
        let named = tar.into_inner().unwrap().finish().unwrap();
        assert!(load(&named).unwrap_err().contains("more than 2 MiB"));
    }
}
