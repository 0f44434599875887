//! `clearstream-bpf load htcp`, `clearstream-bpf unload htcp`: what
//! `clearstream cc` calls. One line on standard error says what went wrong; the
//! exit code is one of clearstream's.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["load", algorithm] => clearstream_bpf::load(algorithm),
        ["unload", algorithm] => clearstream_bpf::unload(algorithm),
        _ => {
            eprintln!(
                "usage: clearstream-bpf load | unload ALGORITHM (`clearstream cc` is the verb for people)"
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
