//! The services of an agent: each engine registers its calls, with the state that they share, and
//! [`Services`] dispatches requests by name.

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

/// Characters of an unknown name that are quoted to the controller and in the log.
const SHOWN_NAME_CHARS: usize = 60;
/// Characters of an error that quotes a controller's message.
const SHOWN_ERROR_CHARS: usize = 300;

/// An engine's part of an agent. It is dropped when the session ends for any reason: what it owns must end
/// with it.
pub trait Service: Sized + Send + 'static {
    /// Registers its calls.
    fn register(calls: &mut Registration<Self>);
}

/// All services of an agent during one session.
#[derive(Default)]
pub struct Services {
    // Dropped in the order of registration.
    calls: Vec<Registered>,
    contacts: Vec<Box<dyn Fn() + Send>>,
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
    contacts: Vec<Box<dyn Fn() + Send>>,
}

/// Context of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallContext<'a> {
    events: &'a EventSender,
    controller: Option<&'a Controller>,
}

/// A paired controller being served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Name of its pairing.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// Rights of its pairing.
    pub scope: Scope,
}

/// Why a call has no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Rejected before it reached a service: unknown, not permitted, or malformed.
    Unserved(Failure),
    /// Failed in its service.
    Served(Failure),
}

impl<'a> CallContext<'a> {
    /// The context of a session: `controller` is the paired controller of a TLS session, `None` for the
    /// process that started the agent over standard streams.
    pub fn new(events: &'a EventSender, controller: Option<&'a Controller>) -> Self {
        Self { events, controller }
    }

    /// The sender of events.
    pub fn events(&self) -> &'a EventSender {
        self.events
    }

    /// The paired controller, in a TLS session.
    pub fn controller(&self) -> Option<&'a Controller> {
        self.controller
    }
}

impl<S: Send + 'static> Registration<S> {
    /// Registers the handler of a call. Calls of a session are served sequentially.
    pub fn on<C: Call + 'static>(
        &mut self,
        serve: impl Fn(&mut S, C, &CallContext<'_>) -> Result<C::Reply, Failure> + Send + 'static,
    ) -> &mut Self {
        let service = Arc::clone(&self.service);
        let run = move |body: &Body, context: &CallContext<'_>| {
            let call: C = body.read().map_err(|error| Refusal::Unserved(malformed(C::NAME, &error)))?;
            // After a panic in a call the next one finds the state it left.
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

impl<S: Send + 'static> Registration<S> {
    /// Registers a hook that runs when the controller is known to have received every reply so far: before a
    /// later request is served, by whichever service, and when the controller closes the session gracefully
    /// ([`Shutdown`]).
    pub fn on_contact(&mut self, run: impl Fn(&mut S) + Send + 'static) -> &mut Self {
        let service = Arc::clone(&self.service);
        self.contacts
            .push(Box::new(move || run(&mut service.lock().unwrap_or_else(PoisonError::into_inner))));
        self
    }
}

impl Services {
    /// No services.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a service. Where two register a call of the same name, the later one serves it.
    #[must_use]
    pub fn with<S: Service>(mut self, service: S) -> Self {
        let service = Arc::new(Mutex::new(service));
        let mut registration = Registration { service, calls: Vec::new(), contacts: Vec::new() };
        S::register(&mut registration);
        self.calls.append(&mut registration.calls);
        self.contacts.append(&mut registration.contacts);
        self
    }

    /// Runs the contact hooks: the controller has received every reply so far.
    pub(crate) fn contact(&self) {
        self.contacts.iter().for_each(|run| run());
    }

    /// Name and right of every registered call, including the session's own
    /// ([`Shutdown`]).
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, Right)> {
        let own = (Shutdown::NAME, Shutdown::NEEDS);
        self.calls.iter().map(|call| (call.name, call.needs)).chain([own])
    }

    /// Serves a request. Of a request outside the controller's scope only the name is read.
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
        "clearstream {} on {} does not support the call `{name}`: install the same version on both hosts",
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
mod tests;
