//! Calls and events of the tests.

use clearstream_schema::scope::Right;
use serde::{Deserialize, Serialize};

use crate::{Call, CallEvent, Delivery, Done, Registration, Service, Services, message::Message};

/// Does nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nothing {}

impl Call for Nothing {
    const NAME: &'static str = "nothing";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

/// Twice a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Double {
    pub(crate) number: u64,
}

impl Call for Double {
    const NAME: &'static str = "double";
    const NEEDS: Right = Right::Measure;
    type Reply = Doubled;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doubled {
    pub(crate) number: u64,
}

/// Needs the right to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {}

impl Call for Change {
    const NAME: &'static str = "change";
    const NEEDS: Right = Right::Change;
    type Reply = Done;
}

/// One sample of a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) index: u64,
    pub(crate) filling: String,
}

impl CallEvent for Sample {
    const NAME: &'static str = "sample";
    const DELIVERY: Delivery = Delivery::Droppable;
}

/// One part of something large.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) text: String,
}

impl CallEvent for Part {
    const NAME: &'static str = "part";
    const DELIVERY: Delivery = Delivery::WaitsForRoom;
}

/// Marks the last event of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finished {}

impl CallEvent for Finished {
    const NAME: &'static str = "finished";
    const DELIVERY: Delivery = Delivery::Queued;
}

/// Services without effect.
pub(crate) struct Plain;

impl Service for Plain {
    fn register(calls: &mut Registration<Self>) {
        calls
            .on(|_, Nothing {}, _| Ok(Done {}))
            .on(|_, Double { number }, _| Ok(Doubled { number: 2 * number }))
            .on(|_, Change {}, _| Ok(Done {}));
    }
}

pub(crate) fn plain() -> Services {
    Services::new().with(Plain)
}

/// A request in wire format.
pub(crate) fn request<C: Call>(id: u64, call: &C) -> Message {
    Message::Request { id, name: C::NAME.to_owned(), body: crate::message::Body::of(call).unwrap() }
}
