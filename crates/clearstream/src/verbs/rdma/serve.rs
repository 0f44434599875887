//! `clearstream rdma serve`

use std::net::{IpAddr, SocketAddr};

use clap::ValueEnum;
use clearstream_rdma::{
    SILENCE_LIMIT, Server, ServerEvent, ServerOptions,
    perftest::{self, Program},
    rping::{self, PingOptions},
};
use clearstream_schema::{
    ByteCount,
    rdma::{RdmaOperation, RdmaProgress},
};

use crate::{
    exit::CommandError,
    interrupt,
    output::{
        Output,
        daemon::Daemon,
        rdma::server::{self, perftest_event},
    },
};

/// Serve pings and measurements of other hosts.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Address to listen on
    #[arg(long, short = 'a', value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Port to listen on (default: 7174, with --perftest 18515)
    #[arg(long, short = 'p', value_name = "PORT")]
    port: Option<u16>,
    /// Exit after the first peer was served
    #[arg(long)]
    once: bool,
    /// Run the server of this perftest program, for its clients (with -R) and for clearstream's --perftest
    #[arg(long, value_enum, value_name = "PROGRAM")]
    perftest: Option<PerftestProgram>,
    #[command(flatten)]
    perftest_options: PerftestArgs,
}

/// Parameters of perftest's servers, which have to match those of the clients.
#[derive(Debug, clap::Args)]
struct PerftestArgs {
    /// Largest message that clients may use; with ib_write_lat the exact message size
    #[arg(long, short = 's', value_name = "BYTES", requires = "perftest")]
    size: Option<ByteCount>,
    /// Queue pairs per client
    #[arg(long, short = 'q', value_name = "COUNT", default_value_t = 1, requires = "perftest", value_parser = clap::value_parser!(u16).range(1..=1024))]
    queue_pairs: u16,
    /// Messages per client (used by ib_write_lat only)
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1000, requires = "perftest")]
    iterations: u64,
    /// Receives posted per queue pair of ib_send_bw and ib_send_lat, at least as many as the client's
    #[arg(long, short = 'r', value_name = "COUNT", default_value_t = perftest::DEFAULT_RECEIVES, requires = "perftest", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    rx_depth: u32,
    /// Progress mode: who moves the bytes
    #[arg(long, value_enum, default_value_t = RdmaProgress::Inline, requires = "perftest")]
    progress: RdmaProgress,
}

/// perftest's programs.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum PerftestProgram {
    #[value(name = "ib_send_bw")]
    SendBw,
    #[value(name = "ib_send_lat")]
    SendLat,
    #[value(name = "ib_write_bw")]
    WriteBw,
    #[value(name = "ib_write_lat")]
    WriteLat,
    #[value(name = "ib_read_bw")]
    ReadBw,
    #[value(name = "ib_read_lat")]
    ReadLat,
}

impl PerftestProgram {
    fn program(self) -> Program {
        let (operation, latency) = match self {
            Self::SendBw => (RdmaOperation::Send, false),
            Self::SendLat => (RdmaOperation::Send, true),
            Self::WriteBw => (RdmaOperation::Write, false),
            Self::WriteLat => (RdmaOperation::Write, true),
            Self::ReadBw => (RdmaOperation::Read, false),
            Self::ReadLat => (RdmaOperation::Read, true),
        };
        Program { operation, latency }
    }
}

/// Default of the largest accepted message: perftest's largest.
const LARGEST_BYTES: u64 = 8 << 20;
/// perftest's size of a latency test.
const LATENCY_BYTES: u64 = 2;

impl ServeArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if let Some(program) = self.perftest {
            return self.perftest(program.program(), out);
        }
        let options = ServerOptions {
            ping: PingOptions::default(),
            measurements: true,
            once: self.once,
            silence: SILENCE_LIMIT,
        };
        serve(SocketAddr::new(self.listen, self.port.unwrap_or(rping::PORT)), options, false, out)
    }

    fn perftest(self, program: Program, out: &Output) -> Result<(), CommandError> {
        let requested = self.perftest_options;
        let exact = program.latency && program.operation == RdmaOperation::Write;
        let size = requested.size.map_or(if exact { LATENCY_BYTES } else { LARGEST_BYTES }, |size| size.0);
        let options = perftest::ServerOptions {
            program,
            size_bytes: size,
            queue_pairs: requested.queue_pairs,
            receives: requested.rx_depth,
            iterations: requested.iterations,
            progress: requested.progress,
            once: self.once,
        };
        let stop = interrupt::stop_flag()?;
        let address = SocketAddr::new(self.listen, self.port.unwrap_or(perftest::PORT));
        let server = perftest::Server::bind(address, options)?;
        let local = server.local_address();
        let text = format!("listening on {local} as {}; stop with Ctrl-C", program.name());
        let daemon = Daemon::listening(local, Some(program.name()), text, out)?;
        let ended = server.run(&stop, &|event| daemon.bounded_event(perftest_event(&event)));
        daemon.finish(ended.map_err(CommandError::from))
    }
}

/// Listens, and reports events; the texts of clients' pings with `shows_pings`.
pub(super) fn serve(
    address: SocketAddr,
    options: ServerOptions,
    shows_pings: bool,
    out: &Output,
) -> Result<(), CommandError> {
    let stop = interrupt::stop_flag()?;
    let server = Server::bind(address, options)?;
    let local = server.local_address();
    let daemon = Daemon::listening(local, None, format!("listening on {local}; stop with Ctrl-C"), out)?;
    let ended = server.run(&stop, &|event| match (&event, server::event(&event, shows_pings)) {
        // Requested, and as many as the queue has room for.
        (ServerEvent::PingText { .. }, Some(ping)) => daemon.event(ping),
        (_, Some(event)) => daemon.bounded_event(event),
        (_, None) => {}
    });
    daemon.finish(ended.map_err(CommandError::from))
}
