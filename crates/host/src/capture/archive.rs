//! The bundle as a file: written as `.tar.gz`, read into memory.

use std::{
    fs,
    io::{self, Read, Write},
    ops::Deref,
    path::{Component, Path},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use super::{
    CAPTURE_SCHEMA, CAPTURE_VERSION, CaptureError, ETHTOOL, MANIFEST, Manifest, ROUTING, json,
    scrub::Scrubbed,
};
use crate::{
    memory::{Entry, MemoryTree},
    root::HostRoot,
};

/// Bounds of what is read: a bundle comes from somebody else. A host with
/// 1024 processing units gives about 20 000 entries and 40 MB.
const MOST_ENTRIES: usize = 500_000;
const MOST_BYTES: u64 = 1 << 30;

/// Writes the files beside the tree, and the tree.
pub(super) fn write(manifest: &Manifest, scrubbed: &Scrubbed, out: impl Write) -> io::Result<()> {
    let tree = &scrubbed.tree;
    let mut bundle = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    file(&mut bundle, MANIFEST, &serde_json::to_vec_pretty(manifest)?)?;
    file(&mut bundle, ETHTOOL, &serde_json::to_vec_pretty(&scrubbed.answers)?)?;
    if let Some(routing) = &scrubbed.routing {
        file(&mut bundle, ROUTING, &serde_json::to_vec_pretty(routing)?)?;
    }
    for (path, entry) in &tree.entries {
        match entry {
            Entry::File(bytes) => file(&mut bundle, path, bytes)?,
            Entry::Link(target) => {
                let mut header = header(tar::EntryType::Symlink, 0);
                bundle.append_link(&mut header, path, target)?;
            }
            // A name is a directory when something was seen below it.
            Entry::Name if !tree.has_below(path) => file(&mut bundle, path, &[])?,
            Entry::Name => {}
        }
    }
    bundle.into_inner()?.finish()?.flush()
}

fn file<W: Write>(tar: &mut tar::Builder<W>, path: &str, bytes: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(tar::EntryType::Regular, bytes.len() as u64), path, bytes)
}

/// A header without owner and time: two captures of one state are equal.
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

/// Opens a bundle, a `.tar.gz` of `proc` and `sys` of another origin, or a
/// directory that holds them. A bundle is kept in memory: nothing is unpacked.
pub fn open(path: &Path) -> Result<Captured, CaptureError> {
    let read_error = |source| CaptureError::Read { path: path.to_owned(), source };
    let is_directory = fs::metadata(path).map_err(read_error)?.is_dir();
    let root = if is_directory {
        let base = base(&fs_names(path), &|name| fs_names(&path.join(name)));
        HostRoot::directory(path.join(base.ok_or_else(|| no_trees(path))?))
    } else {
        let bundle = fs::File::open(path).map_err(read_error)?;
        let tree = load(path, bundle)?;
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

/// Where `proc` or `sys` are: at the top, or in the only folder.
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

/// Refuses a manifest that is not ours or too new; trees of another origin have none.
fn check(path: &Path, root: &HostRoot) -> Result<(), CaptureError> {
    if !root.exists(MANIFEST) {
        return Ok(());
    }
    let text = root.read_bytes(MANIFEST).map_err(|error| not_a_capture(path, error.to_string()))?;
    let manifest: Manifest =
        json(Ok(text)).map_err(|error| not_a_capture(path, format!("{MANIFEST}: {error}")))?;
    if manifest.schema != CAPTURE_SCHEMA {
        return Err(not_a_capture(path, format!("its {MANIFEST} says {}", manifest.schema)));
    }
    if manifest.version > CAPTURE_VERSION {
        return Err(CaptureError::Version { path: path.to_owned(), found: manifest.version });
    }
    Ok(())
}

/// Reads files, directories and links; other kinds are passed over.
fn load(path: &Path, bundle: fs::File) -> Result<MemoryTree, CaptureError> {
    let mut tar = tar::Archive::new(GzDecoder::new(io::BufReader::new(bundle)));
    let mut tree = MemoryTree::default();
    let (mut entry_count, mut byte_count) = (0, 0);
    let damaged = |error: io::Error| not_a_capture(path, format!("no readable .tar.gz ({error})"));
    for entry in tar.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        entry_count += 1;
        byte_count += entry.size();
        if entry_count > MOST_ENTRIES || byte_count > MOST_BYTES {
            let reason = format!("larger than {MOST_ENTRIES} entries or {MOST_BYTES} bytes");
            return Err(not_a_capture(path, reason));
        }
        let name = plain(&entry.path().map_err(damaged)?);
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        match entry.header().entry_type() {
            tar::EntryType::Directory => tree.name(&name),
            tar::EntryType::Regular => {
                // No capacity by the header: its size is the bundle's claim.
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
