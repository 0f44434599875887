//! Source ports for flows between two described hosts.

use std::net::{IpAddr, SocketAddr};

use crate::document::{PORTS_SCHEMA, SteeredFlow, SteeredPorts};
use clearstream_schema::{
    CoreList,
    control::FailureKind,
    failure::Classified,
    flow::Protocol,
    host::{HostReport, Nic, Rss},
};

use crate::{
    PlaceError,
    hash::{Fields, Hash, HashFunction, InputTransform, Tuple, parse_key},
    host_name, interface,
    landing::{Landing, Reduction},
    path::PathHash,
    search::{Constraint, NoPort, PortSpace, find},
};

/// Reason why flows cannot be steered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SteeringError {
    /// No receive side scaling to read.
    #[error(
        "{interface}{}: the driver reports no hash key and indirection table (ethtool -x): where a flow lands cannot \
         be computed; spread by RPS instead (clearstream place plan)",
        driver.as_ref().map_or(String::new(), |driver| format!(" ({driver})"))
    )]
    NoKey {
        /// Interface.
        interface: String,
        /// Driver.
        driver: Option<String>,
    },
    /// Only one queue is used.
    #[error("{interface} receives everything on one queue: there is nothing to choose; raise its channels")]
    OneQueue {
        /// Interface.
        interface: String,
    },
    /// A function that is not known in public.
    #[error(
        "{interface}: the hash function is {function}, which cannot be computed here; \
         `ethtool -X {interface} hfunc toeplitz` changes it"
    )]
    Function {
        /// Interface.
        interface: String,
        /// As the driver names it.
        function: String,
    },
    /// A transform that is not known.
    #[error(
        "{interface}: the input transform {transform} is not known; `ethtool -X {interface} xfrm none` ends it"
    )]
    Transform {
        /// Interface.
        interface: String,
        /// As the kernel names it.
        transform: String,
    },
    /// Ports do not count.
    #[error(
        "{interface} hashes {kind} packets by \"{fields}\" without both ports: all flows between two addresses land \
         on one queue; `ethtool -N {interface} rx-flow-hash {kind} sdfn` changes it"
    )]
    Fields {
        /// Interface.
        interface: String,
        /// `tcp4`.
        kind: String,
        /// In ethtool's letters.
        fields: String,
    },
    /// The key is unusable.
    #[error("{interface}: the hash key {reason}")]
    Key {
        /// Interface.
        interface: String,
        /// Cause.
        reason: String,
    },
    /// Queues that the table does not lead to.
    #[error("{interface}: no entry of the indirection table leads to queue {queue}: write one of {known}")]
    Queue {
        /// Interface.
        interface: String,
        /// As requested.
        queue: u32,
        /// Queues in the table.
        known: String,
    },
    /// Lists that do not belong together.
    #[error("{0}")]
    Request(String),
    /// No port.
    #[error("flow {flow}: {cause}")]
    NoPort {
        /// Flow.
        flow: u32,
        /// Search without result.
        cause: NoPort,
    },
}

impl Classified for SteeringError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Queue { .. } | Self::Request(_) | Self::NoPort { .. } => FailureKind::Invalid,
            Self::NoKey { .. }
            | Self::OneQueue { .. }
            | Self::Function { .. }
            | Self::Transform { .. }
            | Self::Fields { .. }
            | Self::Key { .. } => FailureKind::Unsupported,
        }
    }
}

/// Receive queues of an interface by the source port that is free to choose.
#[derive(Debug, Clone)]
pub struct Receiving {
    landing: Landing,
    queues: Vec<u32>,
    interface: String,
    notes: Vec<String>,
}

impl Receiving {
    /// From the driver's report. `tuple` is a packet as this interface
    /// receives it; `place` names which of its ports is the source port of the
    /// connection.
    pub fn new(nic: &Nic, tuple: Tuple, place: PortPlace, protocol: Protocol) -> Result<Self, SteeringError> {
        let interface = nic.name.clone();
        let no_key = || SteeringError::NoKey { interface: interface.clone(), driver: nic.driver.clone() };
        let rss = nic.rss.as_ref().ok_or_else(no_key)?;
        if rss.indirection.is_empty() {
            return Err(no_key());
        }
        let mut queues = rss.indirection.clone();
        queues.sort_unstable();
        queues.dedup();
        let notes = notes(rss, &queues);
        // Some drivers leave their table as it is when channels are removed.
        queues.retain(|queue| rss.queue_count.is_none_or(|count| *queue < count));
        if queues.len() < 2 {
            return Err(SteeringError::OneQueue { interface });
        }
        let hash = Hash {
            function: function(nic)?,
            transform: transform(nic)?,
            fields: fields(nic, tuple, protocol)?,
        };
        if let Some((have, need)) = hash.short_key(tuple) {
            let reason = format!("has {have} bytes, and packets of this family need {need}");
            return Err(SteeringError::Key { interface, reason });
        }
        let landing = Landing::affine(
            |port| {
                let mut tuple = tuple;
                match place {
                    PortPlace::Source => tuple.source.set_port(port),
                    PortPlace::Destination => tuple.destination.set_port(port),
                }
                hash.of(tuple)
            },
            Reduction::Table(rss.indirection.clone()),
        );
        Ok(Self { landing, queues, interface, notes })
    }

    /// Queues that the table leads to, ascending.
    pub fn queues(&self) -> &[u32] {
        &self.queues
    }

    /// Queue of a port.
    pub fn queue(&self, port: u16) -> Option<u32> {
        self.landing.of(port)
    }

    fn check(&self, wanted: &[u32]) -> Result<(), SteeringError> {
        match wanted.iter().find(|queue| !self.queues.contains(queue)) {
            None => Ok(()),
            Some(&queue) => Err(SteeringError::Queue {
                interface: self.interface.clone(),
                queue,
                known: CoreList(self.queues.clone()).to_string(),
            }),
        }
    }
}

/// Notes on an unusual table.
fn notes(rss: &Rss, queues: &[u32]) -> Vec<String> {
    let mut notes = Vec::new();
    let gone: Vec<u32> =
        queues.iter().copied().filter(|queue| rss.queue_count.is_some_and(|count| *queue >= count)).collect();
    if !gone.is_empty() {
        notes.push(format!(
            "the indirection table leads to queue {}, which is not there any more: no flow is steered to it \
             (clearstream place plan redistributes the table)",
            CoreList(gone)
        ));
    }
    let size = rss.indirection.len();
    if !size.is_power_of_two() {
        notes.push(format!(
            "the indirection table has {size} entries, which is no power of two: the card is taken to use the hash \
             modulo {size}, and the queue's counter alone proves it"
        ));
    }
    notes
}

/// Position of the connection's source port in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortPlace {
    /// Data, at the receiver.
    Source,
    /// Acknowledgements, at the sender.
    Destination,
}

fn function(nic: &Nic) -> Result<HashFunction, SteeringError> {
    let interface = || nic.name.clone();
    let rss = nic.rss.clone().unwrap_or_default();
    match rss.hash_function.as_deref() {
        // A driver with a key and without a name for its function is from
        // before there was a choice.
        Some("toeplitz") | None => {
            let Some(text) = rss.key else {
                return Err(SteeringError::NoKey { interface: interface(), driver: nic.driver.clone() });
            };
            let key = parse_key(&text).ok_or_else(|| SteeringError::Key {
                interface: interface(),
                reason: "is not hexadecimal".to_owned(),
            })?;
            // Some drivers report zeros when the key may not be seen
            // (virtual functions), and then every hash would be zero.
            if key.iter().all(|byte| *byte == 0) {
                let reason = "reads as zeros: the device does not show it (a virtual function?)".to_owned();
                return Err(SteeringError::Key { interface: interface(), reason });
            }
            Ok(HashFunction::Toeplitz(key))
        }
        Some("xor") => {
            let inverted = nic.driver.as_deref().is_some_and(|driver| driver.starts_with("mlx5"));
            Ok(HashFunction::Xor { inverted })
        }
        Some(other) => Err(SteeringError::Function { interface: interface(), function: other.to_owned() }),
    }
}

fn transform(nic: &Nic) -> Result<InputTransform, SteeringError> {
    match nic.rss.as_ref().and_then(|rss| rss.input_transform.as_deref()) {
        None => Ok(InputTransform::None),
        Some("symmetric-xor") => Ok(InputTransform::SymmetricXor),
        Some("symmetric-or-xor") => Ok(InputTransform::SymmetricOrXor),
        Some(other) => {
            Err(SteeringError::Transform { interface: nic.name.clone(), transform: other.to_owned() })
        }
    }
}

/// The fields hashed must hold both ports. Where the kernel does not report them,
/// TCP is taken to be hashed by the 4-tuple, as drivers set it up.
fn fields(nic: &Nic, tuple: Tuple, protocol: Protocol) -> Result<Fields, SteeringError> {
    let family = if tuple.source.ip().to_canonical().is_ipv4() { '4' } else { '6' };
    let kind = match protocol {
        Protocol::Udp => format!("udp{family}"),
        Protocol::Tcp | Protocol::Mptcp => format!("tcp{family}"),
    };
    let reported = nic.rss.as_ref().and_then(|rss| rss.fields.get(&kind));
    match reported {
        Some(letters) if !(letters.contains('f') && letters.contains('n')) => {
            Err(SteeringError::Fields { interface: nic.name.clone(), kind, fields: letters.clone() })
        }
        Some(letters) if letters != "sdfn" => {
            Err(SteeringError::Fields { interface: nic.name.clone(), kind, fields: letters.clone() })
        }
        _ => Ok(Fields::AddressesAndPorts),
    }
}

/// Flows to steer, with their targets.
#[derive(Debug, Clone)]
pub struct Request {
    /// Sender; its port is ignored.
    pub source: SocketAddr,
    /// Receiver with the port that it listens on.
    pub destination: SocketAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// Flows.
    pub flows: u32,
    /// Receive queue of each flow, cyclic; all queues in turn when empty.
    pub receive_queues: Vec<u32>,
    /// Queue of each flow's acknowledgements at the sender, cyclic; any when empty.
    pub acknowledgement_queues: Vec<u32>,
    /// Path hash, where that matters.
    pub path: Option<PathHash>,
    /// Path or member of each flow, cyclic; any when empty.
    pub members: Vec<u32>,
}

/// Finds a source port for each flow. Each is removed from `space`.
///
/// # Errors
/// The receiver's card must report its key and table. The sender's is needed
/// only for `acknowledgement_queues`.
pub fn steer(
    request: &Request,
    receiver: (&HostReport, &Nic),
    sender: Option<&Nic>,
    space: &mut PortSpace,
) -> Result<SteeredPorts, SteeringError> {
    let tuple = Tuple { source: request.source, destination: request.destination };
    let (host, nic) = receiver;
    let data = Receiving::new(nic, tuple, PortPlace::Source, request.protocol)?;
    data.check(&request.receive_queues)?;
    let mut notes = data.notes.clone();
    let replies = acknowledgements(request, tuple, sender, &mut notes)?;
    let path = request.path.as_ref().map(|path| path.landing(tuple));
    check_members(request)?;
    if matches!(nic.rss.as_ref().and_then(|rss| rss.hash_function.as_deref()), Some("xor")) {
        notes.push(
            "the card folds by XOR, whose details its vendor does not publish: rely on the queue counters"
                .to_owned(),
        );
    }
    if nic.rss.as_ref().is_some_and(|rss| rss.fields.is_empty()) {
        notes.push("the driver does not report which fields are hashed: the 4-tuple is assumed".to_owned());
    }
    let wanted =
        if request.receive_queues.is_empty() { data.queues.clone() } else { request.receive_queues.clone() };
    let turn = |list: &[u32], flow: u32| list.get(flow as usize % list.len().max(1)).copied();
    let mut flows = Vec::new();
    for flow in 0..request.flows {
        let constraints = [
            turn(&wanted, flow).map(|wanted| ("receive queue", &data.landing, wanted)),
            replies.as_ref().and_then(|replies| {
                let wanted = turn(&request.acknowledgement_queues, flow)?;
                Some(("acknowledgement queue", &replies.landing, wanted))
            }),
            path.as_ref().and_then(|path| Some(("path member", path, turn(&request.members, flow)?))),
        ];
        let constraints: Vec<Constraint<'_>> = constraints
            .into_iter()
            .flatten()
            .map(|(name, landing, wanted)| Constraint { name, landing, wanted })
            .collect();
        let found = find(space, &constraints).map_err(|cause| SteeringError::NoPort { flow, cause })?;
        let receive_queue = data.queue(found.port);
        flows.push(SteeredFlow {
            flow,
            source_port: found.port,
            receive_queue,
            receive_hash: data.landing.hash(found.port).map(|hash| format!("{hash:08x}")),
            receive_core: receive_queue.and_then(|queue| queue_core(host, nic, queue)),
            acknowledgement_queue: replies.as_ref().and_then(|replies| replies.queue(found.port)),
            path_member: path.as_ref().and_then(|path| path.of(found.port)),
            tried_count: found.tried_count,
        });
    }
    Ok(SteeredPorts {
        schema: PORTS_SCHEMA.to_owned(),
        version: 1,
        source: request.source.ip().to_string(),
        destination: request.destination.to_string(),
        interface: Some(nic.name.clone()),
        flows,
        notes,
    })
}

/// Receive queues of acknowledgements at the sender. It need not report them unless a queue
/// is requested.
fn acknowledgements(
    request: &Request,
    tuple: Tuple,
    sender: Option<&Nic>,
    notes: &mut Vec<String>,
) -> Result<Option<Receiving>, SteeringError> {
    let required = !request.acknowledgement_queues.is_empty();
    let Some(nic) = sender else {
        if required {
            let message =
                "acknowledgement queues are requested, but the sender's interface is not known: name it";
            return Err(SteeringError::Request(message.to_owned()));
        }
        return Ok(None);
    };
    match Receiving::new(nic, tuple.reversed(), PortPlace::Destination, request.protocol) {
        Ok(replies) => {
            replies.check(&request.acknowledgement_queues)?;
            Ok(Some(replies))
        }
        Err(error) if required => Err(error),
        Err(error) => {
            notes.push(format!("acknowledgements at the sender: {error}"));
            Ok(None)
        }
    }
}

fn check_members(request: &Request) -> Result<(), SteeringError> {
    let Some(path) = &request.path else {
        if request.members.is_empty() {
            return Ok(());
        }
        let message = "path members are requested, but not how a path is chosen: describe it";
        return Err(SteeringError::Request(message.to_owned()));
    };
    let Some(count) = path.member_count() else { return Ok(()) };
    match request.members.iter().find(|member| **member >= count) {
        None => Ok(()),
        Some(member) => {
            let message = format!("there is no path member {member}: they are 0 to {}", count - 1);
            Err(SteeringError::Request(message))
        }
    }
}

/// The one core that a receive queue's interrupt goes to, where it is one.
pub fn queue_core(host: &HostReport, nic: &Nic, queue: u32) -> Option<u32> {
    use clearstream_schema::host::QueueDirection;
    let interrupt = host.interrupts.iter().find(|interrupt| {
        interrupt.queue.as_ref().is_some_and(|served| {
            served.interface == nic.name
                && served.queue == queue
                && served.direction != QueueDirection::Transmit
        })
    })?;
    match interrupt.effective_cores.as_slice() {
        [core] => Some(*core),
        _ => None,
    }
}

/// Port that steered flows connect to when none is requested: it must be
/// known before the receiver listens.
pub const DEFAULT_PORT: u16 = 5201;

/// The interface that packets for an address of a host are received on: the
/// one named, or `lo`, or the only one that is up and reports its key, or the
/// only one that is up.
pub fn receiving_interface<'a>(
    host: &'a HostReport,
    name: Option<&str>,
    address: IpAddr,
) -> Result<&'a Nic, PlaceError> {
    if let Some(name) = name.or(address.is_loopback().then_some("lo")) {
        return interface(host, name);
    }
    let up: Vec<&Nic> = host
        .nics
        .iter()
        .filter(|nic| nic.name != "lo" && nic.operational_state.as_deref() != Some("down"))
        .collect();
    let with_key: Vec<&Nic> = up.iter().copied().filter(|nic| nic.rss.is_some()).collect();
    match (with_key.as_slice(), up.as_slice()) {
        ([nic], _) | ([], [nic]) => Ok(nic),
        ([], []) => Err(PlaceError::WhichInterface {
            host: host_name(host),
            known: host.nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", "),
        }),
        ([], several) | (several, _) => Err(PlaceError::WhichInterface {
            host: host_name(host),
            known: several.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", "),
        }),
    }
}
