//! The scope of a pairing in force: requests that it does not permit never
//! reach the handler.

use std::net::SocketAddr;

use clearstream_schema::{
    control::{Failure, FailureKind, Reply, Request},
    scope::Scope,
};

use crate::{EventSender, Handler};

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

/// A handler that sees only what its controller may request.
pub(super) struct Scoped<H> {
    handler: H,
    controller: Controller,
}

impl<H> Scoped<H> {
    pub(super) fn new(handler: H, controller: Controller) -> Self {
        Self { handler, controller }
    }
}

impl<H: Handler> Handler for Scoped<H> {
    fn handle(&mut self, request: Request, events: &EventSender) -> Result<Reply, Failure> {
        let (what, right) = request.needs();
        if self.controller.scope.permits(right) {
            return self.handler.handle(request, events);
        }
        let Controller { name, scope, .. } = &self.controller;
        Err(Failure {
            kind: FailureKind::Forbidden,
            message: format!(
                "`{what}` needs the right `{right}` and the pairing \"{name}\" has the scope `{scope}`: on that host \
                 run `clearstream pair revoke {name}` and `clearstream pair create {name} --scope \
                 measure,change`, then accept the new token here"
            ),
        })
    }

    fn idle(&mut self, events: &EventSender) {
        self.handler.idle(events);
    }
}
