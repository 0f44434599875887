//! Driver counters: names as the drivers of Linux 6.12 have them.

use clearstream_diagnose::explain;
use clearstream_schema::{
    diagnosis::{Cause, Diagnosis, End, Finding, PauseDirection, Remedy},
    host::{Nic, NowAndMax},
};

use super::made::{Shown, host};

/// A diagnosis between two hosts with a card of 25 Gb/s; counters of the sender and of the receiver rise by this in each
/// interval of 200 ms.
fn diagnosis(counters: [Vec<(&'static str, u64)>; 2]) -> Diagnosis {
    let shown = Shown { interface: "eth0", driver_counters: counters, ..Shown::default() };
    let mut evidence = shown.evidence();
    let card = |name: &str| {
        let mut host = host(name);
        host.nics.push(Nic {
            name: "eth0".to_owned(),
            pci_address: Some("0000:3b:00.0".to_owned()),
            speed_bps: Some(25_000_000_000),
            receive_ring: Some(NowAndMax { now_count: 512, max_count: 8192 }),
            ..Nic::default()
        });
        host
    };
    (evidence.client, evidence.server) = (card("alpha"), card("beta"));
    explain(&evidence)
}

fn other(diagnosis: &Diagnosis, wanted: fn(&Cause) -> bool) -> Option<&Finding> {
    diagnosis.secondary.iter().find(|finding| wanted(&finding.cause))
}

fn is_loss(cause: &Cause) -> bool {
    matches!(cause, Cause::InterfaceLoss { .. })
}

fn is_pause(cause: &Cause) -> bool {
    matches!(cause, Cause::PauseFrames { .. })
}

#[test]
fn drops_for_want_of_buffers_are_named_by_their_counter_with_the_ring() {
    let diagnosis =
        diagnosis([vec![], vec![("rx_out_of_buffer", 10), ("rx_discards_phy", 4), ("rx_err", 1)]]);
    let finding = other(&diagnosis, is_loss).unwrap_or_else(|| panic!("{diagnosis:#?}"));
    let Cause::InterfaceLoss { end, interface, lost_packet_count } = &finding.cause else { unreachable!() };
    assert_eq!((*end, interface.as_str()), (End::Server, "eth0"));
    // 18 intervals after the warm-up.
    assert_eq!(*lost_packet_count, 180);
    assert!(finding.sentence.contains("want of receive buffers (rx_out_of_buffer)"), "{}", finding.sentence);
    assert_eq!(
        finding.evidence[0].statement,
        "rx_out_of_buffer +180, rx_discards_phy +72, rx_err +18 while the flow ran"
    );
    assert_eq!(finding.evidence[0].source, "beta: ethtool -S eth0");
    let [Remedy::Physical { what }] = &finding.remedies[..] else { panic!("{:?}", finding.remedies) };
    assert!(what.contains("512 of 8192") && what.contains("`ethtool -G eth0 rx 8192`"), "{what}");
}

#[test]
fn damaged_packets_are_distinguished_from_corrected_ones() {
    let damaged = diagnosis([vec![], vec![("rx_crc_errors_phy", 2)]]);
    let finding = other(&damaged, is_loss).unwrap();
    assert!(finding.sentence.contains("36 damaged packets (rx_crc_errors_phy)"), "{}", finding.sentence);
    // Forward error correction repairs these.
    let corrected = diagnosis([vec![], vec![("rx_corrected_bits_phy", 900), ("fec_correctable_cw", 900)]]);
    assert!(other(&corrected, is_loss).is_none());
    // Counters of the other direction, and those of the transmit queue, are no packets lost on arrival.
    assert!(other(&diagnosis([vec![], vec![("tx_fifo_errors", 9)]]), is_loss).is_none());
}

/// IEEE 802.3 Annex 31B: 65535 quanta of 512 bit times are 1.342 ms at 25 Gb/s.
#[test]
fn pause_frames_are_named_from_a_hundredth_of_the_time_on() {
    let sent = diagnosis([vec![], vec![("tx_pause_frames", 30), ("tx_pause_ctrl_phy", 30)]]);
    let finding = other(&sent, is_pause).unwrap_or_else(|| panic!("{sent:#?}"));
    let Cause::PauseFrames { end, direction, frame_count, stopped_time_ratio_max, .. } = finding.cause else {
        unreachable!()
    };
    assert_eq!((end, direction, frame_count), (End::Server, PauseDirection::Sent, 540));
    let expected = 540.0 * 65_535.0 * 512.0 / 25e9 / 3.6;
    assert!((stopped_time_ratio_max.unwrap() / expected - 1.0).abs() < 1e-9, "{stopped_time_ratio_max:?}");
    assert!(finding.sentence.contains("eth0 on beta sent 540 pause frames"), "{}", finding.sentence);

    let received = diagnosis([vec![("rx_prio3_pause", 30), ("rx_prio3_pause_duration", 9000)], vec![]]);
    let Cause::PauseFrames { end, direction, frame_count, .. } = other(&received, is_pause).unwrap().cause
    else {
        unreachable!()
    };
    assert_eq!((end, direction, frame_count), (End::Client, PauseDirection::Received, 540));

    // One frame in 200 ms stops at most 0.7 % of the time.
    assert!(other(&diagnosis([vec![("rx_pause_frames", 1)], vec![]]), is_pause).is_none());
    // Frames that the sender's card sends stop the acknowledgements; its receiver's are nobody's stop.
    assert!(
        other(&diagnosis([vec![("tx_pause_frames", 99)], vec![("rx_pause_frames", 99)]]), is_pause).is_none()
    );
}
