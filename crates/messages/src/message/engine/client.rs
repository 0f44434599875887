//! Client part: number of iterations of each size, and the results.

use std::time::{Duration, Instant};

use crate::message::{MessageConfig, MessageKind, MessageLatency, MessagePoint, MessageSize};

use clearstream_stats::nearest_rank;

use super::{
    ACKNOWLEDGEMENT_BYTES, Carrier, EngineError,
    protocol::{LARGEST_BYTES, Phase, Report},
};
use crate::{Costs, Traffic};

/// Maximum number of iterations of a duration: the time of each is kept for the
/// percentiles.
const ITERATIONS_MAX: u64 = 1_000_000;
/// Minimum number of iterations on a slow path,
const ITERATIONS_MIN: u64 = 10;
/// unless they take longer than this many times the duration.
const OVERTIME: u64 = 10;

/// Returns the buffer size of a link in bytes.
pub(crate) fn capacity(config: &MessageConfig) -> usize {
    let largest = config.message_sizes().last().map_or(0, |size| size.bytes);
    usize::try_from(largest).unwrap_or(usize::MAX).max(LARGEST_BYTES)
}

/// Measures every size and passes each to `on_point`.
///
/// # Errors
/// A connection error, or an invalid response of the server.
pub(crate) fn measure(
    link: &mut impl Carrier,
    config: &MessageConfig,
    mut on_point: impl FnMut(MessagePoint),
) -> Result<(), EngineError> {
    for size in config.message_sizes() {
        on_point(measure_size(link, config, size)?);
    }
    Phase::END.tell(link)
}

/// Result of one phase.
struct Measured {
    elapsed: Duration,
    /// Time of each iteration; empty where they are not kept.
    times_ns: Vec<u64>,
    costs: Costs,
    received: u64,
    report: Report,
}

fn measure_size(
    link: &mut impl Carrier,
    config: &MessageConfig,
    size: MessageSize,
) -> Result<MessagePoint, EngineError> {
    let per_iteration = warm_up(link, config, size.bytes)?;
    let iterations = config.iterations.unwrap_or_else(|| fitting(config.duration.to_std(), per_iteration));
    let measured = phase(link, config, size.bytes, iterations, true)?;
    Ok(point(config, size, iterations, measured))
}

/// Doubles the iterations until the time is up; returns the time of an
/// iteration of the last phase.
fn warm_up(link: &mut impl Carrier, config: &MessageConfig, size: u64) -> Result<Duration, EngineError> {
    let (mut iterations, mut spent) = (1u64, Duration::ZERO);
    loop {
        let elapsed = phase(link, config, size, iterations, false)?.elapsed;
        spent += elapsed;
        if spent >= config.warm_up.to_std() || iterations >= ITERATIONS_MAX {
            return Ok(elapsed.div_f64(iterations as f64));
        }
        iterations *= 2;
    }
}

/// Returns the number of iterations that fit into a duration, within the
/// limits.
fn fitting(duration: Duration, per_iteration: Duration) -> u64 {
    let per_iteration_ns = per_iteration.as_nanos().max(1);
    let fit = |duration_ns: u128| u64::try_from(duration_ns / per_iteration_ns).unwrap_or(u64::MAX);
    let least = fit(duration.as_nanos().saturating_mul(OVERTIME.into())).min(ITERATIONS_MIN);
    fit(duration.as_nanos()).max(least).clamp(1, ITERATIONS_MAX)
}

fn phase(
    link: &mut impl Carrier,
    config: &MessageConfig,
    size: u64,
    iterations: u64,
    counts: bool,
) -> Result<Measured, EngineError> {
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    Phase { size, iterations }.tell(link)?;
    link.hear(&mut [0])?;
    let mut traffic = if config.verify { Traffic::verified(0) } else { Traffic::plain() };
    // Only a latency needs the time of each iteration.
    let is_timed = counts && config.kind == MessageKind::PingPong;
    let kept = if is_timed { iterations.min(ITERATIONS_MAX) } else { 0 };
    let mut times_ns = Vec::with_capacity(usize::try_from(kept).unwrap_or(0));
    let before = link.costs();
    let begun = Instant::now();
    let mut last = begun;
    for _ in 0..iterations {
        iteration(link, config, length, &mut traffic)?;
        if is_timed {
            let now = Instant::now();
            if times_ns.len() < ITERATIONS_MAX as usize {
                times_ns.push(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
            }
            last = now;
        }
    }
    let elapsed = begun.elapsed();
    let costs = link.costs().since(before);
    let report = Report::hear(link)?;
    let expected = iterations.saturating_mul(messages_per_iteration(config));
    if report.received != expected {
        return Err(EngineError::Miscounted { size, found: report.received, expected });
    }
    Ok(Measured { elapsed, times_ns, costs, received: traffic.received_count(), report })
}

/// Returns the number of messages that the server receives in one iteration.
fn messages_per_iteration(config: &MessageConfig) -> u64 {
    match config.kind {
        MessageKind::PingPong => 1,
        MessageKind::Stream | MessageKind::Bidirectional => config.window.into(),
    }
}

#[inline]
fn iteration(
    link: &mut impl Carrier,
    config: &MessageConfig,
    size: usize,
    traffic: &mut Traffic,
) -> Result<(), EngineError> {
    match config.kind {
        MessageKind::PingPong => {
            link.send(size, traffic)?;
            link.receive(size, traffic)?;
        }
        MessageKind::Stream => {
            link.send_window(size, config.window, traffic)?;
            link.hear(&mut [0; ACKNOWLEDGEMENT_BYTES])?;
        }
        MessageKind::Bidirectional => {
            link.exchange(size, config.window, traffic)?;
            link.exchange(ACKNOWLEDGEMENT_BYTES, 1, &mut Traffic::plain())?;
        }
    }
    Ok(())
}

fn point(config: &MessageConfig, size: MessageSize, iterations: u64, measured: Measured) -> MessagePoint {
    let Measured { elapsed, times_ns, costs, received, report } = measured;
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let messages = (received + report.received) as f64;
    let is_ping_pong = config.kind == MessageKind::PingPong;
    let bits = size.bytes as f64 * 8.0;
    MessagePoint {
        size_bytes: size.bytes,
        is_perturbed: size.is_perturbed,
        iteration_count: iterations,
        server_received_count: report.received,
        client_received_count: received,
        elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        latency: latency(times_ns),
        throughput_bps: is_ping_pong.then_some(bits * 2.0 * iterations as f64 / seconds),
        bandwidth_bps: (!is_ping_pong).then_some(bits * messages / seconds),
        message_rate_per_second: (!is_ping_pong).then_some(messages / seconds),
        client_cpu_ratio: costs.cpu_ns as f64 / 1e9 / seconds,
        server_cpu_ratio: report.costs.cpu_ns as f64 / 1e9 / seconds,
        interfaces: costs.interfaces(report.costs),
    }
}

/// Returns statistics of half the round trips, by nearest rank; `None` when
/// there are none.
fn latency(mut round_trips_ns: Vec<u64>) -> Option<MessageLatency> {
    round_trips_ns.sort_unstable();
    let rank = |percent| nearest_rank(&round_trips_ns, percent).map(|time| time / 2);
    let sum: u128 = round_trips_ns.iter().map(|time| u128::from(*time)).sum();
    Some(MessageLatency {
        min_ns: round_trips_ns.first()? / 2,
        mean_ns: u64::try_from(sum / round_trips_ns.len() as u128 / 2).unwrap_or(u64::MAX),
        p50_ns: rank(50)?,
        p99_ns: rank(99)?,
        max_ns: round_trips_ns.last()? / 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_half_of_a_round_trip_by_nearest_rank() {
        assert_eq!(latency(Vec::new()), None);
        let times = (1..=200).rev().map(|number| number * 20).collect();
        let found = latency(times).unwrap();
        assert_eq!((found.min_ns, found.p50_ns, found.p99_ns, found.max_ns), (10, 1000, 1980, 2000));
        assert_eq!(found.mean_ns, 1005);
        let one = latency(vec![7]).unwrap();
        assert_eq!((one.min_ns, one.p50_ns, one.p99_ns), (3, 3, 3));
    }

    #[test]
    fn iterations_fit_the_duration_with_limits_for_fast_and_slow_paths() {
        let milliseconds = Duration::from_millis;
        assert_eq!(fitting(milliseconds(200), Duration::from_micros(20)), 10_000);
        assert_eq!(fitting(milliseconds(200), Duration::from_nanos(1)), ITERATIONS_MAX);
        assert_eq!(fitting(milliseconds(200), Duration::ZERO), ITERATIONS_MAX);
        assert_eq!(fitting(milliseconds(200), milliseconds(100)), 10, "ten at least");
        assert_eq!(fitting(milliseconds(200), milliseconds(500)), 4, "ten times the duration at most");
        assert_eq!(fitting(milliseconds(200), Duration::from_secs(60)), 1);
    }
}
