//! `clearstream diagnose --socket`: connections that other programs have open.

use clearstream_diagnose::passive::{
    ConnectionFilter, ObserveError, ObserveOptions, explain_connections, observe,
};
use clearstream_schema::{
    TimeSpan,
    connections::{ConnectionVerdict, Connections},
    flow::FlowConfig,
};

use crate::{
    exit::CommandError,
    interrupt,
    output::{Output, Paint, connections},
};

/// Duration of the observation when none is given.
const DURATION: TimeSpan = TimeSpan(5_000_000_000);

/// Observation of open connections.
#[derive(Debug, clap::Args)]
pub(super) struct SocketArgs {
    /// Explain open connections of other programs on this host, without sending a packet: pid=N, program=NAME,
    /// address=IP[/PREFIX], port=N, local-port=N, remote-port=N or all; several joined by commas must all hold.
    /// --duration is the time to observe (default: 5s)
    #[arg(
        long,
        value_name = "FILTER",
        help_heading = "Open connections",
        conflicts_with_all = ["HostArgs", "from", "budget", "rate", "PathArgs", "FamilyArgs"]
    )]
    pub(super) socket: Option<ConnectionFilter>,
    /// Connections to explain, the busiest first
    #[arg(long, default_value_t = 5, requires = "socket", help_heading = "Open connections")]
    count: u16,
    /// Observe the network namespace of this process, too
    #[arg(long = "namespace", value_name = "PID", requires = "socket", help_heading = "Open connections")]
    namespaces: Vec<u32>,
}

impl SocketArgs {
    /// Observes, explains and prints.
    pub(super) fn run(
        &self,
        filter: &ConnectionFilter,
        config: &FlowConfig,
        out: &Output,
    ) -> Result<(), CommandError> {
        let options =
            ObserveOptions { duration: duration(config)?.to_std(), namespaces: self.namespaces.clone() };
        let stop = interrupt::stop_flag()?;
        let observed = observe(&options, &stop, &mut |left| out.progress(left, "observing sockets"))?;
        let found = explain_connections(&observed, filter, usize::from(self.count));
        report(&found, out);
        Ok(out.result(&found, || connections::page(&found, Paint::for_stdout()))?)
    }
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
                let cause = serde_json::to_value(&finding.cause).unwrap_or_default();
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

impl From<ObserveError> for CommandError {
    fn from(error: ObserveError) -> Self {
        match error {
            ObserveError::Netlink(error) => Self::Netlink(error),
            ObserveError::Namespace { .. } => Self::Unsupported(error.to_string()),
        }
    }
}
