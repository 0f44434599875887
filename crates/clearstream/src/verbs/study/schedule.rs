//! `clearstream study schedule`: systemd units that run a study regularly.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use clearstream_schema::TimeSpan;
use clearstream_sys::program::Program;
use clearstream_watch::command_line;

use super::StudyVerb;
use crate::{
    endpoints::own_program,
    exit::{CommandError, cannot},
    files,
    output::{Output, documents::Written},
    verbs::{Cli, Verb},
    workloads::registry,
};

/// Runs that are kept, unless given.
const KEEP: usize = 100;

/// Write a systemd timer and a service that run a study regularly, check each run and remove old ones.
#[derive(Debug, clap::Args)]
pub struct ScheduleArgs {
    /// Times, as systemd.time(7) writes calendar events: daily, hourly, "Mon..Fri 02:00"
    #[arg(long, value_name = "CALENDAR", default_value = "daily")]
    calendar: String,
    /// Start each run by a random time later, so that hosts with the same times do not meet
    #[arg(long, value_name = "TIME", default_value = "10m")]
    spread: TimeSpan,
    /// Keep this many of the newest runs
    #[arg(long, value_name = "COUNT", default_value_t = KEEP)]
    keep: usize,
    /// Folder of the runs [default: /var/lib/clearstream/runs]
    #[arg(long, value_name = "FOLDER")]
    runs: Option<PathBuf>,
    /// Folder for the two units
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
    /// A study, and hosts and options as `study run` has them
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "STUDY")]
    run: Vec<String>,
}

impl ScheduleArgs {
    pub(super) fn run(self, out: &Output) -> Result<(), CommandError> {
        let name = self.checked()?;
        check_calendar(&self.calendar)?;
        let unit = format!("clearstream-study-{name}");
        let service = self.service(&own_program()?.to_string_lossy(), &name)?;
        let mut written = Vec::new();
        for (suffix, text) in [("service", service), ("timer", self.timer(&name))] {
            let path = self.out.join(format!("{unit}.{suffix}"));
            files::write(&path, &text)?;
            written.push(path.display().to_string());
        }
        let next = format!(
            "wrote {}\ninstall: cp {} /etc/systemd/system/ && systemctl daemon-reload && systemctl enable --now {unit}.timer",
            written.join(" and "),
            written.join(" ")
        );
        Ok(out.result(&Written { files: &written }, || next)?)
    }

    /// The name of the study, whose command `study run` accepts.
    fn checked(&self) -> Result<String, CommandError> {
        let line = ["clearstream", "study", "run"].into_iter().chain(self.run.iter().map(String::as_str));
        let parsed = Cli::try_parse_from(line).map_err(|error| {
            CommandError::Usage(format!("study run would refuse this: {}", error.render()))
        })?;
        let Verb::Study(StudyVerb::Run(run)) = parsed.verb else {
            return Err(CommandError::Usage("name a study to run".to_owned()));
        };
        if run.resume.is_some() || run.dry_run || run.runs.is_some() {
            return Err(CommandError::Usage(
                "leave --resume, --dry-run and --runs out of the study's options; `study schedule --runs FOLDER` names the folder"
                    .to_owned(),
            ));
        }
        Ok(clearstream_study::file::load(&run.study, &registry())?.name)
    }

    fn service(&self, program: &str, name: &str) -> Result<String, CommandError> {
        let runs = self
            .runs
            .as_ref()
            .map(std::path::absolute)
            .transpose()
            .map_err(cannot("find the working directory"))?;
        let runs =
            runs.map_or_else(|| "/var/lib/clearstream/runs".to_owned(), |runs| runs.display().to_string());
        let mut run = vec!["study".to_owned(), "run".to_owned()];
        for argument in &self.run {
            // A unit starts in another folder.
            let is_file = argument.ends_with(".toml") && Path::new(argument).is_file();
            let absolute = is_file
                .then(|| std::path::absolute(argument))
                .transpose()
                .map_err(cannot("find the working directory"))?;
            run.push(absolute.map_or_else(|| argument.clone(), |path| path.display().to_string()));
        }
        run.extend(["--runs".to_owned(), runs.clone()]);
        let other =
            |line: &str| command_line(program, &line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let (check, prune) = (other("study check"), other("runs prune --yes --study"));
        let folder = command_line(&runs, &[]);
        Ok(format!(
            "\
[Unit]
Description=ClearStream study {name}
Documentation=man:clearstream-study-run(1)
After=network-online.target
Wants=network-online.target

[Service]
Type=oneshot
StateDirectory=clearstream/runs
ExecStart={run}
# Exit code 10 marks the unit as failed where the run is worse than the last good one.
ExecStart={check} {folder}
ExecStopPost={prune} {study} --keep {keep} {folder}
",
            run = command_line(program, &run),
            study = command_line(name, &[]),
            keep = self.keep,
        ))
    }

    fn timer(&self, name: &str) -> String {
        format!(
            "\
[Unit]
Description=ClearStream study {name}, regularly

[Timer]
OnCalendar={}
RandomizedDelaySec={}s
# A run that was due while the host was off is made up for.
Persistent=true

[Install]
WantedBy=timers.target
",
            self.calendar.replace('%', "%%"),
            self.spread.to_std().as_secs()
        )
    }
}

/// Where systemd is installed it judges the calendar; elsewhere the units are for another host.
fn check_calendar(calendar: &str) -> Result<(), CommandError> {
    if calendar.contains(char::is_control) || calendar.trim().is_empty() {
        return Err(CommandError::Usage("a calendar event is one line, as in daily".to_owned()));
    }
    let Ok(judged) = Program::new("systemd-analyze").args(["calendar", "--", calendar]).run() else {
        return Ok(());
    };
    if judged.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&judged.stderr).trim().to_owned();
    Err(CommandError::Usage(format!("systemd does not know the times {calendar}: {reason}")))
}
