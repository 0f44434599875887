//! What an agent serves: each engine registers its calls, with the state that they
//! share, and [`Services`] finds the one that a request names.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use clearstream_schema::{
    control::{Failure, FailureKind},
    scope::{Right, Scope},
};

use crate::{
    call::{Call, Shutdown},
    encoding::printable,
    event::EventSender,
    message::Body,
    session::own_hello,
};

/// Characters of an unknown name that are repeated to the controller and the log.
const SHOWN_NAME_CHARS: usize = 60;
/// The same of an error, which quotes what a controller sent.
const SHOWN_ERROR_CHARS: usize = 300;

/// An engine's part of an agent. It is dropped when the session ends, however it
/// ends: what it owns must end with it.
pub trait Service: Sized + Send + 'static {
    /// Registers its calls.
    fn register(calls: &mut Registration<Self>);
}

/// Everything that an agent serves during one session.
#[derive(Default)]
pub struct Services {
    // Dropped in the order of registration.
    calls: Vec<Registered>,
}

struct Registered {
    name: &'static str,
    needs: Right,
    run: Box<Run>,
}

type Run = dyn Fn(&Body, &CallContext<'_>) -> Result<Body, Refusal> + Send;

/// The calls of one service.
pub struct Registration<S> {
    service: Arc<Mutex<S>>,
    calls: Vec<Registered>,
}

/// Circumstances of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallContext<'a> {
    events: &'a EventSender,
    controller: Option<&'a Controller>,
}

/// A paired controller that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Name of its pairing.
    pub name: String,
    /// Where it comes from.
    pub address: SocketAddr,
    /// What its pairing permits.
    pub scope: Scope,
}

/// Why a call has no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No service has seen it: unknown, not permitted, or malformed.
    Unserved(Failure),
    /// Its service gave this failure.
    Served(Failure),
}

impl<'a> CallContext<'a> {
    /// The circumstances of a session: `controller` is who came over TLS, nobody
    /// where whoever started the agent speaks with it over standard streams.
    pub fn new(events: &'a EventSender, controller: Option<&'a Controller>) -> Self {
        Self { events, controller }
    }

    /// Where events go.
    pub fn events(&self) -> &'a EventSender {
        self.events
    }

    /// The paired controller, where it came over TLS.
    pub fn controller(&self) -> Option<&'a Controller> {
        self.controller
    }
}

impl<S: Send + 'static> Registration<S> {
    /// Registers what serves a call. Calls of a session are served one after the
    /// other.
    pub fn on<C: Call + 'static>(
        &mut self,
        serve: impl Fn(&mut S, C, &CallContext<'_>) -> Result<C::Reply, Failure> + Send + 'static,
    ) -> &mut Self {
        let service = Arc::clone(&self.service);
        let run = move |body: &Body, context: &CallContext<'_>| {
            let call: C = body.read().map_err(|error| Refusal::Unserved(malformed(C::NAME, &error)))?;
            // After a panic in a call the next one finds what that has left.
            let mut service = service.lock().unwrap_or_else(PoisonError::into_inner);
            let reply = serve(&mut service, call, context).map_err(Refusal::Served)?;
            Body::of(&reply).map_err(|error| {
                let message = format!("the reply to `{}` cannot be written: {error}", C::NAME);
                Refusal::Served(Failure { kind: FailureKind::Internal, message })
            })
        };
        self.calls.push(Registered { name: C::NAME, needs: C::NEEDS, run: Box::new(run) });
        self
    }
}

impl Services {
    /// Serves nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a service. Where two register a call of the same name, the later one
    /// serves it.
    #[must_use]
    pub fn with<S: Service>(mut self, service: S) -> Self {
        let mut registration = Registration { service: Arc::new(Mutex::new(service)), calls: Vec::new() };
        S::register(&mut registration);
        self.calls.append(&mut registration.calls);
        self
    }

    /// Name and right of every registered call, that of the session itself
    /// ([`Shutdown`]) included.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, Right)> {
        let own = (Shutdown::NAME, Shutdown::NEEDS);
        self.calls.iter().map(|call| (call.name, call.needs)).chain([own])
    }

    /// Serves a request. What the controller's scope does not permit, nothing looks
    /// at but its name.
    pub(crate) fn serve(&self, name: &str, body: &Body, context: &CallContext<'_>) -> Result<Body, Refusal> {
        let found = self.calls.iter().rfind(|call| call.name == name);
        let call = found.ok_or_else(|| Refusal::Unserved(unknown(name)))?;
        match context.controller {
            Some(controller) if !controller.scope.permits(call.needs) => {
                Err(Refusal::Unserved(forbidden(call, controller)))
            }
            _ => (call.run)(body, context),
        }
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.calls.iter().map(|call| call.name)).finish()
    }
}

impl<S> fmt::Debug for Registration<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.calls.iter().map(|call| call.name)).finish()
    }
}

fn unknown(name: &str) -> Failure {
    let name = printable(name, SHOWN_NAME_CHARS);
    let own = own_hello();
    let message = format!(
        "clearstream {} on {} knows no call `{name}`: install the same version on both hosts",
        own.version, own.host
    );
    Failure { kind: FailureKind::Unsupported, message }
}

fn malformed(name: &str, error: &serde_json::Error) -> Failure {
    let error = printable(&error.to_string(), SHOWN_ERROR_CHARS);
    let own = own_hello();
    let message = format!(
        "clearstream {} on {} cannot read this `{name}`: {error}; install the same version on both hosts",
        own.version, own.host
    );
    Failure { kind: FailureKind::Invalid, message }
}

fn forbidden(call: &Registered, controller: &Controller) -> Failure {
    let (what, right) = (call.name, call.needs);
    let Controller { name, scope, .. } = controller;
    Failure {
        kind: FailureKind::Forbidden,
        message: format!(
            "`{what}` needs the right `{right}` and the pairing \"{name}\" has the scope `{scope}`: on that host \
             run `clearstream pair revoke {name}` and `clearstream pair create {name} --scope \
             measure,change`, then accept the new token here"
        ),
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
