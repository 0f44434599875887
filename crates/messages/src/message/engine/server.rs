//! Server part: iterations as requested by the client.

use std::io;

use crate::message::{MessageConfig, MessageKind};

use super::{
    ACKNOWLEDGEMENT_BYTES, Carrier, EngineError,
    client::capacity,
    protocol::{Phase, READY, Report},
};
use crate::Traffic;

/// Serves phases until the client ends the measurement or the connection.
///
/// # Errors
/// A connection error within a phase, or invalid data of the client.
pub(crate) fn serve(link: &mut impl Carrier, config: &MessageConfig) -> Result<(), EngineError> {
    loop {
        let phase = match Phase::hear(link) {
            Ok(phase) => phase,
            // A close between two phases is graceful.
            Err(EngineError::Connection(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if phase == Phase::END {
            return Ok(());
        }
        let size = usize::try_from(phase.size).unwrap_or(usize::MAX);
        if size == 0 || size > capacity(config) {
            return Err(EngineError::TooLarge(phase.size));
        }
        let before = link.costs();
        link.tell(&[READY])?;
        let mut traffic = if config.verify { Traffic::verified(1) } else { Traffic::plain() };
        for _ in 0..phase.iterations {
            iteration(link, config, size, &mut traffic)?;
        }
        let costs = link.costs().since(before);
        Report { received: traffic.received_count(), costs }.tell(link)?;
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
            link.receive(size, traffic)?;
            link.send(size, traffic)?;
        }
        MessageKind::Stream => {
            link.receive_window(size, config.window, traffic)?;
            link.tell(&[0; ACKNOWLEDGEMENT_BYTES])?;
        }
        MessageKind::Bidirectional => {
            link.exchange(size, config.window, traffic)?;
            link.exchange(ACKNOWLEDGEMENT_BYTES, 1, &mut Traffic::plain())?;
        }
    }
    Ok(())
}
