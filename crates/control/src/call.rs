//! Typed calls and events: what a controller may call at an agent, and what an
//! agent sends by itself. Each is a type of the crate whose engine serves it, so
//! that a new one edits no list here.

use clearstream_schema::scope::Right;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A call of a controller at an agent, and the reply to it.
///
/// Calls only grow within a major version of the protocol: new fields have
/// defaults, and a call or reply without content is a struct without fields.
pub trait Call: Serialize + DeserializeOwned {
    /// Name on the wire, unique among all calls; SECURITY.md lists it.
    const NAME: &'static str;
    /// The right that a paired controller needs for it.
    const NEEDS: Right;
    /// The reply.
    type Reply: Serialize + DeserializeOwned;
}

/// An event that an agent sends by itself.
pub trait CallEvent: Serialize + DeserializeOwned {
    /// Name on the wire, unique among all events.
    const NAME: &'static str;
    /// What happens to it when the controller reads too slowly.
    const DELIVERY: Delivery;
}

/// What happens to an event when more than [`crate::QUEUE_BYTES`] wait for a slow
/// controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Queued all the same: there are few per test.
    Queued,
    /// Dropped and counted: a series has a gap then.
    Droppable,
    /// The sender waits for room: parts of something large.
    WaitsForRoom,
}

/// Reply of calls that have nothing to return.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// Ends the session: the agent drops its services and exits. The session replies
/// at once, also while another call runs; no service sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shutdown {}

impl Call for Shutdown {
    const NAME: &'static str = "shutdown";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}
