//! The loop on a path that is a formula: its best is known, so is every change
//! that must be kept and every one that must not.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clearstream_control::PeerError;
use clearstream_improve::{Bench, Event, ImproveError, Options, run};
use clearstream_schema::{
    control::{Failure, FailureKind},
    diagnosis::{BufferLimit, Cause, DIAGNOSIS_SCHEMA, Diagnosis, End, Finding, Remedy, Role, Verdict},
    flow::{FlowConfig, FlowSettings, FlowSummary},
    improvement::{Change, LoopEnd, Verdict as Decision},
    plan::{Setting, Step},
};
use clearstream_stats::Random;

const WMEM: &str = "net.ipv4.tcp_wmem";
const RMEM: &str = "net.ipv4.tcp_rmem";

/// 17 ms and 19 Gb/s; a reader on core 0 (the interrupt core) gets 12 Gb/s at
/// most, a send buffer of B bytes gives 0.87 B / 17 ms, a receive buffer half of
/// it per 17 ms.
struct Model {
    wmem: [u64; 3],
    rmem: [u64; 3],
    journals: BTreeMap<String, (Setting, String)>,
    /// Journals that are no longer pending.
    final_journals: BTreeSet<String>,
    made: usize,
    random: Random,
    /// Refuses to set sysctls.
    refuses: bool,
    flows: usize,
    /// Raised after so many flows.
    stops_after: Option<usize>,
    diagnoses: usize,
    /// Every other run is a bad spell: the machine gives this share of the rate.
    spell: Option<f64>,
}

impl Model {
    fn new() -> Self {
        Self {
            wmem: [4096, 16_384, 4_194_304],
            rmem: [4096, 131_072, 256 << 20],
            journals: BTreeMap::new(),
            final_journals: BTreeSet::new(),
            made: 0,
            random: Random::new(7),
            refuses: false,
            flows: 0,
            stops_after: None,
            diagnoses: 0,
            spell: None,
        }
    }

    fn sndbuf_bps(&self) -> f64 {
        0.87 * self.wmem[2] as f64 * 8.0 / 0.017
    }

    fn window_bps(&self) -> f64 {
        0.5 * self.rmem[2] as f64 * 8.0 / 0.017
    }

    fn place(&mut self, setting: &Setting) -> Option<&mut [u64; 3]> {
        match setting {
            Setting::Sysctl(name) if name == WMEM => Some(&mut self.wmem),
            Setting::Sysctl(name) if name == RMEM => Some(&mut self.rmem),
            _ => None,
        }
    }

    fn set(&mut self, setting: &Setting, text: &str) -> String {
        let place = self.place(setting).unwrap();
        let old = place.map(|number| number.to_string()).join(" ");
        let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        place.copy_from_slice(&numbers);
        old
    }

    fn reader_bps(config: &FlowConfig) -> f64 {
        if config.receiver_cores.as_ref().is_some_and(|cores| cores.0 == [0]) { 12e9 } else { 40e9 }
    }
}

fn refused(message: &str) -> ImproveError {
    let failure = Failure { kind: FailureKind::Unsupported, message: message.to_owned() };
    ImproveError::Peer(PeerError::Refused { name: "alpha".to_owned(), failure })
}

impl Bench for Model {
    fn names(&self) -> (String, String) {
        ("alpha".to_owned(), "beta".to_owned())
    }

    fn diagnose(
        &mut self,
        config: &FlowConfig,
        _stop: &AtomicBool,
        on_step: &mut dyn FnMut(&str, Duration),
    ) -> Result<Diagnosis, ImproveError> {
        on_step("a formula", Duration::ZERO);
        self.diagnoses += 1;
        let buffer = Finding {
            cause: Cause::SendBuffer {
                held_by: BufferLimit::Sysctl {
                    name: WMEM.to_owned(),
                    value_bytes: self.wmem[2],
                    end: End::Client,
                },
                buffer_bytes: self.wmem[2],
                needed_buffer_bytes: 100 << 20,
                goal_bps: 19e9,
            },
            sentence: "the send buffer".to_owned(),
            fault: true,
            evidence: Vec::new(),
            remedies: vec![Remedy::RaiseSysctl {
                end: End::Client,
                name: WMEM.to_owned(),
                field: 2,
                // For a goal that is soon passed.
                at_least: 8 << 20,
            }],
        };
        let collision = Finding {
            cause: Cause::InterruptCollision {
                end: End::Server,
                core: 0,
                softirq_ratio: 0.6,
                better_cores: vec![1],
            },
            sentence: "the reader on the interrupt core".to_owned(),
            fault: true,
            evidence: Vec::new(),
            remedies: vec![
                // Does nothing, and must not be kept.
                Remedy::ChangeFlow { key: "dscp".to_owned(), value: 8.into() },
                Remedy::MoveThread {
                    role: Role::Receiver,
                    end: End::Server,
                    off_core: 0,
                    to_cores: vec![1, 2],
                },
            ],
        };
        let mut findings = Vec::new();
        if self.window_bps() < 19e9 {
            findings.push(Finding {
                cause: Cause::StillRamping { needed_ns: 0 },
                sentence: "the receive window".to_owned(),
                fault: true,
                evidence: Vec::new(),
                remedies: vec![Remedy::RaiseSysctl {
                    end: End::Server,
                    name: RMEM.to_owned(),
                    field: 2,
                    at_least: 100 << 20,
                }],
            });
        }
        if self.sndbuf_bps() < 19e9 {
            findings.push(buffer);
        }
        if Self::reader_bps(config) < 19e9 {
            findings.push(collision);
        }
        let path = Finding {
            cause: Cause::PathCapacity { rate_bps: 19e9, queue_ns: 1_000_000 },
            sentence: "the path is full".to_owned(),
            fault: false,
            evidence: Vec::new(),
            remedies: Vec::new(),
        };
        let mut findings = findings.into_iter();
        let primary = findings.next().unwrap_or(path);
        Ok(Diagnosis {
            schema: DIAGNOSIS_SCHEMA.to_owned(),
            version: 1,
            sender_name: "alpha".to_owned(),
            receiver_name: "beta".to_owned(),
            sender: End::Client,
            flow: config.clone(),
            observed_bps: 1e9,
            min_rtt_ns: Some(17_000_000),
            primary: Verdict::Found(primary),
            secondary: findings.collect(),
            stages: Vec::new(),
            gain_bound_bps: None,
            suggestions: Vec::new(),
            experiments: Vec::new(),
            notices: Vec::new(),
        })
    }

    fn flow(&mut self, config: &FlowConfig, stop: &AtomicBool) -> Result<FlowSummary, ImproveError> {
        self.flows += 1;
        if self.stops_after == Some(self.flows) {
            stop.store(true, Ordering::Relaxed);
        }
        // Noise of 6 %, as on a shared machine.
        let noise = 0.97 + 0.06 * (self.random.below(1000) as f64 / 1000.0);
        let spell = self.spell.filter(|_| self.random.below(2) == 0).unwrap_or(1.0);
        let goodput_bps =
            self.sndbuf_bps().min(self.window_bps()).min(Self::reader_bps(config)).min(19e9) * noise * spell;
        Ok(FlowSummary {
            requested: config.clone(),
            client_settings: FlowSettings::default(),
            server_settings: FlowSettings::default(),
            measured_ns: 1_000_000_000,
            received_bytes: (goodput_bps / 8.0) as u64,
            goodput_bps,
            flow_goodput_bps: vec![goodput_bps],
            retransmit_count: Some(0),
            loss_ratio: None,
            rtt_ns: Some(17_500_000),
            min_rtt_ns: Some(17_000_000),
            client_cpu_seconds_per_gb: 0.1,
            server_cpu_seconds_per_gb: 0.1,
            cycles_per_byte_ratio: None,
            zerocopy: None,
            interrupt_core: None,
            seen_cores: Vec::new(),
            notices: Vec::new(),
            complete: true,
        })
    }

    fn read(&mut self, _end: End, setting: &Setting) -> Result<Option<String>, ImproveError> {
        Ok(self.place(setting).map(|numbers| numbers.map(|number| number.to_string()).join(" ")))
    }

    fn apply(&mut self, end: End, steps: &[Step]) -> Result<Option<String>, ImproveError> {
        if self.refuses {
            return Err(refused("/proc/sys is read-only"));
        }
        let Setting::Sysctl(name) = &steps[0].setting else { panic!("{steps:?}") };
        assert_eq!(end, if name == WMEM { End::Client } else { End::Server });
        let old = self.set(&steps[0].setting, steps[0].desired.as_deref().unwrap());
        self.made += 1;
        let journal = format!("journal-{}", self.made);
        self.journals.insert(journal.clone(), (steps[0].setting.clone(), old));
        Ok(Some(journal))
    }

    fn keep(&mut self, _end: End, journal: &str) -> Result<(), ImproveError> {
        assert!(self.journals.contains_key(journal), "{journal} is in force");
        assert!(self.final_journals.insert(journal.to_owned()), "{journal} was kept already");
        Ok(())
    }

    fn revert(&mut self, _end: End, journal: &str) -> Result<(), ImproveError> {
        let (setting, old) = self.journals.remove(journal).expect("a journal in force");
        self.set(&setting, &old);
        Ok(())
    }
}

fn options() -> Options {
    Options { pairs: 5, threshold_ratio: 0.02, budget: Duration::from_secs(60), seed: 3 }
}

/// The reader on the interrupt core, by mistake.
fn mistuned() -> FlowConfig {
    FlowConfig::default().with("receiver-cores", "0".into()).unwrap()
}

#[test]
fn a_mistuned_path_reaches_its_capacity_and_only_what_helped_stays() {
    let mut model = Model::new();
    let stop = AtomicBool::new(false);
    let mut confirmed = 0;
    let found = run(&mut model, &mistuned(), &options(), &stop, &mut |event| {
        confirmed += usize::from(matches!(event, Event::Confirming));
    })
    .unwrap();
    assert_eq!(found.end, LoopEnd::NothingLeft);
    let verdicts: Vec<(&str, &Decision)> =
        found.steps.iter().map(|step| (step.candidate.title.as_str(), &step.verdict)).collect();
    assert!(verdicts[0].0.starts_with(WMEM) && *verdicts[0].1 == Decision::Kept, "{verdicts:?}");
    assert!(verdicts.contains(&("dscp 8", &Decision::NotProven)), "{verdicts:?}");
    assert!(verdicts.contains(&("receiver-cores 1", &Decision::Kept)), "{verdicts:?}");
    assert_eq!(found.kept.receiver_cores.as_ref().unwrap().0, [1]);
    assert_eq!(found.kept.dscp, None);
    // In force now: the whole change once, with one journal that takes it back.
    assert_eq!(model.wmem, [4096, 16_384, 64 << 20], "sixteen times what it was");
    assert_eq!(found.journals.len(), 1);
    assert!(model.journals.len() == 1 && model.journals.contains_key(&found.journals[0].journal));
    assert!(model.final_journals.contains(&found.journals[0].journal), "what stays is not pending");
    assert_eq!(confirmed, 1);
    let middle = |values: &[f64]| clearstream_stats::median(values).unwrap();
    let reached = middle(&found.after.goodput_bps);
    assert!(reached > 0.9 * 19e9, "{reached}");
    // 0.87 x 4 MiB / 17 ms = 1.72 Gb/s before.
    let before = middle(&found.before.goodput_bps);
    assert!((1.6e9..1.85e9).contains(&before), "{before}");
    assert_eq!(found.limit.as_deref(), Some("the path is full"));
}

/// A reader and a window at 12 Gb/s each: either alone gains nothing, both
/// together 58 %.
#[test]
fn limits_that_hide_one_another_are_removed_together() {
    let mut model = Model::new();
    model.wmem[2] = 200 << 20;
    model.rmem[2] = 51_000_000;
    let stop = AtomicBool::new(false);
    let found = run(&mut model, &mistuned(), &options(), &stop, &mut |_| {}).unwrap();
    let kept: Vec<&str> = found
        .steps
        .iter()
        .filter(|step| step.verdict == Decision::Kept)
        .map(|step| step.candidate.title.as_str())
        .collect();
    let all = kept.join("; ");
    assert!(all.contains(RMEM) && all.contains("receiver-cores 1"), "{all}");
    assert!(!all.contains(WMEM), "{all}");
    let reached = clearstream_stats::median(&found.after.goodput_bps).unwrap();
    assert!(reached > 0.9 * 19e9, "{reached}");
    // What was tried with them and does nothing goes again.
    let together = found.steps.iter().find(|step| step.candidate.title.contains("; ")).unwrap();
    assert!(together.candidate.title.contains("dscp 8"), "{}", together.candidate.title);
    assert_eq!(found.kept.dscp, FlowConfig::default().dscp);
    assert_ne!(found.kept.receiver_cores, mistuned().receiver_cores);
    assert!(model.rmem[2] >= 100 << 20 && found.journals.len() == 1, "{:?}", found.journals);
}

#[test]
fn a_healthy_path_is_left_alone() {
    let mut model = Model::new();
    model.wmem[2] = 200 << 20;
    let stop = AtomicBool::new(false);
    let found = run(&mut model, &FlowConfig::default(), &options(), &stop, &mut |_| {}).unwrap();
    assert!(found.steps.is_empty() && found.journals.is_empty() && model.flows == 0);
    assert_eq!(found.end, LoopEnd::NothingLeft);
}

#[test]
fn a_change_that_is_refused_is_a_step_and_the_next_is_tried() {
    let mut model = Model::new();
    model.refuses = true;
    let stop = AtomicBool::new(false);
    let found = run(&mut model, &mistuned(), &options(), &stop, &mut |_| {}).unwrap();
    let Decision::Failed { reason } = &found.steps[0].verdict else { panic!("{:?}", found.steps[0]) };
    assert!(reason.contains("read-only"), "{reason}");
    assert!(found.steps.len() > 1 && found.journals.is_empty());
    assert_eq!(model.wmem[2], 4_194_304);
}

#[test]
fn stopped_in_the_middle_takes_the_change_in_test_back() {
    for after in 1..=10 {
        let mut model = Model::new();
        model.stops_after = Some(after);
        let stop = AtomicBool::new(false);
        let found = run(&mut model, &mistuned(), &options(), &stop, &mut |_| {}).unwrap();
        assert_eq!(found.end, LoopEnd::Stopped);
        assert!(model.journals.is_empty() && model.wmem[2] == 4_194_304, "after {after} runs");
    }
}

#[test]
fn the_order_within_pairs_varies_and_both_sides_are_measured_as_often() {
    let mut model = Model::new();
    let stop = AtomicBool::new(false);
    let mut order = Vec::new();
    run(&mut model, &mistuned(), &options(), &stop, &mut |event| {
        if let Event::Run { with, .. } = event {
            order.push(with);
        }
    })
    .unwrap();
    let firsts: Vec<bool> = order.chunks(2).map(|pair| pair[0]).collect();
    assert!(firsts.contains(&true) && firsts.contains(&false));
    assert!(order.chunks(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn what_is_shown_and_not_proven_is_measured_again_and_what_shows_nothing_is_not() {
    let stop = AtomicBool::new(false);
    let mut counts = Vec::new();
    for seed in 1..=20 {
        let mut model = Model { spell: Some(0.55), random: Random::new(seed), ..Model::new() };
        let found = run(&mut model, &mistuned(), &options(), &stop, &mut |_| {}).unwrap();
        for step in &found.steps {
            let count = step.before.goodput_bps.len();
            assert_eq!((count, count % 5), (step.after.goodput_bps.len(), 0));
            // Before 15 pairs, it ended because it was clear or nothing was to be seen.
            if count < 15 && step.verdict == Decision::NotProven {
                assert!(step.gain_ratio.unwrap() < 1.02, "{step:?}");
            }
            counts.push(count);
        }
    }
    assert!(counts.contains(&5) && counts.contains(&10) && counts.contains(&15), "{counts:?}");
}

#[test]
fn three_pairs_are_refused_and_time_over_ends_it() {
    let stop = AtomicBool::new(false);
    let few = Options { pairs: 3, ..options() };
    let error = run(&mut Model::new(), &mistuned(), &few, &stop, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("at least 4"), "{error}");
    let none = Options { budget: Duration::ZERO, ..options() };
    let found = run(&mut Model::new(), &mistuned(), &none, &stop, &mut |_| {}).unwrap();
    assert_eq!((found.end, found.steps.len()), (LoopEnd::TimeOver, 0));
}

#[test]
fn the_whole_value_of_a_sysctl_is_kept_but_for_the_number_that_was_raised() {
    let mut model = Model::new();
    let diagnosis = model.diagnose(&FlowConfig::default(), &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    let found = clearstream_improve::candidates(&mut model, &diagnosis, &FlowConfig::default()).unwrap();
    let Change::Setting { end: End::Client, step } = &found[0].changes[0] else { panic!("{found:?}") };
    assert_eq!(step.current.as_deref(), Some("4096 16384 4194304"));
    assert_eq!(step.desired.as_deref(), Some("4096 16384 67108864"));
}
