//! Kinds of probes: transport, size and ports, which take turns, because a gateway may drop any one of them alone.

/// Source ports of one transport, used in turn.
pub(super) const PORT_COUNT: usize = 8;

/// Transport protocol of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// A UDP datagram.
    Udp,
    /// A TCP segment.
    Tcp,
}

/// Transport and size of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeClass {
    /// Transport protocol.
    pub(super) transport: Transport,
    /// As large as the path takes, and not fragmented; otherwise as small as it can be.
    pub(super) large: bool,
}

impl ProbeClass {
    /// All of them, each at its [`index`](Self::index).
    pub(super) const ALL: [Self; 4] = [
        Self { transport: Transport::Udp, large: false },
        Self { transport: Transport::Tcp, large: false },
        Self { transport: Transport::Udp, large: true },
        Self { transport: Transport::Tcp, large: true },
    ];

    /// A small datagram: what every watch replies to.
    pub(super) const BASE: Self = Self::ALL[0];

    pub(super) fn index(self) -> usize {
        2 * usize::from(self.large) + usize::from(self.transport == Transport::Tcp)
    }

    /// Small, by the other transport.
    pub(super) fn other(self) -> Self {
        Self::ALL[1 - self.small().index()]
    }

    /// Small, by the same transport.
    pub(super) fn small(self) -> Self {
        Self { large: false, ..self }
    }
}

/// What distinguishes one probe from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeKind {
    /// Transport and size.
    pub(super) class: ProbeClass,
    /// Source port: index, less than [`PORT_COUNT`].
    pub(super) port: u8,
}

/// Round robin over the ports, for each class.
#[derive(Debug, Clone, Default)]
pub(super) struct PortTurns([u64; ProbeClass::ALL.len()]);

impl PortTurns {
    pub(super) fn next(&mut self, class: ProbeClass) -> ProbeKind {
        let turn = &mut self.0[class.index()];
        let port = (*turn % PORT_COUNT as u64) as u8;
        *turn += 1;
        ProbeKind { class, port }
    }
}
