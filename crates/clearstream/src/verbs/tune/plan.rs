//! `clearstream tune plan`

use std::{net::IpAddr, path::PathBuf};

use clearstream_host::{HostRoot, capture};
use clearstream_netconfig::settings::Format;
use clearstream_schema::{BitRate, TimeSpan};
use clearstream_tune::{HostState, Profile, recommend};

use super::goal;
use crate::{
    exit::CommandError,
    files,
    output::{self, Output, Paint, Unwritten, tune},
    verbs::plan::write_files,
};

/// Round trip from which on a path is treated as a wide-area one.
const WAN_FROM: TimeSpan = TimeSpan::from_millis(2);

/// Plan the settings that a path needs, with the computation of each value.
/// Nothing is changed.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// Target goodput of the path, all flows together
    #[arg(long, value_name = "RATE")]
    rate: BitRate,
    /// Round-trip time of the path
    #[arg(long, value_name = "TIME")]
    rtt: TimeSpan,
    /// Parallel flows
    #[arg(long, short = 'P', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    flows: u32,
    /// Address at the other end of the path: its route may set the congestion control (`congctl`)
    #[arg(long, value_name = "ADDRESS", conflicts_with = "from")]
    to: Option<IpAddr>,
    /// Profile of the host: wan, lan, storage or latency (default: by the round trip, wan from 2 ms on)
    #[arg(long, value_name = "PROFILE")]
    profile: Option<Profile>,
    /// Plan for a captured host instead of this one
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Write the plan, for `clearstream plan apply`; with --as, the folder of its files
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Write files that are read at boot: sysctl.d, networkmanager, networkd, udev, tuned, ansible or shell
    #[arg(long = "as", value_name = "FORMAT", requires = "out")]
    format: Option<Format>,
}

impl PlanArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let goal = goal(self.rate, self.rtt, self.flows)?;
        let profile = self.profile.unwrap_or(if self.rtt >= WAN_FROM { Profile::Wan } else { Profile::Lan });
        let state = match &self.from {
            Some(path) => HostState::of_host(capture::open(path)?.root()),
            None => HostState::of_host(&HostRoot::live()),
        };
        let state = match self.to {
            Some(address) => state
                .with_route_to(address)
                .map_err(|error| CommandError::Usage(format!("--to {address}: {error}")))?,
            None => state,
        };
        let plan = recommend(&state, &goal, profile);
        if let (Some(format), Some(folder)) = (self.format, &self.out) {
            if out.is_human() {
                output::line(&tune::plan(&plan, Paint::for_stdout()))?;
                output::line("")?;
            }
            return write_files(&plan, format, folder, out);
        }
        if let Some(path) = &self.out {
            let text = clearstream_schema::json::to_string_pretty(&plan).map_err(Unwritten::from)?;
            files::write(path, &(text + "\n"))?;
        }
        Ok(out.result(&plan, || {
            let text = tune::plan(&plan, Paint::for_stdout());
            match &self.out {
                Some(path) => format!("{text}\n\nplan written: clearstream plan apply {}", path.display()),
                None => text,
            }
        })?)
    }
}
