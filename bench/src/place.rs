//! Locations of the runs. As root both places are in the lab `two-hosts`,
//! so that the congestion control of all programs can be set by the route (a
//! namespace may not choose its default, and one program has no option for
//! it). Without root there is only this machine's own loopback.

use std::process::Command;

use clearstream_lab::RunningLab;

use crate::{
    error::BenchError,
    iperf3, program,
    tool::{Shape, Tool},
};

const LAB: &str = "two-hosts";
const SENDER: &str = "alpha";
const RECEIVER: &str = "beta";
const CONGESTION_CONTROL: &str = "cubic";

/// A pair of ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Loopback of one host.
    Loopback,
    /// The veth pair between two hosts of the lab.
    Veth,
}

impl Place {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth between two namespaces",
        }
    }
}

/// Resources of the runs; the lab is removed with it.
pub(crate) struct Ground {
    lab: Option<RunningLab>,
    brought_up: bool,
    iperf3_of_one_thread: bool,
}

impl Ground {
    /// Sets up the lab as root; without root, prints a notice and goes on without it.
    pub(crate) fn open() -> Result<Self, BenchError> {
        let iperf3_of_one_thread = iperf3::is_of_one_thread();
        if !rustix::process::geteuid().is_root() {
            return Ok(Self { lab: None, brought_up: false, iperf3_of_one_thread });
        }
        let running = clearstream_lab::open(LAB).ok();
        let brought_up = running.is_none();
        if brought_up {
            finish(Command::new(program::path()).args(["lab", "up", LAB]))?;
        }
        let lab = match running {
            Some(lab) => lab,
            None => clearstream_lab::open(LAB)?,
        };
        let ground = Self { lab: Some(lab), brought_up, iperf3_of_one_thread };
        ground.choose_congestion_control()?;
        Ok(ground)
    }

    pub(crate) fn places(&self) -> &'static [Place] {
        if self.lab.is_some() { &[Place::Loopback, Place::Veth] } else { &[Place::Loopback] }
    }

    /// Programs that can run here under the same congestion control.
    pub(crate) fn peers(&self) -> Vec<Tool> {
        let by_route = self.lab.is_some() || own_default() == CONGESTION_CONTROL;
        Tool::PEERS
            .into_iter()
            .filter(|tool| by_route || tool.sets_congestion_control())
            .filter(|tool| !tool.is_optional() || program::is_in_path("tcp_stream"))
            .collect()
    }

    /// Whether iperf3 runs as a process per flow.
    pub(crate) fn iperf3_of_one_thread(&self) -> bool {
        self.iperf3_of_one_thread
    }

    /// Shape of a run.
    pub(crate) fn shape(
        &self,
        place: Place,
        flows: u32,
        seconds: u32,
        port: u16,
    ) -> Result<Shape, BenchError> {
        let arguments = |arguments: &[&str]| arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (address, ends) = match (&self.lab, place) {
            (None, _) => ("127.0.0.1".to_owned(), arguments(&["localhost"])),
            (Some(_), Place::Loopback) => {
                let ends = ["--lab", LAB, "--client", SENDER, "--server", SENDER, "--address", "127.0.0.1"];
                ("127.0.0.1".to_owned(), arguments(&ends))
            }
            (Some(lab), Place::Veth) => (
                lab.address(RECEIVER)?.to_string(),
                arguments(&["--lab", LAB, "--client", SENDER, "--server", RECEIVER]),
            ),
        };
        let congestion_control = self.lab.is_none().then(|| CONGESTION_CONTROL.to_owned());
        let iperf3_of_one_thread = self.iperf3_of_one_thread;
        Ok(Shape { flows, seconds, address, port, ends, congestion_control, iperf3_of_one_thread })
    }

    /// The command at the sending end. Ours enters the lab by itself.
    pub(crate) fn sending(&self, tool: Tool, command: Command) -> Result<Command, BenchError> {
        match &self.lab {
            Some(lab) if tool != Tool::Clearstream => Ok(lab.command(SENDER, command)?),
            _ => Ok(command),
        }
    }

    /// The command at the receiving end.
    pub(crate) fn receiving(&self, place: Place, command: Command) -> Result<Command, BenchError> {
        let host = if place == Place::Veth { RECEIVER } else { SENDER };
        match &self.lab {
            Some(lab) => Ok(lab.command(host, command)?),
            None => Ok(command),
        }
    }

    /// A command at the host whose loopback is used.
    pub(crate) fn inside(&self, command: Command) -> Result<Command, BenchError> {
        match &self.lab {
            Some(lab) => Ok(lab.command(SENDER, command)?),
            None => Ok(command),
        }
    }

    /// One line for the results.
    pub(crate) fn described(&self) -> String {
        match &self.lab {
            Some(_) => format!(
                "Both places are in the lab `{LAB}`; congestion control `{CONGESTION_CONTROL}` for everybody, by route."
            ),
            None => format!(
                "Not root: this machine's own loopback only, no veth; congestion control `{CONGESTION_CONTROL}` set on \
                 each socket, and programs that cannot set it are left out."
            ),
        }
    }

    fn choose_congestion_control(&self) -> Result<(), BenchError> {
        let Some(lab) = &self.lab else { return Ok(()) };
        // The lab sets it for its links; its loopbacks are the kernel's own.
        let mut command = Command::new("ip");
        command.args(["route", "replace", "local", "127.0.0.1", "dev", "lo", "table", "local"]);
        command.args(["scope", "host", "src", "127.0.0.1", "congctl", CONGESTION_CONTROL]);
        finish(&mut lab.command(SENDER, command)?)?;
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.brought_up {
            let _ = finish(Command::new(program::path()).args(["lab", "down", LAB]));
        }
    }
}

fn own_default() -> String {
    let read = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Runs a short command to its end.
fn finish(command: &mut Command) -> Result<(), BenchError> {
    let line = crate::tool::shown(command);
    let output = command.output().map_err(|source| BenchError::Start { program: line.clone(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(BenchError::Run { line, message })
}
