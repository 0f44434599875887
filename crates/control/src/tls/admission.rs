//! Admission of paired controllers: a bounded number of sessions and a FIFO queue.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An admitted session.
#[derive(Debug)]
struct Running {
    number: u64,
    client: String,
    address: SocketAddr,
    since: Instant,
}

#[derive(Debug, Default)]
struct Sessions {
    running: Vec<Running>,
    waiting: VecDeque<u64>,
}

/// Admission control: bounds running sessions and queued controllers.
#[derive(Debug)]
pub(super) struct AdmissionQueue {
    sessions: Mutex<Sessions>,
    session_limit: usize,
    waiting_limit: usize,
}

/// Decision about a controller that requests a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Admitted.
    Admitted,
    /// Queued, with a reason for the user.
    Queued(String),
    /// Refused, with a reason for the user.
    Refused(String),
}

impl AdmissionQueue {
    pub(super) fn new(session_limit: usize, waiting_limit: usize) -> Self {
        Self { sessions: Mutex::default(), session_limit: session_limit.max(1), waiting_limit }
    }

    /// Requests admission; queued controllers poll it.
    pub(super) fn request(&self, number: u64, client: &str, address: SocketAddr) -> Decision {
        let mut sessions = lock(&self.sessions);
        let place = sessions.waiting.iter().position(|other| *other == number);
        let before = place.unwrap_or(sessions.waiting.len());
        if sessions.running.len() + before < self.session_limit {
            sessions.waiting.retain(|other| *other != number);
            let since = Instant::now();
            sessions.running.push(Running { number, client: client.to_owned(), address, since });
            return Decision::Admitted;
        }
        let users: Vec<String> = sessions
            .running
            .iter()
            .map(|user| {
                let seconds = user.since.elapsed().as_secs();
                format!("\"{}\" from {} has been testing for {seconds} s", user.client, user.address.ip())
            })
            .collect();
        let busy = format!("the daemon is busy: {}", users.join(", "));
        if place.is_none() {
            if sessions.waiting.len() >= self.waiting_limit {
                let hint = match self.waiting_limit {
                    0 => "try later, or start the daemon with --queue".to_owned(),
                    limit => format!("and {limit} more wait: try later"),
                };
                return Decision::Refused(format!("{busy}; {hint}"));
            }
            sessions.waiting.push_back(number);
        }
        Decision::Queued(format!("{busy}; {before} before you"))
    }

    /// Releases a session or a place in the queue.
    pub(super) fn leave(&self, number: u64) {
        let mut sessions = lock(&self.sessions);
        sessions.running.retain(|user| user.number != number);
        sessions.waiting.retain(|other| *other != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    #[test]
    fn refusal_names_the_running_controllers() {
        let admission = AdmissionQueue::new(1, 0);
        assert_eq!(admission.request(1, "alice", ADDRESS), Decision::Admitted);
        let Decision::Refused(reason) = admission.request(2, "bob", ADDRESS) else { panic!("two at a time") };
        assert!(reason.contains("\"alice\" from 127.0.0.1"), "{reason}");
        admission.leave(1);
        assert_eq!(admission.request(2, "bob", ADDRESS), Decision::Admitted);
    }

    #[test]
    fn queue_is_first_come_first_served_and_bounded() {
        let admission = AdmissionQueue::new(1, 2);
        assert_eq!(admission.request(1, "a", ADDRESS), Decision::Admitted);
        assert!(matches!(admission.request(2, "b", ADDRESS), Decision::Queued(_)));
        assert!(matches!(admission.request(3, "c", ADDRESS), Decision::Queued(_)));
        assert!(matches!(admission.request(4, "d", ADDRESS), Decision::Refused(_)));
        admission.leave(1);
        assert!(matches!(admission.request(3, "c", ADDRESS), Decision::Queued(_)), "queue order");
        assert!(
            matches!(admission.request(5, "e", ADDRESS), Decision::Refused(_)),
            "nobody overtakes the queue"
        );
        assert_eq!(admission.request(2, "b", ADDRESS), Decision::Admitted);
        admission.leave(3);
        assert!(matches!(admission.request(5, "e", ADDRESS), Decision::Queued(_)));
    }
}
