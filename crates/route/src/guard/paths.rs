//! Paths of the controlling connections, as the kernel looks them up.

use clearstream_netlink::{Found, NetlinkError, RouteQuery, RouteSocket};
use clearstream_plan::Snapshot;

use super::Controlling;

/// Next hops of the controlling connections.
#[derive(Debug)]
pub(super) struct Paths(Vec<(Controlling, Result<Found, NetlinkError>)>);

impl Paths {
    /// Looks up the current paths in the kernel.
    pub(super) fn of(sessions: &[Controlling]) -> Self {
        Self(sessions.iter().map(|session| (session.clone(), path_of(session))).collect())
    }
}

impl Snapshot for Paths {
    fn lost(&self, may_move: bool) -> Option<String> {
        self.0.iter().find_map(|(session, before)| {
            let before = before.as_ref().ok()?;
            let subject = format!("{} from {}", session.what, session.peer);
            match path_of(session) {
                Err(error) => Some(format!("{subject} lost its path ({error})")),
                Ok(after)
                    if may_move || (&before.via, &before.interface) == (&after.via, &after.interface) =>
                {
                    None
                }
                Ok(_) => Some(format!("{subject} took another path than was planned")),
            }
        })
    }
}

fn path_of(session: &Controlling) -> Result<Found, NetlinkError> {
    let query = RouteQuery::to(session.peer).from(session.local);
    RouteSocket::open().and_then(|mut socket| socket.lookup(&query))
}
