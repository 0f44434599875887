//! What the items of a run are known by. They are looked at outside of the phases that are measured: behind their creation,
//! and before something changes them. What is others' under one of their names is left out from then on.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use clearstream_schema::{control::Failure, storage::metadata::MetadataKind};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2, statx},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    file_error,
    folder::{Items, Places, named},
    tree::Tree,
};
use crate::{
    folder::FOLDER_FLAGS,
    kept::Piece,
    made::{Inode, WANTED},
};

/// What a name leads to.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, on the stack")]
pub(super) enum Seen {
    Found(Statx),
    Gone,
    /// It leads out of the folder, by a link or a mount.
    Outside,
}

/// Looks up one item after the other, and opens each of their directories once.
pub(super) struct Look<'a> {
    items: &'a Items,
    wanted: StatxFlags,
    above: String,
    directory: Above,
}

enum Above {
    /// The folder itself.
    Folder,
    Open(OwnedFd),
    Gone,
    Outside,
}

impl<'a> Look<'a> {
    pub(super) fn new(items: &'a Items, wanted: StatxFlags) -> Self {
        Self { items, wanted, above: String::new(), directory: Above::Folder }
    }

    pub(super) fn at(&mut self, name: &str) -> Result<Seen, Errno> {
        let (above, leaf) = name.rsplit_once('/').unwrap_or(("", name));
        if self.above != above {
            self.directory = self.enter(above)?;
            above.clone_into(&mut self.above);
        }
        let directory: BorrowedFd<'_> = match &self.directory {
            Above::Folder => self.items.0.folder.own.as_fd(),
            Above::Open(directory) => directory.as_fd(),
            Above::Gone => return Ok(Seen::Gone),
            Above::Outside => return Ok(Seen::Outside),
        };
        match statx(directory, leaf, AtFlags::SYMLINK_NOFOLLOW, self.wanted) {
            Ok(found) => Ok(Seen::Found(found)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(Seen::Gone),
            Err(error) => Err(error),
        }
    }

    /// A directory of the folder: no link and no mount leads out of it.
    fn enter(&self, directory: &str) -> Result<Above, Errno> {
        if directory.is_empty() {
            return Ok(Above::Folder);
        }
        let (folder, flags) = (&self.items.0.folder.own, FOLDER_FLAGS | OFlags::PATH);
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let opened = match openat2(folder, directory, flags, Mode::empty(), within) {
            // Before Linux 5.6.
            Err(Errno::NOSYS) => openat(folder, directory, flags | OFlags::NOFOLLOW, Mode::empty()),
            opened => opened,
        };
        match opened {
            Ok(directory) => Ok(Above::Open(directory)),
            Err(Errno::NOENT) => Ok(Above::Gone),
            Err(Errno::LOOP | Errno::XDEV | Errno::NOTDIR) => Ok(Above::Outside),
            Err(error) => Err(error),
        }
    }
}

/// Kind of file of items.
fn file_type(kind: MetadataKind) -> FileType {
    match kind {
        MetadataKind::File => FileType::RegularFile,
        MetadataKind::Directory | MetadataKind::Tree => FileType::Directory,
    }
}

/// Of the items of one rank and kind, in the order of their numbers: nothing of those that were others' or gone already.
#[derive(Debug, Default)]
pub(super) struct Known(Vec<Option<Inode>>);

/// What is known of one item.
#[derive(Debug, Clone, Copy)]
pub(super) enum Before {
    /// It was not looked at: its mode tells whose it is.
    Unseen,
    Own(Inode),
    /// It was others' or gone.
    Others,
}

impl Known {
    pub(super) fn of(&self, number: u64) -> Before {
        match usize::try_from(number).ok().and_then(|number| self.0.get(number)) {
            None => Before::Unseen,
            Some(Some(inode)) => Before::Own(*inode),
            Some(None) => Before::Others,
        }
    }

    /// Room for this many, and no more. Where there is no memory they stay as those that were not looked at.
    fn reserve(&mut self, count: u64) {
        let more = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(self.0.len());
        let _ = self.0.try_reserve_exact(more);
    }

    /// The next one.
    fn add(&mut self, number: u64, inode: Option<Inode>) {
        if usize::try_from(number) == Ok(self.0.len()) && self.0.len() < self.0.capacity() {
            self.0.push(inode);
        }
    }
}

/// Whether what has an item's name is the item.
pub(super) fn is_own(items: &Items, kind: MetadataKind, before: Before, found: &Statx) -> bool {
    let of = |inode| items.0.folder.marks.is_own(found, file_type(kind), inode);
    match before {
        Before::Others => false,
        Before::Unseen => of(None),
        Before::Own(inode) => of(Some(inode)),
    }
}

/// What lies under the names of pieces.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// What the run that is asked about has made.
    pub(super) own: Vec<Piece>,
    /// Names that nothing has any more.
    pub(super) gone: u64,
    /// Names that something of others has, and the first of them with its rank.
    pub(super) foreign: u64,
    pub(super) first_foreign: Option<(usize, String)>,
    /// The run has to end.
    pub(super) is_over: bool,
}

impl Found {
    pub(super) fn add_own(&mut self, piece: &Piece, number: u64) {
        match self.own.last_mut() {
            Some(last)
                if (last.owner, last.is_renamed) == (piece.owner, piece.is_renamed)
                    && last.first + last.count == number =>
            {
                last.count += 1;
            }
            _ => self.own.push(Piece { first: number, count: 1, ..*piece }),
        }
    }

    pub(super) fn add_foreign(&mut self, owner: usize, name: String) {
        self.foreign += 1;
        self.first_foreign.get_or_insert((owner, name));
    }
}

/// Looks up what this rank has made, and learns by what it is known where that is not known yet. What is gone is left to
/// the phase that misses it.
pub(super) fn look(
    places: &Places,
    (tree, iteration): (&Tree, u32),
    kind: MetadataKind,
    pieces: &[Piece],
    known: &mut Known,
    stop: &AtomicBool,
) -> Result<Found, Failure> {
    let mut found = Found::default();
    for piece in pieces {
        let items = places.of(piece.owner);
        let mut look = Look::new(items, WANTED);
        known.reserve(piece.first + piece.count);
        for number in piece.first..piece.first + piece.count {
            if stop.load(Relaxed) {
                found.is_over = true;
                return Ok(found);
            }
            let name = named(tree.name(iteration, piece.owner, kind, number), piece.is_renamed);
            let seen = look
                .at(&name)
                .map_err(|error| file_error("look up", &items.path().join(&name), &error.into()))?;
            let before = known.of(number);
            let own = match &seen {
                Seen::Found(now) if is_own(items, kind, before, now) => Some(Inode::of(now)),
                _ => None,
            };
            if matches!(before, Before::Unseen) {
                known.add(number, own);
            }
            match seen {
                Seen::Found(_) | Seen::Outside if own.is_none() => found.add_foreign(piece.owner, name),
                _ => found.add_own(piece, number),
            }
        }
    }
    Ok(found)
}

/// Removes an item under either name, where it is there; what others have under its names stays, and so does a directory in
/// which they have files. A name that others have since it was looked at last.
pub(super) fn clean(
    look: &mut Look<'_>,
    kind: MetadataKind,
    (name, before): (&str, Before),
) -> Result<Option<String>, Failure> {
    let items = look.items;
    let flags = if kind == MetadataKind::File { AtFlags::empty() } else { AtFlags::REMOVEDIR };
    let mut foreign = None;
    for name in [name.to_owned(), named(name.to_owned(), true)] {
        let seen = match look.at(&name) {
            Err(Errno::ACCESS | Errno::PERM) => {
                items.0.folder.restore(&name);
                look.at(&name)
            }
            seen => seen,
        };
        let removed = match seen {
            Ok(Seen::Found(now)) if is_own(items, kind, before, &now) => items.0.folder.remove(&name, flags),
            Ok(Seen::Found(_) | Seen::Outside) => {
                // Those that were others' before are counted.
                if !matches!(before, Before::Others) {
                    foreign = Some(name.clone());
                }
                Ok(())
            }
            Ok(Seen::Gone) => Ok(()),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(file_error("remove", &items.path().join(name), &error.into())),
        }
    }
    Ok(foreign)
}
