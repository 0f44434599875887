//! `clearstream lab`

use std::process::Command;

use clap::Subcommand;
use clearstream_lab::RunningLab;
use clearstream_schema::ExitCode;

use crate::{
    endpoints::own_program,
    exit::CommandError,
    output::{
        self,
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
    /// Show the labs that run, and those that could
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show hosts, links and delay lines of a running lab
    Show {
        /// Name
        lab: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
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

/// The command that `lab::up` starts to hold a lab.
pub fn keeper_command() -> Result<Command, CommandError> {
    let mut command = Command::new(own_program()?);
    command.args(["lab", "keep"]);
    Ok(command)
}

impl LabVerb {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        match self {
            Self::Up { lab } => {
                let file = clearstream_lab::file::load(&lab)?;
                let running = clearstream_lab::up(&file, keeper_command()?)?;
                Ok(output::line(&format!("{} is up\n{}", file.name, describe(&running)))?)
            }
            Self::Down { lab } => {
                clearstream_lab::down(&lab)?;
                Ok(output::line(&format!("{lab} is down"))?)
            }
            Self::List { json } => list(json),
            Self::Show { lab, json } => show(&lab, json),
            Self::Exec { lab, host, command } => exec(&lab, &host, &command),
            Self::Shell { lab, host } => {
                let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
                exec(&lab, &host, &[shell])
            }
            Self::Keep => Ok(clearstream_lab::keeper::run()?),
        }
    }
}

fn list(json: bool) -> Result<(), CommandError> {
    let running = clearstream_lab::list()?;
    if json {
        let names: Vec<&str> = running.iter().map(|lab| lab.file().name.as_str()).collect();
        let document = serde_json::json!({
            "schema": "clearstream.lab-list", "version": 1,
            "running": names, "built_in": clearstream_lab::file::built_in_names(),
        });
        return Ok(output::json(&document, true)?);
    }
    let mut rows: Vec<Vec<String>> = running
        .iter()
        .map(|lab| vec![lab.file().name.clone(), "running".to_owned(), lab.file().title.clone()])
        .collect();
    for name in clearstream_lab::file::built_in_names() {
        if !running.iter().any(|lab| lab.file().name == *name) {
            let title = clearstream_lab::file::load(name)?.title;
            rows.push(vec![(*name).to_owned(), "built in".to_owned(), title]);
        }
    }
    Ok(output::line(&table(&["lab", "state", "what it is"], rows))?)
}

fn show(name: &str, json: bool) -> Result<(), CommandError> {
    let lab = clearstream_lab::open(name)?;
    let stats = lab.delay_line_stats()?;
    if json {
        let document = serde_json::json!({
            "schema": "clearstream.lab-state", "version": 1,
            "file": lab.file(), "delay_lines": stats,
        });
        return Ok(output::json(&document, true)?);
    }
    output::line(&describe(&lab))?;
    let rows = stats.iter().enumerate().map(|(index, line)| {
        vec![
            index.to_string(),
            line.passed_count.to_string(),
            bytes(line.passed_bytes),
            line.lost_count.to_string(),
            line.overflow_count.to_string(),
            time(line.late_p50_ns),
            time(line.late_p99_ns),
            time(line.late_max_ns),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let header =
            [">delay line", ">passed", ">bytes", ">lost", ">overflow", ">late p50", ">late p99", ">late max"];
        output::line(&table(&header, rows))?;
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
            link.delay.to_string(),
            link.jitter.to_string(),
            format!("{} %", link.loss_ratio * 100.0),
            or_dash(link.rate),
            link.mtu.to_string(),
        ]
    });
    table(&["end", "other end", ">delay one way", ">jitter", ">loss", ">rate", ">MTU"], rows.collect())
}

fn exec(lab: &str, host: &str, command: &[String]) -> Result<(), CommandError> {
    let lab = clearstream_lab::open(lab)?;
    let (program, arguments) =
        command.split_first().ok_or_else(|| CommandError::usage("name the command to run after `--`"))?;
    let mut inside = Command::new(program);
    inside.args(arguments);
    let status = lab.command(host, inside)?.status().map_err(|source| CommandError::File {
        what: "run".to_owned(),
        path: program.into(),
        source,
    })?;
    // The command's own exit code is what scripts expect here.
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => std::process::exit(ExitCode::Internal as i32),
    }
}
