//! `clearstream-bpf load htcp`, `clearstream-bpf unload htcp`: helper of
//! `clearstream cc`. Errors are one line on standard error; exit codes are
//! clearstream's.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["load", algorithm] => clearstream_bpf::load(algorithm),
        ["unload", algorithm] => clearstream_bpf::unload(algorithm),
        _ => {
            eprintln!(
                "usage: clearstream-bpf load | unload ALGORITHM (`clearstream cc` is the user command)"
            );
            return ExitCode::from(clearstream_schema::ExitCode::Usage as u8);
        }
    };
    match result {
        Ok(control) => {
            println!("{}", control.name);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_code() as u8)
        }
    }
}
