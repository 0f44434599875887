//! Server part: iterations as requested by the client.

use std::io;

use crate::message::{MessageConfig, MessageKind};
use clearstream_sys::affinity;

use super::{
    ACKNOWLEDGEMENT_BYTES, EngineError, Link,
    client::capacity,
    protocol::{PHASE_BYTES, Phase, READY, REPORT_BYTES, Report},
};
use crate::Traffic;

/// Serves phases until the client ends the measurement or the connection.
///
/// # Errors
/// A connection error within a phase, or invalid data of the client.
pub(crate) fn serve(link: &mut Link, config: &MessageConfig) -> Result<(), EngineError> {
    loop {
        match link.receive(PHASE_BYTES) {
            Ok(()) => {}
            // A close between two phases is graceful.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let phase = Phase::read(link.incoming(PHASE_BYTES)?);
        if phase == Phase::END {
            return Ok(());
        }
        let size = usize::try_from(phase.size).unwrap_or(usize::MAX);
        if size == 0 || size > capacity(config) {
            return Err(EngineError::TooLarge(phase.size));
        }
        link.outgoing(1)?[0] = READY;
        link.send(1)?;
        let mut traffic = if config.verify { Traffic::verified(1) } else { Traffic::plain() };
        let before = affinity::own_cpu_ns();
        for _ in 0..phase.iterations {
            iteration(link, config, size, &mut traffic)?;
        }
        let received = traffic.received_count();
        let report = Report {
            received,
            received_bytes: received.saturating_mul(phase.size),
            cpu_ns: affinity::own_cpu_ns().saturating_sub(before),
        };
        report.write(link.outgoing(REPORT_BYTES)?);
        link.send(REPORT_BYTES)?;
    }
}

#[inline]
fn iteration(
    link: &mut Link,
    config: &MessageConfig,
    size: usize,
    traffic: &mut Traffic,
) -> Result<(), EngineError> {
    match config.kind {
        MessageKind::PingPong => {
            link.receive(size)?;
            traffic.check(link.incoming(size)?)?;
            traffic.fill(link.outgoing(size)?);
            link.send(size)?;
        }
        MessageKind::Stream => {
            for _ in 0..config.window {
                link.receive(size)?;
                traffic.check(link.incoming(size)?)?;
            }
            link.send(ACKNOWLEDGEMENT_BYTES)?;
        }
        MessageKind::Bidirectional => {
            link.exchange(size, config.window.into(), traffic)?;
            link.exchange(ACKNOWLEDGEMENT_BYTES, 1, &mut Traffic::plain())?;
        }
    }
    Ok(())
}
