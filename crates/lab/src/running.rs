//! Handle of a running lab: bring up, find, enter, change, take down.

use std::{
    io,
    net::IpAddr,
    path::Path,
    process::{ChildStdin, ChildStdout, Command, Stdio},
};

use clearstream_netlink::Prefix;
use clearstream_schema::{
    BitRate, CoreList, TimeSpan,
    lab::{DelayLineStats, LabFault, LabFile, LabHost},
};
use clearstream_sys::{document, interruption, namespace::NamespaceSet, process::keep_descriptors_from};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    LabError,
    keeper::{no_host, wait_for_end},
    protocol::{self, Request, Response, STOP_TIMEOUT, Start, Started, TIMEOUT, read_line, write_line},
    services,
    state::{self, Folder, INSTANCE_VARIABLE, State},
};

/// Handle of a running lab. Dropping it has no effect on the lab.
#[derive(Debug, Clone)]
pub struct RunningLab {
    folder: Folder,
    state: State,
}

/// Brings a lab up and returns when its links work. `keeper` is the command
/// that calls [`crate::keeper::run`]; it continues after this process has
/// exited, and inherits none of its locks and pipes.
pub fn up(file: &LabFile, keeper: Command) -> Result<RunningLab, LabError> {
    start(file, keeper, false).map(|(lab, _)| lab)
}

/// Brings a lab up like [`up`], owned by this process.
pub fn up_owned(file: &LabFile, keeper: Command) -> Result<OwnedLab, LabError> {
    let (lab, owner) = start(file, keeper, true)?;
    Ok(OwnedLab { lab, _owner: owner })
}

/// A lab that is taken down when this is dropped, and when the process that
/// started it exits, for any reason.
#[derive(Debug)]
pub struct OwnedLab {
    lab: RunningLab,
    /// The keeper holds the other end of this pipe, and takes the lab down when
    /// the kernel closes ours.
    _owner: Option<ChildStdin>,
}

impl OwnedLab {
    /// Returns the handle of the lab.
    pub fn lab(&self) -> &RunningLab {
        &self.lab
    }
}

impl Drop for OwnedLab {
    fn drop(&mut self) {
        // Processes inside die with the keeper of their namespaces.
        let _ = down(&self.lab.state.file.name);
    }
}

fn start(
    file: &LabFile,
    mut keeper: Command,
    owned: bool,
) -> Result<(RunningLab, Option<ChildStdin>), LabError> {
    if Folder::of(&file.name)?.connect()?.is_some() {
        return Err(LabError::NameTaken { name: file.name.clone() });
    }
    keep_descriptors_from(&mut keeper);
    let mut child = keeper
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(LabError::system("start the process that holds the lab"))?;
    let mut owner = child.stdin.take();
    let message = Start { lab: file.clone(), owned };
    let sent = owner.as_mut().map_or(Ok(()), |stdin| write_line(stdin, &message));
    // A keeper that exited early has reported the error, which is more
    // specific.
    let stdout = child.stdout.take();
    // Reap the child, so that it does not stay a zombie.
    std::thread::spawn(move || child.wait());
    let is_ready = stdout.as_ref().is_none_or(is_readable);
    if !is_ready {
        // Without its owner the lab goes down as soon as it is up.
        return Err(LabError::Interrupted { name: file.name.clone() });
    }
    let started = stdout.ok_or_else(|| io::ErrorKind::BrokenPipe.into()).and_then(read_line::<Started>);
    sent.map_err(LabError::system("describe the lab to the process that holds it")).or_else(|error| {
        match started {
            Ok(_) => Ok(()),
            Err(_) => Err(error),
        }
    })?;
    match started.map_err(LabError::system("receive the reply of the process that holds the lab"))? {
        Started::Ready => Ok((open(&file.name)?, owner)),
        Started::Failed(error) => Err(error.into()),
    }
}

/// Waits until the keeper has replied or ended; false when a person asked to stop meanwhile.
fn is_readable(stdout: &ChildStdout) -> bool {
    let step = Timespec::try_from(interruption::CHECK_INTERVAL).unwrap_or_default();
    loop {
        let mut awaited = [PollFd::new(stdout, PollFlags::IN)];
        match poll(&mut awaited, Some(&step)) {
            Ok(0) | Err(Errno::INTR) if interruption::is_requested() => return false,
            Ok(0) | Err(Errno::INTR) => {}
            // An error shows when it is read.
            Ok(_) | Err(_) => return true,
        }
    }
}

/// Finds a running lab.
pub fn open(name: &str) -> Result<RunningLab, LabError> {
    // An invalid name has no folder either.
    let fits = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let not_running = || LabError::NotRunning { name: name.to_owned() };
    if !fits {
        return Err(not_running());
    }
    let folder = Folder::of(name)?;
    folder.connect()?.ok_or_else(not_running)?;
    match folder.read() {
        Ok(state) => Ok(RunningLab { state, folder }),
        // It is coming up or going down.
        Err(LabError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Err(not_running()),
        Err(error) => Err(error),
    }
}

/// Returns every running lab, by name.
pub fn list() -> Result<Vec<RunningLab>, LabError> {
    let mut running = Vec::new();
    for name in state::names()? {
        match open(&name) {
            Ok(lab) => running.push(lab),
            Err(LabError::NotRunning { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(running)
}

/// Takes a lab down: ends its processes, and returns when it is gone. Leftovers
/// of a dead lab of this name are cleaned up, too.
pub fn down(name: &str) -> Result<(), LabError> {
    let lab = match open(name) {
        Err(LabError::NotRunning { .. }) => {
            state::clear_dead()?;
            let running = list()?.iter().map(|lab| lab.file().name.clone()).collect();
            return Err(LabError::NothingToStop { name: name.to_owned(), running });
        }
        outcome => outcome?,
    };
    let client = lab.folder.connect()?.ok_or_else(|| LabError::NotRunning { name: name.to_owned() })?;
    protocol::request_within(&client, &Request::Stop, STOP_TIMEOUT)
        .map_err(LabError::system(format!("take the lab {name} down")))?;
    wait_for_end(&client, TIMEOUT);
    Ok(())
}

impl RunningLab {
    /// Returns the lab file, with changes made before this handle was opened.
    pub fn file(&self) -> &LabFile {
        &self.state.file
    }

    /// Returns the folder of the lab's own files, which is removed with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the folder of the mount points of services; every host sees mounts of its own there.
    pub fn mounts(&self) -> std::path::PathBuf {
        services::mounts(self.folder.path())
    }

    /// Returns the whole path of a directory on a host: an absolute one, or one below the name of a mount there.
    ///
    /// # Errors
    /// [`LabError::NoMount`]: a folder that nothing is mounted on would be of another file system.
    pub fn directory(&self, host: &str, directory: &str) -> Result<std::path::PathBuf, LabError> {
        let path = Path::new(directory);
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let mount = path.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        let has_mount = |host: &&LabHost| {
            host.services.iter().any(|service| service.mount.as_deref() == Some(mount.as_str()))
        };
        let having: Vec<&str> =
            self.state.file.hosts.iter().filter(has_mount).map(|host| host.name.as_str()).collect();
        if having.contains(&host) {
            return Ok(self.mounts().join(path));
        }
        let known = match having.is_empty() {
            true => "write the whole path of a directory".to_owned(),
            false => format!("it is on {}", having.join(", ")),
        };
        let (lab, host) = (self.state.file.name.clone(), host.to_owned());
        Err(LabError::NoMount { lab, host, mount, known })
    }

    /// Returns the process ID of the keeper.
    pub fn keeper_pid(&self) -> u32 {
        self.state.keeper_pid
    }

    /// Returns the namespaces of a host, to open sockets in.
    pub fn namespaces(&self, host: &str) -> Result<NamespaceSet, LabError> {
        // With the keeper the host's process has ended, and its process ID may
        // have been reused.
        drop(self.connect()?);
        let found = self.state.hosts.iter().find(|state| state.name == host);
        let found = found.ok_or_else(|| no_host(&self.state.file, host))?;
        if !found.is_alive() {
            return Err(LabError::HostDead { lab: self.state.file.name.clone(), host: host.to_owned() });
        }
        NamespaceSet::of_process(found.pid).map_err(LabError::system(format!("enter the host {host}")))
    }

    /// Returns the hosts whose process has exited although the lab runs: killed
    /// by a user, or by the OOM killer.
    pub fn dead_hosts(&self) -> Vec<String> {
        let dead = self.state.hosts.iter().filter(|host| !host.is_alive());
        dead.map(|host| host.name.clone()).collect()
    }

    /// Configures a command to run on a host of the lab: in its namespaces, in
    /// the same directory.
    pub fn command(&self, host: &str, mut command: Command) -> Result<Command, LabError> {
        let entered = self.namespaces(host)?.enter_with(&mut command);
        entered.map_err(LabError::system(format!("enter the host {host}")))?;
        command.env(INSTANCE_VARIABLE, &self.state.instance);
        Ok(command)
    }

    /// Returns the link address (MAC) of an interface of a host.
    pub fn link_address(&self, host: &str, interface: &str) -> Result<String, LabError> {
        let path = Path::new("/sys/class/net").join(interface).join("address");
        let read = self.namespaces(host)?.run(|| document::read_text(&path, document::DOCUMENT_BYTES));
        let text = read.map_err(LabError::system(format!("enter the host {host}")))?;
        text.map(|text| text.trim().to_owned()).map_err(LabError::file("read", path))
    }

    /// Returns the addresses of a host, in the order of the lab file.
    pub fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LabError> {
        if !self.state.file.hosts.iter().any(|state| state.name == host) {
            return Err(no_host(&self.state.file, host));
        }
        let ends = self.state.file.ends().filter(|end| end.host == host);
        let prefixes = ends.flat_map(|end| &end.addresses).filter_map(|text| text.parse::<Prefix>().ok());
        Ok(prefixes.map(|prefix| prefix.address).collect())
    }

    /// Returns the first address of a host.
    pub fn address(&self, host: &str) -> Result<IpAddr, LabError> {
        self.addresses(host)?.first().copied().ok_or_else(|| LabError::NoLink {
            lab: self.state.file.name.clone(),
            what: format!("address for {host}"),
            known: "links without one".to_owned(),
        })
    }

    /// Sets the MTU, in bytes, of every end of a link or switch (index in the
    /// file from 0, links before switches).
    pub fn set_mtu(&self, link: usize, mtu: u32) -> Result<(), LabError> {
        self.change(&Request::SetMtu { link, mtu })
    }

    /// Sets the one-way delay of a link (index in the file from 0). It must be a
    /// delay line, or have netem.
    pub fn set_delay(&self, link: usize, delay: TimeSpan) -> Result<(), LabError> {
        self.change(&Request::SetDelay { link, delay })
    }

    /// Sets the rate of each direction of a link, unlimited when absent; as
    /// [`Self::set_delay`].
    pub fn set_rate(&self, link: usize, rate: Option<BitRate>) -> Result<(), LabError> {
        self.change(&Request::SetRate { link, rate })
    }

    /// Steers the packets that an interface of a host receives to these cores;
    /// `None` disables steering.
    pub fn set_receive_cores(
        &self,
        host: &str,
        interface: &str,
        cores: Option<&CoreList>,
    ) -> Result<(), LabError> {
        let (host, interface, cores) = (host.to_owned(), interface.to_owned(), cores.cloned());
        self.change(&Request::SetReceiveCores { host, interface, cores })
    }

    /// Returns the statistics of the delay lines since the lab is up or since
    /// the last reset: two directions for each link that is one.
    pub fn delay_line_stats(&self) -> Result<Vec<DelayLineStats>, LabError> {
        match self.request(&Request::Stats)? {
            Response::Stats(stats) => Ok(stats),
            _ => Err(LabError::system("read the delay lines")(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Resets the statistics of the delay lines, as before a trial.
    pub fn reset_delay_line_stats(&self) -> Result<(), LabError> {
        self.change(&Request::ResetStats)
    }

    /// Returns the injected faults, in the order of injection.
    pub fn faults(&self) -> Result<Vec<LabFault>, LabError> {
        match self.request(&Request::Faults)? {
            Response::Faults(faults) => Ok(faults),
            _ => Err(LabError::system("read the faults")(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Injects a fault; it is in effect when this returns. A fault that is
    /// injected already stays. A fault that is impossible at this place is
    /// rejected.
    pub fn inject_fault(&self, fault: &LabFault) -> Result<(), LabError> {
        let mut faults = self.faults()?;
        if !faults.contains(fault) {
            faults.push(fault.clone());
        }
        self.change(&Request::SetFaults(faults))
    }

    /// Clears faults: all, or those of `host`, or of one of its interfaces.
    /// Returns the cleared faults.
    pub fn clear_faults(
        &self,
        host: Option<&str>,
        interface: Option<&str>,
    ) -> Result<Vec<LabFault>, LabError> {
        if let Some(host) = host.filter(|host| !self.state.file.hosts.iter().any(|it| it.name == *host)) {
            return Err(no_host(&self.state.file, host));
        }
        let matches = |fault: &LabFault| {
            host.is_none_or(|host| fault.host == host)
                && interface.is_none_or(|name| fault.interface.as_deref() == Some(name))
        };
        let (cleared, stay) = self.faults()?.into_iter().partition(matches);
        self.change(&Request::SetFaults(stay))?;
        Ok(cleared)
    }

    fn change(&self, request: &Request) -> Result<(), LabError> {
        self.request(request).map(|_| ())
    }

    fn request(&self, request: &Request) -> Result<Response, LabError> {
        let name = &self.state.file.name;
        let response = protocol::request(&self.connect()?, request)
            .map_err(LabError::system(format!("send a request to the keeper of {name}")))?;
        match response {
            Response::Failed(error) => Err(error.into()),
            response => Ok(response),
        }
    }

    fn connect(&self) -> Result<std::os::unix::net::UnixStream, LabError> {
        self.folder.connect()?.ok_or_else(|| LabError::NotRunning { name: self.state.file.name.clone() })
    }
}
