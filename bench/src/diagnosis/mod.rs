//! Accuracy of `clearstream diagnose` on causes injected with standard tools,
//! in random order mixed with healthy paths.

mod causes;
mod ground;
mod passive;
mod table;

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};

use crate::{error::BenchError, program};
use causes::{CAUSES, Case, HEALTHY};

const USAGE: &str = "usage: clearstream-bench diagnosis [--repeats COUNT] [--healthy COUNT] [--only NAME,...|passive[,NAME...]|passive-cost] [--jobs COUNT] [--budget TIME] [--load PROCESSES] [--seed NUMBER] [--program PATH] [--output FILE]";

/// Heading of the part of the page with what `--only passive` and `--only passive-cost` printed.
pub(crate) const PASSIVE_TITLE: &str = "# Passive diagnosis";

/// Of `--only`: connections of foreign programs instead, and what it costs to observe them.
const PASSIVE: &str = "passive";
const PASSIVE_COST: &str = "passive-cost";
const PASSIVE_HEALTHY: u32 = 20;

/// Options.
struct Options {
    /// Trials of each cause.
    repeats: u32,
    /// Trials of healthy paths, all together.
    healthy: u32,
    only: Vec<String>,
    /// Passive trials of causes at a time, each in a lab of its own.
    jobs: u32,
    budget: String,
    /// Busy processes in parallel to every other healthy path.
    load: u32,
    seed: u64,
    program: PathBuf,
    /// Every trial as a line of JSON.
    output: Option<PathBuf>,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, BenchError> {
        let mut options = Self {
            repeats: 10,
            healthy: 50,
            only: Vec::new(),
            jobs: 1,
            budget: "20s".to_owned(),
            load: 12,
            seed: 1,
            program: program::path(),
            output: None,
        };
        let mut healthy_is_default = true;
        let mut arguments = arguments.iter();
        let usage = |what: String| BenchError::Usage(format!("{what}; {USAGE}"));
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or_else(|| usage(format!("{argument} needs a value")))?;
            let number = || value.parse::<u32>().map_err(|_| usage(format!("{value} is no count")));
            match argument.as_str() {
                "--repeats" => options.repeats = number()?,
                "--healthy" => (options.healthy, healthy_is_default) = (number()?, false),
                "--only" => options.only = value.split(',').map(str::to_owned).collect(),
                "--jobs" => options.jobs = number()?.max(1),
                "--budget" => options.budget.clone_from(value),
                "--load" => options.load = number()?,
                "--seed" => options.seed = number()?.into(),
                "--program" => options.program = PathBuf::from(value),
                "--output" => options.output = Some(PathBuf::from(value)),
                _ => return Err(usage(format!("unknown option {argument}"))),
            }
        }
        if options.is_passive() {
            options.healthy = if healthy_is_default { PASSIVE_HEALTHY } else { options.healthy };
            passive::check(&options.only[1..]).map_err(usage)?;
            return Ok(options);
        }
        if let Some(name) = options.only.iter().find(|name| all().all(|case| case.name != **name)) {
            let names: Vec<&str> = all().map(|case| case.name).collect();
            return Err(usage(format!("no cause {name}, choose from {}", names.join(","))));
        }
        Ok(options)
    }

    fn is_passive(&self) -> bool {
        self.only.first().is_some_and(|first| first == PASSIVE || first == PASSIVE_COST)
    }
}

fn all() -> impl Iterator<Item = &'static Case> {
    CAUSES.iter().chain(&HEALTHY)
}

/// One trial of a case.
#[derive(Clone, Copy)]
struct Trial {
    case: &'static Case,
    /// Busy processes in parallel.
    load: u32,
}

/// Outcome of a trial.
#[derive(Debug, Clone)]
struct Outcome {
    name: String,
    loaded: bool,
    healthy: bool,
    machine: bool,
    /// Kind of cause that was named, `unknown` for none.
    named: String,
    right: bool,
    fault: bool,
    observed_bps: f64,
    without_bps: Option<f64>,
    /// Range of what may be gained.
    gain: (Option<f64>, Option<f64>),
    sentence: String,
}

impl Outcome {
    /// The cause was effective: on this machine the flow is clearly faster without it.
    fn had_effect(&self) -> bool {
        !self.machine || self.without_bps.is_none_or(|without| self.observed_bps < 0.8 * without)
    }

    /// Whether the range contains the goodput after removal: an absent range contains nothing. `None`
    /// where that goodput is not known.
    fn contained(&self) -> Option<bool> {
        let without = self.without_bps?;
        let (least, most) = self.gain;
        if least.or(most).is_none() {
            return Some(false);
        }
        Some(least.is_none_or(|least| least <= without) && most.is_none_or(|most| without <= most))
    }

    /// The range has no upper end: any goodput after removal is within it.
    fn is_open(&self) -> bool {
        self.gain.1.is_none()
    }

    fn line(&self) -> Value {
        json!({
            "case": self.name, "loaded": self.loaded, "healthy": self.healthy, "named": self.named,
            "right": self.right, "fault": self.fault, "observed_bps": self.observed_bps,
            "without_bps": self.without_bps, "at_least_bps": self.gain.0, "at_most_bps": self.gain.1,
            "sentence": self.sentence,
        })
    }
}

/// Runs it; the table goes to standard output also when it ends early.
pub(crate) fn main(arguments: &[String]) -> Result<(), BenchError> {
    let options = Options::read(arguments)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|source| BenchError::File { path: "signal handler".into(), source })?;
    }
    if options.is_passive() {
        return if options.only[0] == PASSIVE {
            passive::run(&options, &stop)
        } else {
            passive::cost(&options.program)
        };
    }
    let begun = Instant::now();
    let trials = schedule(&options);
    let mut outcomes = Vec::new();
    let mut failures = Vec::new();
    for (at, trial) in trials.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match measure(&options, *trial) {
            Ok(outcome) => {
                let verdict = if outcome.right { "right" } else { "WRONG" };
                println!(
                    "{:>3}/{} {:<18} {verdict} {}: {}",
                    at + 1,
                    trials.len(),
                    outcome.name,
                    outcome.named,
                    outcome.sentence
                );
                append(&options, &outcome)?;
                outcomes.push(outcome);
            }
            Err(error) if !stop.load(Ordering::Relaxed) => {
                println!("{:>3}/{} {:<18} failed: {error}", at + 1, trials.len(), trial.case.name);
                failures.push(error);
            }
            Err(_) => break,
        }
    }
    println!("\n{}", table::table(&outcomes));
    println!("{} trials in {} s, {} failed", outcomes.len(), begun.elapsed().as_secs(), failures.len());
    if stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
}

fn append(options: &Options, outcome: &Outcome) -> Result<(), BenchError> {
    let Some(path) = &options.output else { return Ok(()) };
    let fail = |source| BenchError::File { path: path.clone(), source };
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(fail)?;
    writeln!(file, "{}", outcome.line()).map_err(fail)
}

/// All trials in an order drawn from the seed.
fn schedule(options: &Options) -> Vec<Trial> {
    let chosen =
        |case: &&'static Case| options.only.is_empty() || options.only.iter().any(|name| name == case.name);
    let mut trials = Vec::new();
    for case in CAUSES.iter().filter(chosen) {
        trials.extend((0..options.repeats).map(|_| Trial { case, load: 0 }));
    }
    let healthy: Vec<&Case> = HEALTHY.iter().filter(chosen).collect();
    for at in 0..options.healthy as usize {
        if let Some(case) = healthy.get(at % healthy.len().max(1)) {
            let loaded = (at / healthy.len()) % 2 == 1;
            trials.push(Trial { case, load: if loaded { options.load } else { 0 } });
        }
    }
    shuffle(&mut trials, options.seed);
    trials
}

/// Fisher and Yates, with the generator of Marsaglia 2003 (xorshift64).
fn shuffle<T>(trials: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in (1..trials.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        trials.swap(at, (state % (at as u64 + 1)) as usize);
    }
}

/// Busy loops that end with the trial.
struct Load(Vec<Child>);

impl Load {
    fn start(count: u32) -> Result<Self, BenchError> {
        let mut load = Self(Vec::new());
        for _ in 0..count {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            let start = |source| BenchError::Start { program: "sh".to_owned(), source };
            load.0.push(shell.spawn().map_err(start)?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn measure(options: &Options, trial: Trial) -> Result<Outcome, BenchError> {
    let case = trial.case;
    let healthy = case.right.is_empty();
    let without_bps = if healthy { None } else { Some(ground::without(&options.program, case)?) };
    let mut lab = ground::made(&options.program, case)?;
    if let Some(flow) = case.beside {
        lab.beside(flow)?;
    }
    let load = Load::start(trial.load)?;
    let document = lab.run("diagnose", case.options, &["--budget", &options.budget])?;
    drop(load);
    Ok(outcome(trial, without_bps, &document))
}

fn outcome(trial: Trial, without_bps: Option<f64>, document: &Value) -> Outcome {
    let case = trial.case;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = &document["primary"]["found"];
    let named = found["cause"]["kind"].as_str().unwrap_or("unknown").to_owned();
    let secondary = document["secondary"].as_array().map_or(&[][..], Vec::as_slice);
    let fault = found["fault"] == true || secondary.iter().any(|finding| finding["fault"] == true);
    let healthy = case.right.is_empty();
    let sentence = match found["sentence"].as_str() {
        Some(sentence) => sentence.to_owned(),
        None => text(&document["primary"]["unknown"]["because"]),
    };
    let complete = case.sentence_has.iter().all(|part| sentence.contains(part));
    let gain = |end: &str| document["gain"][end]["rate_bps"].as_f64();
    Outcome {
        name: case.name.to_owned(),
        loaded: trial.load > 0,
        healthy,
        machine: case.machine,
        right: if healthy { !fault } else { case.right.contains(&named.as_str()) && complete },
        named,
        fault,
        observed_bps: document["observed_bps"].as_f64().unwrap_or(0.0),
        without_bps,
        gain: (gain("at_least"), gain("at_most")),
        sentence,
    }
}

/// Counts of the named causes.
fn counts<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> BTreeMap<&'a str, usize> {
    outcomes.fold(BTreeMap::new(), |mut counts, outcome| {
        *counts.entry(outcome.named.as_str()).or_default() += 1;
        counts
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_run_as_often_and_the_order_is_the_seeds() {
        let arguments = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = Options::read(&arguments("--repeats 3 --healthy 16 --seed 7")).unwrap();
        let names = |trials: &[Trial]| trials.iter().map(|trial| trial.case.name).collect::<Vec<_>>();
        let trials = schedule(&options);
        assert_eq!(trials.len(), 3 * CAUSES.len() + 16);
        assert_eq!(names(&trials), names(&schedule(&options)));
        let other = Options { seed: 8, ..options };
        assert_ne!(names(&trials), names(&schedule(&other)));
        assert_eq!(trials.iter().filter(|trial| trial.load > 0).count(), 8);
        assert!(Options::read(&arguments("--only bbr,nothing")).is_err());
    }

    #[test]
    fn a_healthy_path_is_right_unless_it_is_accused() {
        let trial = Trial { case: &HEALTHY[1], load: 0 };
        let document =
            |fault: bool| json!({"primary": {"found": {"fault": fault, "cause": {"kind": "cpu"}}}});
        assert!(outcome(trial, None, &document(false)).right);
        assert!(!outcome(trial, None, &document(true)).right);
        let unknown = json!({"primary": {"unknown": {"because": "x"}}, "observed_bps": 1.0});
        assert!(outcome(trial, None, &unknown).right);
        // A range with one open end.
        let cause = Trial { case: &CAUSES[0], load: 0 };
        let gained = json!({"gain": {"at_least": {"rate_bps": 1.6e9}}, "observed_bps": 2e8});
        let outcome = outcome(cause, Some(1.9e9), &gained);
        assert_eq!((outcome.contained(), outcome.had_effect()), (Some(true), true));
        assert!(outcome.is_open());
        // No range holds nothing, and a name without the required parts is not right.
        let without = super::outcome(cause, Some(1.9e9), &json!({"observed_bps": 2e8}));
        assert_eq!(without.contained(), Some(false));
        let tbf = CAUSES.iter().find(|case| case.name == "tbf").unwrap();
        let found = |sentence: &str| json!({"primary": {"found": {"sentence": sentence, "cause": {"kind": "path-capacity"}}}});
        let is_right = |sentence| super::outcome(Trial { case: tbf, load: 0 }, None, &found(sentence)).right;
        assert!(is_right("the root qdisc of wan0 is \"tbf rate 1gbit\"") && !is_right("a full path"));
    }
}
