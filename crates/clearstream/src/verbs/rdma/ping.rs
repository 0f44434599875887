//! `clearstream rdma ping`

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use clearstream_rdma::{
    RdmaError, SILENCE_LIMIT, ServerOptions,
    rping::{self, PingOptions},
};
use clearstream_schema::JsonSchema;
use clearstream_schema::rdma::{PING_MOST_BYTES, PingConfig, PingSummary};
use serde::Serialize;

use super::{TargetArgs, serve};
use crate::{
    endpoints::FamilyArgs,
    exit::CommandError,
    interrupt,
    output::{Output, Paint, rdma},
};

/// Exchange pings by the protocol of rping, which can be the peer.
#[derive(Debug, clap::Args)]
pub struct PingArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    family: FamilyArgs,
    #[command(flatten)]
    config: PingConfig,
    /// Run the server, for clients of rping and clearstream, several at once
    #[arg(long, conflicts_with_all = ["host", "local", "ipv4", "ipv6", "interval", "revision", "no_crc"])]
    serve: bool,
    /// Address to listen on with --serve (default: loopback)
    #[arg(long, short = 'a', value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// Exit after the first client was served
    #[arg(long)]
    once: bool,
    /// Print the text of every ping
    #[arg(long, short = 'v', conflicts_with = "json")]
    verbose: bool,
}

/// Pings that were exchanged.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PingDocument<'a> {
    /// The result.
    summary: &'a PingSummary,
}

impl PingArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if self.serve { self.serve(out) } else { self.ping(out) }
    }

    fn serve(self, out: &Output) -> Result<(), CommandError> {
        let largest = self.config.size.map_or(PING_MOST_BYTES, |size| size.0);
        rping::check_size(largest)?;
        let ping = PingOptions {
            largest_bytes: u32::try_from(largest).unwrap_or(u32::MAX),
            verify: self.config.verify,
            rounds: self.config.count.filter(|count| *count > 0),
        };
        let options = ServerOptions { ping, measurements: false, once: self.once, silence: SILENCE_LIMIT };
        let listen = self.listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        serve::serve(
            SocketAddr::new(listen, self.target.port.unwrap_or(rping::PORT)),
            options,
            self.verbose,
            out,
        )
    }

    fn ping(self, out: &Output) -> Result<(), CommandError> {
        if self.listen.is_some() || self.once {
            return Err(CommandError::usage("--listen and --once are for a server: add --serve"));
        }
        let stop = interrupt::stop_flag()?;
        let target = self.target.find(rping::PORT, self.family)?;
        let mut view = View::new(&self.config, self.verbose, out);
        let summary = rping::ping(target.address, target.cookie, &self.config, &stop, |number, round| {
            view.show(number, round);
        })?;
        out.result(&PingDocument { summary: &summary }, || rdma::ping(&summary, Paint::for_stdout()))?;
        match summary.mismatch_count {
            Some(count @ 1..) => Err(RdmaError::Mismatch(format!(
                "{count} of {} pings came back changed",
                summary.round_count
            ))
            .into()),
            _ if !summary.complete => Err(RdmaError::Stopped.into()),
            _ => Ok(()),
        }
    }
}

/// Output while pings are exchanged.
struct View<'a> {
    out: &'a Output,
    rounds: Option<u64>,
    started: Instant,
    verbose: bool,
}

/// Duration from which on pings show their progress.
const UNREMARKABLE: Duration = Duration::from_secs(2);

impl<'a> View<'a> {
    fn new(config: &PingConfig, verbose: bool, out: &'a Output) -> Self {
        Self { out, rounds: config.rounds(), started: Instant::now(), verbose }
    }

    fn show(&mut self, number: u64, round: &rping::Round) {
        if self.verbose {
            let detail = serde_json::json!({ "number": number, "text": rdma::printable_ping(&round.echo) });
            return self.out.state("ping", Some(detail), || Some(rdma::ping_text(&round.echo)));
        }
        let (Some(rounds), elapsed) = (self.rounds, self.started.elapsed()) else { return };
        if elapsed < UNREMARKABLE {
            return;
        }
        let each = elapsed.as_secs_f64() / (number + 1) as f64;
        let left = Duration::from_secs_f64(each * rounds.saturating_sub(number + 1) as f64);
        self.out.progress(left, "pings");
    }
}
