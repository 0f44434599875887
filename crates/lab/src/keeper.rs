//! Keeper: the process that owns a lab; creates it, serves requests, takes it
//! down.

use std::{
    fs::File,
    io::{stdin, stdout},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    time::{Duration, Instant},
};

use clearstream_admission::AcceptFault;
use clearstream_schema::{
    CoreList,
    lab::{LabFile, LabHost, LabLink, LabSwitch},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

use crate::{
    LabError,
    error::SentError,
    faults, file,
    file::destination,
    links::{self, Line},
    mounts,
    node::Node,
    protocol::{Request, Response, Start, Started, read_line, write_line},
    services::{self, Service},
    state::{self, Folder, HostState, Lock, State},
    switches::Switch,
};

/// Timeout for a client of the control socket to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a lab: reads a `Start` as one JSON line from standard input, creates
/// the lab, reports that on standard output, detaches from the terminal, and
/// serves requests until one stops the lab or, for an owned lab, standard input
/// is closed. For the hidden command that [`crate::up`] starts.
///
/// The calling thread must be the one that starts the processes of the hosts,
/// so call it from `main`.
pub fn run() -> Result<(), LabError> {
    // Fails only where this process is a group leader already, which is
    // sufficient.
    let _ = rustix::process::setsid();
    let step = "read the lab to hold";
    let Start { lab, owned } = read_line(stdin().lock()).map_err(LabError::system(step))?;
    let owner = owned.then(|| stdin().as_fd().try_clone_to_owned()).transpose();
    let owner = owner.map_err(LabError::system("keep the pipe of the lab's owner"))?;
    let mut keeper = match Keeper::start(lab) {
        Ok(keeper) => keeper,
        Err(error) => {
            let sent = Started::Failed(SentError::from(&error));
            return write_line(stdout().lock(), &sent).map_err(LabError::system("report"));
        }
    };
    let outcome = detach_terminal()
        .and_then(|response| {
            write_line(File::from(response), &Started::Ready)
                .map_err(LabError::system("report that the lab is up"))
        })
        .and_then(|()| {
            tracing::info!(lab = keeper.state.file.name, "the lab is up");
            keeper.serve(owner.as_ref())
        });
    match outcome {
        Ok(client) => {
            keeper.shut_down();
            if let Some(client) = client {
                // The client sees the end of the connection when this process
                // has exited.
                let _ = write_line(&client, &Response::Done);
                std::mem::forget(client);
            }
            Ok(())
        }
        Err(error) => {
            keeper.shut_down();
            Err(error)
        }
    }
}

/// Detaches standard input, output and error; returns the original output.
fn detach_terminal() -> Result<OwnedFd, LabError> {
    let response =
        stdout().as_fd().try_clone_to_owned().map_err(LabError::system("keep the channel for replies"))?;
    let path = "/dev/null";
    let null = File::options().read(true).write(true).open(path).map_err(LabError::file("open", path))?;
    // A requested log continues; its reader sees its end when the lab stops.
    let silence = || if tracing::enabled!(tracing::Level::ERROR) { Ok(()) } else { dup2_stderr(&null) };
    let done = dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| silence());
    done.map_err(|error| LabError::system("leave the terminal")(error.into()))?;
    Ok(response)
}

/// All state of a running lab; dropping it stops the lab.
#[derive(Debug)]
struct Keeper {
    /// Before their hosts.
    services: Vec<Service>,
    network: Network,
    listener: UnixListener,
    folder: Folder,
    state: State,
    lock: Lock,
}

/// Acquires the lock of the name. Another start may hold it for a moment to
/// clean up a dead lab of that name, as may a keeper that is exiting.
fn take_lock(name: &str) -> Result<Lock, LabError> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(lock) = Lock::take(name)? {
            return Ok(lock);
        }
        if Instant::now() > deadline || Folder::of(name)?.connect()?.is_some() {
            return Err(LabError::NameTaken { name: name.to_owned() });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Hosts, switches and delay lines. They are dropped in this order: lines,
/// switches, hosts.
#[derive(Debug)]
pub(crate) struct Network {
    lines: Vec<Option<Line>>,
    pub(crate) switches: Vec<Switch>,
    pub(crate) nodes: Vec<Node>,
}

impl Network {
    fn build(file: &LabFile, folder: &Folder) -> Result<Self, LabError> {
        folder.create()?;
        let hosts_file = folder.hosts();
        clearstream_sys::file::replace_without_sync(&hosts_file, hosts_text(file).as_bytes())
            .map_err(LabError::file("write", &hosts_file))?;
        let start = |host: &LabHost| Node::start(&host.name, &hosts_file);
        let mut nodes = file.hosts.iter().map(start).collect::<Result<Vec<Node>, LabError>>()?;
        for (node, host) in nodes.iter().zip(&file.hosts) {
            // The namespaces of one kernel use the same secret of the multipath
            // hash and would select the same next hops, unlike separate hosts
            // (ip-sysctl; the key exists since Linux 6.11).
            let seed = hash_seed(&file.name, &host.name).to_string();
            let own = ("net.ipv4.fib_multipath_hash_seed", seed.as_str());
            // A router solicits neighbours by its link-local address, which
            // would be tentative for a second (RFC 4862, 5.4).
            let at_once = ("net.ipv6.conf.default.accept_dad", "0");
            node.write_known_sysctls(&[own, at_once])?;
            node.set_sysctls(host, false)?;
        }
        let mut lines = Vec::with_capacity(file.links.len());
        for (index, link) in file.links.iter().enumerate() {
            lines.push(links::make(index, link, &hosts_file, &mut nodes)?);
        }
        let plug = |switch: &LabSwitch| Switch::start(switch, &hosts_file, &mut nodes);
        let switches = file.switches.iter().map(plug).collect::<Result<Vec<Switch>, LabError>>()?;
        for (node, host) in nodes.iter().zip(&file.hosts) {
            node.set_sysctls(host, true)?;
        }
        for link in &file.links {
            links::bring_up(&link.ends, link.mtu, &file.hosts, &mut nodes)?;
        }
        for switch in &file.switches {
            links::bring_up(&switch.ends, switch.mtu, &file.hosts, &mut nodes)?;
        }
        for (node, host) in nodes.iter_mut().zip(&file.hosts) {
            add_routes(node, host)?;
        }
        for (link, line) in file.links.iter().zip(&lines) {
            match line {
                Some(line) => line.wait_until_up(link, &mut nodes)?,
                None => links::wait_until_up(&link.ends, &mut nodes)?,
            }
        }
        for (described, switch) in file.switches.iter().zip(&switches) {
            links::wait_until_up(&described.ends, &mut nodes)?;
            (0..described.ends.len()).try_for_each(|port| switch.wait_until_forwarding(port))?;
        }
        Ok(Self { lines, switches, nodes })
    }

    /// Processes that hold the namespaces.
    fn holders(&self) -> Vec<u32> {
        let lines = self.lines.iter().flatten().filter_map(Line::pid);
        let switches = self.switches.iter().map(Switch::pid);
        lines.chain(switches).chain(self.nodes.iter().map(Node::pid)).collect()
    }
}

/// Returns a hash seed that differs between hosts and is reproducible (FNV-1a,
/// 32 bits); 0 would select the kernel's own secret.
fn hash_seed(lab: &str, host: &str) -> u32 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    lab.bytes().chain([0]).chain(host.bytes()).fold(0x811c_9dc5, mix).max(1)
}

fn add_routes(node: &mut Node, host: &LabHost) -> Result<(), LabError> {
    for route in &host.routes {
        // Validated with the file.
        if let Ok(to) = destination(&route.to, route.via) {
            let control = host.congestion_control.as_deref();
            node.network(|netlink| netlink.add_route(to, route.via, control))?;
        }
    }
    Ok(())
}

/// Opens the control socket of the keeper, and writes the state file that
/// refers to it.
fn open_control_socket(
    file: &LabFile,
    network: &Network,
    folder: &Folder,
) -> Result<(UnixListener, State), LabError> {
    let describe = |node: &Node| {
        Ok(HostState { name: node.name.clone(), pid: node.pid(), net_inode: node.net_inode()? })
    };
    let hosts = network.nodes.iter().map(describe).collect::<Result<Vec<HostState>, LabError>>()?;
    let socket = folder.socket();
    let listener = UnixListener::bind(&socket).map_err(LabError::file("listen on", &socket))?;
    let state = State::new(file.clone(), hosts);
    folder.write(&state)?;
    Ok((listener, state))
}

impl Keeper {
    fn start(file: LabFile) -> Result<Self, LabError> {
        file::validate(&file)?;
        state::clear_dead()?;
        let lock = take_lock(&file.name)?;
        let folder = Folder::of(&file.name)?;
        let start = || {
            let network = Network::build(&file, &folder)?;
            let (listener, state) = open_control_socket(&file, &network, &folder)?;
            // What they start is in the namespaces of the state, should this process die meanwhile.
            let services = services::start(&file, &network.nodes, folder.path(), &state.instance);
            let services = services.inspect_err(|_| state::end_processes(&state))?;
            Ok((services, network, listener, state))
        };
        match start() {
            Ok((services, network, listener, state)) => {
                mounts::follow(&network.holders());
                Ok(Self { services, network, listener, folder, state, lock })
            }
            Err(error) => {
                // Return the first error.
                let _ = folder.remove();
                lock.release();
                Err(error)
            }
        }
    }

    /// Serves requests until one stops the lab, and returns that connection; or
    /// until the owner's pipe is closed, and returns none.
    fn serve(&mut self, owner: Option<&OwnedFd>) -> Result<Option<UnixStream>, LabError> {
        loop {
            if self.owner_ended(owner)? {
                tracing::info!("the owner has ended");
                return Ok(None);
            }
            let client = match self.listener.accept() {
                Ok((client, _)) => client,
                Err(error) => {
                    AcceptFault::pause_after(&error);
                    continue;
                }
            };
            if client.set_read_timeout(Some(REQUEST_TIMEOUT)).is_err() {
                continue;
            }
            // Clients without a valid request are disconnected.
            let Ok(request) = read_line::<Request>(&client) else { continue };
            if request == Request::Stop {
                tracing::info!("stop requested");
                return Ok(Some(client));
            }
            tracing::debug!(?request, "request");
            let response = self.response(request).unwrap_or_else(|error| {
                tracing::warn!(%error, "request failed");
                Response::Failed(SentError::from(&error))
            });
            // The client may have disconnected.
            let _ = write_line(&client, &response);
        }
    }

    /// Waits for a connection, or for the end of the owner's pipe.
    fn owner_ended(&self, owner: Option<&OwnedFd>) -> Result<bool, LabError> {
        let Some(owner) = owner else { return Ok(false) };
        let mut polled = [
            PollFd::new(&self.listener, PollFlags::IN),
            // Nothing is ever written there: only its end is relevant.
            PollFd::new(owner, PollFlags::empty()),
        ];
        match poll(&mut polled, None) {
            Ok(_) => Ok(polled[1].revents().intersects(PollFlags::HUP | PollFlags::ERR)),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(LabError::system("wait for requests")(error.into())),
        }
    }

    fn response(&mut self, request: Request) -> Result<Response, LabError> {
        match request {
            Request::Stats => {
                let Network { lines, nodes, .. } = &mut self.network;
                return Ok(Response::Stats(links::stats(&self.state.file.links, lines, nodes)?));
            }
            Request::ResetStats => {
                let Network { lines, nodes, .. } = &mut self.network;
                for (link, line) in self.state.file.links.iter().zip(lines) {
                    line.iter_mut().try_for_each(|line| line.reset(link, nodes))?;
                }
            }
            Request::SetMtu { link, mtu } => self.set_mtu(link, mtu)?,
            Request::SetDelay { link, delay } => self.change_link(link, |link| link.delay = delay)?,
            Request::SetRate { link, rate } => self.change_link(link, |link| link.rate = rate)?,
            Request::SetReceiveCores { host, interface, cores } => {
                self.set_receive_cores(&host, &interface, cores)?;
            }
            Request::Faults => return Ok(Response::Faults(self.state.faults.clone())),
            Request::SetFaults(faults) => {
                faults::change(&mut self.network, &self.state.file, &self.state.faults, &faults)?;
                self.state.faults = faults;
                self.folder.write(&self.state)?;
            }
            Request::Stop => {}
        }
        Ok(Response::Done)
    }

    /// Changes the model of a link while packets are on it.
    fn change_link(&mut self, number: usize, change: impl FnOnce(&mut LabLink)) -> Result<(), LabError> {
        let mut changed = self.state.file.clone();
        let count = changed.links.len();
        let link = changed.links.get_mut(number).ok_or_else(|| LabError::NoLink {
            lab: self.state.file.name.clone(),
            what: format!("link {number}"),
            known: format!("links 0 to {}", count.saturating_sub(1)),
        })?;
        // What it is made of stays, whatever the new values would choose.
        link.backend = link.effective_backend();
        change(link);
        let link = link.clone();
        file::validate(&changed)?;
        let Network { lines, nodes, .. } = &mut self.network;
        links::change(number, &link, lines[number].as_ref(), nodes)?;
        self.state.file = changed;
        self.folder.write(&self.state)
    }

    /// Sets the MTU of a link, or of a switch, which are counted after the
    /// links.
    fn set_mtu(&mut self, number: usize, mtu: u32) -> Result<(), LabError> {
        let mut changed = self.state.file.clone();
        let (links, switches) = (changed.links.len(), changed.switches.len());
        let place = match number.checked_sub(links) {
            None => changed.links.get_mut(number).map(|link| (&mut link.mtu, link.ends.to_vec())),
            Some(number) => {
                changed.switches.get_mut(number).map(|switch| (&mut switch.mtu, switch.ends.clone()))
            }
        };
        let (requested, ends) = place.ok_or_else(|| LabError::NoLink {
            lab: self.state.file.name.clone(),
            what: format!("link {number}"),
            known: format!("links 0 to {}", (links + switches).saturating_sub(1)),
        })?;
        *requested = mtu;
        file::validate(&changed)?;
        if let Some(switch) = number.checked_sub(links) {
            self.network.switches[switch].set_mtu(ends.len(), mtu)?;
        }
        for end in &ends {
            let node = links::node_of(&mut self.network.nodes, end)?;
            node.network(|netlink| netlink.set_mtu(&end.interface, mtu))?;
        }
        self.state.file = changed;
        self.folder.write(&self.state)
    }

    fn set_receive_cores(
        &mut self,
        host: &str,
        interface: &str,
        cores: Option<CoreList>,
    ) -> Result<(), LabError> {
        let lab = self.state.file.name.clone();
        let node = self
            .network
            .nodes
            .iter()
            .find(|node| node.name == host)
            .ok_or_else(|| no_host(&self.state.file, host))?;
        let LabFile { links, switches, .. } = &mut self.state.file;
        let ends = links.iter_mut().flat_map(|link| &mut link.ends);
        let mut ends = ends.chain(switches.iter_mut().flat_map(|switch| &mut switch.ends));
        let Some(end) = ends.find(|end| end.host == host && end.interface == interface) else {
            let ends = self.state.file.ends();
            let known: Vec<&str> =
                ends.filter(|end| end.host == host).map(|end| end.interface.as_str()).collect();
            let what = format!("interface \"{interface}\" on {host}");
            return Err(LabError::NoLink { lab, what, known: known.join(", ") });
        };
        node.set_receive_cores(interface, cores.as_ref())?;
        end.receive_cores = cores;
        self.folder.write(&self.state)
    }

    /// Stops the processes inside and removes all files.
    fn shut_down(self) {
        drop(self.services);
        state::end_processes(&self.state);
        drop(self.network);
        drop(self.listener);
        // What cannot be removed is cleaned up by the next start.
        let _ = self.folder.remove();
        self.lock.release();
    }
}

/// Creates the error for an unknown host.
pub(crate) fn no_host(file: &LabFile, host: &str) -> LabError {
    let known: Vec<&str> = file.hosts.iter().map(|host| host.name.as_str()).collect();
    LabError::NoHost { lab: file.name.clone(), host: host.to_owned(), known: known.join(", ") }
}

/// Returns /etc/hosts of the lab: loopback, and every host with all its
/// addresses, the first one first; also for routers.
fn hosts_text(file: &LabFile) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    for end in file.ends() {
        for address in &end.addresses {
            let address = address.split('/').next().unwrap_or(address);
            text.push_str(&format!("{address} {}\n", end.host));
        }
    }
    text
}

/// Waits until a process that has announced its exit closes the connection; for
/// the requesting client.
pub(crate) fn wait_for_end(client: &UnixStream, timeout: Duration) {
    use std::io::Read;
    let deadline = Instant::now() + timeout;
    let mut client = client;
    let mut byte = [0];
    while Instant::now() < deadline {
        match client.read(&mut byte) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
