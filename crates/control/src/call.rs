//! Typed calls and events: what a controller may call on an agent, and what an agent sends unsolicited. Each
//! is a type of the crate whose engine serves it, so a new one needs no edit of a list here.

use std::time::Duration;

use clearstream_schema::scope::Right;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Time for the reply to a call that reads the host or starts something: many times what a loaded host needs.
pub const READ_WITHIN: Duration = Duration::from_secs(10);
/// Time for the reply to a call that connects to another host first.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(20);
/// Time for the reply to a call that changes the host, where the kernel may wait for a driver at each setting.
pub const CHANGE_WITHIN: Duration = Duration::from_secs(60);
/// What a call that takes a known time may take in addition: connecting, and ending threads.
pub const MARGIN: Duration = Duration::from_secs(15);

/// A call from a controller to an agent, and its reply type.
///
/// Calls only grow within a major version of the protocol: new fields have
/// defaults, and a call or reply without content is a struct without fields.
pub trait Call: Serialize + DeserializeOwned {
    /// Name on the wire, unique among all calls; SECURITY.md lists it.
    const NAME: &'static str;
    /// The right that a paired controller needs to make it.
    const NEEDS: Right;
    /// The reply.
    type Reply: Serialize + DeserializeOwned;

    /// Time within which the reply has to come. That the session lives is no sign of progress: keep-alives are sent
    /// by another thread than the one that serves the call. A call whose reply comes after something of a known
    /// length adds [`MARGIN`] to that.
    fn reply_within(&self) -> Duration {
        match Self::NEEDS {
            Right::Measure => READ_WITHIN,
            Right::Change => CHANGE_WITHIN,
        }
    }
}

/// An event that an agent sends unsolicited.
pub trait CallEvent: Serialize + DeserializeOwned {
    /// Name on the wire, unique among all events.
    const NAME: &'static str;
    /// What happens to it when the controller reads too slowly.
    const DELIVERY: Delivery;
}

/// What happens to an event when more than 8 MiB wait for a slow
/// controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Queued regardless: there are few per test.
    Queued,
    /// Dropped and counted: the series then has a gap.
    Droppable,
    /// The sender blocks until there is room: parts of something large.
    WaitsForRoom,
}

/// Reply of calls that return nothing.
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

    fn reply_within(&self) -> Duration {
        const SHUTDOWN_WITHIN: Duration = Duration::from_secs(2);
        SHUTDOWN_WITHIN
    }
}
