//! The `clearstream` command as a library: arguments, verbs and output. Everything
//! below this crate neither prints nor reads arguments.
//!
//! A verb is one file in [`verbs`] (its options and what it does); what people
//! see is in [`output`]; every error and its exit code is in [`exit`].
#![forbid(unsafe_code)]

pub mod agent;
pub mod defaults;
pub mod endpoints;
pub mod exit;
pub mod files;
pub mod hints;
pub mod interrupt;
pub mod mpi;
pub mod output;
pub mod steer;
pub mod verbs;
pub mod workloads;

use std::ffi::OsString;

use clap::{ArgMatches, ColorChoice, CommandFactory as _, FromArgMatches as _, Parser as _};
use clearstream_schema::ExitCode;

use exit::CommandError;
use output::{Output, diagnostics};
use verbs::Cli;

/// Parses and runs the command line, and returns the documented exit code.
pub fn main() -> std::process::ExitCode {
    let arguments = hints::translated(std::env::args_os().collect());
    let mut command = Cli::command();
    if arguments.iter().any(|argument| argument == mpi::OPTION) {
        output::of_launcher();
        command = command.color(ColorChoice::Never);
    }
    let parsed = command.try_get_matches_from(&arguments).and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((cli, matches))
    });
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            return report_usage(error, &arguments);
        }
    };
    let out = Output::new(cli.output.format(), verb_path(&matches).join(" "));
    let ended = diagnostics::start(cli.output.log.as_deref())
        .and_then(|()| match is_own(&verb_path(&matches)) {
            true => Ok(()),
            false => interrupt::end_at_once().map_err(CommandError::from),
        })
        .and_then(|()| with_defaults(cli, &matches, &arguments))
        .and_then(|cli| cli.verb.run(&out));
    let code = match ended {
        Ok(()) => ExitCode::Success,
        Err(error) => {
            output::log(&format!("clearstream: {error}"));
            // Standard output may be what failed.
            let _ = out.failed(&error);
            error.exit_code()
        }
    };
    output::flush();
    std::process::ExitCode::from(code as u8)
}

/// The command line with the options of the file of defaults, which are reported.
fn with_defaults(cli: Cli, matches: &ArgMatches, arguments: &[OsString]) -> Result<Cli, CommandError> {
    let Some((arguments, added)) = defaults::extend(matches, arguments)? else { return Ok(cli) };
    output::log(&added);
    // It was read once already.
    Cli::try_parse_from(arguments).map_err(|error| CommandError::Usage(error.to_string()))
}

/// Reports an invalid command line, or prints the requested help or version.
fn report_usage(error: clap::Error, arguments: &[OsString]) -> std::process::ExitCode {
    let error = hints::with_hint(error, arguments);
    let _ = error.print();
    if !error.use_stderr() {
        return std::process::ExitCode::from(ExitCode::Success as u8);
    }
    // Standard output holds one document, also of this.
    let out = Output::new(hints::requested_format(arguments), "clearstream".to_owned());
    let _ = out.failed_with(&hints::document(&error));
    std::process::ExitCode::from(ExitCode::Usage as u8)
}

/// Whether a verb is for this program itself: an agent, a keeper or a guard decides by itself what signals do.
fn is_own(path: &[&str]) -> bool {
    let mut command = Cli::command();
    path.iter().any(|name| {
        let below = command.find_subcommand(name).cloned();
        below.is_some_and(|below| {
            command = below;
            command.is_hide_set()
        })
    })
}

/// Names of the verb and its parents: `plan apply`.
fn verb_path(matches: &ArgMatches) -> Vec<&str> {
    let mut path = Vec::new();
    let mut below = matches.subcommand();
    while let Some((name, matches)) = below {
        path.push(name);
        below = matches.subcommand();
    }
    path
}
