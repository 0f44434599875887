//! Server part: phases as the client begins them. It does not work: it moves
//! messages all the time.

use std::io;

use crate::overlap::OverlapMethod;

use super::{EngineError, Session, protocol::Frame};

/// Serves phases until the client ends the measurement or the connection.
///
/// # Errors
/// A lost connection within a phase, or damaged messages.
pub(crate) fn serve(session: &mut Session<'_>) -> Result<(), EngineError> {
    loop {
        let cycles = match session.control.receive() {
            Ok(Frame::Begin { cycles }) => cycles,
            Ok(Frame::End) => return Ok(()),
            Ok(_) => return Err(EngineError::Unexpected("no beginning of a phase")),
            // A close between two phases is graceful.
            Err(EngineError::Connection(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        session.data.top_up()?;
        let before = session.costs.read();
        session.control.send(Frame::Ready)?;
        let received = match session.config.method {
            OverlapMethod::Polling => return_messages(session)?,
            OverlapMethod::PostWorkWait => exchange_windows(session, cycles)?,
        };
        let costs = session.costs.read().since(before);
        session.control.expect(Frame::Finish, "no end of a phase")?;
        session.control.send(Frame::Report { received, costs })?;
    }
}

/// Polling: starts a window of messages and returns each message, until the
/// client finishes the phase. Returns the number of messages received.
fn return_messages(session: &mut Session<'_>) -> Result<u64, EngineError> {
    let mut traffic = session.traffic(1);
    session.post_window(&mut traffic)?;
    let mut empty_poll_count = 0;
    loop {
        if !session.data.poll()? && session.idle(&mut empty_poll_count)? {
            return Ok(traffic.received_count());
        }
        while session.data.arrived() > 0 {
            session.data.take(&mut traffic)?;
            session.data.top_up()?;
            session.data.post_send(&mut traffic)?;
        }
    }
}

/// Post-work-wait, without work. Returns the number of messages received.
fn exchange_windows(session: &mut Session<'_>, cycles: u64) -> Result<u64, EngineError> {
    let mut traffic = session.traffic(1);
    for cycle in 0..cycles {
        session.cycle(&mut traffic, cycle, |_| Ok(()))?;
    }
    Ok(traffic.received_count())
}
