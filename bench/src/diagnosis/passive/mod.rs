//! Accuracy and cost of `clearstream diagnose --socket` on connections of foreign programs: iperf3, nginx, curl, rsync,
//! and readers in Python.

mod cases;
mod cost;

use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Options, ground};
use crate::{error::BenchError, fingerprint};
use cases::{CAUSES, FILES, HEALTHY, PassiveCase, Then};
use ground::Lab;

/// Until the first program listens.
const START: Duration = Duration::from_millis(700);
/// Until a connection is past slow start and its windows have grown.
const SETTLE: Duration = Duration::from_millis(2500);
/// Until a retransmission timer has run out several times.
const LATER: Duration = Duration::from_millis(2500);
const OBSERVED: &str = "3s";

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

/// Whether these names are of causes.
pub(super) fn check(names: &[String]) -> Result<(), String> {
    match names.iter().find(|name| CAUSES.iter().all(|case| case.name != name.as_str())) {
        Some(name) => {
            let all: Vec<&str> = CAUSES.iter().map(|case| case.name).collect();
            Err(format!("no cause {name}, choose from {}", all.join(",")))
        }
        None => Ok(()),
    }
}

/// What an observation costs.
pub(super) fn cost(program: &Path) -> Result<(), BenchError> {
    println!("{}", cost::table(program)?);
    Ok(())
}

/// Runs it, and prints the tables. Healthy connections run alone: they use what the machine has.
pub(super) fn run(options: &Options, stop: &AtomicBool) -> Result<(), BenchError> {
    let names = &options.only[1..];
    let wanted = |case: &&PassiveCase| names.is_empty() || names.iter().any(|name| name == case.name);
    let mut causes: Vec<&'static PassiveCase> = Vec::new();
    causes.extend(CAUSES.iter().filter(wanted).flat_map(|case| (0..options.repeats).map(move |_| case)));
    let mut healthy: Vec<&'static PassiveCase> =
        HEALTHY.iter().cycle().take(options.healthy as usize).collect();
    super::shuffle(&mut causes, options.seed);
    super::shuffle(&mut healthy, options.seed);
    let begun = Instant::now();
    let mut outcomes = trials(&options.program, &causes, options.jobs, stop);
    outcomes.extend(trials(&options.program, &healthy, 1, stop));
    let failed_count = outcomes.iter().filter(|outcome| outcome.is_none()).count();
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    println!("\n{}", table(&outcomes));
    println!("{} trials in {} s, {failed_count} failed\n", outcomes.len(), begun.elapsed().as_secs());
    println!("{}", fingerprint::table(&fingerprint::machine()));
    if stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
}

/// Some at a time; `None` for one that could not be made.
fn trials(
    program: &Path,
    cases: &[&'static PassiveCase],
    jobs: u32,
    stop: &AtomicBool,
) -> Vec<Option<Outcome>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut outcomes = Vec::new();
        while !stop.load(Ordering::Relaxed)
            && let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let outcome = trial(program, case);
            match &outcome {
                Ok(outcome) => {
                    let verdict = if outcome.is_right() { "right" } else { "WRONG" };
                    println!("{:<22} {verdict} {}: {}", case.name, outcome.named, outcome.sentence);
                }
                Err(error) => println!("{:<22} failed: {error}", case.name),
            }
            outcomes.push(outcome.ok());
        }
        outcomes
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        // A trial that panics is a fault of this program.
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    })
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
