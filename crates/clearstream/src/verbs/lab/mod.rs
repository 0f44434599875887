//! `clearstream lab`

mod documents;

use std::{io, os::unix::process::CommandExt as _, process::Command};

use clap::{Subcommand, ValueEnum};
use clearstream_lab::{RunningLab, limit};
use clearstream_schema::lab::{FaultKind, LabFault, LinkEnd};

pub use self::documents::{LabDown, LabFaults, LabList, LabState};
use crate::{
    endpoints::own_program,
    exit::CommandError,
    output::{
        self, Output,
        quantity::{bytes, time},
        table::{or_dash, table},
    },
};

/// Hosts and links in network namespaces on this machine.
#[derive(Debug, Subcommand)]
pub enum LabVerb {
    /// Bring a lab up; it stays until `down`, also after this shell ends
    Up {
        /// Name of a built-in lab, or a lab file
        lab: String,
    },
    /// Take a lab down
    Down {
        /// Name
        lab: String,
    },
    /// List running and built-in labs
    List,
    /// Show hosts, links and delay lines of a running lab
    Show {
        /// Name
        lab: String,
    },
    /// Inject a fault into a running lab, or clear it
    Fault {
        /// Name
        lab: String,
        /// Host, or one interface of it as HOST:INTERFACE
        #[arg(required_unless_present = "clear")]
        place: Option<String>,
        /// Kind of fault
        #[arg(required_unless_present = "clear")]
        kind: Option<FaultArg>,
        /// Clear the faults at this place, or all faults
        #[arg(long, conflicts_with = "kind")]
        clear: bool,
    },
    /// Run a command on a host of a running lab
    Exec {
        /// Name
        lab: String,
        /// Host
        host: String,
        /// Command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Open a shell on a host of a running lab
    Shell {
        /// Name
        lab: String,
        /// Host
        host: String,
    },
    /// Hold a lab: started by `up`
    #[command(hide = true)]
    Keep,
}

/// Kinds of faults that `lab fault` injects.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FaultArg {
    /// The link drops everything silently; the carrier stays up
    Cut,
    /// The interface loses its carrier
    LinkDown,
    /// The router still responds (ARP, ping) but silently drops what it should forward
    Drop,
    /// The host is dead to the others: all its links are cut
    Kill,
}

/// The command that `lab::up` starts to hold a lab.
pub fn keeper_command() -> Result<Command, CommandError> {
    let mut command = Command::new(own_program()?);
    command.args(["lab", "keep"]);
    output::diagnostics::pass_on(&mut command);
    Ok(command)
}

impl LabVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Up { lab } => {
                let file = clearstream_lab::file::load(&lab)?;
                out.state("starting", None, || None);
                let running = clearstream_lab::up(&file, keeper_command()?)?;
                let (stats, faults) = (running.delay_line_stats()?, running.faults()?);
                let document = LabState::of(&running, &stats, &faults);
                Ok(out.result(&document, || format!("{} is up\n{}", file.name, describe(&running)))?)
            }
            Self::Down { lab } => {
                clearstream_lab::down(&lab)?;
                Ok(out.result(&LabDown { lab: &lab }, || format!("{lab} is down"))?)
            }
            Self::List => list(out),
            Self::Show { lab } => show(&lab, out),
            Self::Fault { lab, place, kind, clear: _ } => fault(&lab, place.as_deref(), kind, out),
            Self::Exec { lab, host, command } => {
                out.without_document("a command on a host")?;
                exec(&lab, &host, &command)
            }
            Self::Shell { lab, host } => {
                out.without_document("a shell")?;
                let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
                exec(&lab, &host, &[shell])
            }
            Self::Keep => Ok(clearstream_lab::keeper::run()?),
        }
    }
}

/// Injects a fault with a kind, and clears faults without one.
fn fault(name: &str, place: Option<&str>, kind: Option<FaultArg>, out: &Output) -> Result<(), CommandError> {
    let is_injected = kind.is_some();
    let lab = clearstream_lab::open(name)?;
    let split = place.map(|place| place.split_once(':').map_or((place, None), |(host, at)| (host, Some(at))));
    let (host, interface) = (split.map(|(host, _)| host), split.and_then(|(_, at)| at));
    let changed = match (kind, host) {
        (Some(kind), Some(host)) => {
            let kind = match kind {
                FaultArg::Kill if interface.is_some() => {
                    return Err(CommandError::usage(&format!(
                        "a host is killed, not one link of it: write `kill` with {host}, or `cut`"
                    )));
                }
                FaultArg::Cut | FaultArg::Kill => FaultKind::Cut,
                FaultArg::LinkDown => FaultKind::LinkDown,
                FaultArg::Drop => FaultKind::NoForwarding,
            };
            let fault = LabFault { host: host.to_owned(), interface: interface.map(str::to_owned), kind };
            lab.inject_fault(&fault)?;
            vec![fault]
        }
        _ => lab.clear_faults(host, interface)?,
    };
    let faults = lab.faults()?;
    if !out.is_human() {
        let (injected, cleared) = if is_injected { (Some(changed), None) } else { (None, Some(changed)) };
        return Ok(out.document(&LabFaults { lab: name, injected, cleared, faults })?);
    }
    let action = if is_injected { "injected" } else { "cleared" };
    let mut lines: Vec<String> =
        changed.iter().map(|fault| format!("{action}: {}", fault_text(fault))).collect();
    if changed.is_empty() {
        lines.push("there was no fault to clear".to_owned());
    }
    lines.extend(
        faults
            .iter()
            .filter(|fault| !changed.contains(fault))
            .map(|fault| format!("still injected: {}", fault_text(fault))),
    );
    Ok(output::line(&lines.join("\n"))?)
}

fn fault_text(fault: &LabFault) -> String {
    let place = match &fault.interface {
        Some(interface) => format!("{}:{interface}", fault.host),
        None => fault.host.clone(),
    };
    let what = match (fault.kind, &fault.interface) {
        (FaultKind::Cut, Some(_)) => "cut, silently",
        (FaultKind::Cut, None) => "dead: all its links are cut, silently",
        (FaultKind::LinkDown, _) => "without carrier",
        (FaultKind::NoForwarding, _) => "responds but forwards nothing",
    };
    format!("{place} {what}")
}

fn list(out: &Output) -> Result<(), CommandError> {
    let running = clearstream_lab::list()?;
    if !out.is_human() {
        return Ok(out.document(&LabList::of(&running))?);
    }
    let mut rows: Vec<Vec<String>> = running
        .iter()
        .map(|lab| vec![lab.file().name.clone(), state_of(lab), lab.file().title.clone()])
        .collect();
    for name in clearstream_lab::file::built_in_names() {
        if !running.iter().any(|lab| lab.file().name == name) {
            let title = clearstream_lab::file::load(name)?.title;
            rows.push(vec![name.to_owned(), "built in".to_owned(), title]);
        }
    }
    Ok(output::line(&table(&["lab", "state", "what it is"], rows))?)
}

/// State of a running lab, as shown in the list.
fn state_of(lab: &RunningLab) -> String {
    let mut state = match lab.faults().map(|faults| faults.len()) {
        Ok(0) => "running".to_owned(),
        Ok(1) => "running, 1 fault".to_owned(),
        Ok(count) => format!("running, {count} faults"),
        Err(_) => "its keeper does not respond".to_owned(),
    };
    let dead = lab.dead_hosts();
    if !dead.is_empty() {
        state.push_str(&format!(", dead: {}", dead.join(" ")));
    }
    if lab.delay_line_stats().is_ok_and(|stats| limit::notice(&stats).is_some()) {
        state.push_str(", delay line was the limit");
    }
    state
}

fn show(name: &str, out: &Output) -> Result<(), CommandError> {
    let lab = clearstream_lab::open(name)?;
    let (stats, faults) = (lab.delay_line_stats()?, lab.faults()?);
    if !out.is_human() {
        return Ok(out.document(&LabState::of(&lab, &stats, &faults))?);
    }
    output::line(&describe(&lab))?;
    let rows = stats.iter().enumerate().map(|(index, line)| {
        vec![
            index.to_string(),
            line.passed_count.to_string(),
            bytes(line.passed_bytes),
            line.lost_count.to_string(),
            line.overflow_count.to_string(),
            (line.relay_dropped_count + line.front_dropped_count).to_string(),
            time(line.unseen_max_ns),
            time(line.late_p50_ns),
            time(line.late_p99_ns),
            time(line.late_max_ns),
            or_dash(line.busy_ratio.map(|ratio| format!("{:.0} %", ratio * 100.0))),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let header = [
            ">delay line",
            ">passed",
            ">bytes",
            ">lost",
            ">overflow",
            ">line dropped",
            ">unseen max",
            ">late p50",
            ">late p99",
            ">late max",
            ">busy",
        ];
        output::line(&table(&header, rows))?;
    }
    if let Some(notice) = limit::notice(&stats) {
        output::line(&notice.message)?;
    }
    for fault in &faults {
        output::line(&format!("injected fault: {}", fault_text(fault)))?;
    }
    for host in lab.dead_hosts() {
        output::line(&format!("{host} has died: restart the lab (lab down, lab up)"))?;
    }
    Ok(())
}

/// Hosts with their addresses, and links with what they do to a packet.
fn describe(lab: &RunningLab) -> String {
    let rows = lab.file().links.iter().map(|link| {
        let end = |index: usize| {
            let end = &link.ends[index];
            format!("{} {} {}", end.host, end.interface, end.addresses.join(" "))
        };
        vec![
            end(0),
            end(1),
            time(link.delay.0),
            time(link.jitter.0),
            format!("{} %", link.loss_ratio * 100.0),
            or_dash(link.rate),
            link.mtu.to_string(),
        ]
    });
    let links: Vec<Vec<String>> = rows.collect();
    let ports = lab.file().switches.iter().flat_map(|switch| {
        let row = |end: &LinkEnd| {
            let addresses = end.addresses.join(" ");
            vec![
                switch.name.clone(),
                end.host.clone(),
                end.interface.clone(),
                addresses,
                switch.mtu.to_string(),
            ]
        };
        switch.ends.iter().map(row)
    });
    let ports: Vec<Vec<String>> = ports.collect();
    let mut parts = Vec::new();
    if !links.is_empty() || ports.is_empty() {
        let header = ["end", "other end", ">delay one way", ">jitter", ">loss", ">rate", ">MTU"];
        parts.push(table(&header, links));
    }
    if !ports.is_empty() {
        parts.push(table(&["switch", "host", "interface", "addresses", ">MTU"], ports));
    }
    parts.join("\n")
}

/// Replaces this process by the command, so that it gets the signals and its exit
/// status reaches the waiting process. A child would outlive a parent that was
/// ended by SIGTERM.
fn exec(lab: &str, host: &str, command: &[String]) -> Result<(), CommandError> {
    let lab = clearstream_lab::open(lab)?;
    let (program, arguments) =
        command.split_first().ok_or_else(|| CommandError::usage("name the command to run after `--`"))?;
    let mut inside = Command::new(program);
    inside.args(arguments);
    let source = lab.command(host, inside)?.exec();
    if source.kind() == io::ErrorKind::NotFound {
        return Err(CommandError::no_name(format!("there is no program {program} on {host}")));
    }
    Err(CommandError::File { what: "run".to_owned(), path: program.into(), source })
}
