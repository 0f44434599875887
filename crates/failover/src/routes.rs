//! Routes over the gateways on the hosts of a lab, applied for an experiment
//! and removed after it; and `route watch` on them.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Child, Command, Stdio},
};

use clearstream_lab::{LabError, RunningLab};
use clearstream_netconfig::routes::{self, Content, Format};
use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_route::difference::MARK_TABLE;
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
    routing::{HostRouting, NexthopTarget},
    watch::{WatchRequest, WatchStatus},
};
use clearstream_sys::program::Program;
use clearstream_watch as watch;
use clearstream_workload::TrialError;

/// Routing applied to hosts of a lab. Dropping it removes the routing.
#[derive(Debug)]
pub(crate) struct LabRoutes<'a> {
    lab: &'a RunningLab,
    hosts: Vec<Host>,
    watches: Vec<Child>,
}

#[derive(Debug)]
struct Host {
    name: String,
    netlink: RouteSocket,
    /// The routing, as far as it was applied.
    routing: HostRouting,
    sysctls_before: Vec<(String, String)>,
}

impl<'a> LabRoutes<'a> {
    /// Applies the routing of each host. Its other routes and rules are kept.
    pub(crate) fn apply(
        lab: &'a RunningLab,
        routing: &BTreeMap<String, HostRouting>,
    ) -> Result<Self, TrialError> {
        let mut routes = Self { lab, hosts: Vec::new(), watches: Vec::new() };
        for (name, routing) in routing {
            let open = || RouteSocket::open();
            let netlink = lab.namespaces(name).map_err(lab_error)?.run(open);
            let netlink = netlink.map_err(|error| Failure::of_system(&format!("enter {name}"), &error))?;
            let netlink = netlink.map_err(|error| refused(name, &error))?;
            let host = Host {
                name: name.clone(),
                netlink,
                routing: HostRouting::default(),
                sysctls_before: Vec::new(),
            };
            routes.hosts.push(host);
            // Routes applied before an error are removed by the drop.
            if let Some(host) = routes.hosts.last_mut() {
                host.apply(lab, routing)?;
            }
        }
        Ok(routes)
    }

    /// Starts `route watch` on these hosts.
    pub(crate) fn watch(
        &mut self,
        program: &Path,
        fabric: &Path,
        hosts: &[String],
    ) -> Result<(), TrialError> {
        for host in hosts {
            let mut command = Command::new(program);
            command.args(["route", "watch"]).arg(fabric).args(["--host", host]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let started = self.lab.command(host, command).map_err(lab_error)?.spawn();
            let child = started
                .map_err(|error| Failure::of_system(&format!("start route watch on {host}"), &error))?;
            self.watches.push(child);
        }
        Ok(())
    }

    /// Whether the watch of each of these hosts uses every gateway and had a
    /// response through it; false while one does not listen yet.
    pub(crate) fn watches_ready(&self, hosts: &[String]) -> Result<bool, TrialError> {
        for host in hosts {
            let namespaces = self.lab.namespaces(host).map_err(lab_error)?;
            let status = namespaces.run(|| watch::query(&WatchRequest::Status));
            let status = status.map_err(|error| Failure::of_system(&format!("enter {host}"), &error))?;
            if !status.is_ok_and(|status| has_response_through_every_gateway(&status)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the watches that have ended, as indices of their hosts in
    /// starting order.
    pub(crate) fn ended_watches(&mut self) -> Vec<usize> {
        let ended = self
            .watches
            .iter_mut()
            .enumerate()
            .filter_map(|(place, child)| matches!(child.try_wait(), Ok(Some(_))).then_some(place));
        ended.collect()
    }
}

fn has_response_through_every_gateway(status: &WatchStatus) -> bool {
    let mut gateways = status.paths.iter().flat_map(|path| &path.gateways);
    gateways.all(|gateway| gateway.used && gateway.round_trip_ns.is_some())
}

impl Drop for LabRoutes<'_> {
    fn drop(&mut self) {
        for mut child in self.watches.drain(..) {
            let pid = rustix::process::Pid::from_child(&child);
            // A watch leaves the routes unchanged; one that has ended is
            // reaped.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            if !waited(&mut child) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        for host in &mut self.hosts {
            host.remove(self.lab);
        }
    }
}

/// Whether a process exits within a second or two.
fn waited(child: &mut Child) -> bool {
    for _ in 0..100 {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    false
}

impl Host {
    fn apply(&mut self, lab: &RunningLab, routing: &HostRouting) -> Result<(), TrialError> {
        let sysctls: Vec<(String, String)> =
            routing.sysctls.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect();
        self.sysctls_before = lab.set_sysctls(&self.name, &sysctls).map_err(lab_error)?;
        // Groups after their members, routes after the next hops that they
        // refer to.
        let is_group = |target: &NexthopTarget| matches!(target, NexthopTarget::Group { .. });
        let mut nexthops = routing.nexthops.clone();
        nexthops.sort_by_key(|nexthop| is_group(&nexthop.target));
        for nexthop in nexthops {
            self.netlink.set_nexthop(&nexthop).map_err(|error| refused(&self.name, &error))?;
            self.routing.nexthops.push(nexthop);
        }
        for route in &routing.routes {
            self.netlink.set_route(route, true).map_err(|error| refused(&self.name, &error))?;
            self.routing.routes.push(route.clone());
        }
        for rule in &routing.rules {
            self.netlink.add_rule(rule).map_err(|error| refused(&self.name, &error))?;
            self.routing.rules.push(rule.clone());
        }
        if !routing.connection_marks.is_empty() {
            nft(lab, &self.name, &mark_ruleset(routing)?)?;
            self.routing.connection_marks.clone_from(&routing.connection_marks);
        }
        Ok(())
    }

    /// Removes in reverse order. Objects removed already (a watch may have
    /// removed a gateway) are no error, and in a drop errors cannot be
    /// reported.
    fn remove(&mut self, lab: &RunningLab) {
        if !self.routing.connection_marks.is_empty() {
            let _ = nft(lab, &self.name, &format!("delete table inet {MARK_TABLE}\n"));
        }
        for rule in self.routing.rules.drain(..).rev() {
            let _ = self.netlink.remove_rule(&rule);
        }
        for route in self.routing.routes.drain(..).rev() {
            let _ = self.netlink.remove_route(&route);
        }
        for nexthop in self.routing.nexthops.drain(..).rev() {
            let _ = self.netlink.remove_nexthop(nexthop.id);
        }
        let _ = lab.set_sysctls(&self.name, &self.sysctls_before);
    }
}

/// Renders the nft table of connection marks.
fn mark_ruleset(routing: &HostRouting) -> Result<String, TrialError> {
    let format: Format = "iproute2".parse().map_err(internal)?;
    let rendered = routes::host(routing, format).map_err(|error| internal(error.to_string()))?;
    let found = rendered.files.into_iter().find_map(|file| match file.content {
        Content::Text { text, .. } if file.path.ends_with(".nft") => Some(text),
        _ => None,
    });
    found.ok_or_else(|| internal("connection marks have no file of nft".to_owned()))
}

/// Runs nft on a host with a ruleset as input.
fn nft(lab: &RunningLab, host: &str, text: &str) -> Result<(), TrialError> {
    let nft = Program::new("nft").args(["-f", "-"]).input(text.as_bytes()).finishes();
    let output = nft.prepared(|command| lab.command(host, command)).map_err(lab_error)?.run();
    let output = output.map_err(|error| {
        let Failure { kind, message } = error.to_failure();
        Failure { kind, message: format!("connection marks need nft: {message}") }
    })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    let message = format!("{host}: nft: {message}");
    Err(Failure { kind: FailureKind::Unsupported, message }.into())
}

pub(crate) fn lab_error(error: LabError) -> TrialError {
    error.to_failure().into()
}

pub(crate) fn internal(message: String) -> TrialError {
    Failure { kind: FailureKind::Internal, message }.into()
}

fn refused(host: &str, error: &NetlinkError) -> TrialError {
    Failure { kind: FailureKind::Unsupported, message: format!("{host}: {error}") }.into()
}
