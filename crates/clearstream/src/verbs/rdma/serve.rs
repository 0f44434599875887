//! `clearstream rdma serve`

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use clap::ValueEnum;
use clearstream_control::rate::{Admission, LogLimit};
use clearstream_rdma::{
    Server, ServerEvent, ServerOptions,
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
    output::{self, Output},
};

/// Be the far end of pings and measurements.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Address to listen on; another than loopback only when asked
    #[arg(long, short = 'a', value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Port to listen on (default: 7174, with --perftest 18515)
    #[arg(long, short = 'p', value_name = "PORT")]
    port: Option<u16>,
    /// End when the first peer was served
    #[arg(long)]
    once: bool,
    /// Be the server of this program of perftest, for its clients (with -R) and for --perftest of ours
    #[arg(long, value_enum, value_name = "PROGRAM")]
    perftest: Option<PerftestProgram>,
    #[command(flatten)]
    perftest_options: PerftestArgs,
}

/// What perftest's servers must be told like their clients.
#[derive(Debug, clap::Args)]
struct PerftestArgs {
    /// Largest message that clients may use; of ib_write_lat the size of all of them
    #[arg(long, short = 's', value_name = "BYTES", requires = "perftest")]
    size: Option<ByteCount>,
    /// Queue pairs of a client
    #[arg(long, short = 'q', value_name = "COUNT", default_value_t = 1, requires = "perftest", value_parser = clap::value_parser!(u16).range(1..=1024))]
    queue_pairs: u16,
    /// Messages of a client: only ib_write_lat must know
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1000, requires = "perftest")]
    iterations: u64,
    /// Receives on each queue pair of ib_send_bw and ib_send_lat, at least the client's
    #[arg(long, short = 'r', value_name = "COUNT", default_value_t = perftest::DEFAULT_RECEIVES, requires = "perftest", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    rx_depth: u32,
    /// Who moves the bytes
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

/// Messages up to this size are taken when people do not say: perftest's
/// largest.
const LARGEST_BYTES: u64 = 8 << 20;
/// perftest's size of a latency test.
const LATENCY_BYTES: u64 = 2;

impl ServeArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if let Some(program) = self.perftest {
            return self.perftest(program.program(), out);
        }
        let options = ServerOptions { ping: PingOptions::default(), measurements: true, once: self.once };
        serve(SocketAddr::new(self.listen, self.port.unwrap_or(rping::PORT)), options, false, out)
    }

    fn perftest(self, program: Program, out: &Output) -> Result<(), CommandError> {
        out.without_document("a server")?;
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
        output::line(&format!(
            "listening on {} as {}; stop with Ctrl-C",
            server.local_address(),
            program.name()
        ))?;
        let log = Log::new();
        server.run(&stop, &|event| log.line(&output::rdma::perftest_event(&event)))?;
        log.end();
        Ok(())
    }
}

/// Listens, and reports events; with `texts` only the texts of clients' pings.
pub(super) fn serve(
    address: SocketAddr,
    options: ServerOptions,
    texts: bool,
    out: &Output,
) -> Result<(), CommandError> {
    out.without_document("a server")?;
    let stop = interrupt::stop_flag()?;
    let server = Server::bind(address, options)?;
    output::line(&format!("listening on {}; stop with Ctrl-C", server.local_address()))?;
    let log = Log::new();
    server.run(&stop, &|event| {
        if let ServerEvent::PingText { text, .. } = &event {
            if texts {
                let _ = output::line(&output::rdma::ping_text(text));
            }
            return;
        }
        log.line(&output::rdma::server_event(&event));
    })?;
    log.end();
    Ok(())
}

/// The server's log. Whoever reaches the port makes lines of it, so that they
/// are bounded in rate, and counted beyond.
struct Log(Mutex<LogLimit>);

impl Log {
    fn new() -> Self {
        Self(Mutex::new(LogLimit::new(Instant::now())))
    }

    fn limit(&self) -> MutexGuard<'_, LogLimit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, text: &str) {
        let now = Instant::now();
        let (suppressed, admission) = {
            let mut limit = self.limit();
            (limit.report(now), limit.admit(now))
        };
        Self::suppressed(suppressed);
        if admission == Admission::Write {
            output::log(text);
        }
    }

    fn end(&self) {
        let suppressed = self.limit().take();
        Self::suppressed(suppressed);
    }

    fn suppressed(count: Option<u64>) {
        if let Some(count) = count {
            output::log(&format!("{count} more lines, not listed one by one"));
        }
    }
}
