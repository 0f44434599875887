//! The software RNIC against other transports of messages over TCP: a bare socket
//! that is polled, `clearstream flow`, libfabric's tcp provider and UCX over
//! tcp. Both ends of all runs are on this machine's loopback, the server on
//! core 1 and the client on core 0, and all programs poll unless labelled otherwise.

pub(crate) mod bare;
pub(crate) mod calls;
mod contest;
pub(crate) mod ours;
mod peers;

use std::sync::atomic::AtomicBool;

use crate::{
    error::BenchError,
    fingerprint, parse,
    place::{Ground, Place},
    tool::{Extra, Pin, Settings, Tool},
};
use contest::{Bar, Contest, Entry, Line};

/// Heading of this part of the page.
pub(crate) const TITLE: &str = "# RDMA over TCP beside its peers";
/// Title of what is no contest, for `--matching`.
pub(crate) const CALLS: &str = "What the calls cost";
/// Port of a bare server, and of ours.
const PORT: u16 = 5311;
/// Port of the flow engine's peers, which it does not use.
const FLOW_PORT: u16 = 5301;

/// Sizes of ping-pongs and of streams, in bytes.
const SMALL: [u32; 2] = [1, 64];
const LARGE: [u32; 3] = [64 << 10, 1 << 20, 8 << 20];

/// Messages of the engine that carries many queue pairs.
const ENGINE: [u32; 2] = [4 << 10, 64 << 10];
const FEW: u32 = 8;
const MANY: u32 = 1000;

/// Approximate amount of a run of a second: half round trips,
/// and bytes. Most programs take a count and not a time.
const HALF_TRIPS: u32 = 100_000;
const BYTES: u64 = 2 << 30;

/// Amount of measurement.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    /// Runs of each program.
    pub rounds: u32,
    /// Length of a run, roughly.
    pub seconds: u32,
}

/// All contests of this part; when it ends early, those measured until then.
pub(crate) fn compare(
    amount: Amount,
    matching: &str,
    command: &str,
    ground: &Ground,
    stop: &AtomicBool,
) -> (String, Result<(), BenchError>) {
    let mut contests = contests(amount, ground);
    let mut outcome = match &mut contests {
        Ok(contests) => {
            contests.retain(|contest| contest.title.contains(matching));
            rounds(contests, amount, ground, stop)
        }
        Err(_) => Ok(()),
    };
    let contests = contests.unwrap_or_else(|error| {
        outcome = Err(error);
        Vec::new()
    });
    let mut costs = String::new();
    if outcome.is_ok() && CALLS.contains(matching) {
        println!("{CALLS}");
        match calls(ground, stop) {
            Ok(text) => costs = text,
            Err(error) => outcome = Err(error),
        }
    }
    (page(command, ground, &contests, &costs, outcome.as_ref().err()), outcome)
}

fn contests(amount: Amount, ground: &Ground) -> Result<Vec<Contest>, BenchError> {
    let mut contests: Vec<Contest> = SMALL.iter().map(|&size| latency(size, amount)).collect();
    for size in LARGE {
        contests.push(unidirectional(size, amount, ground)?);
    }
    contests.extend(LARGE.iter().map(|&size| bidirectional(size, amount)));
    contests.extend(ENGINE.iter().map(|&size| engine(size, amount)));
    Ok(contests)
}

fn rounds(
    contests: &mut [Contest],
    amount: Amount,
    ground: &Ground,
    stop: &AtomicBool,
) -> Result<(), BenchError> {
    for contest in contests {
        println!("{}", contest.title);
        for round in 0..amount.rounds {
            contest.round(ground, round, stop)?;
        }
    }
    Ok(())
}

fn size_text(bytes: u32) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        1 => "1 byte".to_owned(),
        bytes => format!("{bytes} bytes"),
    }
}

/// Number of messages of a size in a run.
fn messages(size: u32, amount: Amount) -> u32 {
    u32::try_from(BYTES * u64::from(amount.seconds) / u64::from(size)).unwrap_or(u32::MAX)
}

fn latency(size: u32, amount: Amount) -> Contest {
    let count = HALF_TRIPS / 2 * amount.seconds;
    let mut entries = vec![
        iwarp("iWARP Send", "send", Moved::Inline, Crc::Off, size, count),
        bare("bare TCP, polled", "ping", size, count),
        iwarp("iWARP Write", "write", Moved::Inline, Crc::Off, size, count),
        iwarp("iWARP Send, CRC", "send", Moved::Inline, Crc::On, size, count),
    ];
    let mut bars = vec![(0, 1, Bar::Most(1.15)), (2, 1, Bar::Most(1.15))];
    for peer in peers::libfabric_latency(size, count) {
        bars.push((0, entries.len(), Bar::Most(1.0)));
        entries.push(peer);
    }
    for peer in peers::ucx_latency(size, count) {
        // A Write is compared with a put, a Send against a message.
        let ours = if peer.name.ends_with("put") { 2 } else { 0 };
        bars.push((ours, entries.len(), Bar::Most(1.0)));
        entries.push(peer);
    }
    let contest = Contest::new(format!("Half round trip of {}", size_text(size)), "us", entries);
    Contest { over: vec![0, 2], bars, ..contest }
}

fn unidirectional(size: u32, amount: Amount, ground: &Ground) -> Result<Contest, BenchError> {
    let count = messages(size, amount);
    let write = |name, progress, crc| iwarp(name, "stream", progress, crc, size, count);
    let mut entries = vec![
        write("iWARP, engines", Moved::Engines, Crc::Off),
        write("iWARP, engines, CRC", Moved::Engines, Crc::On),
        write("iWARP, inline", Moved::Inline, Crc::Off),
        write("iWARP, inline, CRC", Moved::Inline, Crc::On),
        write("iWARP, one core", Moved::Together, Crc::Off),
        write("iWARP, one core, CRC", Moved::Together, Crc::On),
    ];
    let ours = entries.len();
    let mut bars = Vec::new();
    for flow in flows(amount, ground)? {
        for entry in (0..ours).step_by(2) {
            bars.push((entry, entries.len(), Bar::Least(0.95)));
            bars.push((entry + 1, entries.len(), Bar::Least(0.80)));
        }
        entries.push(flow);
    }
    // The flow engine sends one buffer of 2 or 1 MiB again and again, which stays
    // in a core's cache; these read and write as much memory as the Writes.
    for (name, core) in [("one core", "0"), ("two cores", "1")] {
        for entry in (0..ours).step_by(2) {
            bars.push((entry, entries.len(), Bar::Least(0.95)));
            bars.push((entry + 1, entries.len(), Bar::Least(0.80)));
        }
        let name = format!("bare TCP, same memory as the Writes, {name}");
        entries.push(bare_on(core, &name, "walk", size, count));
    }
    entries.push(bare("bare TCP, polled", "stream", size, count));
    for peer in [peers::libfabric_write(size, count), peers::ucx_write(size, count)].concat() {
        bars.push((0, entries.len(), Bar::Least(1.0)));
        entries.push(peer);
    }
    let contest = Contest::new(format!("One way, messages of {}", size_text(size)), "GB/s", entries);
    Ok(Contest { over: (0..ours).collect(), bars, ..contest })
}

fn bidirectional(size: u32, amount: Amount) -> Contest {
    let count = messages(size, amount);
    let entries = vec![
        iwarp("iWARP Write, one way", "stream", Moved::Engines, Crc::Off, size, count),
        iwarp("iWARP Write, both ways", "both", Moved::Engines, Crc::Off, size, count),
        bare("bare TCP, one way", "stream", size, count),
        bare("bare TCP, both ways", "both", size, count),
    ];
    let title = format!("Both directions at once, messages of {}", size_text(size));
    // As much as two cores give, or as bare TCP gets out of them: as a ratio, and
    // in bytes.
    let bars = vec![(1, 0, Bar::LeastOr(1.6, 3, 2)), (1, 3, Bar::Least(1.0))];
    Contest { over: vec![1, 3], bars, ..Contest::new(title, "GB/s, both added", entries) }
}

/// One engine at either end, on a core of its own, with few queue pairs and
/// with many.
fn engine(size: u32, amount: Amount) -> Contest {
    // Long enough that the requests which are posted at once are a small part.
    let count = messages(size, amount) * if size < 64 << 10 { 1 } else { 2 };
    let (port, size_argument) = (PORT.to_string(), size.to_string());
    let entry = |queue_pairs: u32| {
        let (each, queue_pairs) = ((count / queue_pairs).to_string(), queue_pairs.to_string());
        let client = [
            "iwarp",
            "many",
            "127.0.0.1",
            &port,
            "0",
            "engine",
            "plain",
            &size_argument,
            &each,
            &queue_pairs,
        ];
        own(&format!("{queue_pairs} queue pairs"), &["iwarp", "serve", &port, "1", "engine"], &client)
    };
    let title = format!("One engine at either end, Writes of {}", size_text(size));
    let bars = vec![(1, 0, Bar::Least(0.8))];
    Contest { over: vec![1], bars, ..Contest::new(title, "GB/s, all added", vec![entry(FEW), entry(MANY)]) }
}

/// Cost of the calls, as this program reports it on its own.
fn calls(ground: &Ground, stop: &AtomicBool) -> Result<String, BenchError> {
    contest::text(&own("calls", &[], &["calls"]).client, ground, stop)
}

/// `clearstream flow` in the settings that were its best on loopback.
fn flows(amount: Amount, ground: &Ground) -> Result<Vec<Entry>, BenchError> {
    let shape = ground.shape(Place::Loopback, 1, amount.seconds, FLOW_PORT)?;
    let settings = [
        Settings { block_kib: Some(2048), pin: Pin::Together, extra: Extra::SmallBuffer },
        Settings { block_kib: Some(1024), pin: Pin::Free, extra: Extra::Nothing },
    ];
    let entry = |settings: Settings| {
        let command = Tool::Clearstream.client(settings, &shape);
        let arguments = std::iter::once(command.get_program()).chain(command.get_args());
        let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
        let client = Line { arguments, environment: Vec::new(), enters: true };
        let read = |output: &str| parse::clearstream(output).map(|goodput| goodput.bps / 8e9);
        Entry { name: format!("clearstream flow, {settings}"), server: None, client, read }
    };
    Ok(settings.map(entry).into())
}

/// This program as a bare end.
fn bare(name: &str, kind: &str, size: u32, count: u32) -> Entry {
    bare_on("1", name, kind, size, count)
}

/// The same with the server on another core.
fn bare_on(core: &str, name: &str, kind: &str, size: u32, count: u32) -> Entry {
    let (port, size, count) = (PORT.to_string(), size.to_string(), count.to_string());
    let client = ["bare", kind, "127.0.0.1", &port, "0", &size, &count];
    own(name, &["bare", "serve", &port, core], &client)
}

/// Progress mode at both ends: who moves the bytes.
#[derive(Clone, Copy, PartialEq)]
enum Moved {
    /// The program, which polls.
    Inline,
    /// An engine; the program sleeps.
    Engines,
    /// The program, which sleeps while there are none; both ends on one core.
    Together,
}

#[derive(Clone, Copy, PartialEq)]
enum Crc {
    Off,
    On,
}

/// This program as an end with our RNIC, progressing inline.
fn iwarp(name: &str, kind: &str, progress: Moved, crc: Crc, size: u32, count: u32) -> Entry {
    let (port, size, count) = (PORT.to_string(), size.to_string(), count.to_string());
    let crc = if crc == Crc::On { "crc" } else { "plain" };
    let (progress, core) = match progress {
        Moved::Inline => ("inline", "1"),
        Moved::Engines => ("engine", "1"),
        Moved::Together => ("asleep", "0"),
    };
    let client = ["iwarp", kind, "127.0.0.1", &port, "0", progress, crc, &size, &count, "1"];
    own(name, &["iwarp", "serve", &port, core, progress], &client)
}

fn own(name: &str, server: &[&str], client: &[&str]) -> Entry {
    let own = std::env::current_exe();
    let own = own.map_or_else(|_| "clearstream-bench".to_owned(), |path| path.display().to_string());
    let line = |arguments: &[&str]| Line::plain(&[&[own.as_str()], arguments].concat());
    let read = |output: &str| output.trim().parse::<f64>().map_err(|error| format!("{output}: {error}"));
    Entry { name: name.to_owned(), server: Some((line(server), PORT)), client: line(client), read }
}

fn page(
    command: &str,
    ground: &Ground,
    contests: &[Contest],
    costs: &str,
    ended: Option<&BenchError>,
) -> String {
    let mut page = format!(
        "{TITLE}\n\nMade by `{command}`. Loopback, both ends pinned: servers on core 1, clients on core 0, but for the \
         flow that shares one core and the ends that are named so. Inline, the program moves its bytes and polls; engines move them while it sleeps. Programs take turns within a round, and ratios are taken within a round, since a \
         machine drifts; figures are medians with the least and the largest. Every figure is a mean over one run. {}\n\n",
        ground.described()
    );
    let failures = contests.iter().flat_map(|contest| contest.failures.iter().cloned());
    for note in failures.chain(ended.map(|error| format!("not complete: {error}"))) {
        page.push_str(&format!("**Note:** {note}\n\n"));
    }
    for contest in contests.iter().filter(|contest| contest.figures.iter().any(|figures| !figures.is_empty()))
    {
        page.push_str(&contest.page());
    }
    page.push_str(costs);
    page.push_str("### The machine of the RDMA part\n\n");
    page.push_str(&fingerprint::table(&[fingerprint::machine(), peers::versions()].concat()));
    page
}
