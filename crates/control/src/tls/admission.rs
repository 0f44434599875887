//! The turns of paired controllers.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session that is being served.
#[derive(Debug)]
struct Running {
    number: u64,
    client: String,
    address: SocketAddr,
    since: Instant,
}

#[derive(Debug, Default)]
struct Turns {
    running: Vec<Running>,
    waiting: VecDeque<u64>,
}

/// Turns of the paired controllers.
#[derive(Debug)]
pub(super) struct Turnstile {
    turns: Mutex<Turns>,
    session_limit: usize,
    waiting_limit: usize,
}

/// Answer to somebody who wants to be served.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Now.
    Go,
    /// Later; the reason is for people.
    Wait(String),
    /// Not at all.
    Refused(String),
}

impl Turnstile {
    pub(super) fn new(session_limit: usize, waiting_limit: usize) -> Self {
        Self { turns: Mutex::default(), session_limit: session_limit.max(1), waiting_limit }
    }

    /// Asks for a turn, again and again by those who wait.
    pub(super) fn ask(&self, number: u64, client: &str, address: SocketAddr) -> Turn {
        let mut turns = lock(&self.turns);
        let place = turns.waiting.iter().position(|other| *other == number);
        let before = place.unwrap_or(turns.waiting.len());
        if turns.running.len() + before < self.session_limit {
            turns.waiting.retain(|other| *other != number);
            let since = Instant::now();
            turns.running.push(Running { number, client: client.to_owned(), address, since });
            return Turn::Go;
        }
        let users: Vec<String> = turns
            .running
            .iter()
            .map(|user| {
                let seconds = user.since.elapsed().as_secs();
                format!("\"{}\" from {} has been testing for {seconds} s", user.client, user.address.ip())
            })
            .collect();
        let busy = format!("the daemon is busy: {}", users.join(", "));
        if place.is_none() {
            if turns.waiting.len() >= self.waiting_limit {
                let hint = match self.waiting_limit {
                    0 => "try later, or start the daemon with --queue".to_owned(),
                    limit => format!("and {limit} more wait: try later"),
                };
                return Turn::Refused(format!("{busy}; {hint}"));
            }
            turns.waiting.push_back(number);
        }
        Turn::Wait(format!("{busy}; {before} before you"))
    }

    /// Gives a turn or a place in the queue back.
    pub(super) fn leave(&self, number: u64) {
        let mut turns = lock(&self.turns);
        turns.running.retain(|user| user.number != number);
        turns.waiting.retain(|other| *other != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    #[test]
    fn refusing_names_who_is_testing() {
        let turnstile = Turnstile::new(1, 0);
        assert_eq!(turnstile.ask(1, "alice", ADDRESS), Turn::Go);
        let Turn::Refused(reason) = turnstile.ask(2, "bob", ADDRESS) else { panic!("two at a time") };
        assert!(reason.contains("\"alice\" from 127.0.0.1"), "{reason}");
        turnstile.leave(1);
        assert_eq!(turnstile.ask(2, "bob", ADDRESS), Turn::Go);
    }

    #[test]
    fn queue_is_first_come_first_served_and_bounded() {
        let turnstile = Turnstile::new(1, 2);
        assert_eq!(turnstile.ask(1, "a", ADDRESS), Turn::Go);
        assert!(matches!(turnstile.ask(2, "b", ADDRESS), Turn::Wait(_)));
        assert!(matches!(turnstile.ask(3, "c", ADDRESS), Turn::Wait(_)));
        assert!(matches!(turnstile.ask(4, "d", ADDRESS), Turn::Refused(_)));
        turnstile.leave(1);
        assert!(matches!(turnstile.ask(3, "c", ADDRESS), Turn::Wait(_)), "not before its turn");
        assert!(matches!(turnstile.ask(5, "e", ADDRESS), Turn::Refused(_)), "nobody passes the queue");
        assert_eq!(turnstile.ask(2, "b", ADDRESS), Turn::Go);
        turnstile.leave(3);
        assert!(matches!(turnstile.ask(5, "e", ADDRESS), Turn::Wait(_)));
    }
}
