//! Causes injected with standard tools, and healthy paths.

/// 17 ms at a rate that any machine can carry.
pub(super) const LONG: &str =
    "delay = \"8.5ms\"\nrate = \"2Gb/s\"\nqueue = \"34ms\"\nbackend = \"delay-line\"";
/// Lines that default buffers fill.
const SLOW: Ground =
    Ground::Link("delay = \"8.5ms\"\nrate = \"300Mb/s\"\nqueue = \"34ms\"\nbackend = \"delay-line\"");
const MIDDLE: Ground =
    Ground::Link("delay = \"8.5ms\"\nrate = \"1Gb/s\"\nqueue = \"34ms\"\nbackend = \"delay-line\"");
/// A queue of a switch or an AQM.
const SHALLOW: Ground =
    Ground::Link("delay = \"8.5ms\"\nrate = \"500Mb/s\"\nqueue = \"4ms\"\nbackend = \"delay-line\"");
/// A veth pair.
pub(super) const PAIR: &str = "";

/// Connection of two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ground {
    /// `localhost`, without a lab.
    Loopback,
    /// One link with these keys of a lab file.
    Link(&'static str),
    /// Two veth legs of equal cost to one address.
    Legs,
}

/// A limit, how it is injected and the expected verdict.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) ground: Ground,
    /// The same without the cause, where the lab itself has it.
    pub(super) ground_without: Option<Ground>,
    /// Options of the flow with and without the cause.
    pub(super) options: &'static str,
    pub(super) options_without: &'static str,
    /// Commands that make it: `HOST: command`, or `here: command` that runs
    /// in parallel to the flow and is ended after it.
    pub(super) make: &'static [&'static str],
    /// Quota of the control group that the program runs in, thousandths of a core.
    pub(super) quota: Option<u32>,
    /// Core that the receiver's packets are steered to.
    pub(super) receive_core: Option<u32>,
    /// Whether there is an effect depends on the machine: trials without one do
    /// not count.
    pub(super) machine: bool,
    /// Kinds of cause that are right; none for a healthy path.
    pub(super) right: &'static [&'static str],
    /// Required parts of the sentence, in addition to the kind.
    pub(super) sentence_has: &'static [&'static str],
    /// Options of another flow that runs in parallel to the one diagnosed.
    pub(super) beside: Option<&'static str>,
}

const fn case(name: &'static str, ground: Ground, right: &'static [&'static str]) -> Case {
    Case {
        name,
        ground,
        ground_without: None,
        options: "",
        options_without: "",
        make: &[],
        quota: None,
        receive_core: None,
        machine: false,
        right,
        sentence_has: &[],
        beside: None,
    }
}

const LINE: Ground = Ground::Link(LONG);
const VETH: Ground = Ground::Link(PAIR);
const PINNED: &str = "--sender-cores 0 --receiver-cores 1";
/// Two busy loops on the core of the reader.
const HOGS: &[&str] =
    &["here: taskset -c 1 sh -c 'while :; do :; done'", "here: taskset -c 1 sh -c 'while :; do :; done'"];
const TABLE: &str = "beta: nft add table inet bench";
const CHAIN: &str = "beta: nft add chain inet bench in '{ type filter hook input priority 0; }'";

/// Every cause.
pub(super) const CAUSES: [Case; 29] = [
    Case { options: "--receive-buffer 256KiB", ..case("rcvbuf", LINE, &["receiver-window"]) },
    Case {
        make: &["beta: sysctl -qw 'net.ipv4.tcp_rmem=4096 131072 1048576'"],
        ..case("rmem", LINE, &["receiver-window"])
    },
    Case { options: "--send-buffer 256KiB", ..case("sndbuf", LINE, &["send-buffer"]) },
    Case {
        make: &["alpha: sysctl -qw 'net.ipv4.tcp_wmem=4096 16384 1048576'"],
        ..case("wmem", LINE, &["send-buffer"])
    },
    Case { options: "--receiver-pause 20ms", ..case("reader-sleeps", LINE, &["receiver-application"]) },
    Case { options: "--receiver-work 20ms", ..case("reader-computes", LINE, &["receiver-application"]) },
    Case {
        options: "--burst-flows 1 --burst-on 1ms --burst-off 99ms",
        ..case("writer-pauses", LINE, &["sender-application"])
    },
    Case { options: "--pacing 200Mb/s", ..case("pacing", LINE, &["pacing"]) },
    Case {
        make: &[
            TABLE,
            CHAIN,
            "beta: nft add rule inet bench in meta l4proto tcp numgen random mod 1000 0 drop",
        ],
        ..case("loss-0.1", LINE, &["loss"])
    },
    Case {
        make: &[
            TABLE,
            CHAIN,
            "beta: nft add rule inet bench in meta l4proto tcp numgen random mod 100 0 drop",
        ],
        ..case("loss-1", LINE, &["loss"])
    },
    Case {
        make: &[
            TABLE,
            CHAIN,
            "beta: nft add rule inet bench in meta l4proto tcp limit rate over 60 mbytes/second burst 1 mbytes drop",
        ],
        ..case("policer", LINE, &["policer"])
    },
    Case {
        make: &[
            TABLE,
            CHAIN,
            "beta: nft add rule inet bench in meta l4proto tcp limit rate over 60 mbytes/second burst 1 mbytes drop",
        ],
        ..case("policer-near", VETH, &["policer"])
    },
    Case {
        ground: Ground::Link(
            "delay = \"8.5ms\"\nrate = \"2Gb/s\"\nqueue = \"500us\"\nbackend = \"delay-line\"",
        ),
        ground_without: Some(LINE),
        ..case("short-queue", LINE, &["loss"])
    },
    Case {
        make: &[TABLE, CHAIN, "beta: nft add rule inet bench in meta length gt 1500 drop"],
        ..case("black-hole", LINE, &["path-mtu"])
    },
    Case {
        make: &["alpha: tc qdisc add dev wan0 root tbf rate 1gbit burst 256kb latency 20ms"],
        sentence_has: &["tbf"],
        ..case("tbf", VETH, &["path-capacity"])
    },
    Case {
        machine: true,
        options: "-C bbr",
        options_without: "-C cubic",
        ..case("bbr", VETH, &["congestion-control"])
    },
    Case { make: HOGS, options: PINNED, options_without: PINNED, ..case("hogs", VETH, &["contention"]) },
    Case { quota: Some(500), ..case("quota", VETH, &["cpu-quota"]) },
    Case {
        machine: true,
        options: "--sender-cores 0 --receiver-cores 0",
        options_without: PINNED,
        ..case("shared-core", VETH, &["shared-core"])
    },
    Case {
        options: "--sender-cores 0 --receiver-cores 1 --method splice",
        options_without: "--sender-cores 0 --receiver-cores 1 --method splice",
        receive_core: Some(1),
        machine: true,
        ..case("collision", VETH, &["interrupt-collision"])
    },
    Case {
        options: "--address 10.79.9.2 --flows 8",
        options_without: "--address 10.79.9.2 --flows 8",
        make: &["alpha: tc qdisc add dev leg1 root tbf rate 100mbit burst 64kb latency 20ms"],
        ..case("slow-leg", Ground::Legs, &["uneven-flows"])
    },
    Case { options: "--receiver-pause 5ms", ..case("reader-sleeps-near", VETH, &["receiver-application"]) },
    Case { options: "--pacing 1Gb/s", ..case("pacing-near", VETH, &["pacing"]) },
    Case {
        // In packets the bucket is the burst; in bytes nft adds a second of the rate to it.
        // Nothing joins segments there: each packet is one of 9000 bytes.
        make: &[
            "alpha: ethtool -K wan0 tso off gso off",
            TABLE,
            CHAIN,
            "beta: nft add rule inet bench in meta l4proto tcp limit rate over 7000/second burst 16 packets drop",
        ],
        // From outside a bucket of a few packets and a queue of a few are alike.
        sentence_has: &["room for a few packets", "policer"],
        ..case("policer-small-burst", LINE, &["loss", "policer"])
    },
    Case {
        make: &["beta: sysctl -qw net.ipv4.tcp_window_scaling=0"],
        sentence_has: &["tcp_window_scaling"],
        ..case("no-window-scaling", LINE, &["receiver-window"])
    },
    Case {
        make: &["beta: sysctl -qw net.ipv4.tcp_moderate_rcvbuf=0"],
        sentence_has: &["tcp_moderate_rcvbuf"],
        ..case("no-autotuning", LINE, &["receiver-window"])
    },
    Case {
        machine: true,
        make: &["alpha: ethtool -K wan0 tso off gso off"],
        options: PINNED,
        options_without: PINNED,
        sentence_has: &["tx-generic-segmentation"],
        ..case("no-offloads", VETH, &["cpu"])
    },
    Case {
        machine: true,
        make: &["beta: sysctl -qw 'net.ipv4.tcp_rmem=4096 16384 32768'"],
        ..case("rmem-near", VETH, &["receiver-window"])
    },
    Case {
        machine: true,
        make: &["alpha: sysctl -qw 'net.ipv4.tcp_wmem=4096 8192 16384'"],
        ..case("wmem-near", VETH, &["send-buffer"])
    },
];

/// The buffers that Linux has by default.
const DEFAULTS: &[&str] = &[
    "alpha: sysctl -qw 'net.ipv4.tcp_wmem=4096 16384 4194304'",
    "beta: sysctl -qw 'net.ipv4.tcp_rmem=4096 131072 6291456'",
];

/// Paths without a fault.
pub(super) const HEALTHY: [Case; 8] = [
    case("loopback", Ground::Loopback, &[]),
    case("veth", VETH, &[]),
    Case { options: PINNED, options_without: PINNED, ..case("veth-pinned", VETH, &[]) },
    case("delay-line", LINE, &[]),
    Case { make: DEFAULTS, ..case("defaults-300M", SLOW, &[]) },
    Case { make: DEFAULTS, ..case("defaults-1G", MIDDLE, &[]) },
    case("shallow-queue", SHALLOW, &[]),
    Case { beside: Some("-t 60s"), ..case("competing-flow", SLOW, &[]) },
];
