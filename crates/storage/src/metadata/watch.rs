//! Whether others make something among the items while a phase renames or removes them: nobody looks at an item within what
//! is measured, unless they do. The kernel tells it (inotify(7)) of what happens on this host; a rename or a removal causes
//! none of the events that are waited for, and so costs nothing more.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use clearstream_schema::storage::metadata::{MetadataKind, MetadataOperation};
use clearstream_sys::file::path_of;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};

use super::{folder::Places, tree::Tree};
use crate::kept::Piece;

/// Most directories of a rank: of more than these the first ones are watched.
const DIRECTORIES_MAX: usize = 256;

/// A thread that waits for others.
#[derive(Debug)]
pub(super) struct Watch {
    has_others: Arc<AtomicBool>,
    end: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches the directories of pieces; nothing where there is nothing to be told of, or no room for it.
    pub(super) fn start(
        places: &Places,
        (tree, iteration): (&Tree, u32),
        (kind, operation): (MetadataKind, MetadataOperation),
        pieces: &[Piece],
    ) -> Option<Self> {
        let events = match operation {
            // Its own names come, too.
            MetadataOperation::Rename => WatchFlags::CREATE,
            MetadataOperation::Remove => WatchFlags::CREATE | WatchFlags::MOVED_TO,
            _ => return None,
        };
        if kind == MetadataKind::Tree {
            return None;
        }
        let flags = events | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        let found = inotify::init(CreateFlags::CLOEXEC).ok()?;
        let directories = pieces.iter().flat_map(|piece| {
            let of_tree = tree.directories_of(iteration, *piece);
            of_tree.map(|directory| (piece.owner, directory))
        });
        for (owner, directory) in directories.take(DIRECTORIES_MAX) {
            let folder = path_of(places.of(owner).0.folder.own.as_fd());
            // One that is gone, or is no directory, has no items.
            let _ = inotify::add_watch(&found, format!("{folder}/{directory}"), flags);
        }
        let end = eventfd(0, EventfdFlags::CLOEXEC).ok()?;
        let has_others = Arc::new(AtomicBool::new(false));
        let (seen, ended) = (Arc::clone(&has_others), end.try_clone().ok()?);
        let waits = move || {
            if let Ok(true) = wait(&found, &ended) {
                seen.store(true, Relaxed);
            }
        };
        let thread = thread::Builder::new().name("watch".to_owned()).spawn(waits).ok()?;
        Some(Self { has_others, end, thread: Some(thread) })
    }

    /// Whether others have made something.
    pub(super) fn has_others(&self) -> bool {
        self.has_others.load(Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The counter is far from its limit.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for an event, or for the end.
fn wait(events: &OwnedFd, end: &OwnedFd) -> io::Result<bool> {
    loop {
        let mut descriptors = [PollFd::new(events, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        match poll(&mut descriptors, None) {
            Err(Errno::INTR) => {}
            polled => {
                polled?;
                return Ok(descriptors[0].revents().contains(PollFlags::IN));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use clearstream_schema::storage::metadata::MetadataConfig;

    use super::*;
    use crate::{
        metadata::folder::{Items, Places},
        test_folder::{Purpose, TestFolder},
    };

    /// Renames and removals are the run's own; what is made, or comes from elsewhere, is others'.
    #[test]
    fn others_are_seen_and_the_run_itself_is_not() {
        let tree = Tree::new(&MetadataConfig { items: 4, depth: 1, ..MetadataConfig::default() }).unwrap();
        let pieces = [Piece::new(0, 0, 4)];
        for (operation, act, expected) in [
            (MetadataOperation::Rename, "rename", false),
            (MetadataOperation::Rename, "make", true),
            (MetadataOperation::Remove, "remove", false),
            (MetadataOperation::Remove, "make", true),
            (MetadataOperation::Remove, "bring", true),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let purpose = Purpose { is_new: true, is_kept: false };
            let places = Places(vec![Items(TestFolder::enter(directory.path(), "x", purpose).unwrap())]);
            let (path, other) = (directory.path().join("x/tree.0"), directory.path().join("other"));
            fs::create_dir_all(path.join("level.1")).unwrap();
            let item = directory.path().join("x").join(tree.name(0, 0, MetadataKind::File, 3));
            for path in [&item, &other] {
                fs::write(path, "").unwrap();
            }
            let watch = Watch::start(&places, (&tree, 0), (MetadataKind::File, operation), &pieces).unwrap();
            match act {
                "rename" => fs::rename(&item, item.with_extension("renamed")).unwrap(),
                "remove" => fs::remove_file(&item).unwrap(),
                "make" => fs::write(item.with_file_name("note.txt"), "").unwrap(),
                _ => fs::rename(&other, &item).unwrap(),
            }
            let mut has_others = watch.has_others();
            for _ in 0..if expected { 10_000 } else { 20 } {
                if has_others {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
                has_others = watch.has_others();
            }
            assert_eq!(has_others, expected, "{operation} {act}");
        }
    }
}
