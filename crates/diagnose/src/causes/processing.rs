//! Limits that the processors show: slow readers, saturated cores, cores that
//! have two jobs, cores that are far from the card.

use clearstream_schema::{
    diagnosis::{Cause, EvidenceItem, Finding, Remedy, Role},
    human::{rate, time},
};
use serde_json::Value;

use super::{contention, transport::MOST_OF_THE_TIME};
use crate::{
    facts::{Facts, Part},
    format::percent,
    hosts,
};

/// A thread that had work for this fraction of the time was held by its core.
const SATURATED: f64 = 0.85;
/// Receive memory used / limit of a reader that lags behind.
const QUEUED: f64 = 0.4;
/// Softirqs / time of softirqs and reader from which on a reader makes no progress.
const SOFTIRQ_SHARE: f64 = 0.12;
/// Softirqs of a core below this are insignificant.
const SOFTIRQ_LEAST: f64 = 0.04;

/// The side whose thread had work all the time; the busier one of both.
pub(super) fn saturated<'a, 'b>(facts: &'b Facts<'a>) -> Option<&'b Part<'a>> {
    let share = |part: &Part<'_>| part.thread.map_or(0.0, |thread| thread.runnable());
    let (sender, receiver) = (share(&facts.sender), share(&facts.receiver));
    let busier = if sender >= receiver { &facts.sender } else { &facts.receiver };
    (sender.max(receiver) >= SATURATED).then_some(busier)
}

/// The window closes because the reader does not take what has arrived.
pub(super) fn slow_reader(facts: &Facts<'_>) -> Option<Finding> {
    let medians = &facts.medians;
    let queued = medians.receive_fill.unwrap_or(0.0);
    let closed = facts.receiver.counter("TCPToZeroWindowAdv");
    let often = closed as f64 >= 2.0 * facts.seconds;
    let lags = queued >= QUEUED || often;
    if medians.window_limited < MOST_OF_THE_TIME || !lags {
        return None;
    }
    let mut evidence = vec![
        facts.sampled(
            format!("the sender waited for window {} of the time", percent(medians.window_limited)),
            "median of the change of tcpi_rwnd_limited",
        ),
        facts.sampled(
            format!(
                "{} of the receive buffer was full of data that the application had not read",
                percent(queued)
            ),
            "median of SK_MEMINFO_RMEM_ALLOC / SK_MEMINFO_RCVBUF at the receiver",
        ),
    ];
    if closed > 0 {
        evidence.push(EvidenceItem {
            statement: format!("the window was closed {closed} times in {:.1} s", facts.seconds),
            source: format!("{}: TCPToZeroWindowAdv of /proc/net/netstat", facts.receiver.name()),
        });
    }
    let mut finding = reader_finding(facts);
    finding.evidence.splice(0..0, evidence);
    Some(finding)
}

/// Explanation of a slow reader: where it runs, its core, or itself.
fn reader_finding(facts: &Facts<'_>) -> Finding {
    let receiver = &facts.receiver;
    let thread = receiver.thread.unwrap_or_default();
    // On a path of microseconds both threads take turns, and each sleeps a
    // little while the other catches up.
    let local = facts.base_rtt_ns() < 1_000_000;
    let starved = thread.wait >= 0.3 || (local && thread.runnable() >= 0.6);
    let busy = thread.runnable() >= SATURATED || starved;
    if busy && thread.user < 0.5 {
        let placed = collision(facts).or_else(|| remote(facts, receiver));
        return placed.unwrap_or_else(|| cpu_finding(facts, receiver));
    }
    // A collision shows in the core, not always in the thread: softirqs run in
    // its name.
    if let Some(collision) = collision(facts).filter(|_| thread.user < 0.5) {
        return collision;
    }
    // A reader without a pause of its own that runs for a good part of the time
    // does not rest: the machine is slow.
    let by_design = facts.config.receiver_pause.or(facts.config.receiver_work).is_some();
    if local && !by_design && thread.user < 0.5 && thread.runnable() >= 0.3 {
        return cpu_finding(facts, receiver);
    }
    let what = if busy { "computes between its reads" } else { "sleeps or waits between its reads" };
    Finding {
        cause: Cause::ReceiverApplication { computes: busy, thread_share_ratio: thread.run },
        sentence: format!(
            "receiver application: the program on {} reads only {}; it {what}",
            receiver.name(),
            rate(facts.goodput_bps)
        ),
        fault: true,
        evidence: vec![thread_item(facts, receiver)],
        remedies: vec![
            Remedy::ChangeFlow { key: "receiver-pause".to_owned(), value: Value::Null },
            Remedy::ChangeFlow { key: "receiver-work".to_owned(), value: Value::Null },
        ],
    }
}

pub(super) fn thread_item(facts: &Facts<'_>, part: &Part<'_>) -> EvidenceItem {
    let thread = part.thread.unwrap_or_default();
    let side = if part.role == Role::Sender { "sending" } else { "receiving" };
    facts.sampled(
        format!(
            "the {side} thread ran {} of the time ({} of that in user mode) and waited for a core {}",
            percent(thread.run),
            percent(thread.user),
            percent(thread.wait)
        ),
        "schedstat and stat of the thread",
    )
}

/// Reader and softirqs of its packets share a core, which is full.
pub(super) fn collision(facts: &Facts<'_>) -> Option<Finding> {
    let receiver = &facts.receiver;
    let (core, usually) = receiver.core?;
    let (incoming, often) = facts.incoming_core?;
    let softirq = receiver.core_softirq(core)?;
    let busy = receiver.core_busy(core)?;
    // On one machine all load on the writer's core comes from the writer.
    let writers_core = facts.one_machine && facts.sender.core.is_some_and(|(writer, _)| writer == core);
    // Others may be on this core, too: of the flow's own work on it, packets
    // are a good part.
    let reader = receiver.thread.unwrap_or_default();
    let of_own = softirq / (softirq + reader.run).max(f64::MIN_POSITIVE);
    let full = busy >= 0.85 && softirq >= SOFTIRQ_LEAST && of_own >= SOFTIRQ_SHARE;
    if core != incoming || usually < 0.7 || often < 0.7 || !full || writers_core || !suffers(facts) {
        return None;
    }
    let mut better = hosts::better_cores(receiver.host, core, receiver.nic.and_then(|nic| nic.node));
    // The writer's core is no better where both ends are one machine.
    better.retain(|core| !facts.one_machine || facts.sender.core.is_none_or(|(writer, _)| writer != *core));
    Some(Finding {
        cause: Cause::InterruptCollision {
            end: receiver.end,
            core,
            softirq_ratio: softirq,
            better_cores: better.clone(),
        },
        sentence: format!(
            "interrupt-core collision: on {} core {core} processes the packets and runs the reader, and is full ({} busy, {} of it packets)",
            receiver.name(),
            percent(busy),
            percent(softirq)
        ),
        fault: true,
        evidence: vec![
            facts.sampled(
                format!("packets came through core {incoming} in {} of the samples", percent(often)),
                "SO_INCOMING_CPU of the receiving socket",
            ),
            facts.sampled(
                format!("the reader was on core {core} in {} of the samples", percent(usually)),
                "core of the receiving thread",
            ),
            facts.sampled(
                format!("core {core}: {} busy, {} in softirqs", percent(busy), percent(softirq)),
                "times of the receiver's cores (proc/stat), all intervals",
            ),
        ],
        remedies: vec![if better.is_empty() {
            Remedy::Physical {
                what: "steer the packets to a core of their own: there is none left here".to_owned(),
            }
        } else {
            Remedy::MoveThread { role: Role::Receiver, end: receiver.end, off_core: core, to_cores: better }
        }],
    })
}

/// A full core of the reader limits only where the reader lags, and not where
/// the writer's core or the path is the limit.
fn suffers(facts: &Facts<'_>) -> bool {
    let queued = facts.medians.receive_fill.unwrap_or(0.0);
    if facts.base_rtt_ns() < 1_000_000 {
        return facts.sender.thread.is_none_or(|writer| writer.run < 0.9) || queued >= QUEUED;
    }
    let queue = facts.queue_ns() as f64 > 0.3 * facts.base_rtt_ns() as f64;
    let path = facts.medians.window_fill >= 0.85 && queue;
    let lags = queued >= 0.2
        || facts.medians.window_limited >= 0.3
        || facts.receiver.thread.is_some_and(|reader| reader.runnable() >= 0.5);
    lags && !path
}

/// A saturated thread whose core is not on the card's node.
fn remote(facts: &Facts<'_>, part: &Part<'_>) -> Option<Finding> {
    let nic = part.nic?;
    let (core, _) = part.core?;
    let (nic_node, thread_node) = (nic.node?, hosts::node_of(part.host, core)?);
    if nic_node == thread_node {
        return None;
    }
    let hops = hosts::hops_to(part.host, nic, thread_node).unwrap_or(1);
    let better = hosts::better_cores(part.host, core, Some(nic_node));
    let side = if part.role == Role::Sender { "writer" } else { "reader" };
    Some(Finding {
        cause: Cause::NumaRemote {
            role: part.role,
            end: part.end,
            interface: nic.name.clone(),
            nic_node,
            core,
            thread_node,
            hop_count: hops,
            better_cores: better.clone(),
        },
        sentence: format!(
            "NUMA-remote: on {} the {side} runs on core {core} of node {thread_node}, {hops} hop(s) from node {nic_node} of {}; \
             its core is saturated by copies across the interconnect",
            part.name(),
            nic.name
        ),
        fault: true,
        evidence: vec![
            thread_item(facts, part),
            EvidenceItem {
                statement: format!("{} is on node {nic_node}, core {core} on node {thread_node}", nic.name),
                source: format!("{}: sysfs numa_node, node distances", part.name()),
            },
        ],
        remedies: vec![Remedy::MoveThread {
            role: part.role,
            end: part.end,
            off_core: core,
            to_cores: better,
        }],
    })
}

/// The core that processes the receiver's packets is full: packets wait for it, or are
/// dropped, as they would in front of a full path, over any round trip.
pub(super) fn packet_core(facts: &Facts<'_>) -> Option<Finding> {
    let (core, often) = facts.incoming_core?;
    let receiver = &facts.receiver;
    let (busy, softirq) = (receiver.core_busy(core)?, receiver.core_softirq(core)?);
    // On one machine the softirqs of the writer's core are the writer's own work, and
    // over microseconds a thread that is never idle is stronger evidence.
    let writers = facts.one_machine && facts.sender.core.is_some_and(|(writer, _)| writer == core);
    let by_thread = facts.is_local() && saturated(facts).is_some();
    if often < 0.7 || busy < 0.9 || softirq < 0.5 || writers || by_thread {
        return None;
    }
    let thread = receiver.thread.unwrap_or_default();
    Some(Finding {
        cause: Cause::Cpu {
            role: Role::Receiver,
            end: receiver.end,
            core: Some(core),
            runnable_ratio: thread.runnable(),
            waiting_ratio: thread.wait,
        },
        sentence: format!(
            "receiver CPU: core {core} of {} processes the packets and is full ({} busy, {} in softirqs): it takes no more than {}",
            receiver.name(),
            percent(busy),
            percent(softirq),
            rate(facts.goodput_bps)
        ),
        fault: false,
        evidence: vec![
            facts.sampled(
                format!("packets came through core {core} in {} of the samples", percent(often)),
                "SO_INCOMING_CPU of the receiving socket",
            ),
            facts.sampled(
                format!("core {core}: {} busy, {} in softirqs", percent(busy), percent(softirq)),
                "times of the receiver's cores (proc/stat), all intervals",
            ),
            thread_item(facts, receiver),
        ],
        remedies: vec![
            Remedy::Physical {
                what: format!(
                    "spread the packets of several flows over the cores of {} (receive queues and RSS, or rps_cpus), and have fewer and larger ones (GRO, a larger MTU)",
                    receiver.name()
                ),
            },
            Remedy::ChangeFlow {
                key: "flows".to_owned(),
                value: facts.config.flows.saturating_mul(2).clamp(2, 64).into(),
            },
        ],
    })
}

/// A thread had work all the time, or the core that takes the packets is full.
pub(super) fn cpu(facts: &Facts<'_>) -> Option<Finding> {
    // A full congestion window over a long path is not the processor's doing.
    let medians = &facts.medians;
    let elsewhere =
        facts.base_rtt_ns() > 1_000_000 && medians.window_fill >= 0.9 && medians.not_sent > medians.in_flight;
    if elsewhere {
        return None;
    }
    if let Some(part) = saturated(facts) {
        return Some(remote(facts, part).unwrap_or_else(|| cpu_finding(facts, part)));
    }
    shared_core(facts)
}

/// Two threads that take turns on one core: neither runs all the time, but
/// together they do.
fn shared_core<'a>(facts: &Facts<'a>) -> Option<Finding> {
    let (writer, reader) = (facts.sender.core?, facts.receiver.core?);
    if !facts.one_machine {
        // The softirqs of the receiver may fill a core of their own.
        let (incoming, _) = facts.incoming_core?;
        let full =
            facts.receiver.core_busy(incoming)? >= 0.9 && facts.receiver.core_softirq(incoming)? >= 0.5;
        return full.then(|| cpu_finding(facts, &facts.receiver));
    }
    let run = |part: &Part<'_>| part.thread.map_or(0.0, |thread| thread.runnable());
    let together = run(&facts.sender) + run(&facts.receiver);
    let path_is_local = facts.base_rtt_ns() < 1_000_000;
    let taken = if writer.0 == reader.0 {
        together >= SATURATED
    } else {
        run(&facts.sender).max(run(&facts.receiver)) >= 0.7
    };
    let part = if run(&facts.sender) >= run(&facts.receiver) { &facts.sender } else { &facts.receiver };
    (path_is_local && taken).then(|| cpu_finding(facts, part))
}

fn cpu_finding(facts: &Facts<'_>, part: &Part<'_>) -> Finding {
    let thread = part.thread.unwrap_or_default();
    let core = part.core.map(|(core, _)| core);
    let side = if part.role == Role::Sender { "sender" } else { "receiver" };
    let at = core.map_or_else(String::new, |core| format!(" (core {core})"));
    let kept_waiting = thread.is_kept_waiting();
    let better = core.map(|core| hosts::better_cores(part.host, core, part.nic.and_then(|nic| nic.node)));
    let mut remedies = vec![Remedy::ChangeFlow {
        key: "flows".to_owned(),
        value: facts.config.flows.saturating_mul(2).clamp(2, 64).into(),
    }];
    if let Some((core, better)) = core.zip(better).filter(|(_, better)| !better.is_empty() && kept_waiting) {
        remedies.insert(
            0,
            Remedy::MoveThread { role: part.role, end: part.end, off_core: core, to_cores: better },
        );
    }
    Finding {
        cause: Cause::Cpu {
            role: part.role,
            end: part.end,
            core,
            runnable_ratio: thread.runnable(),
            waiting_ratio: thread.wait,
        },
        sentence: format!("{side} CPU: the thread on {}{at} {}", part.name(), core_limit(facts, part)),
        // Where the processes of the host are known, other processes were excluded.
        fault: kept_waiting && part.load.is_none() && !contention::on_one_core(facts),
        evidence: vec![
            thread_item(facts, part),
            facts.sampled(
                format!(
                    "nothing in TCP holds it: {} of the congestion window in flight, window waited for {} of the time, rtt {}",
                    percent(facts.medians.window_fill),
                    percent(facts.medians.window_limited),
                    time(facts.medians.rtt_ns as u64)
                ),
                "medians of tcpi_unacked / tcpi_snd_cwnd, tcpi_rwnd_limited, tcpi_rtt",
            ),
        ],
        remedies,
    }
}

/// Limit of a thread's core: its full capacity, or the thread's part of a core that is shared.
fn core_limit(facts: &Facts<'_>, part: &Part<'_>) -> String {
    let thread = part.thread.unwrap_or_default();
    let seen = facts.goodput_bps / facts.flow_count;
    let Some(alone) = thread.alone_bps(seen) else {
        let busy = percent(thread.runnable());
        return format!("had work {busy} of the time, and one core does no more than {}", rate(seen));
    };
    let with = if contention::on_one_core(facts) {
        let other = if part.role == Role::Sender { "reader" } else { "writer" };
        format!("the flow's own {other}")
    } else {
        "other work".to_owned()
    };
    format!(
        "ran {} of the time and waited for a core {}: the core is shared with {with}, and alone it would carry {}",
        percent(thread.run),
        percent(thread.wait),
        rate(alone)
    )
}
