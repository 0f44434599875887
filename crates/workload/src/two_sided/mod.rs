//! Measurements between two agents, of which one listens and the other connects, measures and tells each result as
//! soon as it has it. What such a measurement is, is a [`TwoSided`]; the calls ([`Listen`], [`Run`], [`Stop`]), the
//! agent of either side ([`TwoSidedAgent`]) and the controller of both ([`measure`]) are the same for all of them.

mod agent;
mod calls;
mod controller;
mod hold;
#[cfg(test)]
mod tests;

use std::{
    fmt::Debug,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use clearstream_schema::{
    control::{Cookie, Failure},
    notice::Notice,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use agent::TwoSidedAgent;
pub use calls::{CallNames, Finished, Listen, Listening, PointMeasured, Run, Stop};
pub use controller::{Collected, Ended, Started, cause, measure, outcome};
pub use hold::Hold;

/// A document that goes between controller and agents.
pub trait Document: Debug + Clone + PartialEq + Serialize + DeserializeOwned + Send + 'static {}

impl<T: Debug + Clone + PartialEq + Serialize + DeserializeOwned + Send + 'static> Document for T {}

/// A measurement between a server, which listens, and a client, which connects and measures.
pub trait TwoSided: Debug + Default + Clone + Copy + PartialEq + Send + 'static {
    /// The options; both sides get all of them, and each uses its part.
    type Config: Document;
    /// One result of the client.
    type Point: Document;
    /// What a side says of itself at its end: settings in force, or results that come all at once.
    type Report: Document + Default;
    /// A server that waits for its client.
    type Waiting: Send + 'static;
    /// The connections of one side.
    type Connected: Send + 'static;

    /// Names of the calls and events on the wire: [`call_names`](crate::call_names).
    const NAMES: CallNames;

    /// Time in which a side that is asked to stop ends by itself, before its connections are ended.
    const END_WITHIN: Duration = Duration::ZERO;

    /// Rejects invalid options, before any side effect.
    ///
    /// # Errors
    /// The invalid option, with a suggested correction.
    fn check(config: &Self::Config) -> Result<(), Failure>;

    /// Cores that the threads of the client and of the server are pinned to.
    fn cores(config: &Self::Config) -> [Option<u32>; 2];

    /// Opens the server's sockets, and returns their ports.
    ///
    /// # Errors
    /// A port in use; what this host does not have.
    fn listen(
        config: &Self::Config,
        address: Option<IpAddr>,
        cookie: &Cookie,
    ) -> Result<(Self::Waiting, Vec<u16>), Failure>;

    /// Waits for the client; `None` when stopped before.
    ///
    /// # Errors
    /// No client in time.
    fn accept(
        waiting: Self::Waiting,
        config: &Self::Config,
        hold: &Hold,
    ) -> Result<Option<Self::Connected>, Failure>;

    /// Connects to the server's ports, of which there is at least one, and waits until it has admitted the client.
    ///
    /// # Errors
    /// No connection, or another program that listens there.
    fn connect(
        config: &Self::Config,
        server: &[SocketAddr],
        cookie: &Cookie,
        hold: &Hold,
    ) -> Result<Self::Connected, Failure>;

    /// Serves the client until it ends the measurement or the connection.
    ///
    /// # Errors
    /// What kept it from beginning.
    fn serve(
        connected: Self::Connected,
        config: &Self::Config,
        hold: &Hold,
    ) -> Result<Side<Self::Report>, Failure>;

    /// Measures, and passes each result to `on_point`.
    ///
    /// # Errors
    /// What kept it from beginning.
    fn measure(
        connected: Self::Connected,
        config: &Self::Config,
        hold: &Hold,
        on_point: &mut dyn FnMut(Self::Point),
    ) -> Result<Side<Self::Report>, Failure>;
}

/// Result of one side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Side<R> {
    /// What it says of itself.
    #[serde(default)]
    pub report: R,
    /// Notices, such as lost capabilities.
    #[serde(default)]
    pub notices: Vec<Notice>,
    /// Error that ended it early, unless it was stopped.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// Whether the failure is that the peer closed the connection: the peer has the cause.
    #[serde(default)]
    pub peer_closed: bool,
}
