//! The `clearstream` command as a library: arguments, what each verb does, and
//! what is printed. Everything below this crate neither prints nor reads
//! arguments.
//!
//! A verb is one file in [`verbs`] (its options and what it does); what people
//! see is in [`output`]; every error and its exit code is in [`exit`].
#![forbid(unsafe_code)]

pub mod agent;
pub mod endpoints;
pub mod exit;
pub mod files;
pub mod guarded;
pub mod hints;
pub mod interrupt;
pub mod output;
pub mod steer;
pub mod verbs;
pub mod workloads;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use clearstream_schema::ExitCode;

use output::{Output, diagnostics};
use verbs::Cli;

/// Reads the command line, does it, and returns the documented exit code.
pub fn main() -> std::process::ExitCode {
    let mut words: Vec<String> = Vec::new();
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        words = verb_words(&matches).into_iter().map(str::to_owned).collect();
        Cli::from_arg_matches(&matches)
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            return not_understood(error);
        }
    };
    let out = Output::new(cli.output.format(), words.join(" "));
    let ended = diagnostics::start(cli.output.log.as_deref()).and_then(|()| cli.verb.run(&out));
    match ended {
        Ok(()) => std::process::ExitCode::from(ExitCode::Success as u8),
        Err(error) => {
            output::log(&format!("clearstream: {error}"));
            // Standard output may be what failed.
            let _ = out.failed(&error);
            std::process::ExitCode::from(error.exit_code() as u8)
        }
    }
}

/// A command line that is an error, or asks for the help or the version.
fn not_understood(error: clap::Error) -> std::process::ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let error = hints::with_hint(error, &words);
    let _ = error.print();
    if !error.use_stderr() {
        return std::process::ExitCode::from(ExitCode::Success as u8);
    }
    // Standard output holds one document, also of this.
    let out = Output::new(hints::requested_format(&words), "clearstream".to_owned());
    let _ = out.failed_with(&hints::document(&error));
    std::process::ExitCode::from(ExitCode::Usage as u8)
}

/// The verb as it was written: `tune apply`.
fn verb_words(matches: &ArgMatches) -> Vec<&str> {
    let mut words = Vec::new();
    let mut below = matches.subcommand();
    while let Some((word, matches)) = below {
        words.push(word);
        below = matches.subcommand();
    }
    words
}
