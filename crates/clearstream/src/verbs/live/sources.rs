//! Threads that bring samples: one per host, of this host or of an agent. An agent that goes away is restarted.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use clearstream_control::{Peer, spawn, ssh_command};
use clearstream_host::{HostRoot, calls::Inspect};
use clearstream_lab::{OwnedLab, RunningLab};
use clearstream_live::{Collector, CollectorOptions, ReadLive};
use clearstream_schema::{host::HostReport, live::LiveSample};

use super::LiveArgs;
use crate::{
    endpoints::{agent_command, open_lab, ssh_agent, with_family},
    exit::{CommandError, cannot},
};

/// Updates that wait for a reader that is stopped; later ones are dropped.
const WAITING: usize = 1024;
/// Time between two attempts to reconnect.
const RETRY: Duration = Duration::from_secs(2);

/// What a host's thread brings, by the number of the host.
#[derive(Debug)]
pub(super) enum Update {
    Sample(usize, Box<LiveSample>),
    /// The host does not respond; the connection is retried.
    Lost(usize, String),
}

/// Restarts an agent.
type Restart = Box<dyn Fn() -> Result<Peer, CommandError> + Send>;

/// The hosts of a command.
pub(super) struct Sources {
    names: Vec<String>,
    reports: Vec<HostReport>,
    /// The lab that this command brought up; it goes down with this.
    _own_lab: Option<OwnedLab>,
}

impl Sources {
    /// Reaches every host, and starts to read it.
    pub(super) fn start(
        args: &LiveArgs,
        options: CollectorOptions,
        stop: &Arc<AtomicBool>,
    ) -> Result<(Self, Receiver<Update>), CommandError> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = args.hosts.iter().find(|host| !seen.insert(host.as_str())) {
            return Err(CommandError::Usage(format!("{twice} is named twice")));
        }
        let (sender, updates) = sync_channel(WAITING);
        let mut spawner = Spawner { sender, options, stop: Arc::clone(stop), reports: Vec::new() };
        let (names, own_lab) = match &args.lab {
            Some(name) => {
                let (lab, own) = open_lab(name)?;
                (of_lab(&lab, args, &mut spawner)?, own)
            }
            None => (by_name(args, &mut spawner)?, None),
        };
        Ok((Self { names, reports: spawner.reports, _own_lab: own_lab }, updates))
    }

    /// What the hosts are, by their numbers.
    pub(super) fn reports(&self) -> &[HostReport] {
        &self.reports
    }

    /// Names of the hosts, by their numbers.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

fn of_lab(lab: &RunningLab, args: &LiveArgs, spawner: &mut Spawner) -> Result<Vec<String>, CommandError> {
    let all = lab.file().hosts.iter().map(|host| host.name.clone());
    let names: Vec<String> = if args.hosts.is_empty() { all.collect() } else { args.hosts.clone() };
    for (number, name) in names.iter().enumerate() {
        let (lab, host) = (lab.clone(), name.clone());
        let restart: Restart = Box::new(move || Ok(spawn(lab.command(&host, agent_command()?)?, &host)?));
        spawner.agent(number, name, restart()?, restart)?;
    }
    Ok(names)
}

fn by_name(args: &LiveArgs, spawner: &mut Spawner) -> Result<Vec<String>, CommandError> {
    if args.hosts.is_empty() {
        let name = HostRoot::live().read("proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim().to_owned();
        spawner.here(0, &name)?;
        return Ok(vec![name]);
    }
    for (number, host) in args.hosts.iter().enumerate() {
        if host == "localhost" {
            spawner.here(number, host)?;
            continue;
        }
        let first = ssh_agent(host, host, &args.remote_program, &args.ssh_options, args.family)?;
        let (name, program) = (host.clone(), args.remote_program.clone());
        let options = with_family(&args.ssh_options, args.family);
        // Without what the first attempt reports: the screen is in use.
        let restart: Restart = Box::new(move || Ok(spawn(ssh_command(&name, &program, &options), &name)?));
        spawner.agent(number, host, first, restart)?;
    }
    Ok(args.hosts.clone())
}

/// Starts the threads.
struct Spawner {
    sender: SyncSender<Update>,
    options: CollectorOptions,
    stop: Arc<AtomicBool>,
    reports: Vec<HostReport>,
}

impl Spawner {
    /// Reads this host.
    fn here(&mut self, number: usize, name: &str) -> Result<(), CommandError> {
        let (sender, stop) = (self.sender.clone(), Arc::clone(&self.stop));
        self.reports.push(clearstream_host::inspect(&HostRoot::live()));
        let mut collector = Collector::open(name, self.options);
        let read = move || {
            while !stop.load(Ordering::Relaxed)
                && sent(&sender, Update::Sample(number, Box::new(collector.next_sample())))
            {}
        };
        thread::Builder::new()
            .name(format!("live-{number}"))
            .spawn(read)
            .map_err(cannot("start a thread"))?;
        Ok(())
    }

    /// Reads the host of an agent.
    fn agent(
        &mut self,
        number: usize,
        name: &str,
        mut first: Peer,
        restart: Restart,
    ) -> Result<(), CommandError> {
        self.reports.push(first.call(&Inspect {})?);
        let agent = Agent {
            number,
            call: ReadLive { host: name.to_owned(), options: self.options },
            sender: self.sender.clone(),
            stop: Arc::clone(&self.stop),
        };
        thread::Builder::new()
            .name(format!("live-{number}"))
            .spawn(move || agent.follow(first, &restart))
            .map_err(cannot("start a thread"))?;
        Ok(())
    }
}

struct Agent {
    number: usize,
    call: ReadLive,
    sender: SyncSender<Update>,
    stop: Arc<AtomicBool>,
}

impl Agent {
    fn follow(&self, first: Peer, restart: &Restart) {
        let mut peer = Some(first);
        while !self.stop.load(Ordering::Relaxed) {
            let result = match &mut peer {
                Some(peer) => peer.call_unless(&self.call, &self.stop).map_err(|error| error.to_string()),
                None => match restart() {
                    Ok(restarted) => {
                        peer = Some(restarted);
                        continue;
                    }
                    Err(error) => Err(error.to_string()),
                },
            };
            let update = match result {
                Ok(sample) => Update::Sample(self.number, Box::new(sample)),
                Err(reason) => {
                    peer = None;
                    Update::Lost(self.number, reason)
                }
            };
            let is_lost = matches!(update, Update::Lost(..));
            if !sent(&self.sender, update) {
                return;
            }
            if is_lost {
                thread::sleep(RETRY);
            }
        }
    }
}

/// False once nobody receives any more. A reader that is stopped (Ctrl-S) delays no sample: it gets fewer.
fn sent(sender: &SyncSender<Update>, update: Update) -> bool {
    !matches!(sender.try_send(update), Err(TrySendError::Disconnected(_)))
}
