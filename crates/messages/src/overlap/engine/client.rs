//! Client part: the sweep over intervals of work, and the results.

use std::time::{Duration, Instant};

use crate::overlap::{OverlapMeasured, OverlapMethod, OverlapPoint};

use super::{EngineError, Session, protocol::Frame, work::Work};

/// Maximum number of cycles of a duration.
const CYCLES_MAX: u64 = 1_000_000_000;
/// Minimum number of cycles of long work,
const CYCLES_MIN: u64 = 4;
/// unless they take longer than this many times the duration.
const OVERTIME: u32 = 10;
/// A phase is repeated when so many times its cycles fit into the duration,
const REFIT_RATIO: u64 = 2;
/// so often at most.
const REFITS_MAX: u32 = 5;

/// Measures every interval of work and passes each to `on_point`.
///
/// # Errors
/// A lost connection, damaged messages, an invalid response of the server.
pub(crate) fn measure(
    session: &mut Session<'_>,
    mut on_point: impl FnMut(OverlapPoint),
) -> Result<(), EngineError> {
    let mut work = Work::new();
    for iterations in session.config.work_counts() {
        let measured = measure_work(session, &mut work, iterations)?;
        on_point(measured.point(session.config.size.0));
    }
    session.control.send(Frame::End)
}

fn measure_work(
    session: &mut Session<'_>,
    work: &mut Work,
    iterations: u64,
) -> Result<OverlapMeasured, EngineError> {
    let per_cycle = warm_up(session, work, iterations)?;
    let (duration, counted) = (session.config.duration.to_std(), session.config.iterations);
    let mut cycles = counted.unwrap_or_else(|| fitting(duration, per_cycle));
    let mut measured = phase(session, work, iterations, cycles)?;
    for _ in 0..REFITS_MAX {
        let more = fitting(duration, per_cycle_of(&measured));
        if counted.is_some() || more < REFIT_RATIO.saturating_mul(cycles) {
            break;
        }
        // The warm-up was slower: a poll with many messages, an interruption.
        cycles = more;
        measured = phase(session, work, iterations, cycles)?;
    }
    Ok(OverlapMeasured { work_alone_ns: work.alone_ns(cycles, iterations, session.stop)?, ..measured })
}

/// Doubles the cycles until the time is up; returns the time of a cycle of the
/// last phase.
fn warm_up(session: &mut Session<'_>, work: &mut Work, iterations: u64) -> Result<Duration, EngineError> {
    let (mut cycles, mut spent) = (1, Duration::ZERO);
    loop {
        let measured = phase(session, work, iterations, cycles)?;
        spent += Duration::from_nanos(measured.elapsed_ns);
        if spent >= session.config.warm_up.to_std() || cycles >= CYCLES_MAX {
            return Ok(per_cycle_of(&measured));
        }
        cycles *= 2;
    }
}

fn per_cycle_of(measured: &OverlapMeasured) -> Duration {
    Duration::from_nanos(measured.elapsed_ns).div_f64(measured.cycle_count.max(1) as f64)
}

/// Number of cycles that fit into a duration, within the limits.
fn fitting(duration: Duration, per_cycle: Duration) -> u64 {
    let per_cycle_ns = per_cycle.as_nanos().max(1);
    let fit = |duration: Duration| u64::try_from(duration.as_nanos() / per_cycle_ns).unwrap_or(u64::MAX);
    let least = fit(duration.saturating_mul(OVERTIME)).min(CYCLES_MIN);
    fit(duration).max(least).clamp(1, CYCLES_MAX)
}

/// One phase: without the time of the work alone.
fn phase(
    session: &mut Session<'_>,
    work: &mut Work,
    iterations: u64,
    cycles: u64,
) -> Result<OverlapMeasured, EngineError> {
    session.data.top_up()?;
    session.control.send(Frame::Begin { cycles })?;
    session.control.expect(Frame::Ready, "no readiness")?;
    let before = session.costs.read();
    let measured = match session.config.method {
        OverlapMethod::Polling => polling(session, work, iterations, cycles)?,
        OverlapMethod::PostWorkWait => post_work_wait(session, work, iterations, cycles)?,
    };
    let costs = session.costs.read().since(before);
    session.control.send(Frame::Finish)?;
    let Frame::Report { received, costs: of_server } = session.control.receive()? else {
        return Err(EngineError::Unexpected("no report"));
    };
    // As many messages are sent as received: each is replied to, or windows are equal.
    let expected = measured.client_received_count;
    if received != expected {
        return Err(EngineError::Miscounted { found: received, expected });
    }
    Ok(OverlapMeasured {
        server_received_count: received,
        server_cpu_ns: of_server.cpu_ns,
        interfaces: costs.interfaces(of_server),
        ..measured
    })
}

fn polling(
    session: &mut Session<'_>,
    work: &mut Work,
    iterations: u64,
    polls: u64,
) -> Result<OverlapMeasured, EngineError> {
    let mut traffic = session.traffic(0);
    let before = session.costs.read();
    let begun = Instant::now();
    for _ in 0..polls {
        work.run(iterations, session.stop)?;
        session.check_stop()?;
        session.data.poll()?;
        while session.data.arrived() > 0 {
            session.data.take(&mut traffic)?;
            session.data.top_up()?;
            session.data.post_send(&mut traffic)?;
        }
    }
    let elapsed_ns = nanoseconds(begun.elapsed());
    let client_cpu_ns = session.costs.read().since(before).cpu_ns;
    let received = traffic.received_count();
    // No further replies: what the server started with comes back last.
    session.finish(&mut traffic, received + u64::from(session.config.window))?;
    Ok(OverlapMeasured {
        work_count: iterations,
        cycle_count: polls,
        client_received_count: received,
        elapsed_ns,
        client_cpu_ns,
        ..OverlapMeasured::default()
    })
}

fn post_work_wait(
    session: &mut Session<'_>,
    work: &mut Work,
    iterations: u64,
    cycles: u64,
) -> Result<OverlapMeasured, EngineError> {
    let mut traffic = session.traffic(0);
    let [mut post, mut working, mut wait] = [Duration::ZERO; 3];
    let before = session.costs.read();
    let begun = Instant::now();
    let mut last = begun;
    for cycle in 0..cycles {
        let (mut posted, mut worked) = (last, last);
        session.cycle(&mut traffic, cycle, |session| {
            posted = Instant::now();
            work.run(iterations, session.stop)?;
            worked = Instant::now();
            session.check_stop()
        })?;
        let finished = Instant::now();
        post += posted - last;
        working += worked - posted;
        wait += finished - worked;
        last = finished;
    }
    Ok(OverlapMeasured {
        work_count: iterations,
        cycle_count: cycles,
        client_received_count: traffic.received_count(),
        elapsed_ns: nanoseconds(last - begun),
        phases_ns: Some([post, working, wait].map(nanoseconds)),
        client_cpu_ns: session.costs.read().since(before).cpu_ns,
        ..OverlapMeasured::default()
    })
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_fit_the_duration_with_limits_for_short_and_long_work() {
        let milliseconds = Duration::from_millis;
        assert_eq!(fitting(milliseconds(200), Duration::from_micros(20)), 10_000);
        assert_eq!(fitting(milliseconds(200), Duration::ZERO), 200_000_000);
        assert_eq!(fitting(Duration::from_secs(3600), Duration::ZERO), CYCLES_MAX);
        assert_eq!(fitting(milliseconds(200), milliseconds(100)), 4, "four at least");
        assert_eq!(fitting(milliseconds(200), milliseconds(700)), 2, "ten times the duration at most");
        assert_eq!(fitting(milliseconds(200), Duration::from_secs(60)), 1);
        assert_eq!(fitting(Duration::MAX, Duration::from_secs(1)), CYCLES_MAX);
    }
}
