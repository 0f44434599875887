//! Capacity of a PCI Express link: an interval, with its arithmetic.
//!
//! ```text
//! raw          = GT/s x lanes x encoding
//! optimistic   = raw x MPS/(MPS+24)
//! conservative = raw x (1 - 8/ack - 8/flow - 4/1538) x MPS/(MPS+24)
//! ```
//! 24 bytes is the overhead of a memory write: framing, sequence and LCRC 8, header with a 64-bit address 16.
//! `ack` and `flow` are the bytes between two acknowledgements and between two flow-control updates of 8
//! bytes each when both are sent as often as the specification allows (PCI Express Base Specification, "Ack
//! transmission latency limit"; the model of Neugebauer et al., "Understanding PCIe performance for end host
//! networking", SIGCOMM 2018). 4/1538 is the fraction of skip ordered sets.

use clearstream_schema::host::{PcieCeiling, PcieLink};

/// Payload assumed when the device's setting cannot be read: the firmware setting of most servers.
const ASSUMED_PAYLOAD_BYTES: u32 = 256;

/// Framing, sequence, LCRC and header of a memory write.
const WRITE_OVERHEAD_BYTES: f64 = 24.0;
/// TLP overhead in the specification's latency formula.
const LATENCY_OVERHEAD_BYTES: u32 = 28;
/// One data link layer packet.
const LINK_PACKET_BYTES: f64 = 8.0;
/// Skip ordered sets: 4 symbols every 1538 at most.
const SKIP_RATIO: f64 = 4.0 / 1538.0;

/// Generation of a link by its GT/s per lane.
fn generation(gigatransfers_per_second: f64) -> Option<u32> {
    const SPEEDS: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
    let place = SPEEDS.iter().position(|speed| (speed - gigatransfers_per_second).abs() < 0.01)?;
    u32::try_from(place + 1).ok()
}

/// Payload bits per line bit: 8b/10b, 128b/130b, and the fraction of a 256-byte flit that is neither CRC nor
/// link-layer bytes (generation 6).
fn encoding(generation: u32) -> (f64, &'static str) {
    match generation {
        1 | 2 => (0.8, "8/10"),
        3..=5 => (128.0 / 130.0, "128/130"),
        _ => (242.0 / 256.0, "242/256"),
    }
}

/// Bytes between two link-layer packets at the specification's limit:
/// (MPS + 28) x factor / lanes + the internal delay, in symbol times.
fn packet_spacing_bytes(generation: u32, lanes: u32, payload: u32) -> f64 {
    // Tenths, from the specification's table of acknowledgement factors.
    let factor_tenths = match (payload, lanes) {
        (..=256, ..=4) => 14,
        (..=256, 5..=8) => 25,
        (..=256, _) => 30,
        (_, ..=8) => 10,
        (_, _) => 20,
    };
    // 19, 70 and 115 symbols. The second is 19 + 51 as in the SIGCOMM model, whose results are published.
    let delay = match generation {
        1 => 19,
        2 => 70,
        _ => 115,
    };
    f64::from((payload + LATENCY_OVERHEAD_BYTES) * factor_tenths / (10 * lanes) + delay)
}

/// The goodput interval of a link with this maximum payload size (256 bytes assumed when `None`, which
/// the arithmetic states). `None` for a link that is down or of unknown generation.
pub fn ceiling(link: PcieLink, max_payload_bytes: Option<u32>) -> Option<PcieCeiling> {
    let generation = generation(link.gigatransfers_per_second)?;
    let lanes = link.lane_count;
    if !(1..=32).contains(&lanes) {
        return None;
    }
    let payload = max_payload_bytes.unwrap_or(ASSUMED_PAYLOAD_BYTES);
    let (encoding_ratio, encoding_text) = encoding(generation);
    let raw = link.gigatransfers_per_second * f64::from(lanes) * encoding_ratio;
    let write_ratio = f64::from(payload) / (f64::from(payload) + WRITE_OVERHEAD_BYTES);
    let spacing = packet_spacing_bytes(generation, lanes, payload);
    let link_ratio = 1.0 - 2.0 * LINK_PACKET_BYTES / spacing - SKIP_RATIO;
    let optimistic = raw * write_ratio;
    let conservative = optimistic * link_ratio;
    let source = if max_payload_bytes.is_some() { "read" } else { "assumed" };
    let arithmetic = format!(
        "Gen{generation} x{lanes}: {speed} GT/s x {lanes} lanes x {encoding_text} = {raw:.1} Gb/s; \
         MPS {payload} B ({source}): x {payload}/({payload}+24) = {optimistic:.1} Gb/s; \
         less ACK and flow control every {spacing} B and skip sets: \
         x (1 - 8/{spacing} - 8/{spacing} - 4/1538) = {conservative:.1} Gb/s",
        speed = link.gigatransfers_per_second,
    );
    Some(PcieCeiling {
        generation,
        lane_count: lanes,
        encoding_ratio,
        raw_bps: raw * 1e9,
        max_payload_bytes: payload,
        max_payload_known: max_payload_bytes.is_some(),
        optimistic_bps: optimistic * 1e9,
        conservative_bps: conservative * 1e9,
        arithmetic,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(gigatransfers_per_second: f64, lane_count: u32, payload: Option<u32>) -> PcieCeiling {
        ceiling(PcieLink { gigatransfers_per_second, lane_count }, payload).unwrap()
    }

    type Row = (f64, u32, f64, [(f64, f64); 3]);

    /// GT/s, lanes, raw, then optimistic and conservative at MPS 128, 256 and 512: results of the pcie-bench
    /// model, in Gb/s.
    #[rustfmt::skip]
    const PUBLISHED: &[Row] = &[
        (5.0, 8, 32.0, [(26.9, 23.2), (29.3, 26.2), (30.6, 26.9)]),
        (8.0, 8, 63.0, [(53.1, 47.7), (57.6, 52.9), (60.2, 54.7)]),
        (8.0, 16, 126.0, [(106.1, 94.1), (115.2, 104.0), (120.4, 109.5)]),
        (16.0, 8, 126.0, [(106.1, 95.4), (115.2, 105.8), (120.4, 109.5)]),
        (16.0, 16, 252.1, [(212.3, 188.1), (230.5, 207.9), (240.8, 219.0)]),
        (32.0, 8, 252.1, [(212.3, 190.9), (230.5, 211.7), (240.8, 219.0)]),
        (32.0, 16, 504.1, [(424.5, 376.3), (460.9, 415.8), (481.6, 438.0)]),
        (64.0, 16, 968.0, [(815.0, 723.0), (885.0, 798.0), (925.0, 841.0)]),
    ];

    #[test]
    fn agrees_with_the_published_table() {
        for &(speed, lanes, raw, rows) in PUBLISHED {
            for (payload, (optimistic, conservative)) in [128, 256, 512].into_iter().zip(rows) {
                let found = at(speed, lanes, Some(payload));
                let digits = if speed > 32.0 { 0.6 } else { 0.06 };
                for (ours, theirs) in [
                    (found.raw_bps, raw),
                    (found.optimistic_bps, optimistic),
                    (found.conservative_bps, conservative),
                ] {
                    assert!(
                        (ours / 1e9 - theirs).abs() < digits,
                        "{speed} x{lanes} MPS {payload}: {ours} {theirs}"
                    );
                }
            }
        }
    }

    /// The link of the 40 Gb/s paper: 32 Gb/s before protocol overhead, 23 to
    /// 29 after it by payload size; 25.3 Gb/s were observed.
    #[test]
    fn the_papers_link_lies_in_the_interval() {
        let small = at(5.0, 8, Some(128));
        let large = at(5.0, 8, Some(256));
        assert_eq!(small.raw_bps, 32e9);
        assert!(small.conservative_bps < 25.3e9 && 25.3e9 < small.optimistic_bps);
        assert!(small.conservative_bps > 23e9 && large.optimistic_bps < 29.5e9);
        assert!(small.arithmetic.contains("5 GT/s x 8 lanes x 8/10 = 32.0 Gb/s"), "{}", small.arithmetic);
        assert!(small.arithmetic.contains("= 26.9 Gb/s") && small.arithmetic.contains("= 23.2 Gb/s"));
    }

    #[test]
    fn states_that_the_payload_is_assumed() {
        let found = at(8.0, 8, None);
        assert!(!found.max_payload_known);
        assert!(found.arithmetic.contains("MPS 256 B (assumed)"), "{}", found.arithmetic);
        assert!(at(8.0, 8, Some(256)).arithmetic.contains("MPS 256 B (read)"));
    }

    #[test]
    fn is_ordered_for_every_link_and_payload() {
        for speed in [2.5, 5.0, 8.0, 16.0, 32.0, 64.0] {
            for lanes in [1, 2, 4, 8, 12, 16] {
                for payload in [128, 256, 512, 1024, 2048, 4096] {
                    let found = at(speed, lanes, Some(payload));
                    assert!(found.conservative_bps > 0.5 * found.raw_bps, "{speed} x{lanes} {payload}");
                    assert!(found.conservative_bps < found.optimistic_bps);
                    assert!(found.optimistic_bps < found.raw_bps);
                }
            }
        }
        for (speed, lanes) in [(3.0, 8), (8.0, 0), (8.0, 255)] {
            let link = PcieLink { gigatransfers_per_second: speed, lane_count: lanes };
            assert_eq!(ceiling(link, Some(256)), None);
        }
    }
}
