//! What has arrived for a rank from a channel, by kind.

use std::{
    collections::VecDeque,
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use crate::{Message, Tag};

pub(crate) struct Inbox {
    from: Receiver<(Tag, Message)>,
    /// Arrived, but of a kind that nobody has asked for yet.
    early: VecDeque<(Tag, Message)>,
}

impl Inbox {
    pub(crate) fn new(from: Receiver<(Tag, Message)>) -> Self {
        Self { from, early: VecDeque::new() }
    }

    /// The next message of this kind, if one has arrived.
    pub(crate) fn take(&mut self, tag: Tag) -> Option<Message> {
        if let Some(place) = self.early.iter().position(|(early, _)| *early == tag) {
            return self.early.remove(place).map(|(_, message)| message);
        }
        while let Ok((other, message)) = self.from.try_recv() {
            if other == tag {
                return Some(message);
            }
            self.early.push_back((other, message));
        }
        None
    }

    /// Sleeps until a message has arrived, at most this long.
    pub(crate) fn wait(&mut self, limit: Duration) {
        match self.from.recv_timeout(limit) {
            Ok(arrived) => self.early.push_back(arrived),
            Err(RecvTimeoutError::Timeout) => (),
            // Nobody sends any more; callers that ask again and again do not spin.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(limit),
        }
    }
}
