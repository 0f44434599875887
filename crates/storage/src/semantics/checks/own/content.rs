//! Reading and writing of one file by one process.

use std::{
    fs::File,
    io::{Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
};

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{No, Yes},
};
use rustix::{
    fs::{Mode, OFlags, fsync, openat},
    io::Errno,
};

use super::{Check, Result, create, found, right, stat, verdict};
use crate::semantics::{
    checks::{Run, check, left_open},
    faults::At as _,
    folder::{Folder, raw},
};

const fn content(
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: fn(&Folder) -> Result<SemanticsFound>,
) -> Check {
    check(SemanticsArea::Features, name, title, standard, Run::Alone(run))
}

pub(super) const CHECKS: &[Check] = &[
    content("read-after-write", "read after write", "POSIX.1-2017 write()", read_after_write),
    content("random-write", "write in the middle", "POSIX.1-2017 pwrite()", random_write),
    content("append-offset", "O_APPEND after a seek", "POSIX.1-2017 write(), O_APPEND", append_offset),
    content("truncate", "ftruncate extends by 0", "POSIX.1-2017 ftruncate()", truncate),
    content("open-truncate", "O_TRUNC of an open file", "POSIX.1-2017 open(), O_TRUNC", open_truncate),
    content("large-file", "1 byte at 1 TiB", "POSIX.1-2017 pwrite(), EFBIG", large_file),
    content("fsync", "fsync, fdatasync", "POSIX.1-2017 fsync()", synchronize),
    content("fsync-directory", "fsync of a directory", "fsync(2)", synchronize_directory),
    content("read-only-creation", "O_CREAT of mode 0444", "POSIX.1-2017 open(), O_CREAT", read_only_creation),
    content("tmpfile", "O_TMPFILE", "open(2)", tmpfile),
    content("tmpfile-link", "linkat of O_TMPFILE", "open(2), O_TMPFILE", tmpfile_link),
    content("copy-range", "copy_file_range", "copy_file_range(2)", copy_range),
];

/// By the descriptor that wrote it, by another one while that is open, and after the close.
fn read_after_write(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "read-after-write")?;
    file.write_all_at(b"content", 0).at("pwrite")?;
    let mut bytes = [0; 7];
    file.read_exact_at(&mut bytes, 0).at("pread")?;
    if &bytes != b"content" {
        return found(No, "the descriptor that wrote reads something else");
    }
    if folder.read("read-after-write", 100).at("open and read of an open file")? != b"content" {
        return found(No, "another descriptor reads something else before the close");
    }
    drop(file);
    right(
        folder.read("read-after-write", 100).at("open and read")? == b"content",
        "after the close something else is read",
    )
}

fn random_write(folder: &Folder) -> Result<SemanticsFound> {
    folder.store("random-write", &[b'a'; 10_000]).at("write")?;
    let file = folder.open("random-write", OFlags::RDWR).at("open(O_RDWR)")?;
    file.write_all_at(b"new", 5000).at("pwrite")?;
    file.write_all_at(b"end", 20_000).at("pwrite")?;
    drop(file);
    let mut expected = vec![b'a'; 10_000];
    expected[5000..5003].copy_from_slice(b"new");
    expected.resize(20_000, 0);
    expected.extend(b"end");
    right(folder.read("random-write", 30_000).at("read")? == expected, "the content is another one")
}

fn append_offset(folder: &Folder) -> Result<SemanticsFound> {
    folder.store("append-offset", b"one ").at("write")?;
    let mut file = folder.open("append-offset", OFlags::RDWR | OFlags::APPEND).at("open(O_APPEND)")?;
    file.seek(SeekFrom::Start(0)).at("lseek")?;
    file.write_all(b"two").at("write(O_APPEND)")?;
    let end = file.stream_position().at("lseek")?;
    let bytes = folder.read("append-offset", 100).at("read")?;
    if bytes != b"one two" {
        return found(No, format!("the file is \"{}\"", String::from_utf8_lossy(&bytes)));
    }
    right(end == 7, format!("the offset is {end} instead of 7"))
}

fn truncate(folder: &Folder) -> Result<SemanticsFound> {
    let mut file = create(folder, "truncate")?;
    file.write_all_at(b"abcdef", 0).at("pwrite")?;
    file.set_len(3).and_then(|()| file.set_len(8)).at("ftruncate")?;
    let mut bytes = [1_u8; 8];
    file.read_exact_at(&mut bytes, 0).at("pread")?;
    let end = file.seek(SeekFrom::End(0)).at("lseek")?;
    verdict(&bytes == b"abc\0\0\0\0\0" && end == 8, format!("size {end}"))
}

fn open_truncate(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "open-truncate")?;
    file.write_all_at(b"content", 0).at("pwrite")?;
    drop(folder.open("open-truncate", OFlags::WRONLY | OFlags::TRUNC).at("open(O_TRUNC)")?);
    let mut bytes = [0; 7];
    let count = file.read_at(&mut bytes, 0).at("pread")?;
    let size = file.metadata().at("fstat")?.len();
    right(count == 0 && size == 0, format!("{count} bytes can still be read, size {size}"))
}

fn large_file(folder: &Folder) -> Result<SemanticsFound> {
    const OFFSET: u64 = 1 << 40;
    let file = create(folder, "large-file")?;
    match file.write_all_at(b"x", OFFSET).map_err(|error| raw(&error)) {
        Err(Errno::FBIG) => return Ok(left_open(false, "EFBIG: files have to be smaller")),
        other => other.at("pwrite at 1 TiB")?,
    }
    let (size, mut bytes) = (stat(folder, "large-file")?.st_size, [0]);
    file.read_exact_at(&mut bytes, OFFSET).at("pread at 1 TiB")?;
    file.set_len(0).at("ftruncate")?;
    right(size == (1 << 40) + 1 && &bytes == b"x", format!("size {size}"))
}

fn synchronize(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "fsync")?;
    file.write_all_at(b"x", 0).at("pwrite")?;
    file.sync_data().at("fdatasync")?;
    file.sync_all().at("fsync")?;
    Ok(SemanticsFound::new(Yes))
}

/// What databases do after a creation and a rename.
fn synchronize_directory(folder: &Folder) -> Result<SemanticsFound> {
    fsync(folder.descriptor()).at("fsync")?;
    Ok(SemanticsFound::new(Yes))
}

/// The mode is for later opens: this descriptor writes.
fn read_only_creation(folder: &Folder) -> Result<SemanticsFound> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = folder.open_with("read-only-creation", flags, Mode::from_raw_mode(0o444));
    let file = file.at("open(O_CREAT|O_RDWR) of mode 0444")?;
    file.write_all_at(b"x", 0).at("pwrite")?;
    let size = stat(folder, "read-only-creation")?.st_size;
    right(size == 1, format!("size {size}"))
}

fn unnamed(folder: &Folder) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = openat(folder.descriptor(), ".", flags, Mode::from_raw_mode(0o600)).at("open(O_TMPFILE)")?;
    Ok(File::from(file))
}

fn tmpfile(folder: &Folder) -> Result<SemanticsFound> {
    let mut file = unnamed(folder)?;
    file.write_all(b"x").at("write")?;
    let links = std::os::unix::fs::MetadataExt::nlink(&file.metadata().at("fstat")?);
    verdict(links == 0, format!("link count {links}"))
}

fn tmpfile_link(folder: &Folder) -> Result<SemanticsFound> {
    let mut file = unnamed(folder)?;
    file.write_all(b"content").at("write")?;
    folder.link_unnamed(&file, "tmpfile-link").at("linkat of O_TMPFILE")?;
    let (bytes, links) =
        (folder.read("tmpfile-link", 100).at("read")?, stat(folder, "tmpfile-link")?.st_nlink);
    right(bytes == b"content" && links == 1, format!("{} bytes, link count {links}", bytes.len()))
}

fn copy_range(folder: &Folder) -> Result<SemanticsFound> {
    folder.store("copy-range", &[b'c'; 100_000]).at("write")?;
    let from = folder.open("copy-range", OFlags::RDONLY).at("open")?;
    let to = create(folder, "copy-range-2")?;
    let mut left = 100_000;
    while left > 0 {
        let count = rustix::fs::copy_file_range(&from, None, &to, None, left).at("copy_file_range")?;
        if count == 0 {
            return found(No, format!("ends {left} bytes before the end of the file"));
        }
        left = left.saturating_sub(count);
    }
    // Some mounts have a new file only when it is closed; the check of reading after a write says so.
    drop(to);
    right(folder.read("copy-range-2", 200_000).at("read")? == [b'c'; 100_000], "the copy is another one")
}
