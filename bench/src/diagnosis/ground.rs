//! A lab for one trial, the commands in it and the processes in parallel; all of
//! it ends with the trial.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::causes::{Case, Ground};
use crate::error::BenchError;

/// Buffers that hold no flow back.
const AMPLE: &str = "268435456";

/// Labs of this process so far: several may run at a time.
static LABS: AtomicU32 = AtomicU32::new(0);

/// A lab that runs, or none for loopback.
pub(super) struct Lab<'a> {
    program: &'a Path,
    name: Option<String>,
    folder: tempfile::TempDir,
    beside: Vec<Child>,
    group: Option<PathBuf>,
}

pub(super) fn failed(line: &str, message: impl Into<String>) -> BenchError {
    BenchError::Run { line: line.to_owned(), message: message.into() }
}

/// Runs a command to its end; its standard output.
fn output(command: Command, line: &str, limit: Duration) -> Result<String, BenchError> {
    outputs(command, line, limit).map(|(out, _)| out)
}

/// Runs a command to its end; what it wrote to standard output and standard error.
pub(super) fn outputs(
    mut command: Command,
    line: &str,
    limit: Duration,
) -> Result<(String, String), BenchError> {
    let folder = tempfile::tempdir().map_err(|source| failed(line, source.to_string()))?;
    let path = folder.path().join("out");
    let open = || fs::File::create(&path).map_err(|source| failed(line, source.to_string()));
    let errors = folder.path().join("err");
    let stderr = fs::File::create(&errors).map_err(|source| failed(line, source.to_string()))?;
    command.stdin(Stdio::null()).stdout(open()?).stderr(stderr);
    let start = |source| BenchError::Start { program: line.to_owned(), source };
    let mut child = command.spawn().map_err(start)?;
    let until = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(start)? {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(line, format!("not ended after {} s", limit.as_secs())));
        }
        thread::sleep(Duration::from_millis(20));
    };
    let text = fs::read_to_string(&path).unwrap_or_default();
    let errors = fs::read_to_string(&errors).unwrap_or_default();
    if status.success() {
        return Ok((text, errors));
    }
    Err(failed(line, format!("{status}: {}", errors.trim())))
}

impl<'a> Lab<'a> {
    /// Brings the ground of a case up.
    pub(super) fn up(
        program: &'a Path,
        ground: Ground,
        receive_core: Option<u32>,
    ) -> Result<Self, BenchError> {
        let folder = tempfile::tempdir().map_err(|source| failed("mkdir", source.to_string()))?;
        let name = format!("diagnosis-{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed));
        let mut lab = Self { program, name: None, folder, beside: Vec::new(), group: None };
        let text = match ground {
            Ground::Loopback => return Ok(lab),
            Ground::Link(keys) => file(&name, &[("wan0", "10.79.0", keys)], receive_core),
            Ground::Legs => file(&name, &[("leg0", "10.79.0", ""), ("leg1", "10.79.1", "")], None),
        };
        let path = lab.folder.path().join("lab.toml");
        fs::write(&path, text).map_err(|source| BenchError::File { path: path.clone(), source })?;
        let mut command = Command::new(program);
        command.args(["lab", "up"]).arg(&path);
        lab.name = Some(name);
        output(command, "lab up", Duration::from_secs(30))?;
        if ground == Ground::Legs {
            for line in [
                "alpha: ip addr add 10.79.9.1/32 dev lo",
                "beta: ip addr add 10.79.9.2/32 dev lo",
                "alpha: sysctl -qw net.ipv4.fib_multipath_hash_policy=1",
                "beta: sysctl -qw net.ipv4.fib_multipath_hash_policy=1",
                "alpha: ip route add 10.79.9.2/32 nexthop via 10.79.0.2 dev leg0 nexthop via 10.79.1.2 dev leg1",
            ] {
                lab.make(line)?;
            }
        }
        Ok(lab)
    }

    /// Carries out a line of a case.
    pub(super) fn make(&mut self, line: &str) -> Result<(), BenchError> {
        let (place, command) = line.split_once(": ").ok_or_else(|| failed(line, "no place"))?;
        let mut shell = Command::new("sh");
        if place == "here" {
            shell.arg("-c").arg(format!("exec {command}")).stdin(Stdio::null()).process_group(0);
            let start = |source| BenchError::Start { program: line.to_owned(), source };
            self.beside.push(shell.spawn().map_err(start)?);
            return Ok(());
        }
        let name = self.name.as_deref().ok_or_else(|| failed(line, "no lab"))?;
        let mut exec = Command::new(self.program);
        exec.args(["lab", "exec", name, place, "sh", "-c", command]);
        output(exec, line, Duration::from_secs(20)).map(|_| ())
    }

    /// Its folder, for files of programs.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program under test.
    pub(super) fn program(&self) -> &Path {
        self.program
    }

    /// A command on a host: `lab exec` becomes it.
    pub(super) fn exec(&self, host: &str, line: &[&str]) -> Result<Command, BenchError> {
        let name = self.name.as_deref().ok_or_else(|| failed(host, "no lab"))?;
        let mut command = Command::new(self.program);
        command.args(["lab", "exec", name, host, "--"]).args(line);
        Ok(command)
    }

    /// `clearstream VERB` outside of the lab, its document.
    pub(super) fn outside(&self, verb: &str, options: &[String]) -> Result<Value, BenchError> {
        let mut command = Command::new(self.program);
        command.arg(verb).args(options).arg("--json");
        let text = output(command, verb, Duration::from_secs(60))?;
        serde_json::from_str(&text).map_err(|error| failed(verb, error.to_string()))
    }

    /// A control group with a quota, which the program is started in.
    pub(super) fn limit(&mut self, millicores: u32) -> Result<(), BenchError> {
        let root = Path::new("/sys/fs/cgroup");
        let unified = root.join("cgroup.controllers").exists();
        let parent = if unified { root.to_path_buf() } else { own_group(root) };
        let group = parent.join(format!("diagnosis-{}", std::process::id()));
        let write = |path: PathBuf, text: String| {
            fs::write(&path, text).map_err(|source| BenchError::File { path, source })
        };
        if unified {
            let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        }
        fs::create_dir_all(&group).map_err(|source| BenchError::File { path: group.clone(), source })?;
        self.group = Some(group.clone());
        let quota = u64::from(millicores) * 100;
        if unified {
            write(group.join("cpu.max"), format!("{quota} 100000"))
        } else {
            write(group.join("cpu.cfs_period_us"), "100000".to_owned())?;
            write(group.join("cpu.cfs_quota_us"), quota.to_string())
        }
    }

    /// `clearstream VERB` over the ground, its document.
    pub(super) fn run(&self, verb: &str, options: &str, more: &[&str]) -> Result<Value, BenchError> {
        let mut command = match &self.group {
            Some(group) => {
                let mut command = Command::new("sh");
                command
                    .args(["-c", "echo $$ > \"$0\"/cgroup.procs; exec \"$@\""])
                    .arg(group)
                    .arg(self.program);
                command
            }
            None => Command::new(self.program),
        };
        command.arg(verb);
        match &self.name {
            Some(name) => command.args(["--lab", name]),
            None => command.arg("localhost"),
        };
        command.args(more).args(options.split_whitespace()).arg("--json");
        let text = output(command, verb, Duration::from_secs(120))?;
        serde_json::from_str(&text).map_err(|error| failed(verb, error.to_string()))
    }

    /// Another flow over the same ground, which is not the one diagnosed.
    pub(super) fn beside(&mut self, options: &str) -> Result<(), BenchError> {
        let name = self.name.as_deref().ok_or_else(|| failed(options, "no lab"))?;
        let mut command = Command::new(self.program);
        command.args(["flow", "--lab", name]).args(options.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let start = |source| BenchError::Start { program: options.to_owned(), source };
        self.beside.push(command.spawn().map_err(start)?);
        // Until it has filled the line.
        thread::sleep(Duration::from_secs(4));
        Ok(())
    }

    /// Ends the parallel processes.
    pub(super) fn alone(&mut self) {
        for mut child in self.beside.drain(..) {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            let _ = child.wait();
        }
    }
}

/// The control group of this program, version 1: its weight is that of the rest.
fn own_group(root: &Path) -> PathBuf {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == "cpu").then(|| path.trim_start_matches('/').to_owned())
    });
    root.join("cpu").join(path.unwrap_or_default())
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        self.alone();
        if let Some(name) = self.name.take() {
            let mut command = Command::new(self.program);
            command.args(["lab", "down", &name]);
            let _ = output(command, "lab down", Duration::from_secs(30));
        }
        if let Some(group) = self.group.take() {
            let _ = fs::remove_dir(group);
        }
    }
}

fn file(name: &str, links: &[(&str, &str, &str)], receive_core: Option<u32>) -> String {
    let host = |name: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\ncongestion-control = \"cubic\"\n[host.sysctls]\n\
             \"net.ipv4.tcp_rmem\" = \"4096 131072 {AMPLE}\"\n\"net.ipv4.tcp_wmem\" = \"4096 16384 {AMPLE}\"\n\
             \"net.ipv4.tcp_no_metrics_save\" = \"1\"\n"
        )
    };
    let core = receive_core.map_or_else(String::new, |core| format!(", receive-cores = \"{core}\""));
    let links: String = links
        .iter()
        .map(|(interface, network, keys)| {
            format!(
                "[[link]]\nmtu = 9000\n{keys}\nends = [\n\
                 {{ host = \"alpha\", interface = \"{interface}\", addresses = [\"{network}.1/24\"] }},\n\
                 {{ host = \"beta\", interface = \"{interface}\", addresses = [\"{network}.2/24\"]{core} }},\n]\n"
            )
        })
        .collect();
    format!(
        "schema = \"clearstream.lab\"\nversion = 1\nname = \"{name}\"\ntitle = \"a cause\"\n{}{}{links}",
        host("alpha"),
        host("beta")
    )
}

/// Makes the cause of a case on its ground.
pub(super) fn made<'a>(program: &'a Path, case: &Case) -> Result<Lab<'a>, BenchError> {
    let mut lab = Lab::up(program, case.ground, case.receive_core)?;
    for line in case.make {
        lab.make(line)?;
    }
    if let Some(quota) = case.quota {
        lab.limit(quota)?;
    }
    Ok(lab)
}

/// Goodput of a flow on the same ground without the cause.
pub(super) fn without(program: &Path, case: &Case) -> Result<f64, BenchError> {
    let lab = Lab::up(program, case.ground_without.unwrap_or(case.ground), None)?;
    let document = lab.run("flow", case.options_without, &["-t", "3s", "-O", "1500ms"])?;
    document["summary"]["goodput_bps"].as_f64().ok_or_else(|| failed("flow", "no goodput"))
}
