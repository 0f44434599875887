//! `clearstream storage semantics`

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use clearstream_control::PeerError;
use clearstream_schema::semantics::SemanticsConfig;
use clearstream_storage::{
    Ran,
    semantics::{PeerMount, SemanticsError, run},
};

use super::place::{LabMounts, Place, PlaceArgs, absolute, start_local};
use crate::{
    endpoints::{FamilyArgs, agent_command, ssh_agent},
    exit::CommandError,
    interrupt,
    output::{self, Output},
};

/// Check which file semantics a mount gives: locks, atomicity, coherence, features.
#[derive(Debug, clap::Args)]
pub struct SemanticsArgs {
    /// Directory of the mount; the checks work in a new folder in it and remove that
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The same directory by another mount, on this host, on another one that ssh reaches, or of the lab
    #[arg(long, value_name = "[HOST:]DIR2")]
    peer: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Time limits of the checks.
    #[command(flatten)]
    config: SemanticsConfig,
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
        let place = self.place.open()?;
        let directory = place.directory(&self.directory, None)?;
        let peer = match (&place, &self.peer) {
            (_, None) => None,
            (Place::Lab(lab), Some(peer)) => Some(peer_in_lab(lab, peer)?),
            (Place::Here, Some(peer)) => Some(self.peer_mount(peer)?),
        };
        let config = SemanticsConfig { directory, ..self.config.clone() };
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
        let too_long = || {
            CommandError::Partial(format!(
                "the checks took longer than {}: later ones did not run (--timeout)",
                config.timeout
            ))
        };
        let is_stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
        let found = match run(&config, &|| place.start(), peer, &stop, &mut on_check) {
            // Before the first one.
            Err(SemanticsError::Peer(PeerError::Stopped { .. })) if !is_stopped() => return Err(too_long()),
            found => found?,
        };
        let Ran { found, error } = found;
        out.result(&found, || output::semantics::table(&found))?;
        if let Some(error) = error {
            return Err(error.into());
        }
        if found.complete {
            return Ok(());
        }
        if is_stopped() {
            return Err(CommandError::Interrupted("later checks did not run".to_owned()));
        }
        Err(too_long())
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

/// `HOST:DIR2`, or another mount of the same host.
fn peer_in_lab(lab: &LabMounts, peer: &str) -> Result<PeerMount, CommandError> {
    let (host, directory) = split(peer).unwrap_or((&lab.host, peer));
    let other = (host != lab.host).then(|| host.to_owned());
    Ok(PeerMount { peer: lab.start(host)?, host: other, directory: lab.directory(host, directory)? })
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
