//! `clearstream route health`, `drain` and `undrain`: requests to the watch that
//! runs on this host.

use clearstream_schema::watch::WatchRequest;
use clearstream_watch as watch;

use crate::{
    exit::CommandError,
    output::{Output, watch as text_of},
};

/// Show the state of the gateways, as reported by the running watch.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {}

impl HealthArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        send(&WatchRequest::Status, out)
    }
}

/// Remove a gateway from the next-hop set for maintenance, or restore it. On this host
/// only: run it on the hosts of both sides.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// Name of the gateway in the fabric
    gateway: String,
}

impl DrainArgs {
    /// Removes the gateway from the next-hop set.
    pub fn drain(self, out: &Output) -> Result<(), CommandError> {
        send(&WatchRequest::Drain(self.gateway), out)
    }

    /// Restores the gateway.
    pub fn undrain(self, out: &Output) -> Result<(), CommandError> {
        send(&WatchRequest::Undrain(self.gateway), out)
    }
}

fn send(request: &WatchRequest, out: &Output) -> Result<(), CommandError> {
    let status = watch::query(request)?;
    Ok(out.result(&status, || text_of::status(&status))?)
}
