//! Cores that the flow does not get: a quota withholds them, other processes
//! hold them, or both ends of the flow share one.

use clearstream_schema::{
    diagnosis::{Cause, EvidenceItem, Finding, ProcessShare, Remedy, Role},
    human::rate,
};

use super::{
    processing::{self, thread_item},
    transport,
};
use crate::{
    facts::{Facts, Part},
    format::percent,
    formulas, hosts,
};

/// Enforcement periods in which a quota stopped the program.
const THROTTLED_PERIODS: f64 = 0.2;
/// Share of the time that a quota withheld.
const THROTTLED_TIME: f64 = 0.05;
/// Share of the time that a thread waits for its core.
const WAITS: f64 = 0.15;
/// Share of the time that it has work: one that sleeps for half of the time is
/// late now and then, and not held back.
const HAS_WORK: f64 = 0.5;
/// Use of that core by others, relative to the time that the thread waits for it.
const EXPLAINS: f64 = 0.4;
/// Less than that of a core holds nothing up for long: short waits add up for other
/// reasons, too.
const MUCH: f64 = 0.3;
/// Use of all cores by others from which on the machine is not available to the flow.
const HELD: f64 = 0.6;
/// Share of its time that the hypervisor takes from a core.
const STOLEN: f64 = 0.15;
/// Both threads use so much of one core.
const SHARED: f64 = 0.7;

/// The quota of a control group stopped an end's program.
pub(super) fn quota(facts: &Facts<'_>) -> Option<Finding> {
    let throttled = |part: &&Part<'_>| {
        let throttling = part.throttling.as_ref()?;
        let periods = throttling.throttled_count as f64 / throttling.period_count.max(1) as f64;
        let time = throttling.throttled_ns as f64 / 1e9 / facts.seconds.max(1e-9);
        (periods >= THROTTLED_PERIODS && time >= THROTTLED_TIME).then_some(periods)
    };
    let worse = |one: &&Part<'_>, other: &&Part<'_>| {
        throttled(one).unwrap_or(0.0).total_cmp(&throttled(other).unwrap_or(0.0))
    };
    let part = facts.parts().into_iter().max_by(worse)?;
    let ratio = throttled(&part)?;
    let throttling = part.throttling.as_ref()?;
    let quota = throttling.quota_millicores;
    Some(Finding {
        cause: Cause::CpuQuota {
            end: part.end,
            group: throttling.group.clone(),
            quota_millicores: quota,
            throttled_ratio: ratio,
        },
        sentence: format!(
            "CPU quota: the control group {} on {} may use {:.2} cores, and was stopped in {} of the periods",
            throttling.group,
            part.name(),
            quota as f64 / 1000.0,
            percent(ratio)
        ),
        fault: true,
        evidence: vec![
            EvidenceItem {
                statement: format!(
                    "throttled in {} of {} periods, for {:.1} s in {:.1} s",
                    throttling.throttled_count,
                    throttling.period_count,
                    throttling.throttled_ns as f64 / 1e9,
                    facts.seconds
                ),
                source: format!("{}: cpu.stat and cpu.max of {}", part.name(), throttling.group),
            },
            thread_item(facts, part),
        ],
        remedies: vec![Remedy::Physical {
            what: format!(
                "raise the CPU quota of {} (cpu.max, CPUQuota=), or run the transfer outside of it",
                throttling.group
            ),
        }],
    })
}

/// Other processes hold the cores that the flow's threads wait for: of the
/// path nothing follows from such a flow.
pub(super) fn others(facts: &Facts<'_>) -> Option<Finding> {
    if is_explained_by_a_buffer(facts) || is_explained_by_its_options(facts) {
        return None;
    }
    let part = facts
        .parts()
        .into_iter()
        .filter(|part| is_held(facts, part))
        .max_by(|one, other| waits(one).total_cmp(&waits(other)))?;
    Some(finding(facts, part))
}

fn waits(part: &Part<'_>) -> f64 {
    part.thread.map_or(0.0, |thread| thread.wait)
}

fn stolen(part: &Part<'_>) -> f64 {
    part.core.and_then(|(core, _)| part.core_stolen(core)).unwrap_or(0.0)
}

/// Use of the core by the flow's other thread where both ends share one: the
/// first suspect for the time that a thread waits there.
fn own_beside(facts: &Facts<'_>) -> f64 {
    let run = |part: &Part<'_>| part.thread.map_or(0.0, |thread| thread.run);
    if on_one_core(facts) { run(&facts.sender).min(run(&facts.receiver)) } else { 0.0 }
}

/// Both ends of the flow run on one core of one machine.
pub(super) fn on_one_core(facts: &Facts<'_>) -> bool {
    let (writer, reader) = (facts.sender.core, facts.receiver.core);
    facts.one_machine && writer.zip(reader).is_some_and(|(writer, reader)| writer.0 == reader.0)
}

/// Data stops while this thread waits: the writer leaves its socket empty, or
/// the reader its own full.
fn holds_back(facts: &Facts<'_>, part: &Part<'_>) -> bool {
    match part.role {
        Role::Sender => facts.medians.busy < 0.75,
        Role::Receiver => facts.medians.receive_fill.unwrap_or(0.0) >= 0.2,
    }
}

/// Use of a core of the flow's threads by processes that no scan saw.
fn unseen_beside(facts: &Facts<'_>, part: &Part<'_>, core: u32) -> f64 {
    let here = |one: &&Part<'_>| {
        (one.end == part.end || facts.one_machine) && one.core.is_some_and(|(own, _)| own == core)
    };
    let own: f64 =
        facts.parts().into_iter().filter(here).map(|one| one.thread.map_or(0.0, |thread| thread.run)).sum();
    let counters = part.cores.iter().find(|counters| counters.core == core);
    part.load.as_ref().zip(counters).map_or(0.0, |(load, counters)| load.unseen_on(counters, own))
}

fn is_held(facts: &Facts<'_>, part: &Part<'_>) -> bool {
    // A thread that has hardly any work is not held back by what is stolen.
    if stolen(part) >= STOLEN && part.runnable() >= HAS_WORK {
        return true;
    }
    let Some(load) = &part.load else { return false };
    let cores = part.cores.len().max(1) as f64;
    // A thread that stays on one core waits for those that are on it, too.
    let own_core = part
        .core
        .filter(|(_, share)| *share >= 0.9)
        .map_or(0.0, |(core, _)| load.on_core(core) + unseen_beside(facts, part, core));
    let here = own_core.max(load.foreign / cores);
    let waits = waits(part);
    let has_work = part.runnable() >= HAS_WORK;
    let explains = waits >= WAITS && has_work && here >= (EXPLAINS * waits).max(own_beside(facts)).max(MUCH);
    // A delay line of a lab needs cores as the flow's threads do.
    let waited_for = waits >= WAITS / 2.0 && (has_work || holds_back(facts, part));
    let delayed = waited_for || load.emulation > 0.0;
    explains || (load.insistent >= HELD * cores && delayed)
}

/// A window or buffer of a fixed size over a long path has the rate that it
/// should: that is certain whatever else uses the cores.
fn is_explained_by_a_buffer(facts: &Facts<'_>) -> bool {
    if facts.is_local() {
        return false;
    }
    let medians = &facts.medians;
    let allowed = |bytes: f64| formulas::window_bps(bytes, facts.base_rtt_ns()) * facts.flow_count;
    let gives = |bytes: f64| (0.8..=1.25).contains(&(facts.goodput_bps / allowed(bytes).max(1.0)));
    let window = medians.receive_fill.unwrap_or(0.0) < 0.2
        && medians.peer_window_max.is_some_and(gives)
        && transport::receiver_window(facts).is_some();
    window || transport::send_buffer(facts).is_some()
}

/// The flow was given a reader that rests or computes, or a writer that pauses,
/// and shows it.
fn is_explained_by_its_options(facts: &Facts<'_>) -> bool {
    let config = facts.config;
    let reader = config.receiver_pause.or(config.receiver_work).is_some()
        && processing::slow_reader(facts)
            .is_some_and(|finding| matches!(finding.cause, Cause::ReceiverApplication { .. }));
    reader || (config.burst_flows > 0 && transport::sender_pauses(facts).is_some())
}

fn finding(facts: &Facts<'_>, part: &Part<'_>) -> Finding {
    let (processes, foreign) = holders(part);
    let core = part.core.filter(|(_, share)| *share >= 0.9).map(|(core, _)| core);
    let pinned = match part.role {
        Role::Sender => facts.config.sender_cores.is_some(),
        Role::Receiver => facts.config.receiver_cores.is_some(),
    };
    let free: Vec<u32> = core.filter(|_| pinned).map_or_else(Vec::new, |core| {
        let mut cores = hosts::better_cores(part.host, core, part.nic.and_then(|nic| nic.node));
        cores.retain(|core| part.core_busy(*core).is_some_and(|busy| busy < 0.5));
        cores
    });
    let side = if part.role == Role::Sender { "writer" } else { "reader" };
    let at = core.map_or_else(|| "its cores".to_owned(), |core| format!("core {core}"));
    let fault = !free.is_empty();
    let remedies = match core.filter(|_| fault) {
        Some(core) => {
            vec![Remedy::MoveThread { role: part.role, end: part.end, off_core: core, to_cores: free }]
        }
        None => vec![Remedy::Physical {
            what: format!(
                "repeat the measurement when {} is idle: this one is inconclusive about the path",
                part.name()
            ),
        }],
    };
    Finding {
        sentence: format!(
            "contention: on {} other processes hold {at}, {} ({:.1} cores together); the {side} waited {} of the time, so there is no conclusion about the path",
            part.name(),
            named(&processes),
            foreign,
            percent(waits(part))
        ),
        cause: Cause::Contention {
            end: part.end,
            core,
            waiting_ratio: waits(part),
            foreign_core_count: foreign,
            processes: processes.clone(),
        },
        fault,
        evidence: vec![
            EvidenceItem {
                statement: processes
                    .iter()
                    .map(|process| {
                        format!(
                            "{} x {}: {:.2} cores",
                            process.process_count, process.name, process.core_count
                        )
                    })
                    .collect::<Vec<_>>()
                    .join(", "),
                source: format!(
                    "{}: change of utime and stime in /proc/PID/stat while the flow ran",
                    part.name()
                ),
            },
            thread_item(facts, part),
        ],
        remedies,
    }
}

/// Processes that hold the cores, and their number.
fn holders(part: &Part<'_>) -> (Vec<ProcessShare>, f64) {
    let cores = part.cores.len().max(1) as f64;
    let (mut processes, mut foreign) =
        part.load.as_ref().map_or((Vec::new(), 0.0), |load| (load.processes.clone(), load.foreign));
    if stolen(part) >= STOLEN {
        let taken = stolen(part) * cores;
        processes.insert(
            0,
            ProcessShare { name: "the hypervisor (steal)".to_owned(), process_count: 1, core_count: taken },
        );
        foreign += taken;
    }
    (processes, foreign)
}

fn named(processes: &[ProcessShare]) -> String {
    let names: Vec<String> = processes
        .iter()
        .map(|process| match process.process_count {
            1 => process.name.clone(),
            count => format!("{count} x {}", process.name),
        })
        .collect();
    names.join(", ")
}

/// Writer and reader of one machine take turns on one core.
pub(super) fn shared_core(facts: &Facts<'_>) -> Option<Finding> {
    let (writer, reader) = (facts.sender.core?, facts.receiver.core?);
    let together = facts.sender.runnable().min(1.0) + facts.receiver.runnable().min(1.0);
    let run = |part: &Part<'_>| part.thread.map_or(0.0, |thread| thread.run);
    let used = (run(&facts.sender) + run(&facts.receiver)).min(1.0);
    let same = facts.one_machine && writer.0 == reader.0 && writer.1 >= 0.9 && reader.1 >= 0.9;
    if !same || !facts.is_local() || used < SHARED || together < 1.0 {
        return None;
    }
    let core = writer.0;
    let pinned = facts.config.sender_cores.is_some() && facts.config.receiver_cores.is_some();
    let better = hosts::better_cores(facts.receiver.host, core, None);
    let remedies = if better.is_empty() {
        vec![Remedy::Physical { what: "a second core: this machine has one only".to_owned() }]
    } else {
        vec![Remedy::MoveThread {
            role: Role::Receiver,
            end: facts.receiver.end,
            off_core: core,
            to_cores: better.clone(),
        }]
    };
    Some(Finding {
        sentence: format!(
            "shared core: writer and reader {} core {core} of one machine, use {} of it together, and reach {}",
            if pinned { "are both pinned to" } else { "both run on" },
            percent(used),
            rate(facts.goodput_bps)
        ),
        fault: pinned && !better.is_empty(),
        cause: Cause::SharedCore { core, pinned, used_ratio: used, better_cores: better },
        evidence: vec![thread_item(facts, &facts.sender), thread_item(facts, &facts.receiver)],
        remedies,
    })
}
