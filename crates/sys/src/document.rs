//! Documents: files that a person names or that lie in a folder from elsewhere. They are opened and read here alone, so
//! that none of them holds the program up or takes its memory: a pipe waits for a writer, a device has no end, and the
//! size of a file is whatever its owner says.
//!
//! Only regular files are opened, links followed as the kernel does. The kernel's own files below `/proc` and `/sys` are
//! regular, with a size of 0.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::{Mode, OFlags};

/// Maximum size of files written by people: configurations, plans, studies.
pub const DOCUMENT_BYTES: u64 = 16 << 20;

/// Maximum size of a text of one value or one page, as the kernel's files and those of a state folder are.
pub const SMALL_BYTES: u64 = 1 << 20;

/// Capacity to begin with: enough for nearly every kernel file in one call, while an empty buffer begins with reads of
/// 32 bytes.
const PAGE_BYTES: usize = 4096;

/// Opens a regular file for reading.
///
/// # Errors
/// Those of open(2), and one that names the kind of what is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // With O_NONBLOCK the open of a FIFO does not wait for a writer (fifo(7)), that of a device not for its readiness;
    // a terminal does not become the controlling one. Neither flag has an effect on regular files (open(2)).
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).map_err(
            // What open(2) says of a socket.
            |error| match error.raw_os_error() {
                Some(libc::ENXIO) => not_regular("a socket"),
                _ => error,
            },
        )?;
    // Of the open file, which nobody can replace any more.
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    Err(not_regular(match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () => "a device",
    }))
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// Those of [`open`], and [`io::ErrorKind::FileTooLarge`] as soon as there are more bytes, without reading them.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::with_capacity(PAGE_BYTES);
    append(&file, &mut bytes, limit)?;
    Ok(bytes)
}

/// Reads a text file of at most `limit` bytes.
///
/// # Errors
/// As [`read`], and [`io::ErrorKind::InvalidData`] when it is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text_of(read(path, limit)?)
}

/// Reads a text file that this program wrote: one that is a link, or belongs to another user than this one or root, is
/// none.
///
/// # Errors
/// As [`read_text`], and [`io::ErrorKind::PermissionDenied`] for the file of somebody else.
pub fn read_own_text(path: &Path, limit: u64) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    append(&file, &mut bytes, limit)?;
    text_of(bytes)
}

fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not a text file (not UTF-8)"))
}

/// Appends the rest of an open file, at most `limit` bytes, to `bytes`.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] as soon as there are more bytes, and those of read(2).
pub fn append(file: &File, bytes: &mut Vec<u8>, limit: u64) -> io::Result<()> {
    // The size says no for free; it does not say yes, as the file may grow, and the kernel's files have none.
    if file.metadata()?.len() > limit {
        return Err(too_large(limit));
    }
    let count = file.take(limit.saturating_add(1)).read_to_end(bytes)?;
    if count as u64 > limit { Err(too_large(limit)) } else { Ok(()) }
}

fn not_regular(kind: &str) -> io::Error {
    let problem = format!("it is {kind}, not a regular file: name a file, write others to one first");
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

fn too_large(limit: u64) -> io::Error {
    let size = if limit >= 1 << 20 { format!("{} MiB", limit >> 20) } else { format!("{limit} bytes") };
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {size}, the limit of such a file"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("mkfifo");
        let _listener = UnixListener::bind(at("socket")).expect("socket");
        fs::create_dir(at("folder")).expect("folder");
        fs::write(at("file"), "text").expect("file");
        for (name, target, kind) in [
            ("to-zero", "/dev/zero", Some("a device")),
            ("to-terminal", "/dev/ptmx", Some("a device")),
            ("to-pipe", "pipe", Some("a pipe")),
            ("to-socket", "socket", Some("a socket")),
            ("to-folder", "folder", Some("a folder")),
            ("to-file", "file", None),
            ("to-kernel", "/proc/self/status", None),
        ] {
            std::os::unix::fs::symlink(target, at(name)).expect("link");
            let refused = read(&at(name), 1 << 16).map(drop).map_err(|error| error.to_string());
            match kind {
                None => refused.expect(name),
                Some(kind) => assert!(refused.expect_err(name).contains(kind), "{name}"),
            }
        }
    }

    #[test]
    fn limits_hold_for_files_of_every_size() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("file");
        fs::write(&path, "12345").expect("file");
        assert_eq!(read(&path, 5).expect("fits"), b"12345");
        assert_eq!(read(&path, 4).expect_err("one more").kind(), io::ErrorKind::FileTooLarge);
        fs::File::create(&path).expect("file").set_len(8 << 30).expect("sparse");
        assert_eq!(read(&path, DOCUMENT_BYTES).expect_err("sparse").kind(), io::ErrorKind::FileTooLarge);
        // A size of 0 says nothing.
        let kernel = Path::new("/proc/self/status");
        assert_eq!(read(kernel, 8).expect_err("longer").kind(), io::ErrorKind::FileTooLarge);
        fs::write(&path, [0xff]).expect("file");
        assert_eq!(read_text(&path, 5).expect_err("no text").kind(), io::ErrorKind::InvalidData);
    }
}
