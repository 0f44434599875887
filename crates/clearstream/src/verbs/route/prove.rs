//! `clearstream route prove`

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    thread,
    time::Duration,
};

use clearstream_control::Peer;
use clearstream_lab::RunningLab;
use clearstream_prove::document::{RouteVerification, VerificationVerdict};
use clearstream_prove::{ProofOptions, Selection, TestedRoute, prove};
use clearstream_route::fabric;
use clearstream_schema::{TimeSpan, tune::Severity};

use crate::{
    endpoints::{FamilyArgs, agent_command, ssh_agent},
    exit::CommandError,
    interrupt,
    output::{Output, Paint, proof},
};

/// Agents that are started at the same time.
const STARTS: usize = 8;
/// Most agents of a proof: 64 gateways and two sides of 64 hosts.
const MOST_AGENTS: usize = 192;

/// Send real flows from hosts of every class through every gateway, and show
/// where they went, how they returned, path MTU and rate. Changes nothing.
#[derive(Debug, clap::Args)]
pub struct ProveArgs {
    /// Name of a built-in fabric, or a fabric file
    fabric: String,
    /// Use the hosts of this running lab (default: hosts are reached by ssh)
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Only hosts of these classes, and the remote side
    #[arg(long = "class", value_name = "NAME")]
    classes: Vec<String>,
    /// Only these hosts, and the remote side (default: a sample of each large class)
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Flows per route and address family, on which the load distribution is judged
    #[arg(long, value_name = "COUNT", default_value_t = ProofOptions::default().flow_count,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=20_000))]
    flows: usize,
    /// Choose source ports, by lookups of the clients' kernels, that distribute requests over
    /// the gateways exactly by weight instead of at random
    #[arg(long)]
    even: bool,
    /// Timeout of one flow
    #[arg(long, alias = "patience", value_name = "TIME", default_value_t = ProofOptions::default().timeout)]
    timeout: TimeSpan,
    /// Duration of the rate measurement through each gateway; 0s skips it
    #[arg(long, value_name = "TIME", default_value_t = ProofOptions::default().rate_duration)]
    rate_time: TimeSpan,
    /// Do not measure the path MTU
    #[arg(long)]
    no_path_mtu: bool,
    /// Option for ssh: as it is when it begins with a dash (`-p2222`), else for `-o` (`Port=2222`)
    #[arg(long = "ssh-option", value_name = "OPTION", allow_hyphen_values = true, conflicts_with = "lab")]
    ssh_options: Vec<String>,
    /// Name or path of clearstream on the other hosts
    #[arg(long, value_name = "PROGRAM", default_value = "clearstream", conflicts_with = "lab")]
    remote_program: String,
}

impl ProveArgs {
    /// Runs it. Exits with code 8 unless everything was proven.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        let fabric = fabric::load(&self.fabric)?;
        let selection = Selection { classes: self.classes.clone(), hosts: self.hosts.clone() };
        let routes = TestedRoute::of_fabric(&fabric, &selection)?;
        let options = ProofOptions {
            flow_count: self.flows,
            even: self.even,
            timeout: self.timeout,
            rate_duration: self.rate_time,
            path_mtu: !self.no_path_mtu,
        };
        let hosts: BTreeSet<String> = routes.iter().flat_map(TestedRoute::hosts).map(str::to_owned).collect();
        if hosts.len() > MOST_AGENTS {
            return Err(CommandError::usage(&format!(
                "{} hosts would take part, and {MOST_AGENTS} can: choose some with --host or --class",
                hosts.len()
            )));
        }
        out.progress(Duration::from_secs(10), "starting agents");
        let mut peers = self.agents(hosts)?;
        let found = prove(fabric.name(), &mut peers, &routes, &options, &stop, &mut |step| {
            out.progress(step.left, &step.what);
        })?;
        end(peers);
        for finding in &found.findings {
            out.finding(&finding.id, &finding.message, || None);
        }
        out.result(&found, || proof::proof(&found, Paint::for_stdout()))?;
        conclude(&found)
    }

    /// Starts an agent on every host, some at a time.
    fn agents(&self, hosts: BTreeSet<String>) -> Result<BTreeMap<String, Peer>, CommandError> {
        let lab = self.lab.as_deref().map(clearstream_lab::open).transpose()?;
        let waiting = Mutex::new(hosts.into_iter());
        let next = || waiting.lock().ok().and_then(|mut hosts| hosts.next());
        let start = || {
            let mut started = Vec::new();
            while let Some(host) = next() {
                let peer = self.agent(lab.as_ref(), &host)?;
                started.push((host, peer));
            }
            Ok::<_, CommandError>(started)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..STARTS).map(|_| scope.spawn(start)).collect();
            let mut peers = BTreeMap::new();
            for thread in threads {
                let started = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                peers.extend(started?);
            }
            Ok(peers)
        })
    }

    fn agent(&self, lab: Option<&RunningLab>, host: &str) -> Result<Peer, CommandError> {
        match lab {
            Some(lab) => Ok(clearstream_control::spawn(lab.command(host, agent_command()?)?, host)?),
            None => ssh_agent(host, host, &self.remote_program, &self.ssh_options, FamilyArgs::default()),
        }
    }
}

/// Ends the agents at the same time: each is waited for.
fn end(peers: BTreeMap<String, Peer>) {
    thread::scope(|scope| {
        for peer in peers.into_values() {
            scope.spawn(|| peer.shutdown());
        }
    });
}

fn conclude(found: &RouteVerification) -> Result<(), CommandError> {
    let errors = found.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    match found.verdict {
        VerificationVerdict::Proven => Ok(()),
        VerificationVerdict::Incomplete => {
            Err(CommandError::Partial("the proof is not complete: see the notes".to_owned()))
        }
        VerificationVerdict::Failed => {
            Err(CommandError::Partial(format!("the proof failed: {errors} errors")))
        }
    }
}
