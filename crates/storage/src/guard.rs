//! A process that removes a test's files when the process of its ranks was killed.
//!
//! It is in a session of its own, so that what ends the ranks (a launcher's signal to their process group, kill -9)
//! does not reach it, and learns their end from its standard input, which closes then. It has the path of the folder in
//! hexadecimal digits; its end without [`RELEASED`] before it is that of a process that was killed.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;

/// Last line of ranks that removed their files themselves.
const RELEASED: &str = "released";
/// Time that other ranks, which the launcher ends, may go on creating files.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The process, seen by the ranks. Dropped without [`Self::release`], it removes the folder.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts it; `command` is one that calls [`guard`].
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take();
        Ok(Self { child, input })
    }

    /// Names the folder that the test has created.
    ///
    /// # Errors
    /// The process has ended.
    pub fn watch(&mut self, folder: &Path) -> io::Result<()> {
        let line: String = folder.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        self.write(&line)
    }

    /// The files are removed, or to be kept.
    pub fn release(mut self) {
        // Without a process there is nothing to end.
        let _ = self.write(RELEASED);
        self.input = None;
        let _ = self.child.wait();
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(format!("{line}\n").as_bytes())
    }
}

/// The process itself: waits for the end of `lines`.
pub fn guard(lines: impl Iterator<Item = String>) {
    let mut folder = None;
    for line in lines {
        if line == RELEASED {
            return;
        }
        folder = path(&line).or(folder);
    }
    let Some(folder) = folder else { return };
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    while !remove(&folder) && Instant::now() < deadline {
        thread::sleep(RETRY_INTERVAL);
    }
}

/// Reads a path of hexadecimal digits.
fn path(line: &str) -> Option<PathBuf> {
    let digits =
        line.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    digits.collect::<Option<Vec<u8>>>().map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
}

/// Removes what tests name in a folder, and the folder; whether it is gone. What others put into it stays.
fn remove(folder: &Path) -> bool {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(is_name_of_test);
        // What cannot be removed keeps the folder, and is tried later.
        match entry.file_type() {
            Ok(kind) if is_ours && kind.is_dir() => _ = remove(&entry.path()),
            Ok(kind) if is_ours && kind.is_file() => _ = std::fs::remove_file(entry.path()),
            _ => {}
        }
    }
    matches!(rustix::fs::rmdir(folder), Ok(()) | Err(Errno::NOENT))
}

/// `data.0.00000001` of streaming; `tree.0`, `level.3`, `file.1.17.renamed` of metadata.
fn is_name_of_test(name: &str) -> bool {
    let name = name.strip_suffix(".renamed").unwrap_or(name);
    let (kind, numbers) = name.split_once('.').unwrap_or((name, ""));
    ["data", "tree", "level", "directory", "file"].contains(&kind)
        && numbers.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_of_a_test_are_removed_and_those_of_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("test\n1");
        let line = folder.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let fill = || {
            fs::create_dir_all(folder.join("tree.0/level.1/directory.0.7.renamed")).unwrap();
            for name in
                ["data", "data.1", "data.0.00000003", "tree.0/level.1/file.2.11", "tree.0/file.0.1.renamed"]
            {
                fs::write(folder.join(name), "x").unwrap();
            }
        };
        fill();
        guard([line.clone(), RELEASED.to_owned()].into_iter());
        assert!(folder.join("data").exists(), "released");
        guard([line.clone()].into_iter());
        assert!(!folder.exists());
        fill();
        fs::write(folder.join("tree.0/thesis.tex"), "x").unwrap();
        assert!(!remove(&folder));
        let left: Vec<_> = fs::read_dir(folder.join("tree.0")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].file_name(), "thesis.tex");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}
