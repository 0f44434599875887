//! The server of `--local --perftest`: this program as one of perftest's, in a
//! process of its own, so that its processor time is not the client's.
//!
//! An agent's listener is no such server: it serves connections with its test's
//! cookie, and a client of perftest carries none.

use std::{
    io::{self, BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use clap::ValueEnum as _;
use clearstream_schema::rdma::RdmaConfig;

use crate::{
    endpoints::own_program,
    exit::CommandError,
    rdma::{
        RdmaError,
        perftest::{self, Program},
    },
};

/// A running server; it ends when this is dropped, and with this program.
#[derive(Debug)]
pub(super) struct PerftestServer {
    child: Child,
    address: SocketAddr,
}

impl PerftestServer {
    /// Starts a server on loopback for one client with this configuration.
    pub(super) fn start(program: Program, config: &RdmaConfig) -> Result<Self, CommandError> {
        let mut command = Command::new(own_program()?);
        command.args(["rdma", "serve", "--once", "--listen", "127.0.0.1", "--port", "0"]);
        command.args(["--perftest", program.name()]);
        let progress = config.progress.to_possible_value();
        for (option, value) in [
            ("--size", config.size.largest().max(1).to_string()),
            ("--queue-pairs", config.queue_pairs.to_string()),
            ("--iterations", config.iterations.unwrap_or(1).to_string()),
            ("--rx-depth", config.rx_depth.unwrap_or(perftest::RECEIVES).to_string()),
            ("--progress", progress.map_or_else(String::new, |value| value.get_name().to_owned())),
        ] {
            command.args([option, &value]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        clearstream_sys::process::bind_child_to_parent(&mut command);
        let mut child = command.spawn().map_err(RdmaError::Thread)?;
        let address = listening(&mut child);
        // From here on a failure ends the child, too.
        let mut server = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        server.address = address
            .map_err(|error| RdmaError::Fault(format!("{} did not start here: {error}", program.name())))?;
        Ok(server)
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The address of its first line, `listening on ADDRESS as PROGRAM`.
fn listening(child: &mut Child) -> io::Result<SocketAddr> {
    let mut line = String::new();
    if let Some(output) = &mut child.stdout {
        BufReader::new(output).read_line(&mut line)?;
    }
    let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(' ').next());
    address.and_then(|address| address.parse().ok()).ok_or_else(|| io::Error::other("it does not listen"))
}

impl Drop for PerftestServer {
    fn drop(&mut self) {
        // It has ended by itself where its client was served.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
