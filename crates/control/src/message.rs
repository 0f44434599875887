//! Messages of a session. Framing is [`crate::frame`], their order is [`crate::session`]; the content of a
//! call or an event belongs to the crate that defines it and passes through here as unparsed JSON.

use std::net::IpAddr;

use clearstream_schema::control::{Failure, FailureKind};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::call::{CallEvent, Delivery};

/// Both ends must have the same major version; a higher minor version only adds.
pub(crate) const PROTOCOL_MAJOR: u16 = 2;
/// Additions since the major version.
pub(crate) const PROTOCOL_MINOR: u16 = 0;

/// First message of each side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Major protocol version of the sender.
    pub major: u16,
    /// Minor protocol version of the sender.
    pub minor: u16,
    /// Program version, for messages to people.
    pub version: String,
    /// Host name of the sender.
    pub host: String,
    /// Of an agent that sshd started: the address of its host that ssh connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_address: Option<IpAddr>,
    /// Kernel release of the sender's host; absent from older peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

/// One frame's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// First message of each side.
    Hello(Hello),
    /// Controller to agent: a call; exactly one `Reply` carries the same id.
    Request {
        /// Chosen by the controller, ascending.
        id: u64,
        /// [`crate::Call::NAME`].
        name: String,
        /// The call.
        body: Body,
    },
    /// Agent to controller.
    Reply {
        /// Id of the request.
        id: u64,
        /// Its outcome.
        outcome: Outcome,
    },
    /// Agent to controller, at any time.
    Event(Event),
    /// Agent to controller: so many droppable events were dropped since the last
    /// message of this kind, because the controller read too slowly.
    EventsDropped {
        /// How many.
        count: u64,
    },
    /// Either direction while idle: without it the peer is declared lost.
    KeepAlive,
    /// Agent to controller after its `Hello`: requests are served from now on.
    Ready,
    /// Agent to controller instead of `Ready`, which follows once admitted: the agent is busy and configured
    /// to queue others.
    Queued {
        /// Who is served and how many wait, for people.
        reason: String,
    },
    /// The sender ends the session.
    Goodbye {
        /// For people.
        reason: String,
        /// Set when the session was refused (busy), so that programs can recognise it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<FailureKind>,
    },
}

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Done, with the call's reply.
    Done(Body),
    /// Not done.
    Failed(Failure),
}

/// An event that an agent sends unsolicited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// [`CallEvent::NAME`].
    pub name: String,
    /// May be dropped, and is then counted, by any holder of a full queue.
    #[serde(default)]
    pub(crate) droppable: bool,
    /// The event.
    pub body: Body,
}

impl Event {
    /// Writes an event.
    ///
    /// # Errors
    /// When it has no form in JSON (a map with keys that are no text).
    pub fn of<E: CallEvent>(event: &E) -> Result<Self, serde_json::Error> {
        let droppable = E::DELIVERY == Delivery::Droppable;
        Ok(Self { name: E::NAME.to_owned(), droppable, body: Body::of(event)? })
    }

    /// Whether it is an event of this type.
    pub fn is<E: CallEvent>(&self) -> bool {
        self.name == E::NAME
    }
}

/// A call, reply or event as JSON text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Body(Box<RawValue>);

impl Body {
    /// Writes a value.
    ///
    /// # Errors
    /// When it has no form in JSON (a map with keys that are no text).
    pub fn of<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Reads a value.
    ///
    /// # Errors
    /// When the JSON is not of this type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        clearstream_schema::json::from_str(self.0.get())
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}
