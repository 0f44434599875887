//! What the end-to-end tests share: the binary, bounded runs, and checks that
//! nothing is left behind.

mod left;

use std::{
    io::{Read, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use clearstream_testkit::lab::two_hosts;
use rustix::event::{PollFd, PollFlags};

pub(crate) use left::{descendants, inventory};

/// The library of ranks for one MPI, built as a site does it (`extras/mpi/library/build`).
pub(crate) fn build_mpi_library(compiler: &str, library: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../extras/mpi/library/build");
    let output = Command::new(script).arg(compiler).arg(library).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler}: .ci/install test installs it: {errors}");
}

/// How a run ended and what it wrote.
pub(crate) struct Run {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The exit code; a run that a signal ended has none and fails the test.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {}\n{}", self.status, self.stderr))
    }

    /// Standard output of a run that must have succeeded.
    pub(crate) fn ok(&self) -> &str {
        assert_eq!(self.code(), 0, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        &self.stdout
    }

    /// Standard output of a successful run: one document that keeps to its schema.
    pub(crate) fn json(&self) -> serde_json::Value {
        let document = serde_json::from_str(self.ok());
        let document = document.unwrap_or_else(|error| panic!("{error} in:\n{}", self.stdout));
        assert_published(&document);
        document
    }

    /// A run that must have failed with this code and an error of one line with these parts.
    pub(crate) fn refused(&self, code: i32, expected: &[&str]) {
        assert_eq!(self.code(), code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        for part in expected {
            assert!(self.stderr.contains(part), "\"{part}\" is not in: {}", self.stderr);
        }
        let lines = self.stderr.lines().filter(|line| line.starts_with("clearstream:")).count();
        assert_eq!(lines, 1, "one clear line is wanted:\n{}", self.stderr);
    }
}

impl Run {
    /// Ended with this code, whatever it printed.
    pub(crate) fn refused_with(&self, code: i32) {
        assert_eq!(self.code(), code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
    }

    /// A command line that could not be read: clap's own form, with a hint.
    pub(crate) fn refused_by_usage(&self, hint: &str) {
        assert_eq!(self.code(), 2, "{}", self.stderr);
        assert!(self.stderr.contains(hint), "\"{hint}\" is not in: {}", self.stderr);
    }
}

/// The built program.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_clearstream"))
}

/// Links the provider of libfabric to the name by which libfabric loads it, beside the program.
pub(crate) fn link_provider() {
    let built = program().with_file_name("libclearstream_fi.so");
    assert!(built.exists(), "no {}: cargo build -p clearstream-libfabric makes it", built.display());
    match std::os::unix::fs::symlink(built.file_name().unwrap(), built.with_file_name("libclearstream-fi.so"))
    {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        linked => linked.unwrap(),
    }
}

/// The program with arguments, both outputs piped.
pub(crate) fn clearstream(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Lines of people's output are broken for it.
    command.env_remove("COLUMNS");
    command
}

/// A launcher of ranks on this machine, both outputs piped; the ranks' program and its arguments follow.
pub(crate) fn mpirun(launcher: &str, count: u32) -> Command {
    let mut command = Command::new(launcher);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    if launcher.ends_with("openmpi") {
        command.args(["-H", &format!("localhost:{count}"), "--bind-to", "none"]);
    }
    command.args(["-np", &count.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end, at most 60 s.
pub(crate) fn run(arguments: &[&str]) -> Run {
    finish(clearstream(arguments).spawn().unwrap(), Duration::from_secs(60))
}

/// As [`run`], with a text on standard input.
pub(crate) fn run_with_input(arguments: &[&str], text: &str) -> Run {
    let mut child = clearstream(arguments).stdin(Stdio::piped()).spawn().unwrap();
    // A child that reads nothing may have gone.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    finish(child, Duration::from_secs(60))
}

/// Waits for the end, killing what takes longer than `limit`.
pub(crate) fn finish(mut child: Child, limit: Duration) -> Run {
    // Both pipes are drained beside the wait: a full pipe would stop the child.
    let stdout = drain(child.stdout.take().unwrap());
    let stderr = drain(child.stderr.take().unwrap());
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            let _ = child.wait();
            panic!("still running after {limit:?}: {}{}", stdout.join().unwrap(), stderr.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    Run { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// Reads a child's standard output up to the first line that holds all `parts`, and
/// leaves the rest to [`finish`]; the text read. Fails after 60 s.
pub(crate) fn until_line(child: &mut Child, parts: &[&str]) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    let stdout = child.stdout.as_mut().unwrap();
    let (mut text, mut byte) = (Vec::new(), [0]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(&*stdout, PollFlags::IN)];
        let ready = rustix::event::poll(&mut polled, Some(&left.try_into().unwrap())).unwrap_or(0);
        let read = String::from_utf8_lossy(&text);
        assert!(ready > 0 || !left.is_zero(), "no line with {parts:?} in time:\n{read}");
        if ready == 0 {
            continue;
        }
        // Byte by byte: a buffer would take what follows the line.
        assert_ne!(stdout.read(&mut byte).unwrap(), 0, "ended without a line with {parts:?}:\n{read}");
        text.push(byte[0]);
        if byte[0] == b'\n' {
            let line = text[..text.len() - 1].rsplit(|byte| *byte == b'\n').next().unwrap();
            let line = String::from_utf8_lossy(line);
            if parts.iter().all(|part| line.contains(part)) {
                return String::from_utf8_lossy(&text).into_owned();
            }
        }
    }
}

fn drain(mut source: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = source.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// A full pipe: writes to it block until it is read, which does not happen while
/// the reader is kept.
pub(crate) fn full_pipe() -> (std::io::PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write_all(&[b'x'; 512]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer.into())
}

/// Waits until `what` holds; fails after `limit`.
pub(crate) fn eventually(limit: Duration, description: &str, mut what: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !what() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {description}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Direct children of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in parentheses may hold anything; the parent is the second field after it.
        let parent_field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        if parent_field == Some(&parent.to_string()) {
            found.push(pid);
        }
    }
    found.sort_unstable();
    found
}

/// The process exists and is not a zombie.
pub(crate) fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z')))
}

/// Sends a signal with the system's own `kill`.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// Checks a document against the newest committed schema of a name.
pub(crate) fn assert_valid(schema: &str, document: &serde_json::Value) {
    let path =
        |version| format!("{}/../../schemas/v{version}/{schema}.schema.json", env!("CARGO_MANIFEST_DIR"));
    let newest = [2, 1].into_iter().find(|version| Path::new(&path(*version)).exists());
    assert_valid_by(&path(newest.unwrap_or(1)), document);
}

/// Checks a document against the schema that it names. SARIF is not ours.
pub(crate) fn assert_published(document: &serde_json::Value) {
    if document.get("$schema").is_some() {
        return;
    }
    let name = document["schema"].as_str().unwrap_or_else(|| panic!("names no schema: {document}"));
    let short = name.strip_prefix("clearstream.").unwrap();
    let version = document["version"].as_u64().unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    assert_valid_by(&format!("{root}/../../schemas/v{version}/{short}.schema.json"), document);
}

fn assert_valid_by(path: &str, document: &serde_json::Value) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let schema = serde_json::from_str(&text).unwrap();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{path}: {errors:#?}");
}

/// A lab of a test, taken down whatever happens.
pub(crate) struct Lab(pub(crate) String);

impl Lab {
    /// Brings the lab file up under a name of this test's own.
    pub(crate) fn up(file: &Path, name: &str) -> Self {
        run(&["lab", "up", file.to_str().unwrap()]).ok();
        Self(name.to_owned())
    }

    /// The hosts of [`two_hosts`], with Ethernet's usual MTU.
    pub(crate) fn of_two_hosts(folder: &Path, name: &str) -> Self {
        let path = folder.join(format!("{name}.toml"));
        std::fs::write(&path, two_hosts(name, "mtu = 1500")).unwrap();
        Self::up(&path, name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = clearstream(&["lab", "down", &self.0]).status();
    }
}

/// A mount that is gone with the test, also with one that fails.
pub(crate) struct Mount(pub(crate) PathBuf);

impl Mount {
    pub(crate) fn tmpfs(at: PathBuf, options: &str) -> Self {
        let own = ["-t", "tmpfs", "-o", options, "none"];
        assert!(Command::new("mount").args(own).arg(&at).status().unwrap().success());
        Self(at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}
