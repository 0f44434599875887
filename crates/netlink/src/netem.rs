//! The network emulation discipline, netem.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcHandle, TcMessage},
};

use crate::{NetlinkError, RouteSocket};

/// Effects of netem on packets leaving an interface (tc-netem(8)).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Netem {
    /// Delay of each packet.
    pub delay_ns: u64,
    /// Uniform variation of the delay, by up to this much in either direction.
    pub jitter_ns: u64,
    /// Fraction of packets lost, 0 to 1.
    pub loss_ratio: f64,
    /// Rate; unlimited when absent.
    pub rate_bps: Option<u64>,
    /// Queue limit in packets.
    pub limit_count: u32,
}

// linux/pkt_sched.h and linux/rtnetlink.h.
const TCA_OPTIONS: u16 = 2;
const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_RATE64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;

impl Netem {
    /// `struct tc_netem_qopt` followed by attributes, all in host order. The
    /// times of the structure are in scheduler ticks and stay zero: the 64-bit
    /// attributes (Linux 4.15) replace them, in nanoseconds.
    fn options(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        // The kernel's probabilities are fractions of 2^32 - 1 (netem_enqueue).
        let loss = (self.loss_ratio.clamp(0.0, 1.0) * f64::from(u32::MAX)).round() as u32;
        for field in [0, self.limit_count, loss, 0, 0, 0] {
            out.extend_from_slice(&field.to_ne_bytes());
        }
        attribute(&mut out, TCA_NETEM_LATENCY64, &self.delay_ns.to_ne_bytes());
        attribute(&mut out, TCA_NETEM_JITTER64, &self.jitter_ns.to_ne_bytes());
        if let Some(rate_bps) = self.rate_bps {
            // `struct tc_netem_rate`: bytes per second and three overheads; a rate of 2^32 and more uses the
            // 64-bit attribute.
            let bytes_per_second = rate_bps / 8;
            let low = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
            let mut rate = [0; 16];
            rate[..4].copy_from_slice(&low.to_ne_bytes());
            if low == u32::MAX {
                attribute(&mut out, TCA_NETEM_RATE64, &bytes_per_second.to_ne_bytes());
            }
            attribute(&mut out, TCA_NETEM_RATE, &rate);
        }
        out
    }
}

/// One attribute: length, kind, value, padding to four bytes (netlink(7)).
fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

impl RouteSocket {
    /// Sets netem as the root discipline of an interface. A kernel without netem
    /// fails with `ENOENT`.
    pub fn set_netem(&mut self, interface: &str, netem: &Netem) -> Result<(), NetlinkError> {
        let mut message = TcMessage::default();
        message.header.index = self.interface(interface)?.index.cast_signed();
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes = vec![
            TcAttribute::Kind("netem".to_owned()),
            TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, netem.options())),
        ];
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(RouteNetlinkMessage::NewQueueDiscipline(message), flags, || {
            format!("set netem on {interface}")
        })
    }

    /// Kind of the root discipline of an interface, `noqueue` or `netem`.
    pub fn root_discipline(&mut self, interface: &str) -> Result<Option<String>, NetlinkError> {
        let index = self.interface(interface)?.index.cast_signed();
        let query = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let replies = self.dump(query, || "list queueing disciplines".to_owned())?;
        Ok(replies.into_iter().find_map(|reply| match reply {
            RouteNetlinkMessage::NewQueueDiscipline(message)
                if message.header.index == index && message.header.parent == TcHandle::ROOT =>
            {
                message.attributes.into_iter().find_map(|attribute| match attribute {
                    TcAttribute::Kind(kind) => Some(kind),
                    _ => None,
                })
            }
            _ => None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `tc qdisc replace ... netem delay 8500us loss 1% rate 19gbit limit
    /// 1000` of iproute2 6.1 sends in its options, written out from
    /// linux/pkt_sched.h: qopt, then attributes in any order.
    #[test]
    fn options_have_the_kernels_format() {
        let netem = Netem {
            delay_ns: 8_500_000,
            jitter_ns: 0,
            loss_ratio: 0.01,
            rate_bps: Some(19_000_000_000),
            limit_count: 1000,
        };
        let bytes = netem.options();
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(u32_at(0), 0, "latency in ticks");
        assert_eq!(u32_at(4), 1000, "limit");
        assert_eq!(u32_at(8), 42_949_673, "loss: 1 % of 2^32 - 1");
        assert_eq!((u32_at(12), u32_at(16), u32_at(20)), (0, 0, 0), "gap, duplicate, jitter");
        let head = |at: usize| {
            let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
            (half(at), half(at + 2))
        };
        assert_eq!(head(24), (12, TCA_NETEM_LATENCY64));
        assert_eq!(bytes[28..36], 8_500_000u64.to_ne_bytes());
        assert_eq!(head(36), (12, TCA_NETEM_JITTER64));
        assert_eq!(head(48), (20, TCA_NETEM_RATE));
        assert_eq!(u32_at(52), 2_375_000_000);
        assert_eq!(bytes.len(), 68);
    }
}
