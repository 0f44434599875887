//! The verbs: one file each, with its options and what it does.

pub mod cc;
pub mod compat;
pub mod completions;
pub mod defaults;
pub mod deploy;
pub mod diagnose;
pub mod explore;
pub mod flow;
pub mod improve;
pub mod inspect;
pub mod lab;
pub mod live;
pub mod measure;
pub mod pair;
pub mod place;
pub mod plan;
pub mod rank;
pub mod rdma;
pub mod report;
pub mod route;
pub mod runs;
pub mod serve;
pub mod storage;
pub mod study;
pub mod tune;

use clap::{Parser, Subcommand};

use crate::{
    exit::CommandError,
    output::{Output, OutputArgs},
};

/// Measure, explain and improve the path between two Linux hosts.
#[derive(Debug, Parser)]
#[command(name = "clearstream", version, propagate_version = true, max_term_width = 100)]
#[command(args_override_self = true)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    /// Output format and log.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 internal fault, 2 usage, 3 host unreachable, 4 refused, \
5 unsupported here, 6 peer lost, 7 file, 8 partly done, 9 name taken or unknown, 10 below the threshold, 130 interrupted.";

/// The verbs. Options of a verb are built when it is called: all of them together
/// are most of the time that a start takes, and a lab starts five of these programs.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Verb {
    /// Describe a host: NUMA, PCIe, NICs, interrupts, kernel
    Inspect(inspect::InspectArgs),
    /// Measure bulk goodput to another host
    #[command(disable_version_flag = true)]
    Flow(Box<flow::FlowArgs>),
    /// One that is made of the contract of a workload
    #[command(flatten)]
    Measure(measure::Measure),
    /// Explore the states of a model by many ranks: threads, or processes of an MPI job
    Explore(explore::ExploreArgs),
    /// Measure and check a file system: streaming (as IOR), metadata (as mdtest), semantics
    #[command(subcommand)]
    Storage(storage::StorageVerb),
    /// Report what limits the path to another host, with evidence and suggestions
    Diagnose(Box<diagnose::DiagnoseArgs>),
    /// Find what limits a path and change it, one proven change at a time
    Improve(Box<improve::ImproveArgs>),
    /// Show what hosts do now: interfaces, cores, TCP, connections with their limits
    Live(live::LiveArgs),
    /// Run, list and compare studies: many trials in a seeded order
    #[command(subcommand)]
    Study(study::StudyVerb),
    /// List, compare and remove recorded runs
    #[command(subcommand)]
    Runs(runs::RunsVerb),
    /// Write the report of a recorded run
    Report(report::ReportArgs),
    /// Hosts and links in network namespaces on this machine
    #[command(subcommand)]
    Lab(lab::LabVerb),
    /// Congestion controls of this host; load H-TCP where the kernel has none
    #[command(subcommand)]
    Cc(cc::CcVerb),
    /// Check a host's settings for mistakes, and plan the right ones for a path
    #[command(subcommand)]
    Tune(tune::TuneVerb),
    /// Change a host by a plan: show, apply, verify, confirm, revert
    #[command(subcommand)]
    Plan(plan::PlanVerb),
    /// Routes over several gateways between networks: plan, files, proof, health
    #[command(subcommand)]
    Route(route::RouteVerb),
    /// Place interrupts, queues, processes and flows: rankings, plans, source ports
    #[command(subcommand)]
    Place(place::PlaceVerb),
    /// RDMA over TCP in software: ping, bandwidth, latency; no card, no kernel module
    #[command(subcommand)]
    Rdma(rdma::RdmaVerb),
    /// Serve paired controllers (a daemon; on loopback unless an address is given)
    Serve(serve::ServeArgs),
    /// Create, list and revoke pairings for `serve`
    #[command(subcommand)]
    Pair(pair::PairVerb),
    /// Copy this program to another host by ssh, and check that it works there
    Deploy(deploy::DeployArgs),
    /// Show the file of defaults, and which of its options apply to a host
    Defaults(defaults::DefaultsArgs),
    /// Print completions for a shell, or write the manual pages
    Completions(completions::CompletionsArgs),
    /// Serve a controller on standard input and output
    #[command(hide = true)]
    Agent,
    /// Be one of two ranks that measure over MPI
    #[command(hide = true)]
    Rank(rank::RankArgs),
}

/// When a verb ends what an earlier process has left unfinished on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finishing {
    /// It neither changes nor serves, or that is its own work.
    No,
    Before,
    /// It may be about one of these changes itself.
    After,
}

impl Verb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let finishing = self.finishing();
        if finishing == Finishing::Before {
            plan::finish_unfinished();
        }
        let done = self.run_alone(out);
        if finishing == Finishing::After {
            plan::finish_unfinished();
        }
        done
    }

    fn finishing(&self) -> Finishing {
        use plan::PlanVerb;
        match self {
            Self::Plan(PlanVerb::Guard(_) | PlanVerb::Recover(_)) => Finishing::No,
            Self::Plan(PlanVerb::Confirm(_) | PlanVerb::Revert(_)) => Finishing::After,
            Self::Plan(_)
            | Self::Tune(_)
            | Self::Route(_)
            | Self::Place(_)
            | Self::Improve(_)
            | Self::Serve(_)
            | Self::Agent => Finishing::Before,
            _ => Finishing::No,
        }
    }

    fn run_alone(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Inspect(args) => args.run(out),
            Self::Flow(args) => args.run(out),
            Self::Measure(verb) => verb.run(out),
            Self::Explore(args) => args.run(out),
            Self::Storage(verb) => verb.run(out),
            Self::Diagnose(args) => args.run(out),
            Self::Improve(args) => args.run(out),
            Self::Live(args) => args.run(out),
            Self::Study(verb) => verb.run(out),
            Self::Runs(verb) => verb.run(out),
            Self::Report(args) => args.run(out),
            Self::Lab(verb) => verb.run(out),
            Self::Cc(verb) => verb.run(out),
            Self::Tune(verb) => verb.run(out),
            Self::Plan(verb) => verb.run(out),
            Self::Route(verb) => verb.run(out),
            Self::Place(verb) => verb.run(out),
            Self::Rdma(verb) => verb.run(out),
            Self::Serve(args) => args.run(out),
            Self::Pair(verb) => verb.run(out),
            Self::Deploy(args) => args.run(out),
            Self::Defaults(args) => args.run(out),
            Self::Completions(args) => args.run(out),
            Self::Rank(args) => args.run(out),
            Self::Agent => {
                out.without_document("an agent")?;
                crate::interrupt::leave_to_controller()?;
                Ok(clearstream_control::agent::serve_stdio(crate::agent::services_of_process())?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clearstream_schema::ExitCode;

    use super::*;

    /// The help of every verb, down to the leaves.
    fn all_help(command: &mut clap::Command, path: &str, text: &mut String) {
        text.push_str(&format!("===== {path}\n{}\n", command.render_long_help()));
        let names: Vec<String> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
            .map(|verb| verb.get_name().to_owned())
            .collect();
        for name in names {
            if let Some(verb) = command.find_subcommand_mut(&name) {
                all_help(verb, &format!("{path} {name}"), text);
            }
        }
    }

    #[test]
    fn help_is_as_reviewed() {
        let mut command = Cli::command();
        command.build();
        let mut text = String::new();
        all_help(&mut command, "clearstream", &mut text);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn every_exit_code_is_documented() {
        let guide = include_str!("../../../../docs/guide/exit-codes.md");
        for code in ExitCode::ALL {
            let row = format!("| {} | {code:?} |", code as u8);
            assert!(guide.contains(&row), "docs/guide/exit-codes.md lacks \"{row}\"");
            let number = format!(" {} ", code as u8);
            assert!(EXIT_CODES.contains(&number), "the help lacks exit code {number}");
        }
    }

    /// Command lines of a page: those in code blocks that call the program,
    /// behind a prompt or `sudo`, without what the shell would take.
    fn examples(page: &str) -> Vec<Vec<String>> {
        let mut inside = false;
        let mut found = Vec::new();
        for line in page.lines() {
            if line.starts_with("```") {
                inside = !inside;
            }
            let line = line.split(" #").next().unwrap_or_default();
            let line = line.split([';', '|']).next().unwrap_or_default();
            let call = line
                .split_once("clearstream ")
                .filter(|(before, _)| matches!(before.trim(), "" | "sudo") || before.trim().ends_with('$'));
            if let (true, Some((_, arguments))) = (inside, call) {
                let arguments = arguments.split_whitespace().map(str::to_owned);
                found.push(std::iter::once("clearstream".to_owned()).chain(arguments).collect());
            }
        }
        found
    }

    #[test]
    fn every_example_of_the_guides_is_valid() {
        let docs = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide"));
        let mut pages = vec![docs.join("../../README.md")];
        pages.extend(std::fs::read_dir(docs).expect("the guide").map(|entry| entry.expect("a page").path()));
        let mut count = 0;
        for page in pages {
            for arguments in examples(&std::fs::read_to_string(&page).expect("a page")) {
                let read = crate::hints::translated(arguments.iter().map(Into::into).collect());
                if let Err(error) = Cli::try_parse_from(read) {
                    panic!("{}: {}: {error}", page.display(), arguments.join(" "));
                }
                count += 1;
            }
        }
        assert!(count > 30, "only {count} examples were found");
    }

    #[test]
    fn completions_are_made_for_every_shell() {
        use clap::ValueEnum;
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "clearstream", &mut script);
            let script = String::from_utf8(script).expect("completions are text");
            assert!(script.contains("receiver-cores"), "{shell}");
        }
    }

    #[test]
    fn manual_pages_name_every_option() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        clap_mangen::generate_to(Cli::command(), folder.path()).expect("pages are written");
        let page =
            std::fs::read_to_string(folder.path().join("clearstream-flow.1")).expect("a page per verb");
        for option in ["sender\\-cores", "window", "congestion\\-control", "json\\-stream"] {
            assert!(page.contains(option), "{option}");
        }
    }
}
