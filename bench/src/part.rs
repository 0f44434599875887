//! Parts of the comparison, by their names on the command line.

/// Parts of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    All,
    Flow,
    Udp,
    Rdma,
    Storage,
    Histograms,
    Explore,
    DelayLine,
    Live,
}

impl Part {
    /// The part of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "flow" => Self::Flow,
            "udp" => Self::Udp,
            "rdma" => Self::Rdma,
            "storage" => Self::Storage,
            "histograms" => Self::Histograms,
            "explore" => Self::Explore,
            "delay-line" => Self::DelayLine,
            "live" => Self::Live,
            _ => return None,
        })
    }

    pub(crate) fn includes(self, part: Self) -> bool {
        self == Self::All || self == part
    }
}
