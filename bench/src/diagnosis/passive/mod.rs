//! Accuracy and cost of `clearstream diagnose --socket` on connections of foreign programs: iperf3, nginx, curl, rsync,
//! and readers in Python.

mod cases;
mod cost;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Options, ground};
use crate::error::BenchError;
use cases::{CAUSES, FILES, HEALTHY, PassiveCase, Then};
use ground::Lab;

/// Until the first program listens.
const START: Duration = Duration::from_millis(700);
/// Until a connection is past slow start and its windows have grown.
const SETTLE: Duration = Duration::from_secs(4);
/// Until a retransmission timer has run out several times.
const LATER: Duration = Duration::from_secs(3);
const OBSERVED: &str = "4s";

/// What a trial gave.
struct Outcome {
    case: &'static PassiveCase,
    named: String,
    fault: bool,
    sentence: String,
}

impl Outcome {
    fn is_right(&self) -> bool {
        if self.case.right.is_empty() { !self.fault } else { self.case.right.contains(&self.named.as_str()) }
    }
}

/// Runs it, and prints the tables.
pub(super) fn run(options: &Options, stop: &AtomicBool) -> Result<(), BenchError> {
    let mut trials: Vec<&'static PassiveCase> = Vec::new();
    trials.extend(CAUSES.iter().flat_map(|case| (0..options.repeats).map(move |_| case)));
    trials.extend(HEALTHY.iter().cycle().take(options.healthy as usize));
    super::shuffle(&mut trials, options.seed);
    let begun = Instant::now();
    let mut outcomes = Vec::new();
    let mut failed_count = 0;
    for (at, case) in trials.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let start = format!("{:>3}/{} {:<22}", at + 1, trials.len(), case.name);
        match trial(&options.program, case) {
            Ok(outcome) => {
                let verdict = if outcome.is_right() { "right" } else { "WRONG" };
                println!("{start} {verdict} {}: {}", outcome.named, outcome.sentence);
                outcomes.push(outcome);
            }
            Err(error) => {
                println!("{start} failed: {error}");
                failed_count += 1;
            }
        }
    }
    println!("\n{}", table(&outcomes));
    println!(
        "{} trials in {} s, {failed_count} failed\n",
        outcomes.len(),
        begun.elapsed().as_secs()
    );
    if stop.load(Ordering::Relaxed) {
        return Err(BenchError::Interrupted);
    }
    println!("{}", cost::table(&options.program)?);
    Ok(())
}

fn trial(program: &Path, case: &'static PassiveCase) -> Result<Outcome, BenchError> {
    let mut lab = Lab::up(program, case.ground, None)?;
    for line in case.make {
        lab.make(line)?;
    }
    let folder = lab.folder().to_owned();
    let at = |text: &str| text.replace("FOLDER", &folder.to_string_lossy());
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| BenchError::File { path, source }
    };
    for (name, text) in FILES {
        let path = folder.join(name);
        fs::write(&path, at(text)).map_err(fail(&path))?;
    }
    let large = folder.join("large");
    fs::File::create(&large).and_then(|file| file.set_len(64 << 30)).map_err(fail(&large))?;
    let mut programs = Programs(Vec::new());
    for line in case.programs {
        programs.start(&lab, &at(line))?;
        thread::sleep(START);
    }
    thread::sleep(SETTLE);
    match case.then {
        Then::Nothing => {}
        Then::Stop => {
            programs.stop_last()?;
            thread::sleep(LATER);
        }
        Then::Make(line) => {
            lab.make(line)?;
            thread::sleep(LATER);
        }
    }
    // A process of each host: `lab exec` becomes the program.
    let hosts: &[&str] = if case.both { &["alpha", "beta"] } else { &["alpha"] };
    let mut more = vec!["--socket".to_owned(), case.filter.to_owned(), "-t".to_owned(), OBSERVED.to_owned()];
    for host in hosts {
        let pid = programs.of(host).ok_or_else(|| ground::failed(host, "no program"))?;
        more.extend(["--namespace".to_owned(), pid.to_string()]);
    }
    let document = lab.outside("diagnose", &more)?;
    drop(programs);
    Ok(outcome(case, &document))
}

fn outcome(case: &'static PassiveCase, document: &Value) -> Outcome {
    let all = document["connections"].as_array().map_or(&[][..], Vec::as_slice);
    let fault = all.iter().any(|one| one["verdict"]["found"]["fault"] == true);
    let verdict = &document["connections"][0]["verdict"];
    let found = &verdict["found"];
    let (named, sentence) = match (found["cause"]["kind"].as_str(), verdict.as_str()) {
        (Some(kind), _) => (kind, found["sentence"].as_str().unwrap_or_default()),
        (None, Some(idle)) => (idle, "no data"),
        (None, None) => ("unknown", verdict["unknown"]["because"].as_str().unwrap_or("no connection")),
    };
    Outcome { case, named: named.to_owned(), fault, sentence: sentence.to_owned() }
}

/// Programs of a trial, ended in the opposite order.
struct Programs(Vec<(String, Child)>);

impl Programs {
    fn start(&mut self, lab: &Lab<'_>, line: &str) -> Result<(), BenchError> {
        let (host, command) = line.split_once(": ").ok_or_else(|| ground::failed(line, "no place"))?;
        let mut exec = lab.exec(host, &command.split(' ').collect::<Vec<_>>())?;
        exec.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = |source| BenchError::Start { program: line.to_owned(), source };
        self.0.push((host.to_owned(), exec.spawn().map_err(start)?));
        Ok(())
    }

    fn of(&self, host: &str) -> Option<u32> {
        self.0.iter().find(|(name, _)| name == host).map(|(_, child)| child.id())
    }

    fn stop_last(&self) -> Result<(), BenchError> {
        let last = self.0.last().and_then(|(_, child)| i32::try_from(child.id()).ok());
        let last = last.and_then(rustix::process::Pid::from_raw);
        let last = last.ok_or_else(|| ground::failed("SIGSTOP", "no program"))?;
        rustix::process::kill_process(last, rustix::process::Signal::STOP)
            .map_err(|error| ground::failed("SIGSTOP", error.to_string()))
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for (_, child) in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = "| cause | named first | named |\n|---|---|---|\n".to_owned();
    for case in &CAUSES {
        text.push_str(&row(case, outcomes, Outcome::is_right));
    }
    text.push_str("\n| healthy | accused | named |\n|---|---|---|\n");
    for case in &HEALTHY {
        text.push_str(&row(case, outcomes, |outcome| outcome.fault));
    }
    let (healthy, causes): (Vec<&Outcome>, Vec<&Outcome>) =
        outcomes.iter().partition(|outcome| outcome.case.right.is_empty());
    let right = causes.iter().filter(|outcome| outcome.is_right()).count();
    let accused = healthy.iter().filter(|outcome| outcome.fault).count();
    text.push_str(&format!(
        "\nnamed first: {right} of {}; healthy accused: {accused} of {}\n",
        causes.len(),
        healthy.len()
    ));
    text
}

fn row(case: &PassiveCase, outcomes: &[Outcome], counts: impl Fn(&Outcome) -> bool) -> String {
    let own: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.case.name == case.name).collect();
    let counted = own.iter().filter(|outcome| counts(outcome)).count();
    let named = own.iter().fold(std::collections::BTreeMap::<&str, usize>::new(), |mut named, outcome| {
        *named.entry(&outcome.named).or_default() += 1;
        named
    });
    let named: Vec<String> = named.into_iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!("| {} | {counted}/{} | {} |\n", case.name, own.len(), named.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_busiest_connection_is_the_one_that_counts_and_any_fault_accuses() {
        let found = |kind: &str, fault: bool| json!({"verdict": {"found": {"cause": {"kind": kind}, "fault": fault, "sentence": "x"}}});
        let document = json!({"connections": [found("loss", true), {"verdict": "idle"}]});
        let loss = CAUSES.iter().find(|case| case.name == "loss-iperf3").unwrap();
        assert!(outcome(loss, &document).is_right());
        assert!(!outcome(&CAUSES[0], &document).is_right());
        assert!(!outcome(&HEALTHY[0], &document).is_right());
        let later = json!({"connections": [{"verdict": "idle"}, found("loss", true)]});
        assert!(outcome(&HEALTHY[0], &later).fault && !outcome(loss, &later).is_right());
        let unknown = json!({"connections": [{"verdict": {"unknown": {"because": "y"}}}]});
        assert!(outcome(&HEALTHY[0], &unknown).is_right());
        assert_eq!(outcome(loss, &json!({"connections": []})).sentence, "no connection");
    }
}
