//! `clearstream tune lint`

use std::path::{Path, PathBuf};

use clearstream_host::{HostRoot, capture};
use clearstream_lint::{MuteList, sarif};
use clearstream_schema::{
    BitRate, ByteCount, TimeSpan,
    human::count,
    tune::{LintReport, Severity},
};
use clearstream_tune::{Assumed, HostState, KernelVersion, lint, of_given_lines};

use super::goal;
use crate::{
    exit::CommandError,
    files,
    output::{Output, Paint, tune},
};

/// Check the settings of this host, of a captured one, or of a file for mistakes:
/// sysctl.conf, a tuned profile, a script, a list copied from a paper.
#[derive(Debug, clap::Args)]
pub struct LintArgs {
    /// File of settings (default: this host's own)
    file: Option<PathBuf>,
    /// Check a captured host, or the file as it would apply there
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Kernel that the file is for, as `uname -r` has it
    #[arg(long, value_name = "RELEASE", requires = "file", conflicts_with = "from")]
    kernel: Option<KernelVersion>,
    /// Memory of the host that the file is for
    #[arg(long, value_name = "SIZE", requires = "file", conflicts_with = "from")]
    memory: Option<ByteCount>,
    /// Target goodput of the path, all flows together
    #[arg(long, value_name = "RATE", requires = "rtt")]
    rate: Option<BitRate>,
    /// Round-trip time of the path
    #[arg(long, value_name = "TIME", requires = "rate")]
    rtt: Option<TimeSpan>,
    /// Parallel flows
    #[arg(long, short = 'P', value_name = "COUNT", default_value_t = 1, requires = "rate", value_parser = clap::value_parser!(u32).range(1..=4096))]
    flows: u32,
    #[command(flatten)]
    showing: Showing,
}

/// Selection and format of findings, common to all linters.
#[derive(Debug, clap::Args)]
pub struct Showing {
    /// Mute findings with this id, or with this prefix (`net.core.*`)
    #[arg(long, value_name = "ID")]
    mute: Vec<String>,
    /// Mute the findings listed in this file, one id per line
    #[arg(long, value_name = "FILE")]
    mute_file: Option<PathBuf>,
    /// Print SARIF 2.1.0, for code review tools
    #[arg(long, conflicts_with_all = ["json", "json_stream"])]
    sarif: bool,
}

impl LintArgs {
    /// Runs it. Findings of severity error exit with code 8.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let goal = match (self.rate, self.rtt) {
            (Some(rate), Some(rtt)) => Some(goal(rate, rtt, self.flows)?),
            _ => None,
        };
        let mute = self.showing.mute_list()?;
        let state = self.state()?;
        let mut report = lint(&state, goal.as_ref(), &mute);
        if self.file.is_some() && self.from.is_some() {
            report = of_given_lines(report, &state);
        }
        self.showing.show(&report, "clearstream tune lint", out)
    }

    fn state(&self) -> Result<HostState, CommandError> {
        let file = match &self.file {
            Some(path) => Some((path.display().to_string(), text(path)?)),
            None => None,
        };
        let host = match (&self.from, &file) {
            (Some(path), _) => Some(HostState::of_host(capture::open(path)?.root())),
            (None, None) => Some(HostState::of_host(&HostRoot::live())),
            (None, Some(_)) => None,
        };
        Ok(match (host, file) {
            (Some(host), Some((name, text))) => host.with_file(&name, &text),
            (Some(host), None) => host,
            (None, Some((name, text))) => HostState::of_file(&name, &text, self.assumed()),
            (None, None) => HostState::default(),
        })
    }

    fn assumed(&self) -> Assumed {
        Assumed {
            release: self.kernel.map(|kernel| kernel.to_string()),
            memory_bytes: self.memory.map(|size| size.0),
            page_bytes: None,
        }
    }
}

impl Showing {
    /// Findings that are not shown.
    pub fn mute_list(&self) -> Result<MuteList, CommandError> {
        let invalid = |origin: &str, error| CommandError::Usage(format!("{origin}: {error}"));
        let options: MuteList = self.mute.join("\n").parse().map_err(|error| invalid("--mute", error))?;
        let Some(path) = &self.mute_file else { return Ok(options) };
        let listed: MuteList =
            text(path)?.parse().map_err(|error| invalid(&path.display().to_string(), error))?;
        Ok(options.with(listed))
    }

    /// Prints the findings. Those of severity error exit with code 8.
    pub fn show(&self, report: &LintReport, tool: &str, out: &Output) -> Result<(), CommandError> {
        if self.sarif {
            out.foreign(&sarif(report, tool))?;
        } else {
            for finding in &report.findings {
                out.finding(&finding.id, &finding.message, || None);
            }
            out.result(report, || tune::findings(report, Paint::for_stdout()))?;
        }
        let error_count =
            report.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
        match error_count {
            0 => Ok(()),
            errors => Err(CommandError::Partial(format!(
                "{} of severity error in {}",
                count(errors, "finding"),
                report.subject
            ))),
        }
    }
}

/// The whole of a file; bytes that are no text are shown as such in a finding.
fn text(path: &Path) -> Result<String, CommandError> {
    Ok(String::from_utf8_lossy(&files::read(path)?).into_owned())
}
