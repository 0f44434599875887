//! A closed loop written by hand: every verdict once, figures that can be
//! computed in the head.

use clearstream_schema::{
    diagnosis::End,
    flow::FlowConfig,
    improvement::{
        Candidate, Change, DecisionRule, IMPROVEMENT_SCHEMA, Improvement, KeptJournal, LoopEnd, Runs,
        TriedStep, Verdict,
    },
    notice::Notice,
    plan::{Effect, LinkAttribute, Setting, Step, Value},
};
use serde_json::json;

/// Runs of so many Gb/s, with a cost.
pub(crate) fn runs(gbps: &[f64], cpu: f64, retransmits: f64, rtt_ms: Option<f64>) -> Runs {
    Runs {
        goodput_bps: gbps.iter().map(|value| value * 1e9).collect(),
        cpu_seconds_per_gb: gbps.iter().map(|_| cpu).collect(),
        retransmits_per_gb: gbps.iter().map(|_| retransmits).collect(),
        rtt_ns: gbps.iter().map(|_| rtt_ms.map(|ms| (ms * 1e6) as u64)).collect(),
    }
}

pub(crate) fn sysctl(end: End, name: &str, current: &str, desired: &str, reason: &str) -> Change {
    Change::Setting {
        end,
        step: Step {
            setting: Setting::Sysctl(name.to_owned()),
            current: Some(Value::Text(current.to_owned())),
            desired: Some(Value::Text(desired.to_owned())),
            reason: reason.to_owned(),
            effect: Effect::NewSockets,
        },
    }
}

pub(crate) fn step(
    limit: &str,
    title: &str,
    changes: Vec<Change>,
    (before, after): (Runs, Runs),
    measured: Option<(f64, f64)>,
    verdict: Verdict,
) -> TriedStep {
    TriedStep {
        limit: limit.to_owned(),
        candidate: Candidate {
            id: title.to_owned(),
            title: title.to_owned(),
            reason: limit.to_owned(),
            changes,
        },
        before,
        after,
        gain_ratio: measured.map(|found| found.0),
        probability_ratio: measured.map(|found| found.1),
        verdict,
    }
}

const WINDOW: &str =
    "the receiver's window of 6 MiB allows 2.96 Gb/s over 17.0 ms; the path needs 81 MiB for 40 Gb/s";
const CORE: &str = "core 5 of the server, which reads, is busy 99 % of the time: copying limits at 12.4 Gb/s";

/// A path of 17 ms: two changes kept, one of each of the others.
pub(crate) fn loop_of_five() -> Improvement {
    let requested = FlowConfig::default();
    let kept =
        FlowConfig { receiver_cores: serde_json::from_value(json!("4")).unwrap(), ..requested.clone() };
    Improvement {
        schema: IMPROVEMENT_SCHEMA.to_owned(),
        version: 1,
        rule: DecisionRule { pair_count: 5, threshold_ratio: 0.02, level_ratio: 0.0221, look_count: 3, seed: 1 },
        client: "dtn1".to_owned(),
        server: "dtn2".to_owned(),
        requested,
        kept,
        steps: steps(),
        before: runs(&[2.8, 2.9, 2.85, 2.95, 2.9], 0.31, 0.0, Some(17.02)),
        after: runs(&[17.6, 17.4, 18.0, 17.5, 17.5], 0.27, 1.5, Some(17.9)),
        journals: vec![
            KeptJournal { end: End::Client, host: "dtn1".to_owned(), journal: "20260102T030405Z-1a2b".to_owned() },
            KeptJournal { end: End::Server, host: "dtn2".to_owned(), journal: "20260102T030406Z-77ff".to_owned() },
        ],
        end: LoopEnd::NothingLeft,
        limit: Some(
            "core 2 of the client, which sends, is busy 98 % of the time: 17.8 Gb/s is what it can hand to the kernel"
                .to_owned(),
        ),
        observed_bps: Some(17.5e9),
        next_step: None,
        notices: vec![Notice {
            id: "no-irq-affinity".to_owned(),
            message: "the server's interrupts could not be moved: CAP_SYS_ADMIN is missing".to_owned(),
        }],
    }
}

fn steps() -> Vec<TriedStep> {
    vec![
        step(
            WINDOW,
            "net.ipv4.tcp_rmem = 4096 131072 169869312 at the server",
            vec![
                sysctl(
                    End::Server,
                    "net.ipv4.tcp_rmem",
                    "4096 131072 6291456",
                    "4096 131072 169869312",
                    WINDOW,
                ),
                sysctl(
                    End::Client,
                    "net.ipv4.tcp_wmem",
                    "4096 16384 4194304",
                    "4096 16384 169869312",
                    "the sender must hold a window of unacknowledged data too",
                ),
            ],
            (
                runs(&[2.8, 2.9, 2.9, 2.95, 2.9], 0.31, 0.0, Some(17.01)),
                runs(&[12.1, 12.4, 12.6, 12.3, 12.5], 0.33, 0.4, Some(17.4)),
            ),
            Some((4.24, 2.0 / 252.0)),
            Verdict::Kept,
        ),
        step(
            CORE,
            "receiver-cores 4",
            vec![Change::Option { key: "receiver-cores".to_owned(), value: json!("4") }],
            (
                runs(&[12.2, 12.5, 12.4, 12.3, 12.6], 0.33, 0.4, Some(17.4)),
                runs(&[17.2, 17.9, 17.5, 17.6, 17.3], 0.27, 1.2, Some(17.8)),
            ),
            Some((1.41, 2.0 / 252.0)),
            Verdict::Kept,
        ),
        step(
            "the sender's core takes its own interrupts",
            "method zerocopy",
            vec![Change::Option { key: "method".to_owned(), value: json!("zerocopy") }],
            (
                runs(&[17.3, 17.8, 17.1, 17.6, 17.5], 0.27, 1.1, Some(17.8)),
                runs(&[17.5, 17.2, 17.9, 17.4, 17.6], 0.24, 1.3, Some(17.8)),
            ),
            Some((1.006, 0.683)),
            Verdict::NotProven,
        ),
        step(
            "a single flow leaves the path idle after each loss",
            "congestion-control bbr",
            vec![Change::Option { key: "congestion-control".to_owned(), value: json!("bbr") }],
            (
                runs(&[17.4, 17.7, 17.3, 17.5, 17.6], 0.27, 1.0, Some(17.8)),
                runs(&[14.1, 13.2, 14.8, 13.9, 14.4], 0.38, 6.0, Some(17.1)),
            ),
            Some((0.806, 2.0 / 252.0)),
            Verdict::Worse,
        ),
        step(
            "one core cannot hand more to the kernel",
            "flows 4",
            vec![Change::Option { key: "flows".to_owned(), value: json!(4) }],
            (
                runs(&[17.5, 17.6, 17.2, 17.7, 17.4], 0.27, 1.1, Some(17.8)),
                runs(&[21.2, 22.4, 20.9, 21.8, 21.5], 0.55, 310.0, Some(24.6)),
            ),
            Some((1.23, 2.0 / 252.0)),
            Verdict::SideEffect {
                what: "CPU seconds per GB rose from 0.270 to 0.550 for 23 % more goodput".to_owned(),
            },
        ),
        step(
            "packets of 1500 bytes cost the receiver a softirq each",
            "MTU of eth2 at the server 9000",
            vec![Change::Setting {
                end: End::Server,
                step: Step {
                    setting: Setting::Link { interface: "eth2".to_owned(), attribute: LinkAttribute::Mtu },
                    current: Some(Value::Number(1500)),
                    desired: Some(Value::Number(9000)),
                    reason: "six times fewer packets for the same bytes".to_owned(),
                    effect: Effect::LinkFlap,
                },
            }],
            (Runs::default(), Runs::default()),
            None,
            Verdict::Failed {
                reason: "eth2 at the server refuses an MTU of 9000: invalid argument".to_owned(),
            },
        ),
    ]
}

/// Hostile text wherever a loop can hold text.
pub(crate) fn hostile(text: &str) -> Improvement {
    let mut found = loop_of_five();
    found.client = text.to_owned();
    found.server = text.to_owned();
    found.limit = Some(text.to_owned());
    found.schema = text.to_owned();
    found.requested.congestion_control = Some(text.to_owned());
    found.kept.congestion_control = Some(format!("{text}!"));
    for journal in &mut found.journals {
        journal.host = text.to_owned();
        journal.journal = text.to_owned();
    }
    found.notices.push(Notice { id: text.to_owned(), message: text.to_owned() });
    for step in &mut found.steps {
        step.limit = text.to_owned();
        step.candidate.id = text.to_owned();
        step.candidate.title = text.to_owned();
        step.candidate.reason = format!("{text}?");
        step.candidate.changes.push(sysctl(End::Client, text, text, text, text));
        step.candidate.changes.push(Change::Option { key: text.to_owned(), value: json!(text) });
        match &mut step.verdict {
            Verdict::SideEffect { what: reason } | Verdict::Failed { reason } => *reason = text.to_owned(),
            _ => {}
        }
    }
    found
}

/// A loop that found nothing to try.
pub(crate) fn nothing() -> Improvement {
    let mut found = loop_of_five();
    found.kept = found.requested.clone();
    found.steps.clear();
    found.before = Runs::default();
    found.after = Runs::default();
    found.journals.clear();
    found.notices.clear();
    found.limit = None;
    found
}
