//! Validation of options on the controller, before any side effect.

use crate::overlap::OverlapConfig;
use clearstream_schema::control::{Failure, FailureKind};

/// Maximum message size.
const MESSAGE_MAX_BYTES: u64 = 64 << 20;
/// Maximum number of messages in flight.
const WINDOW_MAX: u32 = 4096;
/// Maximum bytes in flight in one direction: each side holds three times as many.
const FLIGHT_MAX_BYTES: u64 = 256 << 20;
/// Maximum work of an interval: some ten seconds.
const WORK_MAX: u64 = 10_000_000_000;
/// Maximum steps in a decade.
const PER_DECADE_MAX: u32 = 100;

/// Rejects invalid options, with a suggested correction.
pub(crate) fn check(config: &OverlapConfig) -> Result<(), Failure> {
    let wrong = |message: String| Err(Failure::new(FailureKind::Invalid, message));
    if !(1..=MESSAGE_MAX_BYTES).contains(&config.size.0) {
        return wrong("messages must have 1B to 64MiB".to_owned());
    }
    if !(1..=WINDOW_MAX).contains(&config.window) {
        return wrong(format!("window must be 1 to {WINDOW_MAX} messages, not {}", config.window));
    }
    if config.size.0 * u64::from(config.window) > FLIGHT_MAX_BYTES {
        return wrong(format!(
            "a window of {} messages of {} is more than 256MiB: choose fewer, or smaller messages",
            config.window, config.size
        ));
    }
    if !(1..=PER_DECADE_MAX).contains(&config.per_decade) {
        return wrong(format!(
            "per-decade must be 1 to {PER_DECADE_MAX} steps, as in 3, not {}",
            config.per_decade
        ));
    }
    let counts = config.work_counts();
    if counts.is_empty() || counts.last().is_some_and(|most| *most > WORK_MAX) {
        return wrong(format!(
            "work must go from a smaller to a larger number of iterations, at most {WORK_MAX}, as in 1e2-1e8, not {}",
            config.work
        ));
    }
    if config.iterations == Some(0) {
        return wrong("iterations must be at least 1".to_owned());
    }
    if config.iterations.is_none() && config.duration.0 == 0 {
        return wrong("duration must be longer than zero, as in 200ms".to_owned());
    }
    if config.transport.is_mpi() && config.port.is_some() {
        return wrong("port is an option of TCP and iWARP: leave it out with the transport MPI".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{ByteCount, TimeSpan};

    use super::*;

    #[test]
    fn invalid_options_are_rejected_with_a_correction() {
        let default = OverlapConfig::default;
        check(&default()).unwrap();
        let wrong = [
            (OverlapConfig { size: ByteCount(0), ..default() }, "1B to 64MiB"),
            (OverlapConfig { size: ByteCount(65 << 20), ..default() }, "1B to 64MiB"),
            (OverlapConfig { window: 0, ..default() }, "window"),
            (OverlapConfig { window: 4097, ..default() }, "window"),
            (OverlapConfig { size: ByteCount(64 << 20), window: 5, ..default() }, "256MiB"),
            (OverlapConfig { per_decade: 0, ..default() }, "per-decade"),
            (OverlapConfig { work: "0-100".parse().unwrap(), ..default() }, "1e2-1e8"),
            (OverlapConfig { work: "100-10".parse().unwrap(), ..default() }, "1e2-1e8"),
            (OverlapConfig { work: "1e11".parse().unwrap(), ..default() }, "at most"),
            (OverlapConfig { iterations: Some(0), ..default() }, "iterations"),
            (OverlapConfig { duration: TimeSpan(0), ..default() }, "duration"),
        ];
        for (config, expected) in wrong {
            let failure = check(&config).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Invalid);
            assert!(failure.message.contains(expected), "{failure}");
        }
        check(&OverlapConfig { duration: TimeSpan(0), iterations: Some(1), ..default() }).unwrap();
    }
}
