//! Workload `storage-semantics`: which file semantics a mount of a lab gives, to one client or between two.

use std::process::Command;

use clearstream_control::{Peer, PeerError, StartCause, spawn};
use clearstream_lab::{LabError, RunningLab};
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    outcome::{MetricKind, Outcome},
    semantics::SemanticsConfig,
    storage::host_names,
    study::Figure,
};
use clearstream_workload::{Context, TrialError, Workload};

use super::{PeerMount, SemanticsError, run};

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct StorageSemanticsWorkload;

/// Checks of one client, in seconds.
const OWN_SECONDS: u64 = 5;
/// Of two clients, without waits for changes.
const SHARED_SECONDS: u64 = 15;
/// Changes that a mount with caches may not show within the wait.
const WAITS: u64 = 20;

impl Workload for StorageSemanticsWorkload {
    type Config = SemanticsConfig;

    fn name(&self) -> &'static str {
        "storage-semantics"
    }

    fn title(&self) -> &'static str {
        "Storage: file semantics of a mount (locks, atomicity, coherence, features)"
    }

    fn roles(&self) -> &'static [&'static str] {
        // Locks are of processes: it starts its own on the clients.
        &[]
    }

    fn needs_lab(&self) -> Option<&'static str> {
        Some(
            "the checks start processes on the clients of a lab: use --lab native-client, and on other hosts \
             clearstream storage semantics DIR --peer HOST:DIR",
        )
    }

    fn figure(&self) -> Figure {
        Figure::Semantics
    }

    fn compares(&self) -> bool {
        // Verdicts are compared check by check, not by their number.
        false
    }

    fn check(&self, config: &SemanticsConfig) -> Result<(), Failure> {
        let count = config.hosts.as_deref().map(|list| host_names(list).len());
        if count.is_some_and(|count| !(1..=2).contains(&count)) {
            return Err(invalid("hosts names one client, or two as in \"compute-1,compute-2\""));
        }
        Ok(())
    }

    fn time(&self, config: &SemanticsConfig) -> TimeSpan {
        let has_peer = config.hosts.as_deref().is_some_and(|list| host_names(list).len() > 1);
        let own = TimeSpan::from_seconds(OWN_SECONDS).0;
        let shared =
            TimeSpan::from_seconds(SHARED_SECONDS).0.saturating_add(WAITS.saturating_mul(config.wait.0));
        TimeSpan(if has_peer { own.saturating_add(shared) } else { own }.min(config.timeout.0))
    }

    fn overhead(&self) -> TimeSpan {
        TimeSpan::from_millis(200)
    }

    fn metrics(&self, config: &SemanticsConfig) -> Vec<MetricKind> {
        config.metrics()
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &SemanticsConfig) -> Result<Outcome, TrialError> {
        let lab = context.hosts.lab().ok_or_else(|| Failure {
            kind: FailureKind::Unsupported,
            message: "the checks need the clients of a lab".to_owned(),
        })?;
        let agent = || {
            let mut command = Command::new(context.hosts.program());
            command.arg("agent");
            command
        };
        let mut hosts = config.hosts.as_deref().map(host_names).unwrap_or_default().into_iter();
        let host = hosts.next().or_else(|| first_with(lab, &config.directory));
        let host =
            host.ok_or_else(|| invalid("the lab has no such mount: name the hosts that have the directory"))?;
        let path = |host: &str| -> Result<String, TrialError> {
            let found = lab.directory(host, &config.directory).map_err(|error| invalid(error.to_string()))?;
            Ok(found.to_string_lossy().into_owned())
        };
        let peer = match hosts.next() {
            Some(other) => {
                let directory = path(&other)?;
                Some(PeerMount { peer: start(lab, &other, agent())?, host: Some(other), directory })
            }
            None => None,
        };
        let config = SemanticsConfig { directory: path(&host)?, ..config.clone() };
        let start = || start(lab, &host, agent());
        let mut found = run(&config, &start, peer, context.stop, &mut |_, _| {})?.whole()?;
        found.mount.host = Some(host.clone());
        Ok(found.outcome()?)
    }
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure { kind: FailureKind::Invalid, message: message.into() }
}

/// The first host of the lab with this mount that is no router.
fn first_with(lab: &RunningLab, directory: &str) -> Option<String> {
    let mut hosts = lab.file().hosts.iter().filter(|host| !host.router);
    hosts.find(|host| lab.directory(&host.name, directory).is_ok()).map(|host| host.name.clone())
}

/// A process on a host of the lab.
fn start(lab: &RunningLab, host: &str, command: Command) -> Result<Peer, PeerError> {
    let not_started = |error: LabError| PeerError::Start {
        name: host.to_owned(),
        cause: StartCause::Program,
        message: error.to_string(),
    };
    spawn(lab.command(host, command).map_err(not_started)?, host)
}

impl From<SemanticsError> for TrialError {
    /// The processes are those of the checks alone: later trials have their own.
    fn from(error: SemanticsError) -> Self {
        match error {
            SemanticsError::Peer(error) => Self { lost: false, ..error.into() },
            error => Failure { kind: FailureKind::Unreachable, message: error.to_string() }.into(),
        }
    }
}
