//! Programs that librspreload breaks, recognised before they start: what was seen with that library alone, in rdma-core
//! 44 and 65.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use clearstream_sys::{document, program::Program};

/// What happens to programs, by the name of their file. The first ends before it does anything.
const BROKEN: [(&str, Effect); 6] = [
    ("bash", Effect::Crashes),
    ("nuttcp", Effect::Crashes),
    ("socat", Effect::Crashes),
    ("nginx", Effect::Fails("its connections hang")),
    ("node", Effect::Fails("its servers abort")),
    ("sockperf", Effect::Fails("connecting fails with EISCONN")),
];
/// Bytes of a program or library that are searched for what it calls.
const MOST_BYTES: u64 = 512 << 20;
/// Bytes of the first line of a script (`BINPRM_BUF_SIZE`, linux/binfmts.h).
const FIRST_LINE: u64 = 256;
/// Scripts whose interpreter is a script, at most (`bprm_execve`, fs/exec.c).
const MOST_INTERPRETERS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// A signal ends it at its start.
    Crashes,
    /// It runs, and does this.
    Fails(&'static str),
}

/// What becomes of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Nothing is known against it.
    Runs,
    /// It is not worth a start: the file that crashes.
    Crashes(PathBuf),
    /// To be said before it starts.
    Warning(String),
}

/// Looks at the program, or at the interpreter of a script.
pub(super) fn outlook(program: &Path, librspreload: &Path) -> Outlook {
    let program = interpreter(program);
    let file = fs::canonicalize(&program).unwrap_or_else(|_| program.clone());
    let name = file.file_name().unwrap_or(OsStr::new("")).to_owned();
    let shown = name.display();
    match BROKEN.iter().find(|(broken, _)| name == *broken) {
        Some((_, Effect::Crashes)) => return Outlook::Crashes(file),
        Some((_, Effect::Fails(what))) => {
            return Outlook::Warning(format!("{shown} does not work below librspreload: {what}"));
        }
        None => {}
    }
    // rdma-core 61 replaces epoll too.
    if !mentions(librspreload, "epoll_ctl")
        && std::iter::once(file.clone()).chain(libraries(&file)).any(|file| mentions(&file, "epoll_ctl"))
    {
        return Outlook::Warning(format!(
            "{shown} may wait by epoll, which this librspreload (before rdma-core 61) does not replace: connections \
             that it waits for so never become ready"
        ));
    }
    Outlook::Runs
}

/// The program that the kernel starts: of a script its interpreter, and the program that `env` is told (execve(2)).
fn interpreter(program: &Path) -> PathBuf {
    let mut program = program.to_owned();
    for _ in 0..MOST_INTERPRETERS {
        let Some(line) = first_line(&program) else { break };
        let Some(command) = line.strip_prefix(b"#!") else { break };
        let mut words = command.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let Some(first) = words.next() else { break };
        program = PathBuf::from(OsStr::from_bytes(first));
        if program.file_name() == Some(OsStr::new("env")) {
            let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
            let found = named.and_then(|name| super::run::find(OsStr::from_bytes(name)));
            program = found.unwrap_or(program);
        }
    }
    program
}

fn first_line(program: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    document::open(program).ok()?.take(FIRST_LINE).read_to_end(&mut bytes).ok()?;
    Some(bytes.split(|byte| *byte == b'\n').next()?.to_vec())
}

/// Libraries that the loader maps into a program, but for those that all programs have (ld.so(8)).
fn libraries(program: &Path) -> Vec<PathBuf> {
    let traced = Program::new(program).env("LD_TRACE_LOADED_OBJECTS", "1").run();
    let Ok(output) = traced else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.lines().filter_map(|line| line.split_once(" => ")?.1.split(" (").next());
    let is_common =
        |path: &str| ["libc.so", "libpthread.so", "ld-linux"].iter().any(|name| path.contains(name));
    paths.filter(|path| path.starts_with('/') && !is_common(path)).map(PathBuf::from).collect()
}

/// Whether a file has this name in a table of names, which end with NUL (elf(5), string tables).
fn mentions(file: &Path, name: &str) -> bool {
    let wanted: Vec<u8> = [&b"\0"[..], name.as_bytes(), b"\0"].concat();
    let read = || -> io::Result<Vec<u8>> { document::read(file, MOST_BYTES) };
    read().is_ok_and(|bytes| bytes.windows(wanted.len()).any(|part| part == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script that starts with this line.
    fn script(folder: &Path, line: &str) -> PathBuf {
        let path = folder.join("script");
        fs::write(&path, format!("{line}\ntrue\n")).expect("a file");
        path
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let folder = tempfile::tempdir().expect("a folder");
        for line in
            ["#!/bin/bash", "#! /bin/bash -eu", "#!/usr/bin/env bash", "#!/usr/bin/env -S A=1 bash -e"]
        {
            let found = outlook(&script(folder.path(), line), Path::new("/dev/null"));
            assert!(matches!(&found, Outlook::Crashes(file) if file.ends_with("bash")), "{line}: {found:?}");
        }
        assert_eq!(interpreter(&script(folder.path(), "#!/bin/true")), Path::new("/bin/true"));
        let itself = script(folder.path(), "no script");
        assert_eq!(interpreter(&itself), itself);
        // One that interprets itself ends.
        let endless = folder.path().join("script");
        fs::write(&endless, format!("#!{}\n", endless.display())).expect("a file");
        assert_eq!(interpreter(&endless), endless);
    }

    #[test]
    fn only_a_librspreload_without_epoll_makes_epoll_a_warning() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("a file");
            path
        };
        let (user, other) = (file("user", b"\0epoll_ctl\0poll\0"), file("other", b"\0my_epoll_ctl\0poll\0"));
        let (before_61, after) = (file("old", b"\0poll\0"), file("new", b"\0poll\0epoll_ctl\0"));
        assert!(matches!(outlook(&user, &before_61), Outlook::Warning(text) if text.contains("epoll")));
        for (program, library) in [(&user, &after), (&other, &before_61), (&other, &after)] {
            assert_eq!(outlook(program, library), Outlook::Runs);
        }
    }
}
