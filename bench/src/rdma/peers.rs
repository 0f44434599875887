//! The peers' command lines and what they print: libfabric's own programs and
//! UCX's, both over TCP on loopback, the server on core 1 and the client on
//! core 0.

use std::process::Command;

use super::contest::{Entry, Line};
use crate::program::is_in_path;

/// Its server listens here (`ucx_perftest -p`).
const UCX_PORT: u16 = 13337;
/// The control connection of libfabric's programs.
const LIBFABRIC_PORT: u16 = 47592;

const SERVER_CORE: u32 = 1;
const CLIENT_CORE: u32 = 0;

/// Versions for the machine's table.
pub(crate) fn versions() -> Vec<(&'static str, String)> {
    let line = |program: &str, argument: &str, marker: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .find(|line| line.contains(marker))
            .map(|line| line.trim_start_matches('#').trim().to_owned())
    };
    let unknown = || "not there".to_owned();
    vec![
        ("libfabric", line("fi_info", "--version", "libfabric:").unwrap_or_else(unknown)),
        ("UCX", line("ucx_info", "-v", "ersion").unwrap_or_else(unknown)),
    ]
}

/// Half round trips of so many bytes over libfabric: with fabtests' programs
/// where they are in PATH (Debian has no package of them), else with the one
/// of libfabric itself.
pub(crate) fn libfabric_latency(size: u32, count: u32) -> Vec<Entry> {
    let (size, count) = (size.to_string(), count.to_string());
    let mut entries = Vec::new();
    let mut push = |name: &str, arguments: &[&str], port: &[&str]| {
        entries.push(libfabric(name, arguments, port, microseconds));
    };
    if is_in_path("fi_msg_pingpong") {
        let of = |program, provider| [program, "-p", provider, "-S", &size, "-I", &count, "-w", "1000"];
        push("libfabric tcp, msg", &of("fi_msg_pingpong", "tcp"), &["-B", "-P"]);
        push("libfabric tcp, rdm", &of("fi_rdm_pingpong", "tcp"), &["-B", "-P"]);
    } else if is_in_path("fi_pingpong") {
        let of = |provider, kind| ["fi_pingpong", "-p", provider, "-e", kind, "-S", &size, "-I", &count];
        push("libfabric tcp, msg", &of("tcp", "msg"), &[]);
        push("libfabric tcp;ofi_rxm, rdm", &of("tcp;ofi_rxm", "rdm"), &[]);
    }
    entries
}

/// One-sided writes, each of so many bytes.
pub(crate) fn libfabric_write(size: u32, count: u32) -> Vec<Entry> {
    let (size, count) = (size.to_string(), count.to_string());
    if !is_in_path("fi_rma_bw") {
        return Vec::new();
    }
    let arguments = ["fi_rma_bw", "-p", "tcp", "-e", "msg", "-o", "write", "-S", &size, "-I", &count];
    vec![libfabric("libfabric tcp, RMA write", &arguments, &["-B", "-P"], gigabytes)]
}

/// Half round trips over UCX.
pub(crate) fn ucx_latency(size: u32, count: u32) -> Vec<Entry> {
    let kinds = [("tag", "tag_lat"), ("active message", "ucp_am_lat"), ("put", "ucp_put_lat")];
    kinds.map(|(name, test)| ucx(&format!("UCX tcp, {name}"), test, size, count, ucx_latency_of)).into()
}

/// One-sided writes over UCX.
pub(crate) fn ucx_write(size: u32, count: u32) -> Vec<Entry> {
    vec![ucx("UCX tcp, put", "ucp_put_bw", size, count, ucx_rate_of)]
}

fn libfabric(name: &str, arguments: &[&str], port: &[&str], read: fn(&str) -> Result<f64, String>) -> Entry {
    let mut server = Line::on_core(SERVER_CORE, arguments);
    let mut client = Line::on_core(CLIENT_CORE, arguments);
    let number = LIBFABRIC_PORT.to_string();
    if let [at_server, at_client] = port {
        let own = [(*at_server).to_owned(), number.clone(), "-s".to_owned(), "127.0.0.1".to_owned()];
        server.arguments.extend(own);
        client.arguments.extend([(*at_client).to_owned(), number]);
    }
    client.arguments.push("127.0.0.1".to_owned());
    for line in [&mut server, &mut client] {
        line.environment.push(("FI_TCP_IFACE", "lo"));
    }
    Entry { name: name.to_owned(), server: Some((server, LIBFABRIC_PORT)), client, read }
}

fn ucx(name: &str, test: &str, size: u32, count: u32, read: fn(&str) -> Result<f64, String>) -> Entry {
    let (size, count, port) = (size.to_string(), count.to_string(), UCX_PORT.to_string());
    let warm_up = (count.parse::<u32>().unwrap_or(0) / 10).max(10).to_string();
    let mut server = Line::on_core(SERVER_CORE, &["ucx_perftest", "-p", &port]);
    let arguments = [
        "ucx_perftest",
        "127.0.0.1",
        "-p",
        &port,
        "-t",
        test,
        "-s",
        &size,
        "-n",
        &count,
        "-w",
        &warm_up,
        "-f",
    ];
    let mut client = Line::on_core(CLIENT_CORE, &arguments);
    for line in [&mut server, &mut client] {
        line.environment.extend([("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")]);
    }
    Entry { name: name.to_owned(), server: Some((server, UCX_PORT)), client, read }
}

/// The last line that begins with a figure: headings are above.
fn figures(output: &str) -> Option<Vec<&str>> {
    let lines = output.lines().rev().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|fields| fields.len() >= 7)
        .find(|fields| fields[0].starts_with(|first: char| first.is_ascii_digit()))
}

/// A figure of that line, in a column counted from the right.
fn figure(output: &str, column: usize) -> Result<f64, String> {
    let fields = figures(output).ok_or("no figures in the output")?;
    let field = fields.iter().rev().nth(column).ok_or("too few columns")?;
    field.parse::<f64>().ok().filter(|figure| *figure > 0.0).ok_or_else(|| format!("{field} is no figure"))
}

/// `bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec`, and without
/// `#ack` from fabtests; a transfer is half a round trip.
fn microseconds(output: &str) -> Result<f64, String> {
    figure(output, 1)
}

/// The same columns; 10^6 bytes.
fn gigabytes(output: &str) -> Result<f64, String> {
    figure(output, 2).map(|megabytes| megabytes / 1e3)
}

/// `iterations | 50% average overall | average overall | average overall`:
/// microseconds of half a round trip, over the whole run.
fn ucx_latency_of(output: &str) -> Result<f64, String> {
    figure(output, 4)
}

/// The same columns; 2^20 bytes per second.
fn ucx_rate_of(output: &str) -> Result<f64, String> {
    figure(output, 2).map(|megabytes| megabytes * 1_048_576.0 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_outputs_are_parsed() {
        let text = include_str!("../../fixtures/fi_pingpong.txt");
        assert_eq!(microseconds(text).unwrap(), 121.70);
        assert_eq!(gigabytes(text).unwrap(), 0.53e-3);
        let text = include_str!("../../fixtures/ucx_perftest-latency.txt");
        assert_eq!(ucx_latency_of(text).unwrap(), 43.935);
        let text = include_str!("../../fixtures/ucx_perftest-rate.txt");
        assert!((ucx_rate_of(text).unwrap() - 116.28 * 1_048_576.0 / 1e9).abs() < 1e-12);
        for text in ["", "+---+\n|   |\n", "fi_getinfo(): common.c:1: No data available"] {
            assert!(microseconds(text).is_err() && ucx_latency_of(text).is_err());
        }
    }
}
