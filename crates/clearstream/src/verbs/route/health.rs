//! `clearstream route health`, `drain` and `undrain`: questions to the watch that
//! runs on this host.

use clearstream_route::watch;
use clearstream_schema::watch::WatchRequest;

use crate::{
    exit::CommandError,
    output::{self, watch as words},
};

/// Ask the running watch how the gateways are.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl HealthArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        ask(&WatchRequest::Status, self.json)
    }
}

/// Take a gateway out for maintenance, or end that. On this host only: run it on
/// the hosts of both sides.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// Name of the gateway in the fabric
    gateway: String,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl DrainArgs {
    /// Takes it out.
    pub fn drain(self) -> Result<(), CommandError> {
        ask(&WatchRequest::Drain(self.gateway), self.json)
    }

    /// Puts it back.
    pub fn undrain(self) -> Result<(), CommandError> {
        ask(&WatchRequest::Undrain(self.gateway), self.json)
    }
}

fn ask(request: &WatchRequest, json: bool) -> Result<(), CommandError> {
    let status = watch::ask(request)?;
    if json {
        return Ok(output::json(&status, true)?);
    }
    Ok(output::line(&words::status(&status))?)
}
