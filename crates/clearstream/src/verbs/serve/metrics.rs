//! Metrics of the daemon.

use std::net::SocketAddr;

use clearstream_control::Usage;
use clearstream_dashboard::{Content, Dashboard, DashboardError, ServeCounts, serve_exposition};

use crate::output::daemon::DaemonCounts;

/// Serves them until it is dropped.
pub(super) fn serve(
    address: SocketAddr,
    daemon: DaemonCounts,
    usage: Usage,
) -> Result<Dashboard, DashboardError> {
    let exposition = serve_exposition(move || counts(&daemon, &usage));
    Dashboard::start(address, Content::Metrics(exposition))
}

/// What the daemon counted until now.
pub(super) fn counts(daemon: &DaemonCounts, usage: &Usage) -> ServeCounts {
    let [session_count, failed_count, open_count, refused_count] = daemon.read();
    let used = usage.counts();
    let calls = used.calls.into_iter().map(|((name, is_served), count)| (name, is_served, count));
    let transfers =
        used.transfers.into_iter().map(|(test, bytes)| (test, [bytes.sent_bytes, bytes.received_bytes]));
    ServeCounts {
        session_count,
        failed_count,
        refused_count,
        open_count,
        calls: calls.collect(),
        transfers: transfers.collect(),
    }
}
