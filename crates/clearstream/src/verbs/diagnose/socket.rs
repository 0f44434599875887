//! `clearstream diagnose --socket`: connections that other programs have open.

use std::sync::atomic::{AtomicBool, Ordering};

use clearstream_control::{Peer, PeerError};
use clearstream_diagnose::passive::{
    ConnectionFilter, ExplainSockets, ObserveOptions, ObserveSockets, Observed, busiest_ends,
    explain_connections, joined, observe,
};
use clearstream_schema::{
    TimeSpan,
    connections::{ConnectionVerdict, Connections},
    flow::FlowConfig,
    notice::Notice,
};

use crate::{
    endpoints::{Endpoints, PathArgs},
    exit::CommandError,
    interrupt,
    output::{Output, Paint, connections},
};

/// Duration of the observation when none is given.
const DURATION: TimeSpan = TimeSpan(5_000_000_000);

/// Observation that finds the connections which both hosts then observe.
const SCAN_NS: u64 = 500_000_000;
/// Connections that both hosts observe at most: their samples are sent.
const JOINED_MAX: u16 = 32;

/// Observation of open connections.
#[derive(Debug, clap::Args)]
pub(super) struct SocketArgs {
    /// Explain open connections of other programs on HOST (default: this host), without sending a packet: pid=N, program=NAME,
    /// address=IP[/PREFIX], port=N, local-port=N, remote-port=N or all; several joined by commas must all hold.
    /// --duration is the time to observe (default: 5s)
    #[arg(
        long,
        value_name = "FILTER",
        help_heading = "Open connections",
        conflicts_with_all = ["from", "budget", "rate"]
    )]
    pub(super) socket: Option<ConnectionFilter>,
    /// Connections to explain, the busiest first
    #[arg(long, default_value_t = 5, requires = "socket", help_heading = "Open connections")]
    count: u16,
    /// Observe the network namespace of this process, too
    #[arg(long = "namespace", value_name = "PID", requires = "socket", help_heading = "Open connections")]
    namespaces: Vec<u32>,
    /// Observe both ends: on HOST and on this host, or on client and server of a lab
    #[arg(long, requires = "socket", conflicts_with = "namespaces", help_heading = "Open connections")]
    both_ends: bool,
}

impl SocketArgs {
    /// Observes, explains and prints.
    pub(super) fn run(
        &self,
        filter: &ConnectionFilter,
        host: Option<&str>,
        path: &PathArgs,
        config: &FlowConfig,
        out: &Output,
    ) -> Result<(), CommandError> {
        let duration = duration(config)?;
        let stop = interrupt::stop_flag()?;
        let is_elsewhere = host.is_some() || path.lab.is_some() || path.hosts.is_some();
        let found = if self.both_ends {
            if !is_elsewhere {
                return Err(CommandError::usage("--both-ends needs the host that has the other end"));
            }
            self.both(filter, duration, &mut Endpoints::open(host, path)?, &stop, out)?
        } else if is_elsewhere {
            self.elsewhere(filter, duration, &mut Endpoints::open(host, path)?, &stop, out)?
        } else if path.pairing.is_some() || path.address.is_some() || !path.ssh_options.is_empty() {
            return Err(CommandError::usage("name the host whose connections are to be explained"));
        } else {
            self.here(filter, duration, &stop, out)?
        };
        report(&found, out);
        out.result(&found, || connections::page(&found, Paint::for_stdout()))?;
        if stop.load(Ordering::Relaxed) {
            let message = "the samples are those up to the interruption".to_owned();
            return Err(CommandError::Interrupted(message));
        }
        Ok(())
    }
}

impl SocketArgs {
    fn here(
        &self,
        filter: &ConnectionFilter,
        duration: TimeSpan,
        stop: &AtomicBool,
        out: &Output,
    ) -> Result<Connections, CommandError> {
        let options = ObserveOptions { duration: duration.to_std(), namespaces: self.namespaces.clone() };
        let observed = observe(&options, stop, &mut |left| out.progress(left, "observing sockets"))?;
        Ok(explain_connections(&observed, filter, usize::from(self.count)))
    }

    /// By the agent of the server's end; it observes and explains.
    fn elsewhere(
        &self,
        filter: &ConnectionFilter,
        duration: TimeSpan,
        ends: &mut Endpoints,
        stop: &AtomicBool,
        out: &Output,
    ) -> Result<Connections, CommandError> {
        out.set_hosts(ends.identities());
        let call = ExplainSockets {
            filter: filter.text().to_owned(),
            count: self.count,
            duration_ns: duration.0,
            namespaces: self.namespaces.clone(),
        };
        let mut hosts = ends.hosts()?;
        let (_, server) = hosts.client_and_server()?;
        let name = server.peer.name().to_owned();
        out.state("observing", None, || Some(format!("observing sockets of {name} for {duration}")));
        Ok(server.peer.call_unless(&call, stop)?)
    }
}

impl SocketArgs {
    /// By the agents of both ends, which observe at the same time; this program explains.
    fn both(
        &self,
        filter: &ConnectionFilter,
        duration: TimeSpan,
        ends: &mut Endpoints,
        stop: &AtomicBool,
        out: &Output,
    ) -> Result<Connections, CommandError> {
        out.set_hosts(ends.identities());
        let mut hosts = ends.hosts()?;
        let (client, server) = hosts.client_and_server()?;
        let peers = [&mut *client.peer, &mut *server.peer];
        let [one_name, other_name] = [peers[0].name().to_owned(), peers[1].name().to_owned()];
        let call = |ends, duration_ns| ObserveSockets { filter: filter.text().to_owned(), ends, duration_ns };
        out.state("observing", None, || {
            Some(format!("observing sockets of {one_name} and {other_name} for {duration}"))
        });
        let (mut one, mut other) =
            together(peers, &[call(Vec::new(), SCAN_NS), call(Vec::new(), SCAN_NS)], stop)?;
        let most = usize::from(self.count.clamp(1, JOINED_MAX));
        let (of_client, of_server, matched_count) = busiest_ends(&one, &other, most);
        if matched_count > 0 {
            let peers = [&mut *client.peer, &mut *server.peer];
            (one, other) =
                together(peers, &[call(of_client, duration.0), call(of_server, duration.0)], stop)?;
        }
        let mut found = explain_connections(&joined(one, &one_name, other, &other_name), filter, most);
        if matched_count > most {
            let message = format!(
                "{matched_count} connections match, and both ends of the busiest {most} were observed"
            );
            found.notices.push(Notice { id: "busiest-only".to_owned(), message });
        }
        Ok(found)
    }
}

/// A call to each of two hosts at the same time.
fn together(
    peers: [&mut Peer; 2],
    calls: &[ObserveSockets; 2],
    stop: &AtomicBool,
) -> Result<(Observed, Observed), PeerError> {
    let [one, other] = peers;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| one.call_unless(&calls[0], stop));
        let second = other.call_unless(&calls[1], stop);
        let first = first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((first?, second?))
    })
}

/// `--duration`; every other option of a flow has no effect on what other programs do.
fn duration(config: &FlowConfig) -> Result<TimeSpan, CommandError> {
    let default = FlowConfig::default();
    let duration = if config.duration == default.duration { DURATION } else { config.duration };
    if (FlowConfig { duration: default.duration, ..config.clone() }) != default {
        return Err(CommandError::usage(
            "--socket observes connections that other programs have open: of the options of a flow only \
             --duration has an effect",
        ));
    }
    Ok(duration)
}

fn report(found: &Connections, out: &Output) {
    for notice in &found.notices {
        out.notice(notice);
    }
    for connection in &found.connections {
        let between = format!("{} to {}", connection.end.local, connection.end.remote);
        match &connection.verdict {
            ConnectionVerdict::Found(finding) => {
                let cause = clearstream_schema::json::to_value(&finding.cause).unwrap_or_default();
                let id = cause["kind"].as_str().unwrap_or_default();
                out.finding(id, &format!("{between}: {}", finding.sentence), || None);
            }
            ConnectionVerdict::Unknown { because, .. } => {
                out.finding("unknown", &format!("{between}: {because}"), || None);
            }
            ConnectionVerdict::Idle => {}
        }
    }
}
