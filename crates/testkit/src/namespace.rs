//! A host in separate network, mount and UTS namespaces, and the programs whose output a test compares with.
//! Needs root.

use std::process::{Command, Output};

use clearstream_sys::namespace::{Holder, NamespaceSet};

/// Namespaces that end when this is dropped.
#[derive(Debug)]
pub struct Host {
    holder: Holder,
    set: NamespaceSet,
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// Creates new namespaces; the only interface is a loopback that is down.
    pub fn new() -> Self {
        let holder = Holder::start().unwrap();
        let set = NamespaceSet::of_process(holder.pid()).unwrap();
        Self { holder, set }
    }

    /// Process id of the holder, for `ip link ... netns PID`.
    pub fn pid(&self) -> u32 {
        self.holder.pid()
    }

    /// The namespaces.
    pub fn namespaces(&self) -> &NamespaceSet {
        &self.set
    }

    /// Runs `work` inside; sockets opened there stay there.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.set.run(work).unwrap()
    }

    /// Makes a command start inside the namespaces.
    pub fn enter(&self, command: &mut Command) {
        NamespaceSet::of_process(self.pid()).unwrap().enter_with(command).unwrap();
    }

    /// Runs a program inside, ignoring its exit status; arguments are split at white space. Its messages are
    /// in English.
    pub fn output(&self, line: &str) -> Output {
        let mut arguments = line.split_whitespace();
        let mut command = Command::new(arguments.next().unwrap());
        command.args(arguments).env("LC_ALL", "C");
        self.enter(&mut command);
        command.output().unwrap_or_else(|error| panic!("{line}: {error}: apt-get install iproute2 ethtool"))
    }

    /// Standard output of a program that must succeed.
    pub fn tool(&self, line: &str) -> String {
        let output = self.output(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}
