//! What kept items are known by, beside their names: what lies under the name of one may be somebody else's meanwhile. A
//! file of records of each rank and kind is beside the trees, in the order of the items' numbers.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};

use clearstream_schema::{control::Failure, storage::metadata::MetadataKind};
use rustix::{
    fs::{AtFlags, FileType, OFlags, Statx, StatxFlags, unlinkat},
    io::Errno,
};

use super::{
    file_error,
    folder::{Items, Places, named},
    kept::KeptItems,
    own::{Found, Known, Look, Seen, is_own},
    tree::Tree,
};
use crate::kept::Piece;

/// Kinds of items that have records.
pub(super) const RECORDED: [MetadataKind; 3] =
    [MetadataKind::Tree, MetadataKind::Directory, MetadataKind::File];
/// Bytes of a record.
const RECORD_BYTES: usize = 32;
/// Time that a client of a network file system may show before the server's: attribute caches.
const LATE_NS: u64 = 2_000_000_000;

/// An item, as the file system has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    inode: u64,
    /// Nanoseconds; 0 where the file system has none (statx(2)).
    born_ns: u64,
    /// Last change of contents; 0 of a directory, which others may use.
    changed_ns: u64,
    bytes: u64,
}

impl Identity {
    /// Of an item of that kind; nothing of another kind.
    fn of(found: &Statx, kind: MetadataKind) -> Option<Self> {
        let kind_of = FileType::from_raw_mode(found.stx_mode.into());
        let time = |at: &rustix::fs::StatxTimestamp| {
            u64::try_from(at.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000) + u64::from(at.tv_nsec)
        };
        let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born_ns = if has_birth { time(&found.stx_btime) } else { 0 };
        let own = Self { inode: found.stx_ino, born_ns, changed_ns: 0, bytes: 0 };
        match (kind, kind_of) {
            (MetadataKind::File, FileType::RegularFile) => {
                Some(Self { changed_ns: time(&found.stx_mtime), bytes: found.stx_size, ..own })
            }
            (MetadataKind::Directory | MetadataKind::Tree, FileType::Directory) => Some(own),
            _ => None,
        }
    }

    /// Whether it is the same item. Inode numbers are used again, and those of a process that serves a file system may
    /// be its own (`is_remote`).
    fn is(&self, before: &Self, is_remote: bool) -> bool {
        let is_born = self.born_ns == before.born_ns;
        let has_birth = self.born_ns != 0 && before.born_ns != 0;
        let is_inode = self.inode == before.inode || is_remote;
        let tolerance = if is_remote { LATE_NS } else { 0 };
        (if has_birth { is_born } else { is_inode })
            && self.changed_ns.abs_diff(before.changed_ns) <= tolerance
            && self.bytes == before.bytes
    }

    fn bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let values = [self.inode, self.born_ns, self.changed_ns, self.bytes];
        for (part, value) in bytes.chunks_exact_mut(8).zip(values) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut values = [0; 4];
        for (value, part) in values.iter_mut().zip(bytes.chunks_exact(8)) {
            *value = part.try_into().map_or(0, u64::from_le_bytes);
        }
        let [inode, born_ns, changed_ns, bytes] = values;
        Self { inode, born_ns, changed_ns, bytes }
    }
}

/// Name of the file of a rank's records.
fn file_name(kind: MetadataKind, owner: usize) -> String {
    format!("clearstream-kept.{}.{owner}", kind.name())
}

/// What is asked of an item.
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Records the items of a rank, of which there are `count`, under either name.
///
/// # Errors
/// The file system has no room for it, or the time is over.
pub(super) fn record(
    places: &Places,
    (tree, iteration): (&Tree, u32),
    (kind, owner, count): (MetadataKind, usize, u64),
    known: &Known,
    deadline: Option<Instant>,
) -> io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let items = places.of(owner);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = BufWriter::new(items.0.folder.open(&file_name(kind, owner), flags)?);
    let mut look = Look::new(items, WANTED);
    for number in 0..count {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let name = tree.name(iteration, owner, kind, number);
        let mut own = |name: &str| match look.at(name) {
            Ok(Seen::Found(found)) if is_own(items, kind, known.of(number), &found) => Some(found),
            _ => None,
        };
        let found = own(&name).or_else(|| own(&named(name, true)));
        // What is others' or gone has no identity, and is not found later.
        let identity = found.and_then(|found| Identity::of(&found, kind));
        file.write_all(&identity.map_or([0; RECORD_BYTES], |found| found.bytes()))?;
    }
    clearstream_sys::file::close(file.into_inner().map_err(io::IntoInnerError::into_error)?)
}

/// Removes the records of ranks.
pub(super) fn forget(places: &Places, ranks: usize) -> Result<(), Failure> {
    for (owner, kind) in (0..ranks).flat_map(|owner| RECORDED.map(|kind| (owner, kind))) {
        let (items, name) = (places.of(owner), file_name(kind, owner));
        match unlinkat(&items.0.folder.own, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(file_error("remove", &items.path().join(name), &error.into())),
        }
    }
    Ok(())
}

/// Looks up every item of pieces.
pub(super) fn find(
    places: &Places,
    kept: &KeptItems,
    kind: MetadataKind,
    pieces: &[Piece],
    is_remote: bool,
    stop: &AtomicBool,
) -> Result<Found, Failure> {
    let mut found = Found::default();
    for piece in pieces {
        let items = places.of(piece.owner);
        let mut look = Look::new(items, WANTED);
        let mut records = kept.has_identities.then(|| Records::open(items, kind, *piece)).transpose()?;
        for number in piece.first..piece.first + piece.count {
            if stop.load(Relaxed) {
                found.is_over = true;
                return Ok(found);
            }
            let name = named(kept.tree.name(kept.iteration, piece.owner, kind, number), piece.is_renamed);
            let before = records.as_mut().map(Records::next).transpose()?;
            let seen = look.at(&name);
            match seen.map_err(|error| file_error("look up", &items.path().join(&name), &error.into()))? {
                Seen::Gone => found.gone += 1,
                Seen::Found(now)
                    if Identity::of(&now, kind)
                        .is_some_and(|now| before.is_none_or(|before| now.is(&before, is_remote))) =>
                {
                    found.add_own(piece, number);
                }
                Seen::Found(_) | Seen::Outside => found.add_foreign(piece.owner, name),
            }
        }
    }
    Ok(found)
}

/// Records of a piece, one after the other.
struct Records {
    /// None of a rank that made nothing.
    file: Option<BufReader<File>>,
    path: std::path::PathBuf,
}

impl Records {
    fn open(items: &Items, kind: MetadataKind, piece: Piece) -> Result<Self, Failure> {
        let name = file_name(kind, piece.owner);
        let path = items.path().join(&name);
        let open = || {
            let file = match items.0.folder.open(&name, OFlags::RDONLY) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            let mut file = BufReader::new(file);
            file.seek(SeekFrom::Start(piece.first.saturating_mul(RECORD_BYTES as u64)))?;
            Ok(Some(file))
        };
        let file = open().map_err(|error| file_error("open", &path, &error))?;
        Ok(Self { file, path })
    }

    fn next(&mut self) -> Result<Identity, Failure> {
        let mut bytes = [0; RECORD_BYTES];
        let read = self.file.as_mut().map_or(Ok(()), |file| file.read_exact(&mut bytes));
        match read {
            // Of those behind the last one that was made nothing is known.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => bytes = [0; RECORD_BYTES],
            read => read.map_err(|error| file_error("read", &self.path, &error))?,
        }
        Ok(Identity::from_bytes(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use rustix::fs::{AtFlags, statx};

    use super::*;
    use crate::folder::Folder;

    /// What may happen to a file between two runs, and whether it is still what the first one left.
    #[test]
    fn an_item_is_known_whatever_is_done_to_it_and_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::create(directory.path(), "test").unwrap();
        let path = directory.path().join("test/item");
        let cases: [(&str, MetadataKind, &dyn Fn(), bool); 8] = [
            ("untouched", MetadataKind::File, &|| {}, true),
            ("read", MetadataKind::File, &|| drop(fs::read(&path).unwrap()), true),
            (
                "another mode",
                MetadataKind::File,
                &|| fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap(),
                true,
            ),
            ("written over", MetadataKind::File, &|| fs::write(&path, "mine").unwrap(), false),
            (
                "replaced",
                MetadataKind::File,
                &|| {
                    fs::remove_file(&path).unwrap();
                    fs::write(&path, "ours").unwrap()
                },
                false,
            ),
            (
                "a link",
                MetadataKind::File,
                &|| {
                    fs::remove_file(&path).unwrap();
                    symlink("/etc/passwd", &path).unwrap()
                },
                false,
            ),
            (
                "used",
                MetadataKind::Directory,
                &|| {
                    fs::write(path.join("x"), "").unwrap();
                    fs::remove_file(path.join("x")).unwrap()
                },
                true,
            ),
            (
                "another directory",
                MetadataKind::Directory,
                &|| {
                    fs::remove_dir(&path).unwrap();
                    fs::create_dir(&path).unwrap()
                },
                false,
            ),
        ];
        for (case, kind, act, expected) in cases {
            match kind {
                MetadataKind::File => fs::write(&path, "ours").unwrap(),
                _ => fs::create_dir(&path).unwrap(),
            }
            let look = || {
                let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
                let found = statx(&folder.own, "item", AtFlags::SYMLINK_NOFOLLOW, wanted).unwrap();
                Identity::of(&found, kind)
            };
            let before = look().unwrap();
            assert_eq!(Identity::from_bytes(&before.bytes()), before);
            // Past the granularity of the kernel's clock for files.
            std::thread::sleep(std::time::Duration::from_millis(12));
            act();
            assert_eq!(look().is_some_and(|now| now.is(&before, false)), expected, "{case}");
            if path.is_dir() { fs::remove_dir(&path).unwrap() } else { fs::remove_file(&path).unwrap() }
        }
    }

    /// Of a cache: another inode, and a time that comes late; not another size.
    #[test]
    fn a_file_of_another_host_is_known_by_size_and_about_its_time() {
        let own = Identity { inode: 7, born_ns: 0, changed_ns: 5_000_000_000, bytes: 3 };
        let cases = [
            (Identity { inode: 8, ..own }, true, false),
            (Identity { changed_ns: 6_000_000_000, ..own }, true, false),
            (Identity { changed_ns: 8_000_000_000, ..own }, false, false),
            (Identity { bytes: 4, ..own }, false, false),
            (Identity { born_ns: 9, ..own }, true, true),
        ];
        for (now, of_remote, of_local) in cases {
            assert_eq!((now.is(&own, true), now.is(&own, false)), (of_remote, of_local), "{now:?}");
        }
        let born = Identity { born_ns: 1, ..own };
        assert!(!Identity { born_ns: 2, ..own }.is(&born, true));
    }
}
