//! The command. Everything is in the library, so that tests and other
//! programs can use it.

fn main() -> std::process::ExitCode {
    clearstream::main()
}
