//! What other programs print: routing daemons, launchers of MPI and the ranks that they start.

use clearstream_messages::message::MessagePoint;
use clearstream_messages::overlap::OverlapPoint;
use clearstream_mpirun::{Line, Text, connection_count};
use clearstream_schema::event::Event;
use clearstream_watch::bfd;

use crate::text_of;

/// `birdc show bfd sessions`: at most a session for each line.
pub(crate) fn bird(bytes: &[u8]) {
    let text = text_of(bytes);
    assert!(bfd::parse_bird(&text).len() <= text.lines().count());
}

/// `vtysh -c 'show bfd peers json'`.
pub(crate) fn frr(bytes: &[u8]) {
    let text = text_of(bytes);
    assert!(bfd::parse_frr(&text).is_none_or(|sessions| sessions.len() <= text.len()));
}

/// Lines of `mpirun`: results and events of ranks, and the cause of a failure in the words of a launcher.
pub(crate) fn ranks(bytes: &[u8]) {
    let mut text = Text::default();
    for line in text_of(bytes).lines() {
        let _ = Line::<MessagePoint>::parse(line);
        let _ = Line::<OverlapPoint>::parse(line);
        let _ = clearstream_schema::json::from_str::<Event>(line);
        let _ = connection_count(line);
        text.push(line.to_owned());
    }
    let (_, cause) = text.cause("mpirun ended");
    assert!(text.has_report() || !cause.is_empty());
}
