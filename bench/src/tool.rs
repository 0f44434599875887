//! The programs that are compared, what can be set, and their command lines.

use std::{fmt, process::Command};

use crate::{
    iperf3,
    parse::{self, Goodput},
};

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tool {
    Clearstream,
    Iperf3,
    Iperf,
    Nuttcp,
    /// Its `tcp_stream`. No package has it: where it is in PATH.
    Neper,
}

/// Placement of the threads of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pin {
    /// Left to the scheduler.
    Free,
    /// All senders on core 0, all receivers on core 1.
    Apart,
    /// Both ends on core 0 (two flows: on cores 0 and 1, where the program
    /// has such an option per flow).
    Together,
}

/// Varied settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Settings {
    /// Bytes of one write and read; the program's own default when absent.
    pub block_kib: Option<u32>,
    pub pin: Pin,
    pub extra: Extra,
}

/// Further setting, apart from blocks and pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extra {
    Nothing,
    /// Receive low-water mark of half a block.
    LowWater,
    /// Send buffer of half a block, which the kernel doubles: little is in
    /// flight, and it stays in the cache. Peers set both buffers with one option.
    SmallBuffer,
}

/// One run's shape.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub flows: u32,
    pub seconds: u32,
    /// Address of the receiving end.
    pub address: String,
    pub port: u16,
    /// Options of `clearstream flow` that name the ends.
    pub ends: Vec<String>,
    /// Congestion control set on each socket, where it is not set by the route.
    pub congestion_control: Option<String>,
    /// The iperf3 here moves all flows of a process in one thread.
    pub iperf3_of_one_thread: bool,
}

impl Shape {
    /// Whether iperf3 runs as a process per flow.
    pub(crate) fn splits_iperf3(&self) -> bool {
        self.iperf3_of_one_thread && self.flows > 1
    }
}

impl Settings {
    pub(crate) const DEFAULT: Self = Self { block_kib: None, pin: Pin::Free, extra: Extra::Nothing };

    /// Half a block, where the buffer is to be small.
    pub(crate) fn small_buffer_kib(self) -> Option<u32> {
        self.block_kib.filter(|_| self.extra == Extra::SmallBuffer).map(|kib| kib / 2)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::DEFAULT {
            return f.write_str("defaults");
        }
        match self.block_kib {
            Some(kib) if kib % 1024 == 0 => write!(f, "{} MiB", kib / 1024)?,
            Some(kib) => write!(f, "{kib} KiB")?,
            None => f.write_str("own block size")?,
        }
        f.write_str(match self.pin {
            Pin::Free => ", not pinned",
            Pin::Apart => ", two cores",
            Pin::Together => ", ends on one core",
        })?;
        f.write_str(match self.extra {
            Extra::Nothing => "",
            Extra::LowWater => ", low-water mark",
            Extra::SmallBuffer => ", small buffer",
        })
    }
}

impl Tool {
    pub(crate) const PEERS: [Self; 4] = [Self::Iperf3, Self::Iperf, Self::Nuttcp, Self::Neper];

    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Clearstream => "clearstream",
            Self::Iperf3 => "iperf3",
            Self::Iperf => "iperf",
            Self::Nuttcp => "nuttcp",
            Self::Neper => "neper",
        }
    }

    /// Optional: without it its results are left out.
    pub(crate) fn is_optional(self) -> bool {
        self == Self::Neper
    }

    /// All settings that are tried to find the program's best.
    pub(crate) fn grid(self) -> Vec<Settings> {
        let mut grid = vec![Settings::DEFAULT];
        for pin in [Pin::Free, Pin::Apart, Pin::Together] {
            for block_kib in [128, 512, 1024, 2048] {
                let plain = Settings { block_kib: Some(block_kib), pin, extra: Extra::Nothing };
                if block_kib <= 1024 {
                    grid.push(plain);
                }
                // No peer has it; ends that share a core do better without.
                if self == Self::Clearstream && (512..=1024).contains(&block_kib) && pin != Pin::Together {
                    grid.push(Settings { extra: Extra::LowWater, ..plain });
                }
                // Of use where both ends share a cache; iperf3 refuses blocks above
                // 1 MiB, neper has no option for buffers.
                let fits = match self {
                    Self::Neper => false,
                    Self::Iperf3 => (512..=1024).contains(&block_kib),
                    _ => block_kib >= 512,
                };
                if fits && pin == Pin::Together {
                    grid.push(Settings { extra: Extra::SmallBuffer, ..plain });
                }
            }
        }
        grid
    }

    /// True when a congestion control can be set per socket.
    pub(crate) fn sets_congestion_control(self) -> bool {
        !matches!(self, Self::Nuttcp | Self::Neper)
    }

    /// The receiving end, to be started first; ours starts both by itself.
    pub(crate) fn server(self, settings: Settings, shape: &Shape) -> Option<Command> {
        let port = shape.port.to_string();
        let mut command = match self {
            Self::Clearstream => return None,
            Self::Iperf3 => iperf3::server(shape),
            Self::Iperf => line(core(settings.pin, 1), &["iperf", "-s", "-p", &port, "-y", "C"]),
            Self::Nuttcp => {
                let data = (shape.port + 1).to_string();
                line(core(settings.pin, 1), &["nuttcp", "-1", "--nofork", "-P", &port, "-p", &data])
            }
            Self::Neper => neper(settings, shape, 1),
        };
        if let (Self::Iperf, Some(kib)) = (self, settings.block_kib) {
            command.args(["-l", &format!("{kib}K")]);
        }
        if let (Self::Iperf, Some(kib)) = (self, settings.small_buffer_kib()) {
            command.args(["-w", &format!("{kib}K")]);
        }
        Some(command)
    }

    /// The sending end, which ends by itself.
    pub(crate) fn client(self, settings: Settings, shape: &Shape) -> Command {
        match self {
            Self::Clearstream => ours(settings, shape),
            Self::Iperf3 => iperf3::client(settings, shape),
            Self::Iperf => iperf(settings, shape),
            Self::Nuttcp => nuttcp(settings, shape),
            Self::Neper => {
                let mut command = neper(settings, shape, 0);
                command.args(["-c", "-H", &shape.address]);
                command
            }
        }
    }

    /// Reads the result out of what the two ends printed.
    pub(crate) fn goodput(self, client: &str, server: &str) -> Result<Goodput, String> {
        match self {
            Self::Clearstream => parse::clearstream(client),
            Self::Iperf3 => parse::iperf3(client),
            Self::Iperf => parse::iperf(server),
            Self::Nuttcp => parse::nuttcp(client),
            Self::Neper => parse::neper(client),
        }
    }
}

/// Core of one end (0 sends, 1 receives), when pinned.
fn core(pin: Pin, end: u32) -> Option<u32> {
    match pin {
        Pin::Free => None,
        Pin::Apart => Some(end),
        Pin::Together => Some(0),
    }
}

/// A command line, under `taskset` when on a core: for programs without an
/// option of their own for each end.
fn line(core: Option<u32>, arguments: &[&str]) -> Command {
    let mut all: Vec<String> = Vec::new();
    if let Some(core) = core {
        all.extend(["taskset".to_owned(), "-c".to_owned(), core.to_string()]);
    }
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let mut command = Command::new(&all[0]);
    command.args(&all[1..]);
    command
}

fn ours(settings: Settings, shape: &Shape) -> Command {
    let mut command = Command::new(crate::program::path());
    command.args(["flow", "--json", "--warm-up", "0s"]).args(["--duration", &format!("{}s", shape.seconds)]);
    if shape.flows != 1 {
        command.args(["--flows", &shape.flows.to_string()]);
    }
    if let Some(kib) = settings.block_kib {
        command.args(["--transfer", &format!("{kib}KiB")]);
        if settings.extra == Extra::LowWater {
            command.args(["--receive-low-water", &format!("{}KiB", kib / 2)]);
        }
    }
    if let Some(kib) = settings.small_buffer_kib() {
        command.args(["--send-buffer", &format!("{kib}KiB")]);
    }
    match settings.pin {
        Pin::Free => {}
        Pin::Apart => drop(command.args(["--sender-cores", "0", "--receiver-cores", "1"])),
        // Flow 1 takes the second core of each list.
        Pin::Together if shape.flows > 1 => {
            command.args(["--sender-cores", "0,1", "--receiver-cores", "0,1"]);
        }
        Pin::Together => drop(command.args(["--sender-cores", "0", "--receiver-cores", "0"])),
    }
    if let Some(name) = &shape.congestion_control {
        command.args(["--congestion-control", name]);
    }
    command.args(&shape.ends);
    command
}

fn iperf(settings: Settings, shape: &Shape) -> Command {
    let (port, seconds) = (shape.port.to_string(), shape.seconds.to_string());
    let arguments = ["iperf", "-c", &shape.address, "-p", &port, "-t", &seconds, "-y", "C"];
    let mut command = line(core(settings.pin, 0), &arguments);
    if shape.flows != 1 {
        command.args(["-P", &shape.flows.to_string()]);
    }
    if let Some(kib) = settings.block_kib {
        command.args(["-l", &format!("{kib}K")]);
    }
    if let Some(kib) = settings.small_buffer_kib() {
        command.args(["-w", &format!("{kib}K")]);
    }
    if let Some(name) = &shape.congestion_control {
        command.args(["-Z", name]);
    }
    command
}

fn nuttcp(settings: Settings, shape: &Shape) -> Command {
    let (port, data) = (shape.port.to_string(), (shape.port + 1).to_string());
    let seconds = shape.seconds.to_string();
    let mut command =
        line(core(settings.pin, 0), &["nuttcp", "-P", &port, "-p", &data, "-T", &seconds, "-fparse"]);
    if shape.flows != 1 {
        command.arg(format!("-N{}", shape.flows));
    }
    if let Some(kib) = settings.block_kib {
        command.arg(format!("-l{kib}k"));
    }
    if let Some(kib) = settings.small_buffer_kib() {
        command.arg(format!("-w{kib}k"));
    }
    command.arg(&shape.address);
    command
}

/// Options common to both ends of neper; end 1 receives. A thread per flow.
fn neper(settings: Settings, shape: &Shape, end: u32) -> Command {
    let [control, data, flows, seconds] =
        [u32::from(shape.port), u32::from(shape.port) + 1, shape.flows, shape.seconds]
            .map(|number| number.to_string());
    // Flow 1 takes the second core where ends share one: `-U`, threads round-robin.
    let is_round_robin = settings.pin == Pin::Together && shape.flows > 1;
    let core = core(settings.pin, end).filter(|_| !is_round_robin);
    let arguments =
        ["tcp_stream", "--nolog", "-C", &control, "-P", &data, "-F", &flows, "-T", &flows, "-l", &seconds];
    let mut command = line(core, &arguments);
    if is_round_robin {
        command.arg("-U");
    }
    if let Some(kib) = settings.block_kib {
        command.args(["-B", &(u64::from(kib) * 1024).to_string()]);
    }
    command
}

/// A command as it is typed.
pub(crate) fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(flows: u32) -> Shape {
        Shape {
            flows,
            seconds: 5,
            address: "10.0.0.2".to_owned(),
            port: 5301,
            ends: vec!["localhost".to_owned()],
            congestion_control: Some("cubic".to_owned()),
            iperf3_of_one_thread: false,
        }
    }

    #[test]
    fn command_lines_are_as_a_person_would_type_them() {
        let best = Settings { block_kib: Some(512), pin: Pin::Apart, extra: Extra::Nothing };
        let line = |tool: Tool, settings, flows| shown(&tool.client(settings, &shape(flows)));
        assert_eq!(line(Tool::Iperf3, Settings::DEFAULT, 1), "iperf3 -c 10.0.0.2 -p 5301 -t 5 -J -C cubic");
        assert_eq!(
            line(Tool::Iperf3, best, 2),
            "iperf3 -c 10.0.0.2 -p 5301 -t 5 -J -P 2 -l 512K -A 0,1 -C cubic"
        );
        assert_eq!(
            line(Tool::Iperf, best, 1),
            "taskset -c 0 iperf -c 10.0.0.2 -p 5301 -t 5 -y C -l 512K -Z cubic"
        );
        assert_eq!(
            line(Tool::Nuttcp, best, 2),
            "taskset -c 0 nuttcp -P 5301 -p 5302 -T 5 -fparse -N2 -l512k 10.0.0.2"
        );
        assert_eq!(
            line(Tool::Clearstream, Settings::DEFAULT, 1),
            "clearstream flow --json --warm-up 0s --duration 5s --congestion-control cubic localhost"
        );
        let together = Settings { block_kib: Some(1024), pin: Pin::Together, extra: Extra::LowWater };
        assert_eq!(
            line(Tool::Clearstream, together, 2),
            "clearstream flow --json --warm-up 0s --duration 5s --flows 2 --transfer 1024KiB \
             --receive-low-water 512KiB --sender-cores 0,1 --receiver-cores 0,1 --congestion-control cubic localhost"
        );
        let small = Settings { block_kib: Some(1024), pin: Pin::Together, extra: Extra::SmallBuffer };
        assert_eq!(
            line(Tool::Clearstream, small, 1),
            "clearstream flow --json --warm-up 0s --duration 5s --transfer 1024KiB --send-buffer 512KiB \
             --sender-cores 0 --receiver-cores 0 --congestion-control cubic localhost"
        );
        assert_eq!(
            line(Tool::Iperf3, small, 1),
            "iperf3 -c 10.0.0.2 -p 5301 -t 5 -J -l 1024K -w 512K -A 0,0 -C cubic"
        );
        assert_eq!(
            line(Tool::Neper, best, 2),
            "taskset -c 0 tcp_stream --nolog -C 5301 -P 5302 -F 2 -T 2 -l 5 -B 524288 -c -H 10.0.0.2"
        );
        let server = Tool::Iperf.server(best, &shape(1)).unwrap();
        assert_eq!(shown(&server), "taskset -c 1 iperf -s -p 5301 -y C -l 512K");
    }

    #[test]
    fn every_program_gets_the_same_blocks_and_pins() {
        for tool in Tool::PEERS {
            let theirs = tool.grid();
            // Defaults, 3 blocks x 3 pins, small buffers of 3 blocks (iperf3: 2, neper: none) on one core.
            let small = match tool {
                Tool::Iperf3 => 2,
                Tool::Neper => 0,
                _ => 3,
            };
            assert_eq!(theirs.len(), 10 + small);
            let ours = Tool::Clearstream.grid();
            assert!(theirs.iter().all(|settings| ours.contains(settings)));
        }
    }
}
