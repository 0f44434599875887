//! `--web`: sessions, calls and bytes of tests of the daemon as a page, with its events.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use clearstream_control::{Usage, tls::ServeEvent};
use clearstream_dashboard::{Content, Dashboard, DashboardError, ServeCounts, StateRow, StateTable};
use clearstream_schema::human::bytes;

use super::metrics;
use crate::output::daemon::DaemonCounts;

/// Open sessions: pairing and address, and when each began.
type Open = Arc<Mutex<BTreeMap<(String, SocketAddr), String>>>;

/// The page of a daemon.
pub(super) struct ServePage {
    dashboard: Dashboard,
    open: Open,
}

impl ServePage {
    pub(super) fn start(
        address: SocketAddr,
        daemon: SocketAddr,
        counts: DaemonCounts,
        usage: Usage,
    ) -> Result<Self, DashboardError> {
        let open = Open::default();
        let shared = Arc::clone(&open);
        let state = move || tables(&shared, &metrics::counts(&counts, &usage));
        let content = Content::Status { title: format!("serve: {daemon}"), state: Arc::new(state) };
        Ok(Self { dashboard: Dashboard::start(address, content)?, open })
    }

    pub(super) fn link(&self) -> String {
        self.dashboard.link()
    }

    /// Shows what happens at the daemon.
    pub(super) fn show(&self, event: &ServeEvent) {
        let now = jiff::Timestamp::now().to_string();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            ServeEvent::Opened { client, address } => {
                open.insert((client.clone(), *address), now.clone());
            }
            ServeEvent::Closed { client, address, .. } => {
                open.remove(&(client.clone(), *address));
            }
            ServeEvent::Refused { .. } | ServeEvent::Rejected { .. } | ServeEvent::Suppressed { .. } => {}
        }
        drop(open);
        let bad = !matches!(event, ServeEvent::Opened { .. } | ServeEvent::Closed { is_failed: false, .. });
        self.dashboard.publish_event(&now, &event.to_string(), bad);
    }
}

fn tables(open: &Open, counts: &ServeCounts) -> Vec<StateTable> {
    let open = open.lock().unwrap_or_else(PoisonError::into_inner);
    let sessions = open
        .iter()
        .map(|((client, address), since)| [client.clone(), address.to_string(), seconds_of(since)]);
    let sessions = table("open sessions", ["controller", "address", "since (UTC)"], sessions);
    let totals = [counts.session_count, counts.failed_count, counts.refused_count].map(|one| one.to_string());
    let totals = table("since the start", [">sessions", ">broken off", ">refused"], [totals]);
    let mut calls = BTreeMap::<&str, [u64; 2]>::new();
    for (name, is_served, count) in &counts.calls {
        calls.entry(name).or_default()[usize::from(!is_served)] += count;
    }
    let calls = calls
        .into_iter()
        .map(|(name, [served, failed])| [name.to_owned(), served.to_string(), failed.to_string()]);
    let calls = table("calls", ["call", ">served", ">failed"], calls);
    let transfers = counts
        .transfers
        .iter()
        .map(|(test, [sent, received])| [(*test).to_owned(), bytes(*sent), bytes(*received)]);
    let transfers = table("data of tests", ["test", ">sent", ">received"], transfers);
    vec![sessions, totals, calls, transfers]
}

/// `2026-11-26 12:00:01` of a time by RFC 3339.
fn seconds_of(time: &str) -> String {
    time.get(..19).unwrap_or(time).replace('T', " ")
}

fn table<const N: usize>(
    title: &str,
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> StateTable {
    StateTable {
        title: title.to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.into_iter().map(|cells| StateRow { cells: cells.to_vec(), bad: false }).collect(),
    }
}
