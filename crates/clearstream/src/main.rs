//! The command. Everything is in the library, so that tests and other
//! programs can use it.

/// musl's own allocator is made to be small, with one lock for all threads: small
/// strings and maps take three times as long with it as with glibc's. No data
/// path allocates, but samplers, records and reports do.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    clearstream::main()
}
