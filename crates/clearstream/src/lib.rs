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
pub mod interrupt;
pub mod output;
pub mod steer;
pub mod verbs;
pub mod workloads;

use clap::Parser;
use clearstream_schema::ExitCode;

use verbs::Cli;

/// Reads the command line, does it, and returns the documented exit code.
pub fn main() -> std::process::ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            let code = if error.use_stderr() { ExitCode::Usage } else { ExitCode::Success };
            return std::process::ExitCode::from(code as u8);
        }
    };
    match cli.verb.run() {
        Ok(()) => std::process::ExitCode::from(ExitCode::Success as u8),
        Err(error) => {
            output::log(&format!("clearstream: {error}"));
            std::process::ExitCode::from(error.exit_code() as u8)
        }
    }
}
