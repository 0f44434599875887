//! Where a directory is: on this host, or on one of a lab.

use std::{
    io,
    path::{Path, PathBuf},
};

use clearstream_control::{Peer, PeerError, StartCause, spawn};
use clearstream_lab::{OwnedLab, RunningLab};
use clearstream_schema::{failure::ended_server, storage::host_names};

use crate::{
    endpoints::{agent_command, open_lab},
    exit::CommandError,
};

/// Options that choose the host.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct PlaceArgs {
    /// Directories are of this lab (started for the command when it is not running): DIR is the name of a
    /// mount, as in `native`, or a path
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Host of the lab that has the mount (default: the last one of the file)
    #[arg(long, value_name = "HOST", requires = "lab")]
    client: Option<String>,
}

/// A host with directories.
pub(super) enum Place {
    /// This one.
    Here,
    /// One of a lab.
    Lab(Box<LabMounts>),
}

/// Mounts of a lab, seen by one of its hosts.
pub(super) struct LabMounts {
    lab: RunningLab,
    /// The host.
    pub(super) host: String,
    /// The lab that this command brought up; it goes down with this.
    _own: Option<OwnedLab>,
}

impl PlaceArgs {
    /// Opens the lab, where one was named.
    pub(super) fn open(&self) -> Result<Place, CommandError> {
        let Some(name) = &self.lab else { return Ok(Place::Here) };
        let (lab, own) = open_lab(name)?;
        let last = lab.file().hosts.iter().rev().find(|host| !host.router).map(|host| host.name.clone());
        let host = self.client.clone().or(last);
        let host = host.ok_or_else(|| CommandError::usage("the lab has no host"))?;
        Ok(Place::Lab(Box::new(LabMounts { lab, host, _own: own })))
    }
}

impl Place {
    /// The whole path of a directory there, or on the hosts of an MPI job.
    pub(super) fn directory(&self, directory: &Path, job: Option<&str>) -> Result<String, CommandError> {
        let Self::Lab(lab) = self else { return absolute(directory) };
        let hosts = job.map_or_else(|| vec![lab.host.clone()], host_names);
        let paths = hosts.iter().map(|host| lab.directory(host, &directory.to_string_lossy()));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        paths.into_iter().next().ok_or_else(|| CommandError::usage("--hosts has no name"))
    }

    /// The lab, for a job on its hosts.
    pub(super) fn lab(&self) -> Option<&RunningLab> {
        match self {
            Self::Here => None,
            Self::Lab(lab) => Some(&lab.lab),
        }
    }

    /// Starts an agent there.
    pub(super) fn start(&self) -> Result<Peer, PeerError> {
        match self {
            Self::Here => start_local(),
            Self::Lab(lab) => lab.start(&lab.host),
        }
    }
}

impl LabMounts {
    /// A path, or the name of a mount.
    pub(super) fn directory(&self, host: &str, text: &str) -> Result<String, CommandError> {
        Ok(self.lab.directory(host, text)?.to_string_lossy().into_owned())
    }

    /// Starts an agent on a host.
    pub(super) fn start(&self, host: &str) -> Result<Peer, PeerError> {
        let command = agent_command().map_err(|error| not_started(host, &error))?;
        let command = self.lab.command(host, command).map_err(|error| not_started(host, &error))?;
        spawn(command, host)
    }
}

/// Starts an agent on this host, a process of its own.
pub(super) fn start_local() -> Result<Peer, PeerError> {
    let name = "process of the test";
    spawn(agent_command().map_err(|error| not_started(name, &error))?, name)
}

fn not_started(name: &str, error: &dyn std::error::Error) -> PeerError {
    PeerError::Start { name: name.to_owned(), cause: StartCause::Program, message: error.to_string() }
}

/// The whole path of a directory of this host.
pub(super) fn absolute(directory: &Path) -> Result<String, CommandError> {
    let failed = |source: io::Error| CommandError::File {
        what: "open the directory".to_owned(),
        path: directory.to_owned(),
        source: match ended_server(&source) {
            Some(why) => io::Error::new(source.kind(), format!("{source}: {why}")),
            None => source,
        },
    };
    let path: PathBuf = directory.canonicalize().map_err(failed)?;
    if !path.metadata().map_err(failed)?.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let invalid = || CommandError::Usage(format!("{}: the path is not UTF-8", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(invalid)
}
