//! BFD sessions of routing daemons, from BIRD's `birdc show bfd sessions` and FRR's
//! `vtysh -c 'show bfd peers json'`. A session that is down is additional evidence;
//! one that is up proves nothing, since a gateway may run BFD and forward nothing.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use clearstream_sys::program::Program;
use serde_json::Value;

/// Interval between queries.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time for the answer to one: a daemon that hangs is what BFD is asked about.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A supported routing daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BfdSource {
    /// BIRD, by `birdc`.
    Bird,
    /// FRR, by `vtysh`.
    Frr,
}

/// Whether the session with each peer is up.
pub type Sessions = BTreeMap<IpAddr, bool>;

/// Reads the table of `birdc show bfd sessions`. A peer with several sessions is
/// up when one of them is.
pub fn parse_bird(text: &str) -> Sessions {
    let mut found = Sessions::new();
    for line in text.lines() {
        // IP address, interface, state, since, interval, timeout.
        let mut fields = line.split_whitespace();
        let peer = fields.next().and_then(|field| field.parse::<IpAddr>().ok());
        if let (Some(peer), Some(_), Some(state)) = (peer, fields.next(), fields.next()) {
            *found.entry(peer).or_default() |= state == "Up";
        }
    }
    found
}

/// Reads the list of `show bfd peers json`; absent when it is none.
pub fn parse_frr(text: &str) -> Option<Sessions> {
    let mut found = Sessions::new();
    for peer in clearstream_schema::json::from_str::<Value>(text).ok()?.as_array()? {
        let address = peer.get("peer").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let status = peer.get("status").and_then(Value::as_str);
        if let (Some(address), Some(status)) = (address, status) {
            *found.entry(address).or_default() |= status == "up";
        }
    }
    Some(found)
}

/// The latest sessions of a daemon, polled by a thread that ends with the process.
/// A daemon that does not respond has no sessions, and is asked again.
#[derive(Debug, Clone)]
pub(super) struct SessionPoller(Arc<Mutex<Sessions>>);

impl SessionPoller {
    /// Starts the polling thread.
    pub(super) fn start(source: BfdSource) -> std::io::Result<Self> {
        let program = match source {
            BfdSource::Bird => "birdc",
            BfdSource::Frr => "vtysh",
        };
        Self::asking(source, program.into())
    }

    fn asking(source: BfdSource, program: PathBuf) -> std::io::Result<Self> {
        let shared = Arc::new(Mutex::new(Sessions::new()));
        let latest = Arc::clone(&shared);
        thread::Builder::new().name("watch-bfd".to_owned()).spawn(move || {
            loop {
                let sessions = query(source, &program).unwrap_or_default();
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = sessions;
                thread::sleep(POLL_INTERVAL);
            }
        })?;
        Ok(Self(shared))
    }

    /// Latest state of a peer's session; absent if unknown.
    pub(super) fn is_up(&self, peer: IpAddr) -> Option<bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&peer).copied()
    }
}

fn query(source: BfdSource, program: &Path) -> Option<Sessions> {
    let question = match source {
        BfdSource::Bird => ["-r", "show", "bfd", "sessions"].as_slice(),
        BfdSource::Frr => &["-c", "show bfd peers json"],
    };
    let output = Program::new(program).args(question).within(ANSWER_TIMEOUT).run();
    let output = output.inspect_err(|error| tracing::debug!(%error, "no sessions of BFD")).ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match source {
        BfdSource::Bird => output.status.success().then(|| parse_bird(&text)),
        BfdSource::Frr => parse_frr(&text),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, time::Instant};

    use super::*;

    /// As BIRD 2.0.12 printed it.
    const BIRD: &str = include_str!("../../../fixtures/routing/bfd/bird-2.0.12.txt");
    /// The object of FRR's user guide, chapter BFD, in a list as `peers` gives
    /// it, and a second one that is down.
    const FRR: &str = include_str!("../../../fixtures/routing/bfd/frr-guide.json");

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn sessions_of_bird_are_read() {
        let sessions = parse_bird(BIRD);
        assert_eq!(sessions.get(&address("10.77.0.2")), Some(&true), "{sessions:?}");
        assert_eq!(sessions.get(&address("10.77.0.3")), Some(&false), "{sessions:?}");
        assert_eq!(sessions.len(), 2);
    }

    fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A routing daemon that hangs is what BFD is asked about.
    #[test]
    fn a_daemon_that_hangs_has_no_sessions_and_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let (program, hangs) = (folder.path().join("birdc"), folder.path().join("hangs"));
        let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/routing/bfd/bird-2.0.12.txt");
        let script = format!("#!/bin/sh\n[ -e {} ] && exec sleep 600\nexec cat {table}\n", hangs.display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let poller = SessionPoller::asking(BfdSource::Bird, program).unwrap();
        let peer = address("10.77.0.2");
        eventually("it is asked", || poller.is_up(peer) == Some(true));
        fs::write(&hangs, "").unwrap();
        eventually("it has no sessions while it hangs", || poller.is_up(peer).is_none());
        fs::remove_file(&hangs).unwrap();
        eventually("it is asked again", || poller.is_up(peer) == Some(true));
    }

    #[test]
    fn sessions_of_frr_are_read() {
        let sessions = parse_frr(FRR).unwrap();
        assert_eq!(sessions.get(&address("192.168.0.1")), Some(&true), "{sessions:?}");
        assert_eq!(sessions.get(&address("192.168.1.1")), Some(&false), "{sessions:?}");
        assert_eq!(parse_frr("% Unknown command"), None);
        assert_eq!(parse_frr("[{\"peer\":7},{\"status\":\"up\"},8]"), Some(Sessions::new()));
    }
}
