//! The ways of the controlling connections, as the kernel looks them up.

use clearstream_netlink::{Found, NetlinkError, Question, RouteSocket};
use clearstream_route::guard::Controlling;

/// Where the kernel sends the packets of the controlling connections.
#[derive(Debug)]
pub(super) struct Ways(Vec<(Controlling, Result<Found, NetlinkError>)>);

impl Ways {
    /// As they are now.
    pub(super) fn of(sessions: &[Controlling]) -> Self {
        let ask = |session: &Controlling| {
            let question = Question::to(session.peer).from(session.local);
            let found = RouteSocket::open().and_then(|mut socket| socket.lookup(&question));
            (session.clone(), found)
        };
        Self(sessions.iter().map(ask).collect())
    }

    /// What is lost afterwards, in one line: a way that is gone, or, unless it
    /// `may_move`, one that is another.
    pub(super) fn lost(&self, after: &Self, may_move: bool) -> Option<String> {
        self.0.iter().zip(&after.0).find_map(|((session, before), (_, after))| {
            let before = before.as_ref().ok()?;
            let subject = format!("{} from {}", session.what, session.peer);
            match after {
                Err(error) => Some(format!("{subject} lost its way ({error})")),
                Ok(after)
                    if may_move || (&before.via, &before.interface) == (&after.via, &after.interface) =>
                {
                    None
                }
                Ok(_) => Some(format!("{subject} took another way than was foreseen")),
            }
        })
    }
}
