//! The pages of `live`, of studies and of daemons, and Prometheus metrics: an HTTP server over events, on a thread of its own.
//!
//! [`Dashboard::publish`] adds an event to a bounded history and never waits for a browser: each client reads the
//! history at its own speed, and one that falls behind is told how many events it missed. The only async runtime of
//! the project is in this crate, on that one thread. Read-only; nothing here reads a host or opens a connection.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod door;
mod history;
mod metrics;
mod report;
mod request;
mod server;
mod status;

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clearstream_schema::{control::FailureKind, failure::Classified};
use data_encoding::HEXLOWER;
use tokio::sync::watch;

pub use metrics::{LiveMetrics, ServeCounts, serve_exposition, watch_exposition};
pub use status::{StateRow, StateSource, StateTable};

use history::History;
use report::Report;

/// Text of `/metrics`, made when it is scraped.
pub type Exposition = Arc<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>;

/// What is served.
#[derive(Clone)]
pub enum Content {
    /// The page of live rates, for who has the link.
    Live {
        /// Title, as in `live: dtn1, dtn2`.
        title: String,
    },
    /// The page of a study that runs, with its report so far, for who has the link.
    Study {
        /// Title of the study.
        title: String,
        /// SHA-256 of the only script of its reports, in base64.
        script_hash: &'static str,
    },
    /// The page of a daemon, with its state as tables and its events, for who has the link.
    Status {
        /// Title, as in `serve: 127.0.0.1:5740`.
        title: String,
        /// Its state.
        state: StateSource,
    },
    /// `/metrics` in the text format of OpenMetrics 1.0, for anybody who reaches the port; on loopback not for pages
    /// of a browser.
    Metrics(Exposition),
}

/// Reason why there is no server.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve at {address}: {source}")]
pub struct DashboardError {
    /// Address as requested.
    pub address: SocketAddr,
    /// System error.
    #[source]
    pub source: io::Error,
}

impl Classified for DashboardError {
    fn failure_kind(&self) -> FailureKind {
        FailureKind::of_listen(&self.source)
    }
}

/// A running server. It ends, with all connections, when this is dropped.
pub struct Dashboard {
    address: SocketAddr,
    token: String,
    history: Arc<History>,
    report: Arc<Report>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Bytes of a token: 128 bits cannot be guessed (RFC 6750, section 5.2).
const TOKEN_BYTES: usize = 16;

/// Between two looks at who has the report.
const READERS_TICK: Duration = Duration::from_millis(20);

/// Time for pages to receive the last events.
const LAST_EVENTS: Duration = Duration::from_millis(100);

impl Dashboard {
    /// Starts to serve; port 0 is the kernel's choice.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(address: SocketAddr, content: Content) -> Result<Self, DashboardError> {
        let fail = |source| DashboardError { address, source };
        let listener = TcpListener::bind(address).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let bound = listener.local_addr().map_err(fail)?;
        let token = HEXLOWER.encode(&rand::random::<[u8; TOKEN_BYTES]>());
        let history = Arc::new(History::new());
        let (stop, stopped) = watch::channel(false);
        let report = Arc::new(Report::default());
        let site = server::Site {
            address: bound,
            token: token.clone(),
            content,
            history: Arc::clone(&history),
            report: Arc::clone(&report),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let serve = move || runtime.block_on(server::serve(listener, site, stopped));
        let thread = thread::Builder::new().name("dashboard".to_owned()).spawn(serve).map_err(fail)?;
        Ok(Self { address: bound, token, history, report, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Link to the page, with its token.
    pub fn link(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    /// Adds an event of a daemon's page: its time by RFC 3339, and whether it is a fault.
    pub fn publish_event(&self, time: &str, text: &str, bad: bool) {
        let event = serde_json::json!({ "time": time, "text": text, "bad": bad });
        self.publish("event", &event.to_string());
    }

    /// Adds an event, a JSON document in one line, under a name such as `sample`.
    pub fn publish(&self, topic: &'static str, json: &str) {
        self.history.add(topic, json);
    }

    /// Replaces the report of a study, a whole HTML page; pages fetch it.
    pub fn set_report(&self, html: String) {
        let version = self.report.set(html);
        self.publish("report", &format!("{{\"version\":{version}}}"));
    }

    /// Pages that follow at the moment.
    pub fn reader_count(&self) -> usize {
        self.report.reader_count()
    }

    /// Waits until the pages that follow have the newest report, but no longer than this.
    pub fn wait_for_readers(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while !self.report.is_with_all() && Instant::now() < until {
            thread::sleep(READERS_TICK);
        }
    }

    /// Events that some page missed because its browser read too slowly.
    pub fn missed_count(&self) -> u64 {
        self.history.missed_count()
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        // Pages learn that this is the end, not a broken connection.
        self.history.add("end", "{}");
        thread::sleep(LAST_EVENTS);
        // The thread may be gone: then there is nothing to stop.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
