//! `clearstream message`

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use clearstream_message::{Message, MessageError, MessageEvent};
use clearstream_schema::message::{MessageConfig, MessageKind, MessageTransport};
use clearstream_workload::Workload;

use crate::{
    endpoints::{Endpoints, HostArgs, PathArgs},
    exit::CommandError,
    interrupt,
    output::{
        Output, Paint, message,
        message_table::{self, TableFormat},
        quantity,
    },
};

/// Measure latency and bandwidth of messages over TCP or MPI to another host, by message size.
#[derive(Debug, clap::Args)]
pub struct MessageArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    path: PathArgs,
    #[command(flatten)]
    config: MessageConfig,
    /// Print the results as another program does, for scripts that read its output
    #[arg(long, value_enum, value_name = "FORMAT")]
    table: Option<TableFormat>,
}

impl MessageArgs {
    /// Runs the measurement and prints it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        // A study may have the window beside a factor `kind`.
        if self.config.kind == MessageKind::PingPong && self.config.window != MessageConfig::default().window
        {
            return Err(CommandError::usage(
                "--window is for streams of messages: a ping-pong has one in flight; leave it out, or write --kind stream",
            ));
        }
        self.check_transport()?;
        if self.table.is_some() && !out.is_human() {
            return Err(CommandError::usage("--table is a text: leave out --json, or leave out --table"));
        }
        let stop = interrupt::stop_flag()?;
        let mut ends = Endpoints::open(self.host.name(), &self.path)?;
        out.set_hosts(ends.identities());
        let expected = (Message.time(&self.config).to_std() + Message.overhead().to_std())
            .min(Duration::from_secs(365 * 86_400));
        let started = Instant::now();
        out.progress(expected, "connecting");
        let mut on_event = |MessageEvent::Point(point)| {
            let left = expected.saturating_sub(started.elapsed());
            out.progress(left, &format!("{} measured", quantity::count(point.size_bytes, "byte")));
            out.interval(&point, || None);
        };
        let run = clearstream_message::run_on(&mut ends.hosts()?, &self.config, &stop, &mut on_event);
        let (summary, broken) = match run {
            Err(MessageError::Broken { source, partial }) => (*partial, Some(source)),
            run => (run?, None),
        };
        out.result(&summary, || match self.table {
            Some(format) => message_table::text(&summary, format),
            None => message::summary(&summary, Paint::for_stdout()),
        })?;
        if let Some(error) = broken {
            return Err(error.into());
        }
        if stop.load(Ordering::Relaxed) {
            return Err(CommandError::Interrupted(
                "results cover the sizes measured up to the interruption".to_owned(),
            ));
        }
        Ok(())
    }

    /// A study may have these beside a factor `transport`.
    fn check_transport(&self) -> Result<(), CommandError> {
        let (config, is_tcp) = (&self.config, self.config.transport == MessageTransport::Tcp);
        let options =
            [("--mpirun", config.mpirun.is_some()), ("--mpi-program", config.mpi_program.is_some())];
        match options.iter().find(|(_, is_set)| is_tcp && *is_set) {
            Some((option, _)) => Err(CommandError::Usage(format!(
                "{option} is for MPI: leave it out, or write --transport mpi"
            ))),
            None => Ok(()),
        }
    }
}
