//! The bundle as a file: written as `.tar.gz`, unpacked into a temporary
//! directory that goes when the host is dropped.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    ops::Deref,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use tempfile::TempDir;

use super::{
    CAPTURE_SCHEMA, CAPTURE_VERSION, CaptureError, ETHTOOL, MANIFEST, Manifest, json, recording::Entry,
};
use crate::{drivers::Answers, root::HostRoot};

/// Bounds of what is unpacked: a bundle comes from somebody else. A host with
/// 1024 processing units gives about 20 000 entries and 40 MB.
const MOST_ENTRIES: usize = 500_000;
const MOST_BYTES: u64 = 1 << 30;

/// Writes the two files and the tree.
pub(super) fn write(
    manifest: &Manifest,
    answers: &BTreeMap<String, Answers>,
    entries: &BTreeMap<String, Entry>,
    out: impl Write,
) -> io::Result<()> {
    let mut tar = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    file(&mut tar, MANIFEST, &serde_json::to_vec_pretty(manifest)?)?;
    file(&mut tar, ETHTOOL, &serde_json::to_vec_pretty(answers)?)?;
    for (path, entry) in entries {
        match entry {
            Entry::File(bytes) => file(&mut tar, path, bytes)?,
            Entry::Link(target) => {
                let mut header = header(tar::EntryType::Symlink, 0);
                tar.append_link(&mut header, path, target)?;
            }
            // A name is a directory when something was seen below it.
            Entry::Name if !has_below(entries, path) => file(&mut tar, path, &[])?,
            Entry::Name => {}
        }
    }
    tar.into_inner()?.finish()?.flush()
}

fn has_below(entries: &BTreeMap<String, Entry>, path: &str) -> bool {
    let below = format!("{path}/");
    entries.range(below.clone()..).next().is_some_and(|(next, _)| next.starts_with(&below))
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

/// A captured host, unpacked. The temporary directory goes with it.
#[derive(Debug)]
pub struct Captured {
    root: HostRoot,
    _folder: Option<TempDir>,
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
/// directory that holds them.
pub fn open(path: &Path) -> Result<Captured, CaptureError> {
    let read_error = |source| CaptureError::Read { path: path.to_owned(), source };
    if fs::metadata(path).map_err(read_error)?.is_dir() {
        let root = checked(path, path)?;
        return Ok(Captured { root, _folder: None });
    }
    let bundle = fs::File::open(path).map_err(read_error)?;
    let folder = tempfile::Builder::new().prefix("clearstream-host-").tempdir().map_err(read_error)?;
    unpack(path, bundle, folder.path())?;
    let root = checked(path, folder.path())?;
    Ok(Captured { root, _folder: Some(folder) })
}

/// The root in a directory, which must hold `proc` or `sys`, itself or in its
/// only folder.
fn checked(path: &Path, folder: &Path) -> Result<HostRoot, CaptureError> {
    let not = |reason: String| CaptureError::NotACapture { path: path.to_owned(), reason };
    let mut base = folder.to_owned();
    if !holds_trees(&base) {
        let inner: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        match inner.as_slice() {
            [only] if holds_trees(only) => base = only.clone(),
            _ => return Err(not("it holds neither proc nor sys".to_owned())),
        }
    }
    if base.join(MANIFEST).exists() {
        let manifest: Manifest =
            json(&base.join(MANIFEST)).map_err(|error| not(format!("{MANIFEST}: {error}")))?;
        if manifest.schema != CAPTURE_SCHEMA {
            return Err(not(format!("its {MANIFEST} says {}", manifest.schema)));
        }
        if manifest.version > CAPTURE_VERSION {
            return Err(CaptureError::Version { path: path.to_owned(), found: manifest.version });
        }
    }
    Ok(HostRoot::directory(base))
}

fn holds_trees(folder: &Path) -> bool {
    folder.join("proc").is_dir() || folder.join("sys").is_dir()
}

/// Unpacks files, directories and links. Links are made last, so that no file
/// is written through one; other kinds are passed over.
fn unpack(path: &Path, bundle: fs::File, folder: &Path) -> Result<(), CaptureError> {
    let not = |reason: String| CaptureError::NotACapture { path: path.to_owned(), reason };
    let mut tar = tar::Archive::new(GzDecoder::new(io::BufReader::new(bundle)));
    let mut links = Vec::new();
    let (mut entry_count, mut byte_count) = (0, 0);
    let damaged = |error: io::Error| not(format!("no readable .tar.gz ({error})"));
    for entry in tar.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        entry_count += 1;
        byte_count += entry.size();
        if entry_count > MOST_ENTRIES || byte_count > MOST_BYTES {
            return Err(not(format!("larger than {MOST_ENTRIES} entries or {MOST_BYTES} bytes")));
        }
        let name = entry.path().map_err(damaged)?.into_owned();
        let Some(place) = below(folder, &name) else {
            return Err(not(format!("{} leads out of it", name.display())));
        };
        match entry.header().entry_type() {
            tar::EntryType::Directory => fs::create_dir_all(&place),
            tar::EntryType::Regular => write_file(&place, &mut entry),
            tar::EntryType::Symlink => {
                if let Ok(Some(target)) = entry.link_name() {
                    links.push((place, target.into_owned()));
                }
                Ok(())
            }
            _ => Ok(()),
        }
        .map_err(|error| not(format!("cannot unpack {}: {error}", name.display())))?;
    }
    for (place, target) in links {
        make_parent(&place)
            .and_then(|()| symlink(target, &place))
            .map_err(|error| not(format!("cannot unpack {}: {error}", place.display())))?;
    }
    Ok(())
}

/// The place of an entry, when its path stays below the folder.
fn below(folder: &Path, name: &Path) -> Option<PathBuf> {
    let mut place = folder.to_owned();
    for component in name.components() {
        match component {
            Component::Normal(part) => place.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(place)
}

fn make_parent(place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), fs::create_dir_all)
}

fn write_file(place: &Path, entry: &mut impl Read) -> io::Result<()> {
    make_parent(place)?;
    io::copy(entry, &mut fs::File::create(place)?).map(|_| ())
}
