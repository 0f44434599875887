//! `clearstream storage semantics`

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use clearstream_control::{Peer, PeerError, StartCause, spawn};
use clearstream_lab::{OwnedLab, RunningLab};
use clearstream_schema::TimeSpan;
use clearstream_storage::semantics::{PeerMount, SemanticsConfig, run};

use crate::{
    endpoints::{FamilyArgs, agent_command, open_lab, ssh_agent},
    exit::CommandError,
    interrupt,
    output::{self, Output},
};

/// Check which file semantics a mount gives: locks, atomicity, coherence, features.
#[derive(Debug, clap::Args)]
pub struct SemanticsArgs {
    /// Directory of the mount; the checks work in a new folder in it and remove that. With --lab, a mount
    /// of the lab by its name, as in `native`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The same directory by another mount, on this host, on another one that ssh reaches, or of the lab
    #[arg(long, value_name = "[HOST:]DIR2")]
    peer: Option<String>,
    /// Check mounts of this lab (started for the checks when it is not running)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["ssh_options", "remote_program"])]
    lab: Option<String>,
    /// Host of the lab that has the mount (default: the last one of the file)
    #[arg(long, value_name = "HOST", requires = "lab")]
    client: Option<String>,
    /// Maximum wait for a change to become visible at the other mount (attribute caches of NFS: 70s)
    #[arg(long, value_name = "TIME", default_value = "2s")]
    wait: TimeSpan,
    /// Maximum duration of all checks
    #[arg(long, value_name = "TIME", default_value = "120s")]
    timeout: TimeSpan,
    /// Option for ssh: as it is when it begins with a dash (`-p2222`), else for `-o` (`Port=2222`)
    #[arg(long = "ssh-option", value_name = "OPTION", allow_hyphen_values = true, requires = "peer")]
    ssh_options: Vec<String>,
    /// Name or path of clearstream on the other host
    #[arg(long, value_name = "PROGRAM", default_value = "clearstream", requires = "peer")]
    remote_program: String,
    /// Address family of control.
    #[command(flatten)]
    family: FamilyArgs,
}

/// Checks that are done before the time left is estimated.
const TIMED_FROM: usize = 5;

impl SemanticsArgs {
    /// Runs the checks and prints the table.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        // Reported as what it is, before the first agent.
        drop(agent_command()?);
        let lab =
            self.lab.as_deref().map(|name| LabMounts::open(name, self.client.as_deref())).transpose()?;
        let directory = match &lab {
            Some(lab) => lab.directory(&self.directory.to_string_lossy()),
            None => absolute(&self.directory)?,
        };
        let peer = match (&lab, &self.peer) {
            (_, None) => None,
            (Some(lab), Some(peer)) => Some(lab.peer_mount(peer)?),
            (None, Some(peer)) => Some(self.peer_mount(peer)?),
        };
        let start = || match &lab {
            Some(lab) => lab.start(&lab.host),
            None => start_local(),
        };
        let config = SemanticsConfig { directory, wait: self.wait.to_std(), timeout: self.timeout.to_std() };
        let started = Instant::now();
        let mut on_check = |number: usize, count: usize| {
            // Of the time of those before; the first ones say nothing about it.
            let Some(mean) = started.elapsed().checked_div(number as u32).filter(|_| number >= TIMED_FROM)
            else {
                return;
            };
            let left = mean.saturating_mul((count - number) as u32);
            out.progress(left, &format!("check {} of {count}", number + 1));
        };
        let found = run(&config, &start, peer, &stop, &mut on_check)?;
        out.result(&found, || output::semantics::table(&found))?;
        if found.complete {
            return Ok(());
        }
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(CommandError::Interrupted("later checks did not run".to_owned()));
        }
        Err(CommandError::Partial(format!(
            "the checks took longer than {}: later ones did not run (--timeout)",
            self.timeout
        )))
    }

    fn peer_mount(&self, peer: &str) -> Result<PeerMount, CommandError> {
        let Some((host, directory)) = split(peer) else {
            let directory = absolute(Path::new(peer))?;
            return Ok(PeerMount { peer: start_local()?, host: None, directory });
        };
        if !directory.starts_with('/') {
            let message = format!("--peer {peer}: write the whole path of the directory, as in {host}:/mnt");
            return Err(CommandError::Usage(message));
        }
        let agent = match host {
            "localhost" => start_local()?,
            _ => ssh_agent(host, host, &self.remote_program, &self.ssh_options, self.family)?,
        };
        Ok(PeerMount { peer: agent, host: Some(host.to_owned()), directory: directory.to_owned() })
    }
}

/// Mounts of a lab, seen by one of its hosts.
struct LabMounts {
    lab: RunningLab,
    host: String,
    /// The lab that this command brought up; it goes down with this.
    _own: Option<OwnedLab>,
}

impl LabMounts {
    fn open(name: &str, host: Option<&str>) -> Result<Self, CommandError> {
        let (lab, own) = open_lab(name)?;
        let last = lab.file().hosts.iter().rev().find(|host| !host.router).map(|host| host.name.clone());
        let host = host.map(str::to_owned).or(last);
        let host = host.ok_or_else(|| CommandError::usage("the lab has no host"))?;
        Ok(Self { lab, host, _own: own })
    }

    /// A path, or the name of a mount.
    fn directory(&self, text: &str) -> String {
        self.lab.mounts().join(text).to_string_lossy().into_owned()
    }

    fn start(&self, host: &str) -> Result<Peer, PeerError> {
        let failed =
            |message: String| PeerError::Start { name: host.to_owned(), cause: StartCause::Program, message };
        let command = agent_command().map_err(|error| failed(error.to_string()))?;
        let command = self.lab.command(host, command).map_err(|error| failed(error.to_string()))?;
        spawn(command, host)
    }

    /// `HOST:DIR2`, or another mount of the same host.
    fn peer_mount(&self, peer: &str) -> Result<PeerMount, CommandError> {
        let (host, directory) = split(peer).unwrap_or((&self.host, peer));
        let other = (host != self.host).then(|| host.to_owned());
        Ok(PeerMount { peer: self.start(host)?, host: other, directory: self.directory(directory) })
    }
}

/// Host and directory, as scp(1) has them: a colon behind the first slash is part of a path.
fn split(peer: &str) -> Option<(&str, &str)> {
    let end = if peer.starts_with('[') { peer.find(']')? } else { 0 };
    let colon = end + peer[end..].find(':')?;
    if peer[..colon].contains('/') {
        return None;
    }
    let host = &peer[..colon];
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some((host, &peer[colon + 1..]))
}

fn start_local() -> Result<Peer, PeerError> {
    let name = "process of the checks";
    match agent_command() {
        Ok(command) => spawn(command, name),
        Err(error) => Err(PeerError::Start {
            name: name.to_owned(),
            cause: StartCause::Program,
            message: error.to_string(),
        }),
    }
}

fn absolute(directory: &Path) -> Result<String, CommandError> {
    let failed = |source| CommandError::File {
        what: "open the directory".to_owned(),
        path: directory.to_owned(),
        source,
    };
    let path = directory.canonicalize().map_err(failed)?;
    if !path.is_dir() {
        return Err(failed(std::io::ErrorKind::NotADirectory.into()));
    }
    let invalid = || CommandError::Usage(format!("{}: the path is not UTF-8", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_directory_are_split_as_scp_does() {
        assert_eq!(split("dtn2:/mnt/a:b"), Some(("dtn2", "/mnt/a:b")));
        assert_eq!(split("me@dtn2:/mnt"), Some(("me@dtn2", "/mnt")));
        assert_eq!(split("[2001:db8::2]:/mnt"), Some(("2001:db8::2", "/mnt")));
        assert_eq!(split("/mnt/a:b"), None);
        assert_eq!(split("./a:b"), None);
        assert_eq!(split("mnt"), None);
    }
}
