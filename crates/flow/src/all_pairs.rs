//! The workload `all-pairs`: a bulk TCP flow between every ordered pair of hosts of a set, to find a slow
//! pair, cable or host.
//!
//! In each round every host is in one pair at most (a round-robin tournament by the circle method), so that
//! the pairs of a round can be measured concurrently without a common host; each round runs in both
//! directions.

use std::{sync::atomic::Ordering::Relaxed, thread};

use clearstream_schema::JsonSchema;
use clearstream_schema::{
    ByteCount, TimeSpan,
    all_pairs::{AllPairsSummary, FailedPair, PairGoodput},
    control::{Failure, FailureKind},
    flow::FlowConfig,
    human,
    notice::Notice,
    outcome::{Metric, MetricKind, Outcome, Unit},
    study::Figure,
};
use clearstream_workload::{Context, Event, HostSet, Sample, TrialError, Workload};
use serde::{Deserialize, Serialize};

use crate::{check, run_on};

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllPairs;

/// Its options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AllPairsConfig {
    /// Connections of each pair.
    pub flows: u32,
    /// Measured time of each pair, without the warm-up.
    pub duration: TimeSpan,
    /// Warm-up time of each test, not measured.
    pub warm_up: TimeSpan,
    /// Send and receive buffers; the kernel's autotuning when absent.
    pub window: Option<ByteCount>,
    /// Congestion control; the host's default when absent.
    pub congestion_control: Option<String>,
    /// Port of the data sockets on every host, for firewalls; any free port when absent.
    #[serde(rename = "destination-port", alias = "port", skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Pairs without a common host are measured concurrently.
    pub at_once: bool,
}

impl Default for AllPairsConfig {
    fn default() -> Self {
        Self {
            flows: 1,
            duration: TimeSpan::from_seconds(2),
            warm_up: TimeSpan::from_millis(500),
            window: None,
            congestion_control: None,
            port: None,
            at_once: true,
        }
    }
}

impl AllPairsConfig {
    fn flow(&self) -> FlowConfig {
        FlowConfig {
            flows: self.flows,
            duration: self.duration,
            warm_up: self.warm_up,
            window: self.window,
            congestion_control: self.congestion_control.clone(),
            destination_port: self.port,
            ..FlowConfig::default()
        }
    }
}

/// Number of hosts assumed for the time estimate, until a study has measured it.
const ASSUMED_HOSTS: u64 = 4;

impl Workload for AllPairs {
    type Config = AllPairsConfig;

    fn name(&self) -> &'static str {
        "all-pairs"
    }

    fn title(&self) -> &'static str {
        "A flow from every host to every other"
    }

    /// Two or more hosts, in any role.
    fn roles(&self) -> &'static [&'static str] {
        &[]
    }

    fn figure(&self) -> Figure {
        Figure::Pairs
    }

    fn check(&self, config: &AllPairsConfig) -> Result<(), Failure> {
        check::check(&config.flow())
    }

    fn time(&self, config: &AllPairsConfig) -> TimeSpan {
        let tests = match config.at_once {
            true => 2 * (ASSUMED_HOSTS - 1),
            false => ASSUMED_HOSTS * (ASSUMED_HOSTS - 1),
        };
        TimeSpan((config.warm_up.0.saturating_add(config.duration.0)).saturating_mul(tests))
    }

    fn overhead(&self) -> TimeSpan {
        TimeSpan::from_seconds(2)
    }

    fn metrics(&self, _: &AllPairsConfig) -> Vec<MetricKind> {
        AllPairsSummary::METRICS.to_vec()
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &AllPairsConfig) -> Result<Outcome, TrialError> {
        let count = context.hosts.count();
        if count < 2 {
            let message = "all-pairs needs two hosts or more: name them with --hosts FILE".to_owned();
            return Err(Failure { kind: FailureKind::Invalid, message }.into());
        }
        let mut summary = AllPairsSummary { complete: true, ..AllPairsSummary::default() };
        let mut first_failure = None;
        for pairs in tests(count, config.at_once) {
            if context.stop.load(Relaxed) {
                summary.complete = false;
                break;
            }
            let mut round = Vec::new();
            let mut fatal = None;
            // A failure of one pair does not stop the others: their samples are kept.
            for ended in measure(context, &pairs, &config.flow()) {
                match ended {
                    Ok(pair) => {
                        let headline = Metric::higher("pair-goodput", Unit::BitsPerSecond, pair.goodput_bps);
                        (context.on_event)(Event::Sample(Sample::new(&pair, Some(headline))?));
                        round.push(pair);
                    }
                    // No path between two hosts is a result; without its agent a host has none.
                    Err((pair, error)) if !error.lost && !error.stopped => {
                        summary.failed_pairs.push(pair);
                        first_failure = first_failure.or(Some(error));
                    }
                    Err((_, error)) => fatal = fatal.or(Some(error)),
                }
            }
            if let Some(error) = fatal {
                return Err(error);
            }
            summary.rounds.push(round);
        }
        if let Some(error) = first_failure.filter(|_| summary.by_goodput().is_empty()) {
            return Err(error);
        }
        summary.complete &= summary.failed_pairs.is_empty();
        let mut outcome = summary.outcome()?;
        outcome.notices.extend(slowest(&summary));
        outcome.notices.extend(failed(&summary));
        Ok(outcome)
    }
}

/// The pairs measured concurrently, in order: each unordered pair of `count` hosts in one direction, then in
/// the other.
fn tests(count: usize, at_once: bool) -> Vec<Vec<(usize, usize)>> {
    let mut tests = Vec::new();
    for round in rounds(count) {
        let back: Vec<_> = round.iter().map(|&(one, other)| (other, one)).collect();
        for pairs in [round, back] {
            if at_once {
                tests.push(pairs);
            } else {
                tests.extend(pairs.into_iter().map(|pair| vec![pair]));
            }
        }
    }
    tests
}

/// The circle method: the first host is fixed, the others rotate by one place; with an odd number of hosts
/// one of them is idle in each round.
fn rounds(count: usize) -> Vec<Vec<(usize, usize)>> {
    let places = count + count % 2;
    let host = |place: usize, round: usize| match place {
        0 => 0,
        place => 1 + (place - 1 + round) % (places - 1),
    };
    let round = |round: usize| {
        let pairs = (0..places / 2).map(|place| (host(place, round), host(places - 1 - place, round)));
        pairs.filter(|(one, other)| *one < count && *other < count).collect()
    };
    (0..places - 1).map(round).collect()
}

/// Measures these pairs concurrently; a failure of one lets the others run to their end.
fn measure(
    context: &mut Context<'_, '_>,
    pairs: &[(usize, usize)],
    config: &FlowConfig,
) -> Vec<Result<PairGoodput, (FailedPair, TrialError)>> {
    let stop = context.stop;
    let mut sets = context.hosts.pairs(pairs);
    thread::scope(|scope| {
        let run = |hosts| scope.spawn(move || one(hosts, config, stop));
        let running: Vec<_> = sets.iter_mut().map(run).collect();
        let ended: Vec<_> = running.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let joined = ended.into_iter().map(|ended| {
            ended.unwrap_or_else(|_| {
                Err(failure("", "", TrialError::internal("the thread of a pair ended by a panic")))
            })
        });
        joined.collect()
    })
}

fn one(
    hosts: &mut HostSet<'_>,
    config: &FlowConfig,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<PairGoodput, (FailedPair, TrialError)> {
    let (client, server) = hosts.client_and_server().map_err(|error| failure("", "", error))?;
    let (from, to) = (client.peer.name().to_owned(), server.peer.name().to_owned());
    let summary = run_on(hosts, config, stop, &mut |_| {}).map_err(|error| {
        let mut error = TrialError::from(error);
        let failed = failure(&from, &to, error.clone());
        error.failure.message = format!("{from} to {to}: {}", error.failure.message);
        (failed.0, error)
    })?;
    Ok(PairGoodput {
        from,
        to,
        goodput_bps: summary.goodput_bps,
        retransmit_count: summary.retransmit_count,
        rtt_ns: summary.rtt_ns,
    })
}

fn failure(from: &str, to: &str, error: TrialError) -> (FailedPair, TrialError) {
    let message = error.failure.message.clone();
    (FailedPair { from: from.to_owned(), to: to.to_owned(), message }, error)
}

/// Notice naming the pairs without a result.
fn failed(summary: &AllPairsSummary) -> Option<Notice> {
    let first = summary.failed_pairs.first()?;
    let pairs = summary.failed_pairs.iter().map(|pair| format!("{} to {}", pair.from, pair.to));
    Some(Notice {
        id: "failed-pair".to_owned(),
        message: format!("no flow from {}: {}", human::few(pairs), first.message),
    })
}

/// Notice naming the slowest pair, where it is far below the median.
fn slowest(summary: &AllPairsSummary) -> Option<Notice> {
    let pairs = summary.by_goodput();
    let (slowest, median) = (pairs.first()?, pairs.get(pairs.len() / 2)?);
    (slowest.goodput_bps < 0.5 * median.goodput_bps).then(|| Notice {
        id: "slow-pair".to_owned(),
        message: format!(
            "{} to {}: {}, less than half of the median of all pairs ({})",
            slowest.from,
            slowest.to,
            human::rate(slowest.goodput_bps),
            human::rate(median.goodput_bps)
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_ordered_pair_is_measured_once_and_no_host_twice_at_a_time() {
        for count in 2..12 {
            for at_once in [true, false] {
                let mut seen = BTreeSet::new();
                for pairs in tests(count, at_once) {
                    let hosts: BTreeSet<usize> =
                        pairs.iter().flat_map(|&(one, other)| [one, other]).collect();
                    assert_eq!(hosts.len(), 2 * pairs.len(), "{count}: {pairs:?}");
                    for pair in pairs {
                        assert!(pair.0 != pair.1 && seen.insert(pair), "{count}: {pair:?}");
                    }
                }
                assert_eq!(seen.len(), count * (count - 1));
            }
        }
        // The minimum number of rounds: one less than hosts, in both directions.
        assert_eq!(tests(6, true).len(), 10);
    }
}
