//! `clearstream route health`, `drain` and `undrain`: questions to the watch that
//! runs on this host.

use clearstream_schema::watch::WatchRequest;
use clearstream_watch as watch;

use crate::{
    exit::CommandError,
    output::{Output, watch as words},
};

/// Ask the running watch how the gateways are.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {}

impl HealthArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        ask(&WatchRequest::Status, out)
    }
}

/// Take a gateway out for maintenance, or end that. On this host only: run it on
/// the hosts of both sides.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// Name of the gateway in the fabric
    gateway: String,
}

impl DrainArgs {
    /// Takes it out.
    pub fn drain(self, out: &Output) -> Result<(), CommandError> {
        ask(&WatchRequest::Drain(self.gateway), out)
    }

    /// Puts it back.
    pub fn undrain(self, out: &Output) -> Result<(), CommandError> {
        ask(&WatchRequest::Undrain(self.gateway), out)
    }
}

fn ask(request: &WatchRequest, out: &Output) -> Result<(), CommandError> {
    let status = watch::query(request)?;
    Ok(out.result(&status, || words::status(&status))?)
}
