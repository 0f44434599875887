//! The calls of a controller that explain open connections of an agent's host.

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_control::{Call, CallContext, MARGIN, Registration, Service};
use clearstream_schema::{
    connections::Connections,
    control::{Failure, FailureKind},
    scope::Right,
};
use serde::{Deserialize, Serialize};

use super::{
    ConnectionFilter, Ends, ObserveOptions, Observed, ParseFilterError, explain_connections, observe,
};

/// An agent observes for no longer than this.
const DURATION_MAX: Duration = Duration::from_secs(600);

/// Observes and explains open connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainSockets {
    /// Filter, as on the command line.
    pub filter: String,
    /// Connections to explain.
    pub count: u16,
    /// Duration of the observation.
    pub duration_ns: u64,
    /// Processes of the agent's host whose network namespaces are observed, too.
    #[serde(default)]
    pub namespaces: Vec<u32>,
}

impl Call for ExplainSockets {
    const NAME: &'static str = "explain-sockets";
    const NEEDS: Right = Right::Measure;
    type Reply = Connections;

    fn reply_within(&self) -> Duration {
        Duration::from_nanos(self.duration_ns) + MARGIN
    }
}

/// Samples open connections, for who joins them with what the host at the other end samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObserveSockets {
    /// Filter, as on the command line.
    pub filter: String,
    /// Ends on this host; none for those that match.
    #[serde(default)]
    pub ends: Ends,
    /// Duration of the observation.
    pub duration_ns: u64,
}

impl Call for ObserveSockets {
    const NAME: &'static str = "observe-sockets";
    const NEEDS: Right = Right::Measure;
    type Reply = Observed;

    fn reply_within(&self) -> Duration {
        Duration::from_nanos(self.duration_ns) + MARGIN
    }
}

/// Explains open connections of its host.
#[derive(Debug, Default)]
pub struct SocketAgent {}

impl Service for SocketAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(|_, call: ExplainSockets, context| explain(&call, context));
        calls.on(|_, call: ObserveSockets, context| sample(&call, context));
    }
}

fn explain(call: &ExplainSockets, context: &CallContext<'_>) -> Result<Connections, Failure> {
    let (observed, filter) = observed(&call.filter, call.duration_ns, &call.namespaces, context)?;
    Ok(explain_connections(&observed, &filter, usize::from(call.count)))
}

fn sample(call: &ObserveSockets, context: &CallContext<'_>) -> Result<Observed, Failure> {
    let (mut observed, filter) = observed(&call.filter, call.duration_ns, &[], context)?;
    observed.reduce(&filter, &call.ends);
    Ok(observed)
}

fn observed(
    filter: &str,
    duration_ns: u64,
    namespaces: &[u32],
    context: &CallContext<'_>,
) -> Result<(Observed, ConnectionFilter), Failure> {
    // A pairing permits to measure: peers and programs of other users are shown to those who can log in.
    if context.controller().is_some() {
        return Err(Failure {
            kind: FailureKind::Forbidden,
            message:
                "connections of other programs are not shown to a paired controller: name the host as ssh \
                      knows it"
                    .to_owned(),
        });
    }
    let filter: ConnectionFilter = filter.parse().map_err(|error: ParseFilterError| Failure {
        kind: FailureKind::Invalid,
        message: error.to_string(),
    })?;
    let options = ObserveOptions {
        duration: Duration::from_nanos(duration_ns).min(DURATION_MAX),
        namespaces: namespaces.to_vec(),
    };
    let observed = observe(&options, &AtomicBool::new(false), &mut |_| ())
        .map_err(|error| Failure { kind: FailureKind::Unsupported, message: error.to_string() })?;
    Ok((observed, filter))
}
