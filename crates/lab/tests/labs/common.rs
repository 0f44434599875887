//! Helpers of the tests of running labs: a keeper, labs with their own names,
//! and sockets inside a host.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use clearstream_lab::{LabError, RunningLab, down, file, up};
use clearstream_schema::lab::LabFile;
use clearstream_sys::namespace::NamespaceSet;
use clearstream_testkit::lab::two_hosts;

/// Returns the example of this package that runs a lab; it is built with the
/// tests.
pub(crate) fn keeper() -> Command {
    let test = std::env::current_exe().unwrap();
    let folder: PathBuf = test.parent().and_then(Path::parent).unwrap().join("examples");
    let program = folder.join("keep");
    assert!(program.exists(), "{} is built by `cargo build --examples`", program.display());
    Command::new(program)
}

/// A lab that is taken down when the test ends, also on failure.
pub(crate) struct Lab(pub(crate) RunningLab);

impl Lab {
    pub(crate) fn up(file: &LabFile) -> Result<Self, LabError> {
        up(file, keeper()).map(Self)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = down(&self.0.file().name);
    }
}

/// Hosts `here` and `there` and one link with these lines in it.
pub(crate) fn pair(name: &str, link: &str) -> LabFile {
    let text = two_hosts(&format!("{name}-{}", std::process::id()), link);
    file::parse(Path::new("test.toml"), &text).unwrap()
}

/// A host entered by this test.
pub(crate) struct Inside {
    child: Child,
    set: NamespaceSet,
}

impl Inside {
    pub(crate) fn of(lab: &RunningLab, host: &str) -> Self {
        let mut sleep = Command::new("sleep");
        sleep.arg("600").stdin(Stdio::null());
        let child = lab.command(host, sleep).unwrap().spawn().unwrap();
        let set = NamespaceSet::of_process(child.id()).unwrap();
        Self { child, set }
    }

    /// Runs work inside; sockets created there stay there.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.set.run(work).unwrap()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output of a command on a host.
pub(crate) fn output(lab: &RunningLab, host: &str, line: &str) -> String {
    let mut arguments = line.split(' ');
    let mut command = Command::new(arguments.next().unwrap());
    command.args(arguments);
    let output = lab.command(host, command).unwrap().output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the network namespaces of all processes of this machine.
pub(crate) fn network_namespaces() -> BTreeSet<PathBuf> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok())
        .collect()
}
