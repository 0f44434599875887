//! `clearstream serve`

mod metrics;
mod page;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use clearstream_control::{
    pairing,
    tls::{self, Busy, ServeConfig, ServeEvent},
};
use clearstream_watch::command_line;
use sd_notify::NotifyState;

use super::compat::{self, Compat};
use crate::{
    agent,
    endpoints::own_program,
    exit::{CommandError, cannot},
    interrupt,
    output::{
        self, Output,
        daemon::{Daemon, DaemonEvent, EventClass, Text},
    },
};
use page::ServePage;
use serde_json::json;

/// Serve paired controllers.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Address and port to listen on; loopback unless an address is given (default: 127.0.0.1:5740,
    /// with --compat iperf3 127.0.0.1:5201)
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Queue a second controller instead of refusing it
    #[arg(long)]
    queue: bool,
    /// Folder of the identity and the pairings
    #[arg(long, value_name = "FOLDER")]
    identity: Option<PathBuf>,
    /// Serve clients of this program instead, without pairing: anyone who reaches the port can start a test
    #[arg(long, value_enum, value_name = "PROGRAM", conflicts_with_all = ["queue", "identity", "unit", "metrics", "web"])]
    compat: Option<Compat>,
    /// Exit after the first test
    #[arg(long, requires = "compat")]
    once: bool,
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Serve a page with sessions, calls and events, and print its link (default address: a free port of loopback)
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:0", require_equals = true)]
    web: Option<SocketAddr>,
    /// Print a systemd unit that runs this command, and exit
    #[arg(long)]
    unit: bool,
}

/// Default address of the daemon.
pub(super) const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5740);
/// Folder of the identity of a daemon that systemd runs, below that of `StateDirectory=`
/// (systemd.exec(5)); the unit of the package has the same one.
const UNIT_IDENTITY: &str = "/var/lib/clearstream/serve";

impl ServeArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if self.compat == Some(Compat::Iperf3) {
            return compat::serve(self.listen, self.once, out);
        }
        if self.unit {
            return Ok(output::as_it_is(self.unit_text(out)?.trim_end())?);
        }
        let stop = interrupt::stop_flag()?;
        let identity = self.identity.map_or_else(pairing::default_directory, Ok)?;
        let mut config = ServeConfig::new(self.listen.unwrap_or(LISTEN), identity);
        config.busy = if self.queue { Busy::Queue } else { Busy::Refuse };
        let usage = config.usage.clone();
        let log = Arc::new(OnceLock::<Daemon>::new());
        let pages = Arc::new(OnceLock::<ServePage>::new());
        let shared = (Arc::clone(&log), Arc::clone(&pages));
        config.on_event = Box::new(move |event| {
            if let Some(page) = shared.1.get() {
                page.show(event);
            }
            if let Some(daemon) = shared.0.get() {
                report(event, daemon);
            }
        });
        let server = tls::Server::bind(config)?;
        let listening = format!("listening on {}", server.local_address());
        let text = format!("{listening}; stop with Ctrl-C");
        let daemon = Daemon::listening(server.local_address(), None, text, out)?;
        let daemon = log.get_or_init(|| daemon);
        // They end with the daemon; without what was requested it does not serve.
        let served = self
            .web
            .map(|address| ServePage::start(address, server.local_address(), daemon.counts(), usage.clone()));
        match served.transpose() {
            Ok(page) => drop(page.map(|page| announce(daemon, "page", pages.get_or_init(|| page).link()))),
            Err(error) => return daemon.finish(Err(error.into())),
        }
        let metrics = self.metrics.map(|address| metrics::serve(address, daemon.counts(), usage));
        let served_metrics = match metrics.transpose() {
            Ok(metrics) => metrics,
            Err(error) => return daemon.finish(Err(error.into())),
        };
        if let Some(metrics) = &served_metrics {
            announce(daemon, "metrics", format!("http://{}/metrics", metrics.address()));
        }
        // A service manager that does not listen changes nothing.
        let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&listening)]);
        let ended = server.run(&stop, |_| agent::services());
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        daemon.finish(ended.map_err(CommandError::from))
    }

    /// The unit of this command line without `--unit`.
    fn unit_text(&self, out: &Output) -> Result<String, CommandError> {
        let listen = self.listen.unwrap_or(LISTEN);
        let identity = match &self.identity {
            // A unit has no folder of its own to start from.
            Some(folder) => std::path::absolute(folder).map_err(cannot("find the working directory"))?,
            None => PathBuf::from(UNIT_IDENTITY),
        };
        let mut arguments = vec!["serve".to_owned(), "--listen".to_owned(), listen.to_string()];
        if self.queue {
            arguments.push("--queue".to_owned());
        }
        if let Some(metrics) = self.metrics {
            arguments.extend(["--metrics".to_owned(), metrics.to_string()]);
        }
        if let Some(web) = self.web {
            arguments.push(format!("--web={web}"));
        }
        arguments.extend(["--identity".to_owned(), identity.display().to_string()]);
        arguments.extend(out.option().map(str::to_owned));
        Ok(unit(&command_line(&own_program()?.to_string_lossy(), &arguments), &listen, &identity))
    }
}

/// Reports where something is served.
fn announce(daemon: &Daemon, name: &'static str, link: String) {
    let (detail, text) = (json!({ "link": link }), Text::Line(format!("{name}: {link}")));
    daemon.event(DaemonEvent { class: EventClass::Other, name, detail, text });
}

/// Reports what happens at the daemon. Its own log bounds what strangers cause.
fn report(event: &ServeEvent, daemon: &Daemon) {
    let text = Text::Log(event.to_string());
    let (class, name, detail) = match event {
        ServeEvent::Opened { client, address } => (
            EventClass::SessionStarted,
            "session-started",
            json!({ "client": client, "peer": address.to_string() }),
        ),
        ServeEvent::Closed { client, address, reason, is_failed } => {
            let detail = json!({ "client": client, "peer": address.to_string(), "reason": reason });
            match is_failed {
                true => (EventClass::SessionFailed, "session-failed", detail),
                false => (EventClass::SessionEnded, "session-ended", detail),
            }
        }
        ServeEvent::Refused { client, address, reason } => {
            let detail = json!({ "client": client, "peer": address.to_string(), "reason": reason });
            (EventClass::Refused, "call-refused", detail)
        }
        ServeEvent::Rejected { address, reason } => {
            (EventClass::Refused, "peer-refused", json!({ "peer": address.to_string(), "reason": reason }))
        }
        ServeEvent::Suppressed { count } => return daemon.refusals_suppressed(*count),
    };
    daemon.event(DaemonEvent { class, name, detail, text });
}

/// The text of the unit. Measuring alone needs no root, but the identity and the
/// pairings are files of anyone who runs `pair create`, which a unit of the system has to read.
fn unit(command: &str, listen: &SocketAddr, identity: &Path) -> String {
    let identity = identity.display();
    format!(
        "\
[Unit]
Description=ClearStream agent for paired controllers at {listen}
Documentation=man:clearstream-serve(1)
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart={command}
# Controllers are permitted with: clearstream pair create NAME --identity {identity}
StateDirectory=clearstream/serve clearstream/plans
StateDirectoryMode=0700
# A change that is not kept yet has a guardian process, which outlives the daemon.
KillMode=process
# Only a fault ends it otherwise.
Restart=on-failure
RestartSec=1
# What measuring and the scope measure,change need.
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_NICE CAP_IPC_LOCK
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=-{identity}
ProtectHome=read-only
PrivateTmp=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_UNIX

[Install]
WantedBy=multi-user.target
"
    )
}
