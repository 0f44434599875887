//! The busiest connections with the limit of each, by the passive diagnosis.

use clearstream_diagnose::passive::{ConnectionFilter, ObserveError, Observed, explain_connections};
use clearstream_schema::{
    connections::{Connection, ConnectionVerdict},
    live::LiveConnection,
    notice::Notice,
};

use crate::collector::notice;

/// The busiest connections of an observation.
#[derive(Debug, Default)]
pub(crate) struct Busiest {
    pub(crate) connections: Vec<LiveConnection>,
    pub(crate) observed_ns: u64,
    /// Open connections of all programs.
    pub(crate) count: u64,
}

/// Explains the `count` busiest.
pub(crate) fn busiest(
    observed: Result<Observed, ObserveError>,
    count: usize,
    notices: &mut Vec<Notice>,
) -> Busiest {
    let observed = match observed {
        Ok(observed) => observed,
        Err(error) => {
            notices.push(notice("connections-unread", error.to_string()));
            return Busiest::default();
        }
    };
    let explained = explain_connections(&observed, &ConnectionFilter::all(), count);
    notices.extend(explained.notices);
    Busiest {
        connections: explained.connections.iter().map(row).collect(),
        observed_ns: explained.duration_ns,
        count: explained.matched_count,
    }
}

fn row(connection: &Connection) -> LiveConnection {
    let end = &connection.end;
    let owners = end.owners.iter().map(|owner| format!("{} ({})", owner.program, owner.pid));
    let (limit, sentence) = match &connection.verdict {
        ConnectionVerdict::Found(finding) => {
            let cause = clearstream_schema::json::to_value(&finding.cause).unwrap_or_default();
            let kind = cause
                .get("kind")
                .and_then(|kind| kind.as_str())
                .map_or_else(|| "unknown".to_owned(), str::to_owned);
            (kind, finding.sentence.clone())
        }
        ConnectionVerdict::Unknown { because, .. } => ("unknown".to_owned(), because.clone()),
        ConnectionVerdict::Idle => ("idle".to_owned(), "no data, and none queued".to_owned()),
    };
    LiveConnection {
        local: end.local,
        remote: end.remote,
        program: owners.collect::<Vec<_>>().join(", "),
        out_bps: end.out_bps,
        in_bps: end.in_bps,
        rtt_ns: end.rtt_ns,
        retransmit_count: end.retransmit_count,
        limit,
        sentence,
    }
}
