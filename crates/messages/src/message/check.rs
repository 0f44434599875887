//! Validation of options on the controller, before any side effect.

use crate::message::{MessageConfig, MessageMethod};
use clearstream_schema::control::{Failure, FailureKind};

/// Maximum message size: each side holds one per direction.
pub(crate) const MESSAGE_MAX_BYTES: u64 = 64 << 20;
/// Maximum number of messages in flight.
const WINDOW_MAX: u32 = 65_536;
/// Maximum perturbation.
const PERTURBATION_MAX_BYTES: u64 = 1 << 20;

/// Rejects invalid options, with a suggested correction.
pub(crate) fn check(config: &MessageConfig) -> Result<(), Failure> {
    let wrong = |message: String| Err(Failure::new(FailureKind::Invalid, message));
    if config.perturbation_bytes() > PERTURBATION_MAX_BYTES {
        return wrong("perturbation must be 0B to 1MiB, as in 3B".to_owned());
    }
    let sizes = config.message_sizes();
    if sizes.is_empty() {
        return wrong(format!(
            "sizes must go from a smaller to a larger size, as in 1B-8MiB, not {}",
            config.sizes
        ));
    }
    if sizes.iter().any(|size| !(1..=MESSAGE_MAX_BYTES).contains(&size.bytes)) {
        return wrong("messages must have 1B to 64MiB, perturbation included".to_owned());
    }
    if !(1..=WINDOW_MAX).contains(&config.window) {
        return wrong(format!("window must be 1 to {WINDOW_MAX} messages, not {}", config.window));
    }
    if config.iterations == Some(0) {
        return wrong("iterations must be at least 1".to_owned());
    }
    if config.iterations.is_none() && config.duration.0 == 0 {
        return wrong("duration must be longer than zero, as in 200ms".to_owned());
    }
    match unused_with_mpi(config) {
        Some(option) => wrong(format!("{option} is an option of TCP: leave it out with the transport MPI")),
        None => Ok(()),
    }
}

/// An option that has no effect on ranks of MPI.
fn unused_with_mpi(config: &MessageConfig) -> Option<&'static str> {
    let options = [
        ("method", config.method != MessageMethod::default()),
        ("nagle", config.nagle),
        ("send-buffer", config.send_buffer.is_some()),
        ("receive-buffer", config.receive_buffer.is_some()),
        ("port", config.port.is_some()),
    ];
    let is_mpi = config.transport.is_mpi();
    options.into_iter().find(|(_, is_set)| is_mpi && *is_set).map(|(option, _)| option)
}

#[cfg(test)]
mod tests {
    use crate::message::MessageTransport;
    use clearstream_schema::{ByteCount, TimeSpan};

    use super::*;

    #[test]
    fn invalid_options_are_rejected_with_a_correction() {
        let default = MessageConfig::default;
        check(&default()).unwrap();
        let wrong = [
            (MessageConfig { size: Some(ByteCount(0)), ..default() }, "1B to 64MiB"),
            (MessageConfig { size: Some(ByteCount(65 << 20)), ..default() }, "1B to 64MiB"),
            (MessageConfig { sizes: "8KiB-1KiB".parse().unwrap(), ..default() }, "1B-8MiB"),
            (MessageConfig { sizes: "32MiB-64MiB".parse().unwrap(), ..default() }, "perturbation included"),
            (MessageConfig { perturbation: Some(ByteCount(u64::MAX)), ..default() }, "perturbation"),
            (MessageConfig { window: 0, ..default() }, "window"),
            (MessageConfig { iterations: Some(0), ..default() }, "iterations"),
            (MessageConfig { duration: TimeSpan(0), ..default() }, "duration"),
            (
                MessageConfig { transport: MessageTransport::Mpi, nagle: true, ..default() },
                "nagle is an option of TCP",
            ),
        ];
        for (config, expected) in wrong {
            let failure = check(&config).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Invalid);
            assert!(failure.message.contains(expected), "{failure}");
        }
        check(&MessageConfig { duration: TimeSpan(0), iterations: Some(1), ..default() }).unwrap();
    }
}
