//! iperf3 as a peer: its command lines, and what to do with one of before 3.16,
//! whose flows share one thread: as many processes as flows then, and the sum.

use std::process::Command;

use crate::{
    fingerprint,
    tool::{Pin, Settings, Shape, shown},
};

/// The first minor version with a thread per flow (its release notes of 3.16).
const THREADED: u32 = 16;
/// Note on the page where it applies.
pub(crate) const PROCESSES: &str = "this iperf3 is older than 3.16, whose flows share one thread: with several flows it ran as one process per flow, \
     and their figures are added.";

/// Whether the one in PATH moves all its flows in one thread; false where
/// there is none, which fails when it is run.
pub(crate) fn is_of_one_thread() -> bool {
    fingerprint::first_line("iperf3", &["--version"])
        .and_then(|line| minor_version(&line))
        .is_some_and(|minor| minor < THREADED)
}

/// `iperf 3.12 (cJSON 1.7.15)` -> 12.
fn minor_version(line: &str) -> Option<u32> {
    let after = line.strip_prefix("iperf 3.")?;
    after.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// The receiving end.
pub(crate) fn server(shape: &Shape) -> Command {
    let arguments =
        |port: u16| vec!["iperf3".to_owned(), "-s".into(), "-1".into(), "-p".into(), port.to_string()];
    if !shape.splits_iperf3() {
        return command(arguments(shape.port));
    }
    let lines: Vec<String> = ports(shape).map(|port| arguments(port).join(" ")).collect();
    // The shell ends its servers when it is ended itself.
    shell(&format!("trap 'kill $(jobs -p); exit 1' TERM; {} & wait", lines.join(" & ")))
}

/// The sending end.
pub(crate) fn client(settings: Settings, shape: &Shape) -> Command {
    if !shape.splits_iperf3() {
        let cores = match settings.pin {
            Pin::Free => None,
            Pin::Apart => Some("0,1"),
            Pin::Together => Some("0,0"),
        };
        return command(arguments(settings, shape, shape.flows, shape.port, cores));
    }
    let lines: Vec<String> = ports(shape)
        .enumerate()
        .map(|(flow, port)| {
            // As ours: flow 1 takes the second core where ends share one.
            let cores = match settings.pin {
                Pin::Free => None,
                Pin::Apart => Some("0,1".to_owned()),
                Pin::Together => Some(format!("{},{}", flow % 2, flow % 2)),
            };
            let line = shown(&command(arguments(settings, shape, 1, port, cores.as_deref())));
            format!("{line} >$out/{flow}")
        })
        .collect();
    shell(&format!(
        "out=$(mktemp -d); trap 'kill $(jobs -p); rm -r $out; exit 1' TERM; {} & wait; cat $out/*; rm -r $out",
        lines.join(" & ")
    ))
}

fn ports(shape: &Shape) -> impl Iterator<Item = u16> {
    let first = shape.port;
    (0..u16::try_from(shape.flows).unwrap_or(u16::MAX)).map(move |flow| first.saturating_add(flow))
}

fn arguments(settings: Settings, shape: &Shape, flows: u32, port: u16, cores: Option<&str>) -> Vec<String> {
    let mut arguments: Vec<String> = ["iperf3", "-c", &shape.address, "-p"].map(str::to_owned).into();
    arguments.extend([port.to_string(), "-t".to_owned(), shape.seconds.to_string(), "-J".to_owned()]);
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    if flows != 1 {
        option("-P", flows.to_string());
    }
    if let Some(kib) = settings.block_kib {
        option("-l", format!("{kib}K"));
    }
    if let Some(kib) = settings.small_buffer_kib() {
        option("-w", format!("{kib}K"));
    }
    if let Some(cores) = cores {
        option("-A", cores.to_owned());
    }
    if let Some(name) = &shape.congestion_control {
        option("-C", name.clone());
    }
    arguments
}

fn command(arguments: Vec<String>) -> Command {
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]);
    command
}

fn shell(script: &str) -> Command {
    command(vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Extra;

    fn shape(flows: u32, is_of_one_thread: bool) -> Shape {
        Shape {
            flows,
            seconds: 5,
            address: "10.0.0.2".to_owned(),
            port: 5301,
            ends: Vec::new(),
            congestion_control: None,
            iperf3_of_one_thread: is_of_one_thread,
        }
    }

    #[test]
    fn versions_are_read_as_they_are_printed() {
        assert_eq!(minor_version("iperf 3.12 (cJSON 1.7.15)"), Some(12));
        assert_eq!(minor_version("iperf 3.20+ (cJSON 1.7.15)"), Some(20));
        assert_eq!(minor_version("iperf version 2.1.8 (12 August 2022) pthreads"), None);
    }

    #[test]
    fn an_old_one_runs_as_a_process_per_flow() {
        let together = Settings { block_kib: Some(512), pin: Pin::Together, extra: Extra::Nothing };
        let line = shown(&client(together, &shape(2, true)));
        for part in [
            "-p 5301 -t 5 -J -l 512K -A 0,0 >$out/0 & ",
            "-p 5302 -t 5 -J -l 512K -A 1,1 >$out/1 & wait; cat $out/*",
        ] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains("-P"));
        let serving = shown(&server(&shape(2, true)));
        assert!(serving.contains("iperf3 -s -1 -p 5301 & iperf3 -s -1 -p 5302 & wait"), "{serving}");
        // One flow, or one with threads, is one process.
        assert_eq!(shown(&server(&shape(1, true))), "iperf3 -s -1 -p 5301");
        assert_eq!(
            shown(&client(Settings::DEFAULT, &shape(2, false))),
            "iperf3 -c 10.0.0.2 -p 5301 -t 5 -J -P 2"
        );
    }
}
