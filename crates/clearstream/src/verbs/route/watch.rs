//! `clearstream route watch`: keeps failed gateways out of this host's next-hop
//! sets.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use clearstream_dashboard::{Content, Dashboard, watch_exposition};
use clearstream_host::HostRoot;
use clearstream_route::{
    fabric::{self, Fabric, HostId},
    planner::Planner,
    probe_kernel,
};
use clearstream_schema::watch::WatchEventKind;
use clearstream_watch::{self as watch, BfdSource, WatchConfig};

use super::{
    here::own_id,
    printer::Events,
    standing::{added_addresses, of_watch},
};
use crate::{
    exit::{CommandError, cannot},
    interrupt,
    output::{self, Output, printer::Printer, watch as text_of},
};
use serde_json::json;

/// Monitor the gateways of this host: probe the path through each of them end to end,
/// remove failed gateways from the next-hop set, restore them on recovery. Run it on the
/// hosts of both sides.
#[derive(Debug, clap::Args)]
pub struct WatchArgs {
    /// Name of a built-in fabric or a fabric file
    fabric: String,
    /// Name of this host in the fabric (default: its host name)
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Serve a page with the gateways and the events, and print its link (default address: a free port of loopback)
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:0", require_equals = true)]
    web: Option<SocketAddr>,
    /// Use the BFD sessions of this routing daemon as additional evidence
    #[arg(long, value_name = "DAEMON")]
    bfd: Option<Daemon>,
    /// Folder that keeps the list of drained gateways across restarts
    #[arg(long, value_name = "FOLDER", default_value = "/run/clearstream")]
    state: PathBuf,
    /// Print a systemd unit that runs this command, and exit
    #[arg(long)]
    unit: bool,
}

/// A routing daemon.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Daemon {
    Bird,
    Frr,
}

impl WatchArgs {
    /// Runs the watch until it is stopped.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let root = HostRoot::live();
        let fabric = fabric::load(&self.fabric)?;
        let own = root.read("proc/sys/kernel/hostname").unwrap_or_default();
        if self.unit {
            let text = self.unit_text(&fabric, out)?;
            return Ok(output::as_it_is(text.trim_end())?);
        }
        let host = match &self.host {
            Some(name) => fabric.find(name)?,
            None => own_id(&fabric, own.trim())?,
        };
        let stop = interrupt::stop_flag()?;
        output::in_background();
        let config = self.watch_config(&fabric, host, &root);
        let exposition = watch_exposition(Arc::clone(&config.status));
        // It ends with the watch.
        let _metrics = self
            .metrics
            .map(|address| Dashboard::start(address, Content::Metrics(exposition)))
            .transpose()?;
        let page = self.page(&config)?;
        if let Some(page) = &page {
            let link = page.link();
            // With --json each line is an event of the watch.
            if out.is_human() || out.is_stream() {
                out.state("page", Some(json!({ "link": link })), || Some(format!("page: {link}")));
            } else {
                out.note(&format!("page: {link}"));
            }
        }
        let printer = Printer::start(Events::to(out))?;
        let watched = watch::run(config, &stop, &mut |event| {
            if let Some(page) = &page {
                let is_fault = matches!(
                    event.event,
                    WatchEventKind::Out { .. }
                        | WatchEventKind::KeptLast { .. }
                        | WatchEventKind::Silent { .. }
                        | WatchEventKind::Lost { .. }
                        | WatchEventKind::Held { .. }
                        | WatchEventKind::Failed { .. }
                );
                page.publish_event(&event.time, &text_of::event_text(&event.event), is_fault);
            }
            printer.print(event.clone());
        });
        let printed = printer.finish();
        watched?;
        Ok(printed?)
    }

    /// The page, if one is requested.
    fn page(&self, config: &WatchConfig) -> Result<Option<Dashboard>, CommandError> {
        let Some(address) = self.web else { return Ok(None) };
        let status = Arc::clone(&config.status);
        let title = format!("route watch: {}, fabric {}", config.host, config.fabric);
        let state = move || {
            let status = status.lock().unwrap_or_else(PoisonError::into_inner).clone();
            text_of::tables(&status)
        };
        Ok(Some(Dashboard::start(address, Content::Status { title, state: Arc::new(state) })?))
    }

    fn watch_config(&self, fabric: &Fabric, host: HostId, root: &HostRoot) -> WatchConfig {
        let planner = Planner::new(fabric).with_kernel(host.class, probe_kernel::features(root));
        WatchConfig {
            fabric: fabric.name().to_owned(),
            host: fabric.host_name(host),
            routing: planner.routing(host),
            paths: watch::watched_paths(fabric, host),
            settings: fabric.file().watch,
            status: Arc::new(Mutex::new(watch::empty_status(fabric.name(), &fabric.host_name(host)))),
            bfd: self.bfd.map(|daemon| match daemon {
                Daemon::Bird => BfdSource::Bird,
                Daemon::Frr => BfdSource::Frr,
            }),
            watchdog: sd_notify::watchdog_enabled(),
            state: self.state.clone(),
            standing: of_watch,
            added: added_addresses,
        }
    }

    /// The unit of this command line without `--unit`; a file is named by its
    /// whole path.
    fn unit_text(&self, fabric: &Fabric, out: &Output) -> Result<String, CommandError> {
        let program = std::env::current_exe().map_err(cannot("find this program"))?;
        let path = PathBuf::from(&self.fabric);
        let path: OsString = match path.canonicalize() {
            Ok(path) if self.fabric.contains('/') || self.fabric.ends_with(".toml") => path.into(),
            _ => path.into(),
        };
        let host = self.host.iter().flat_map(|host| ["--host".into(), host.into()]);
        let on_host: Vec<OsString> = std::iter::once(path).chain(host).collect();
        let of_verb = |verb: &str| [&["route".into(), verb.into()], &on_host[..]].concat();
        let apply = [&of_verb("apply")[..], &["--at-boot".into(), "--yes".into()]].concat();
        let mut arguments = of_verb("watch");
        arguments.extend(out.option().map(OsString::from));
        if let Some(metrics) = self.metrics {
            arguments.extend(["--metrics".into(), metrics.to_string().into()]);
        }
        if let Some(web) = self.web {
            arguments.push(format!("--web={web}").into());
        }
        if let Some(daemon) = self.bfd {
            let name = match daemon {
                Daemon::Bird => "bird",
                Daemon::Frr => "frr",
            };
            arguments.extend(["--bfd".into(), name.into()]);
        }
        arguments.extend(["--state".into(), self.state.clone().into()]);
        let texts = |arguments: Vec<OsString>| -> Vec<String> {
            arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
        };
        Ok(watch::unit(&program.to_string_lossy(), &texts(apply), &texts(arguments), fabric.name()))
    }
}
