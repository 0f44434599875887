//! Cost of an observation: CPU time, and the time of a sample, by the number of open connections.

use std::{fs, path::Path, thread, time::Duration};

use serde_json::Value;

use super::{Programs, ground};
use crate::{diagnosis::causes::Ground, error::BenchError, results::spread};

/// Connections from `alpha` to `beta`, some of which carry data all of the time: so many of them a second send 200 bytes.
const CONNECTIONS: [(u32, u32); 3] = [(100, 1000), (1000, 1000), (10_000, 1000)];
/// Seconds that are compared: the difference has no start in it.
const SECONDS: [u32; 2] = [2, 10];
const REPEATS: usize = 3;

const SCRIPT: &str = "
import resource, selectors, socket, sys, time
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
if sys.argv[1] == 'serve':
    listener = socket.create_server(('0.0.0.0', 7071), backlog=4096)
    listener.setblocking(False)
    poll = selectors.DefaultSelector()
    poll.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in poll.select():
            if key.fileobj is listener:
                one, _ = listener.accept()
                one.setblocking(False)
                poll.register(one, selectors.EVENT_READ)
            elif not key.fileobj.recv(4096):
                poll.unregister(key.fileobj)
else:
    count, rate = int(sys.argv[1]), int(sys.argv[2])
    all = [socket.create_connection(('10.79.0.2', 7071)) for _ in range(count)]
    open(sys.argv[3], 'w').close()
    place = 0
    while True:
        for _ in range(rate // 50):
            all[place % count].sendall(b'x' * 200)
            place += 1
        time.sleep(0.02)
";

/// A table with a row per number of connections.
pub(super) fn table(program: &Path) -> Result<String, BenchError> {
    let mut text =
        "| open connections | CPU of one core | longest sample | interval | samples in 10 s |\n|---|---|---|---|---|\n"
            .to_owned();
    for (count, rate) in CONNECTIONS {
        text.push_str(&row(program, count, rate)?);
    }
    Ok(text)
}

fn row(program: &Path, count: u32, rate: u32) -> Result<String, BenchError> {
    let lab = ground::Lab::up(program, Ground::Link(super::super::causes::PAIR), None)?;
    let script = lab.folder().join("many.py");
    fs::write(&script, SCRIPT).map_err(|source| BenchError::File { path: script.clone(), source })?;
    let opened = lab.folder().join("opened");
    let mut programs = Programs(Vec::new());
    programs.start(&lab, &format!("beta: python3 {} serve", script.display()))?;
    thread::sleep(super::START);
    programs
        .start(&lab, &format!("alpha: python3 {} {count} {rate} {}", script.display(), opened.display()))?;
    for _ in 0..600 {
        if opened.exists() {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    if !opened.exists() {
        return Err(ground::failed("many.py", format!("{count} connections were not opened")));
    }
    let mut ratios = Vec::new();
    let mut last = Value::Null;
    let mut longest_ms: Vec<f64> = Vec::new();
    for _ in 0..REPEATS {
        let [(short, _), (long, document)] = SECONDS.map(|seconds| observed(&lab, seconds));
        let (short, long, document) = (short?, long?, document);
        ratios.push((long - short) / f64::from(SECONDS[1] - SECONDS[0]));
        longest_ms.push(document["longest_sample_ns"].as_f64().unwrap_or(f64::NAN) / 1e6);
        last = document;
    }
    let (ratio, longest_ms) = (spread(ratios.into_iter()), spread(longest_ms.into_iter()));
    let percent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
    Ok(format!(
        "| {} | {} ({} to {}) | {:.1} ms (at most {:.1} ms) | {:.1} ms | {} |\n",
        last["socket_count"],
        percent(ratio.median),
        percent(ratio.least),
        percent(ratio.most),
        longest_ms.median,
        longest_ms.most,
        last["interval_ns"].as_f64().unwrap_or(f64::NAN) / 1e6,
        last["sample_count"]
    ))
}

/// CPU seconds of an observation on `alpha`, and its document.
fn observed(lab: &ground::Lab<'_>, seconds: u32) -> (Result<f64, BenchError>, Value) {
    match try_observed(lab, seconds) {
        Ok((cpu, document)) => (Ok(cpu), document),
        Err(error) => (Err(error), Value::Null),
    }
}

fn try_observed(lab: &ground::Lab<'_>, seconds: u32) -> Result<(f64, Value), BenchError> {
    // `times` of the shell: its own, then those of its children (POSIX, Shell Command Language, times).
    let line = format!("{} diagnose --socket all --json -t {seconds}s; times >&2", lab.program().display());
    let command = lab.exec("alpha", &["sh", "-c", &line])?;
    let (out, errors) = ground::outputs(command, &line, Duration::from_secs(60))?;
    let document = serde_json::from_str(&out).map_err(|error| ground::failed(&line, error.to_string()))?;
    let children = errors.lines().last().unwrap_or_default();
    let seconds = children.split_whitespace().map(|time| {
        let (minutes, rest) = time.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + rest.strip_suffix('s')?.parse::<f64>().ok()?)
    });
    let cpu = seconds.sum::<Option<f64>>().ok_or_else(|| ground::failed(&line, errors.clone()))?;
    Ok((cpu, document))
}
