//! A path that is a formula.
#![allow(unreachable_pub, reason = "a test is a program of its own")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_control::PeerError;
use clearstream_improve::{ImproveError, Testbed};
use clearstream_schema::{
    control::{Failure, FailureKind},
    diagnosis::{
        BufferLimit, Cause, DIAGNOSIS_SCHEMA, Diagnosis, End, Experiment, ExperimentKind, Finding, Remedy,
        Role, Suggestion, Verdict,
    },
    flow::{FlowConfig, FlowSummary},
    plan::{Setting, Step, Value},
};
use clearstream_stats::Random;
use clearstream_testkit::flow::summary;

pub const WMEM: &str = "net.ipv4.tcp_wmem";
pub const RMEM: &str = "net.ipv4.tcp_rmem";
/// First suggestion of a diagnosis of contention.
pub const IDLE: &str = "repeat the measurement when client is idle: this one is inconclusive about the path";

/// 17 ms and 19 Gb/s; a reader on core 0 (the interrupt core) gets 12 Gb/s at
/// most, a send buffer of B bytes allows 0.87 B / 17 ms, a receive buffer half of
/// it per 17 ms.
pub struct Model {
    pub wmem: [u64; 3],
    pub rmem: [u64; 3],
    pub journals: BTreeMap<String, (Setting, String)>,
    /// Journals that are no longer pending.
    pub final_journals: BTreeSet<String>,
    pub made: usize,
    pub random: Random,
    /// Refuses to set sysctls.
    pub refuses: bool,
    pub flows: usize,
    /// Raised after so many flows.
    pub stops_after: Option<usize>,
    pub diagnoses: usize,
    /// Every other run is a bad spell: the machine has this fraction of the rate.
    pub spell: Option<f64>,
    /// No diagnosis finds anything.
    pub unknown: bool,
    /// Every diagnosis finds contention at the client.
    pub contended: bool,
    /// The only change that a diagnosis names is a DSCP, with this gain factor: 1 is none.
    pub only_dscp: Option<f64>,
    /// The rate walks at random by up to this share from run to run.
    pub drift: f64,
    /// Position of that walk.
    pub speed: f64,
    /// The model's own clock: what diagnoses and runs take.
    pub begun: Instant,
    pub passed: Duration,
}

pub const DIAGNOSIS: Duration = Duration::from_secs(15);
pub const RUN: Duration = Duration::from_secs(2);

/// A diagnosis that found nothing.
fn unknown(config: &FlowConfig) -> Diagnosis {
    let experiment =
        Experiment { kind: ExperimentKind::Longer, question: "longer".to_owned(), flow: config.clone() };
    Diagnosis {
        primary: Verdict::Unknown {
            because: "no signature fits".to_owned(),
            experiment: Box::new(experiment),
        },
        ..diagnosis(config, Vec::new())
    }
}

/// A diagnosis of a path whose client is busy with other processes.
fn contended(config: &FlowConfig) -> Diagnosis {
    let contention = Finding {
        cause: Cause::Contention {
            end: End::Client,
            core: None,
            waiting_ratio: 0.4,
            foreign_core_count: 2.0,
            processes: Vec::new(),
        },
        sentence: "contention: on client other processes hold its cores".to_owned(),
        fault: false,
        evidence: Vec::new(),
        remedies: vec![Remedy::Physical { what: IDLE.to_owned() }],
    };
    Diagnosis {
        suggestions: vec![Suggestion { sentence: IDLE.to_owned(), command: None }],
        ..diagnosis(config, vec![contention])
    }
}

/// The limits of a path, the first one first.
fn diagnosis(config: &FlowConfig, findings: Vec<Finding>) -> Diagnosis {
    let path = Finding {
        cause: Cause::PathCapacity { rate_bps: 19e9, queue_ns: 1_000_000 },
        sentence: "the path is full".to_owned(),
        fault: false,
        evidence: Vec::new(),
        remedies: Vec::new(),
    };
    let mut findings = findings.into_iter();
    let primary = findings.next().unwrap_or(path);
    Diagnosis {
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
        gain: None,
        suggestions: Vec::new(),
        experiments: Vec::new(),
        notices: Vec::new(),
    }
}

impl Model {
    pub fn new() -> Self {
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
            unknown: false,
            contended: false,
            only_dscp: None,
            drift: 0.0,
            speed: 1.0,
            begun: Instant::now(),
            passed: Duration::ZERO,
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

impl Testbed for Model {
    fn names(&self) -> (String, String) {
        ("alpha".to_owned(), "beta".to_owned())
    }

    fn now(&self) -> Instant {
        self.begun + self.passed
    }

    fn run_time(&self, _config: &FlowConfig) -> Duration {
        RUN
    }

    fn diagnose(
        &mut self,
        config: &FlowConfig,
        budget: Duration,
        _stop: &AtomicBool,
        on_step: &mut dyn FnMut(&str, Duration),
    ) -> Result<Diagnosis, ImproveError> {
        on_step("a formula", Duration::ZERO);
        self.diagnoses += 1;
        self.passed += DIAGNOSIS.min(budget);
        if self.unknown {
            return Ok(unknown(config));
        }
        if self.contended {
            return Ok(contended(config));
        }
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
        if self.only_dscp.is_some() {
            let remedies = collision.remedies[..1].to_vec();
            return Ok(diagnosis(config, vec![Finding { remedies, ..collision }]));
        }
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
        Ok(diagnosis(config, findings))
    }

    fn flow(&mut self, config: &FlowConfig, stop: &AtomicBool) -> Result<FlowSummary, ImproveError> {
        self.flows += 1;
        self.passed += RUN;
        if self.stops_after == Some(self.flows) {
            stop.store(true, Ordering::Relaxed);
        }
        // Noise of 6 %, as on a shared machine.
        let noise = 0.97 + 0.06 * (self.random.below(1000) as f64 / 1000.0);
        let spell = self.spell.filter(|_| self.random.below(2) == 0).unwrap_or(1.0);
        let step = self.random.below(1000) as f64 / 500.0 - 1.0;
        self.speed *= 1.0 + self.drift * step;
        let change = self.only_dscp.filter(|_| config.dscp.is_some()).unwrap_or(1.0);
        let limit = self.sndbuf_bps().min(self.window_bps()).min(Self::reader_bps(config)).min(19e9);
        let goodput_bps = limit * noise * spell * self.speed * change;
        Ok(FlowSummary {
            rtt_ns: Some(17_500_000),
            min_rtt_ns: Some(17_000_000),
            ..summary(config, goodput_bps, 1_000_000_000)
        })
    }

    fn read(&mut self, _end: End, setting: &Setting) -> Result<Option<Value>, ImproveError> {
        let text = |numbers: [u64; 3]| numbers.map(|number| number.to_string()).join(" ");
        Ok(self.place(setting).map(|numbers| Value::Text(text(*numbers))))
    }

    fn apply(&mut self, end: End, steps: &[Step]) -> Result<Option<String>, ImproveError> {
        if self.refuses {
            return Err(refused("/proc/sys is read-only"));
        }
        let Setting::Sysctl(name) = &steps[0].setting else { panic!("{steps:?}") };
        assert_eq!(end, if name == WMEM { End::Client } else { End::Server });
        let old = self.set(&steps[0].setting, &steps[0].desired.as_ref().unwrap().to_string());
        self.made += 1;
        let journal = format!("journal-{}", self.made);
        self.journals.insert(journal.clone(), (steps[0].setting.clone(), old));
        Ok(Some(journal))
    }

    fn keep(&mut self, _end: End, journal: &str) -> Result<(), ImproveError> {
        assert!(self.journals.contains_key(journal), "{journal} is effective");
        assert!(self.final_journals.insert(journal.to_owned()), "{journal} was kept already");
        Ok(())
    }

    fn revert(&mut self, _end: End, journal: &str) -> Result<(), ImproveError> {
        let (setting, old) = self.journals.remove(journal).expect("an effective journal");
        self.set(&setting, &old);
        Ok(())
    }
}
