//! What strangers put into a folder, before each function that writes: refused, or the place they lead to is unchanged.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink},
    path::{Path, PathBuf},
};

use crate::file;

const SELF: u32 = 0;
const OWNER: u32 = 65_533;
const STRANGER: u32 = 65_534;

/// What is at the name that is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Item {
    LinkToFile,
    Dangling,
    LinkToFolder,
    /// A link of this user to the stranger's.
    Chain,
    /// A name below a link to a folder.
    Below,
    File,
    HardLink,
    Pipe,
}

type Writer = (&'static str, fn(&Path) -> io::Result<()>);

const WRITERS: [Writer; 6] = [
    ("replace", |path| file::replace(path, b"new")),
    ("replace_with", |path| file::replace_with(path, Some(0o644), |file| file.write_all(b"new"))),
    ("replace_without_sync", |path| file::replace_without_sync(path, b"new")),
    ("create", |path| file::create(path)?.write_all(b"new")),
    ("append", |path| file::append(path)?.write_all(b"new")),
    ("make_folders", |path| file::make_folders(&path.join("a/b"), 0o755)),
];

/// A case in a folder of its own: the folder that others write, and what root would not have changed.
struct Case {
    root: PathBuf,
    path: PathBuf,
}

impl Case {
    fn new(root: &Path, mode: u32, folder_owner: u32, item: Item, user: u32) -> Self {
        let (folder, victim) = (root.join("shared"), root.join("victim"));
        for made in [&folder, &victim] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(victim.join("file"), "old").unwrap();
        fs::set_permissions(victim.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        let place = folder.join("name");
        let link = |target: &str| symlink(victim.join(target), &place).unwrap();
        match item {
            Item::LinkToFile | Item::Chain => link("file"),
            Item::Dangling => link("new"),
            Item::LinkToFolder | Item::Below => link(""),
            Item::File => fs::write(&place, "theirs").unwrap(),
            Item::HardLink => fs::hard_link(victim.join("file"), &place).unwrap(),
            Item::Pipe => {
                rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, 0o666.into(), 0)
                    .unwrap()
            }
        }
        lchown(&place, Some(user), None).unwrap();
        chown(&folder, Some(folder_owner), None).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        let path = match item {
            Item::Chain => {
                symlink(&place, root.join("own")).unwrap();
                root.join("own")
            }
            Item::Below => place.join("file"),
            _ => place,
        };
        Self { root: root.to_owned(), path }
    }

    /// Names and contents of what is not the stranger's.
    fn victim(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.root.join("victim")).unwrap().flatten();
        let mut all: Vec<_> = entries
            .map(|entry| {
                let text = fs::read_to_string(entry.path()).unwrap_or_else(|_| "folder".to_owned());
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        all.sort();
        all
    }
}

#[test]
fn root_a_strangers_names_are_refused_where_the_kernel_may_refuse_them_and_own_ones_work() {
    // In memory: each replacement waits for the disk.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let scratch = memory.path().join("case");
    let kernel_refuses =
        fs::read_to_string("/proc/sys/fs/protected_symlinks").is_ok_and(|on| on.trim() == "1");
    let items = [
        Item::LinkToFile,
        Item::Dangling,
        Item::LinkToFolder,
        Item::Chain,
        Item::Below,
        Item::File,
        Item::HardLink,
        Item::Pipe,
    ];
    let mut refused = 0;
    for (mode, folder_owner) in
        [(0o1777, SELF), (0o1777, OWNER), (0o1775, OWNER), (0o777, OWNER), (0o755, SELF)]
    {
        for item in items {
            for user in [SELF, OWNER, STRANGER] {
                for (name, write) in WRITERS {
                    // The attributes of a hard link are the file's own; a pipe would wait for its reader.
                    if item == Item::HardLink && user == SELF || item == Item::Pipe && user != STRANGER {
                        continue;
                    }
                    let what =
                        format!("{name}: {item:?} of {user} in a folder of {folder_owner}, mode {mode:o}");
                    let case = Case::new(&scratch, mode, folder_owner, item, user);
                    let before = case.victim();
                    let is_link = !matches!(item, Item::File | Item::HardLink | Item::Pipe);
                    let is_shared = mode == 0o1777 || mode == 0o1775 && !is_link;
                    let is_strangers = is_shared && user != SELF && user != folder_owner;
                    if item == Item::Pipe && !is_strangers {
                        fs::remove_dir_all(&scratch).unwrap();
                        continue;
                    }
                    // Opening a pipe waits for a reader.
                    let by_kernel = (item != Item::Pipe)
                        .then(|| fs::OpenOptions::new().write(true).open(&case.path).err())
                        .flatten()
                        .map(|error| error.kind());
                    let written = write(&case.path);
                    if is_strangers {
                        let error = written.expect_err(&what);
                        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{what}");
                        assert!(error.to_string().contains("of another user"), "{what}: {error}");
                        assert_eq!(case.victim(), before, "{what}");
                        refused += 1;
                    } else {
                        check_written(&case, name, item, written, &what);
                        // The kernel refuses less where it is told to, and never more than we do.
                        assert_ne!(by_kernel, Some(io::ErrorKind::PermissionDenied), "{what}");
                    }
                    if kernel_refuses && is_strangers && matches!(item, Item::LinkToFile | Item::Chain) {
                        assert_eq!(by_kernel, Some(io::ErrorKind::PermissionDenied), "{what}");
                    }
                    fs::remove_dir_all(&scratch).unwrap();
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

/// What is not refused is written where it leads to.
fn check_written(case: &Case, writer: &str, item: Item, written: io::Result<()>, what: &str) {
    match (writer, item) {
        ("make_folders", Item::LinkToFolder) => assert!(case.root.join("victim/a/b").is_dir(), "{what}"),
        ("make_folders", Item::Dangling) => assert!(case.root.join("victim/new/a/b").is_dir(), "{what}"),
        ("make_folders", _) => {
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::NotADirectory, "{what}");
        }
        (_, Item::LinkToFolder) => assert!(written.is_err(), "{what}"),
        _ => {
            written.unwrap_or_else(|error| panic!("{what}: {error}"));
            let text = fs::read_to_string(&case.path).unwrap();
            assert!(text.ends_with("new"), "{what}: {text}");
        }
    }
    // A replaced name is a file of its own: its other name has the old text.
    if item == Item::HardLink && writer.starts_with("replace") {
        assert_eq!(case.victim(), [("file".to_owned(), "old".to_owned())], "{what}");
    }
    if item == Item::LinkToFile && writer != "replace_with" && writer != "make_folders" {
        assert_eq!(fs::metadata(&case.path).unwrap().mode() & 0o7777, 0o600, "{what}");
    }
}

#[test]
fn bits_that_change_the_user_are_not_taken_over() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("program");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    file::replace(&path, b"new").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o751);
}

#[test]
fn only_a_folder_of_ones_own_is_private() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a/b");
    crate::private_folder::make(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
    crate::private_folder::make(&path).unwrap();
    for mode in [0o777, 0o1777, 0o770] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = crate::private_folder::make(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
    }
}
