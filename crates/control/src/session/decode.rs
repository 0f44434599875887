//! Decodes the content of a frame into a message, forward compatible: a peer of a higher minor version may
//! send messages that are unknown here.

use clearstream_schema::control::{Failure, FailureKind};
use serde_json::Value;

use crate::message::{Hello, Message, Outcome};

/// A frame's content, decoded as far as possible.
#[derive(Debug)]
pub(super) enum Decoded {
    /// A message of this version.
    Known(Box<Message>),
    /// An unknown request: reply with this failure.
    UnknownRequest { id: u64, failure: Failure },
    /// An event or kind of message that needs no reply.
    Ignored,
    /// Not a message.
    Bad(String),
}

/// Decodes one frame. `newer` is the `Hello` of a peer whose minor version is above ours; without it
/// everything has to be known.
pub(super) fn decode(frame: &[u8], newer: Option<&Hello>) -> Decoded {
    let error = match serde_json::from_slice(frame) {
        Ok(message) => return Decoded::Known(Box::new(message)),
        Err(error) => error,
    };
    let Some(peer) = newer else {
        return Decoded::Bad(error.to_string());
    };
    let unsupported = |what: &str| Failure {
        kind: FailureKind::Unsupported,
        message: format!(
            "{what} comes from the newer clearstream {} on {} and is not known here: {error}",
            peer.version, peer.host
        ),
    };
    match serde_json::from_slice::<Value>(frame) {
        // A kind without content.
        Ok(Value::String(_)) => Decoded::Ignored,
        Ok(Value::Object(object)) if object.len() == 1 => {
            let id = |content: &Value| content.get("id").and_then(Value::as_u64);
            match object.iter().next() {
                Some((kind, content)) if kind == "request" => match id(content) {
                    Some(id) => Decoded::UnknownRequest { id, failure: unsupported("the request") },
                    None => Decoded::Bad(error.to_string()),
                },
                Some((kind, content)) if kind == "reply" => match id(content) {
                    Some(id) => {
                        let outcome = Outcome::Failed(unsupported("the reply"));
                        Decoded::Known(Box::new(Message::Reply { id, outcome }))
                    }
                    None => Decoded::Bad(error.to_string()),
                },
                // Its reason is understood whatever else it carries.
                Some((kind, content)) if kind == "goodbye" => {
                    let reason = content.get("reason").and_then(Value::as_str).unwrap_or("no reason given");
                    Decoded::Known(Box::new(Message::Goodbye { reason: reason.to_owned(), kind: None }))
                }
                // Nobody waits for these; a known kind that does not parse is a newer version of it.
                _ => Decoded::Ignored,
            }
        }
        _ => Decoded::Bad(error.to_string()),
    }
}
