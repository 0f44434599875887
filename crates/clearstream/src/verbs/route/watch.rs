//! `clearstream route watch`: keeps failed gateways out of this host's next-hop
//! sets.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use clearstream_dashboard::{Content, Dashboard, watch_exposition};
use clearstream_host::HostRoot;
use clearstream_route::{
    fabric::{self, Fabric, HostId},
    planner::Planner,
    probe_kernel,
};
use clearstream_watch::{self as watch, BfdSource, WatchConfig};

use super::{here::own_id, printer::Events};
use crate::{
    exit::CommandError,
    interrupt,
    output::{self, Output, printer::Printer},
};

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
        let _metrics =
            self.metrics.map(|address| Dashboard::start(address, Content::Metrics(exposition))).transpose()?;
        let printer = Printer::start(Events::to(out))?;
        let watched = watch::run(config, &stop, &mut |event| printer.print(event.clone()));
        let printed = printer.finish();
        watched?;
        Ok(printed?)
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
        }
    }

    /// The unit of this command line without `--unit`; a file is named by its
    /// whole path.
    fn unit_text(&self, fabric: &Fabric, out: &Output) -> Result<String, CommandError> {
        let program = std::env::current_exe()?;
        let mut arguments: Vec<OsString> = vec!["route".into(), "watch".into()];
        let path = PathBuf::from(&self.fabric);
        arguments.push(match path.canonicalize() {
            Ok(path) if self.fabric.contains('/') || self.fabric.ends_with(".toml") => path.into(),
            _ => path.into(),
        });
        if let Some(host) = &self.host {
            arguments.extend(["--host".into(), host.into()]);
        }
        arguments.extend(out.option().map(OsString::from));
        if let Some(metrics) = self.metrics {
            arguments.extend(["--metrics".into(), metrics.to_string().into()]);
        }
        if let Some(daemon) = self.bfd {
            let name = match daemon {
                Daemon::Bird => "bird",
                Daemon::Frr => "frr",
            };
            arguments.extend(["--bfd".into(), name.into()]);
        }
        arguments.extend(["--state".into(), self.state.clone().into()]);
        let arguments: Vec<String> =
            arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
        Ok(watch::unit(&program.to_string_lossy(), &arguments, fabric.name()))
    }
}
