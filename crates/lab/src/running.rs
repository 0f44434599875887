//! A running lab as its users see it: bring up, find, enter, change, take down.

use std::{
    net::IpAddr,
    path::Path,
    process::{ChildStdin, Command, Stdio},
};

use clearstream_netlink::Prefix;
use clearstream_schema::{
    CoreList,
    lab::{DelayLineStats, LabFault, LabFile},
};
use clearstream_sys::{namespace::NamespaceSet, process::keep_descriptors_from};

use crate::{
    LabError,
    keeper::{no_host, wait_for_end},
    state::{self, Folder, INSTANCE_VARIABLE, State},
    wire::{Answer, PATIENCE, Request, Start, Started, ask, read_line, write_line},
};

/// A handle on a running lab. Dropping it changes nothing.
#[derive(Debug, Clone)]
pub struct RunningLab {
    folder: Folder,
    state: State,
}

/// Brings a lab up and returns when its links work. `keeper` is the command
/// that calls [`crate::keeper::run`]; it goes on after this process has ended,
/// and holds nothing that this process was given (locks, pipes).
pub fn up(file: &LabFile, keeper: Command) -> Result<RunningLab, LabError> {
    start(file, keeper, false).map(|(lab, _)| lab)
}

/// Brings a lab up as [`up`] does, for this process alone.
pub fn up_owned(file: &LabFile, keeper: Command) -> Result<OwnedLab, LabError> {
    let (lab, owner) = start(file, keeper, true)?;
    Ok(OwnedLab { lab, _owner: owner })
}

/// A lab that goes down when this is dropped, and when the process that
/// started it ends, however it ends.
#[derive(Debug)]
pub struct OwnedLab {
    lab: RunningLab,
    /// The keeper holds the other end of this pipe, and takes the lab down
    /// when the kernel closes ours.
    _owner: Option<ChildStdin>,
}

impl OwnedLab {
    /// The handle on the lab.
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
    // A keeper that ended early has said why, which is the better message.
    let started = child
        .stdout
        .take()
        .ok_or_else(|| std::io::ErrorKind::BrokenPipe.into())
        .and_then(read_line::<Started>);
    // Nobody else waits for it, and it must not stay as a zombie of ours.
    std::thread::spawn(move || child.wait());
    sent.map_err(LabError::system("describe the lab to the process that holds it")).or_else(|error| {
        match started {
            Ok(_) => Ok(()),
            Err(_) => Err(error),
        }
    })?;
    match started.map_err(LabError::system("hear from the process that holds the lab"))? {
        Started::Ready => Ok((open(&file.name)?, owner)),
        Started::Failed(error) => Err(error.into()),
    }
}

/// Finds a running lab.
pub fn open(name: &str) -> Result<RunningLab, LabError> {
    // A name that is no name has no folder either.
    let fits = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let not_running = || LabError::NotRunning { name: name.to_owned() };
    if !fits {
        return Err(not_running());
    }
    let folder = Folder::of(name)?;
    folder.connect()?.ok_or_else(not_running)?;
    Ok(RunningLab { state: folder.read()?, folder })
}

/// Every running lab, by name.
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

/// Takes a lab down: ends what runs in it, and returns when it is gone. What a
/// dead lab of this name left is cleared away, too.
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
    ask(&client, &Request::Stop).map_err(LabError::system(format!("take the lab {name} down")))?;
    wait_for_end(&client, PATIENCE);
    Ok(())
}

impl RunningLab {
    /// The lab file, with what was changed until this handle was opened.
    pub fn file(&self) -> &LabFile {
        &self.state.file
    }

    /// Folder of the lab's own files, which goes with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Process number of the keeper.
    pub fn keeper_pid(&self) -> u32 {
        self.state.keeper_pid
    }

    /// The namespaces of a host, to open sockets in.
    pub fn namespaces(&self, host: &str) -> Result<NamespaceSet, LabError> {
        // A keeper that has died has taken the host's process with it, and its
        // number may be another's by now.
        drop(self.connect()?);
        let found = self.state.hosts.iter().find(|state| state.name == host);
        let found = found.ok_or_else(|| no_host(&self.state.file, host))?;
        if !found.is_alive() {
            return Err(LabError::HostDead { lab: self.state.file.name.clone(), host: host.to_owned() });
        }
        NamespaceSet::of_process(found.pid).map_err(LabError::system(format!("enter the host {host}")))
    }

    /// Hosts whose process has ended although the lab runs: killed by somebody,
    /// or by the kernel for want of memory.
    pub fn dead_hosts(&self) -> Vec<String> {
        let dead = self.state.hosts.iter().filter(|host| !host.is_alive());
        dead.map(|host| host.name.clone()).collect()
    }

    /// Makes a command run on a host of the lab: in its namespaces, in the
    /// directory it would otherwise run in.
    pub fn command(&self, host: &str, mut command: Command) -> Result<Command, LabError> {
        let entered = self.namespaces(host)?.enter_with(&mut command);
        entered.map_err(LabError::system(format!("enter the host {host}")))?;
        command.env(INSTANCE_VARIABLE, &self.state.instance);
        Ok(command)
    }

    /// Link address (MAC) of an interface of a host.
    pub fn link_address(&self, host: &str, interface: &str) -> Result<String, LabError> {
        let path = Path::new("/sys/class/net").join(interface).join("address");
        let read = self.namespaces(host)?.run(|| std::fs::read_to_string(&path));
        let text = read.map_err(LabError::system(format!("enter the host {host}")))?;
        text.map(|text| text.trim().to_owned()).map_err(LabError::file("read", path))
    }

    /// Addresses of a host, in the order of the lab file.
    pub fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LabError> {
        if !self.state.file.hosts.iter().any(|state| state.name == host) {
            return Err(no_host(&self.state.file, host));
        }
        let ends = self.state.file.ends().filter(|end| end.host == host);
        let prefixes = ends.flat_map(|end| &end.addresses).filter_map(|text| text.parse::<Prefix>().ok());
        Ok(prefixes.map(|prefix| prefix.address).collect())
    }

    /// First address of a host.
    pub fn address(&self, host: &str) -> Result<IpAddr, LabError> {
        self.addresses(host)?.first().copied().ok_or_else(|| LabError::NoLink {
            lab: self.state.file.name.clone(),
            what: format!("address for {host}"),
            known: "links without one".to_owned(),
        })
    }

    /// Sets the MTU, in bytes, of every end of a link or switch (number in the
    /// file from 0, links before switches).
    pub fn set_mtu(&self, link: usize, mtu: u32) -> Result<(), LabError> {
        self.change(&Request::SetMtu { link, mtu })
    }

    /// Steers what an interface of a host receives to these cores; `None`
    /// leaves it to the kernel.
    pub fn set_receive_cores(
        &self,
        host: &str,
        interface: &str,
        cores: Option<&CoreList>,
    ) -> Result<(), LabError> {
        let (host, interface, cores) = (host.to_owned(), interface.to_owned(), cores.cloned());
        self.change(&Request::SetReceiveCores { host, interface, cores })
    }

    /// What the delay lines did since the lab is up or was told to count anew:
    /// two directions for each link that is one.
    pub fn delay_line_stats(&self) -> Result<Vec<DelayLineStats>, LabError> {
        match self.ask(&Request::Stats)? {
            Answer::Stats(stats) => Ok(stats),
            _ => Err(LabError::system("read the delay lines")(std::io::ErrorKind::InvalidData.into())),
        }
    }

    /// Lets the delay lines count anew, as before a trial.
    pub fn reset_delay_line_stats(&self) -> Result<(), LabError> {
        self.change(&Request::ResetStats)
    }

    /// What is broken on purpose, in the order it was asked for.
    pub fn faults(&self) -> Result<Vec<LabFault>, LabError> {
        match self.ask(&Request::Faults)? {
            Answer::Faults(faults) => Ok(faults),
            _ => Err(LabError::system("read the faults")(std::io::ErrorKind::InvalidData.into())),
        }
    }

    /// Breaks something; it works when this returns. What is broken like that
    /// already stays so. A fault that this place cannot have is refused.
    pub fn fault(&self, fault: &LabFault) -> Result<(), LabError> {
        let mut faults = self.faults()?;
        if !faults.contains(fault) {
            faults.push(fault.clone());
        }
        self.change(&Request::SetFaults(faults))
    }

    /// Mends what is broken: all, or what is at `host`, or at one interface of
    /// it. Gives the faults that were.
    pub fn clear_faults(
        &self,
        host: Option<&str>,
        interface: Option<&str>,
    ) -> Result<Vec<LabFault>, LabError> {
        if let Some(host) = host.filter(|host| !self.state.file.hosts.iter().any(|it| it.name == *host)) {
            return Err(no_host(&self.state.file, host));
        }
        let meant = |fault: &LabFault| {
            host.is_none_or(|host| fault.host == host)
                && interface.is_none_or(|name| fault.interface.as_deref() == Some(name))
        };
        let (gone, stay) = self.faults()?.into_iter().partition(meant);
        self.change(&Request::SetFaults(stay))?;
        Ok(gone)
    }

    fn change(&self, request: &Request) -> Result<(), LabError> {
        self.ask(request).map(|_| ())
    }

    fn ask(&self, request: &Request) -> Result<Answer, LabError> {
        let name = &self.state.file.name;
        let answer =
            ask(&self.connect()?, request).map_err(LabError::system(format!("ask the keeper of {name}")))?;
        match answer {
            Answer::Failed(error) => Err(error.into()),
            answer => Ok(answer),
        }
    }

    fn connect(&self) -> Result<std::os::unix::net::UnixStream, LabError> {
        self.folder.connect()?.ok_or_else(|| LabError::NotRunning { name: self.state.file.name.clone() })
    }
}
