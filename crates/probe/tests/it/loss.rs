//! Losses of known number and direction, made by a relay between prober and responder that depends only on
//! the documented wire format.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clearstream_probe::{Responder, measure};
use clearstream_schema::{TimeSpan, control::Cookie, probe::ProbeConfig};

/// Drops delay probes whose sequence number is divisible by 5 in the forward direction, and replies with
/// remainder 1 modulo 7 in the reverse direction.
fn relay(inner: SocketAddr, stop: Arc<AtomicBool>) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = outside.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        outside.set_nonblocking(true).unwrap();
        let mut inside: BTreeMap<SocketAddr, UdpSocket> = BTreeMap::new();
        let mut buffer = vec![0u8; 65_536];
        let sequence = |bytes: &[u8]| u32::from_be_bytes(*bytes[24..].first_chunk().unwrap());
        while !stop.load(Ordering::Relaxed) {
            let mut idle = true;
            while let Ok((length, from)) = outside.recv_from(&mut buffer) {
                idle = false;
                let bytes = &buffer[..length];
                if bytes[5] == 2 && sequence(bytes) % 5 == 0 {
                    continue;
                }
                let socket = inside.entry(from).or_insert_with(|| {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    socket.connect(inner).unwrap();
                    socket.set_nonblocking(true).unwrap();
                    socket
                });
                socket.send(bytes).unwrap();
            }
            for (prober, socket) in &inside {
                while let Ok(length) = socket.recv(&mut buffer) {
                    idle = false;
                    let bytes = &buffer[..length];
                    if bytes[5] == 0x82 && sequence(bytes) % 7 == 1 {
                        continue;
                    }
                    // Every other reply twice: a duplicate counts once.
                    for _ in 0..1 + sequence(bytes) % 2 {
                        outside.send_to(bytes, prober).unwrap();
                    }
                }
            }
            if idle {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    (address, thread)
}

#[test]
fn losses_are_counted_by_direction() {
    let cookie = Cookie("00112233445566778899aabbccddeeff".to_owned());
    let responder = Responder::open(None, None, &cookie).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (udp, thread) = relay(responder.udp(), stop.clone());
    let config = ProbeConfig {
        count: 70,
        interval: TimeSpan::from_millis(2),
        timeout: TimeSpan::from_millis(500),
        ..ProbeConfig::default()
    };
    let found = measure(&config, udp, responder.tcp(), &cookie);
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    let stats = found.unwrap().udp.unwrap();
    // Of 0 to 69, 14 are divisible by 5. Ten have remainder 1 modulo 7, and two of these (15, 50) were
    // already lost in the forward direction.
    assert_eq!(stats.sent_count, 70);
    assert_eq!(stats.forward_lost_count, Some(14));
    assert_eq!(stats.return_lost_count, Some(8));
    assert_eq!(stats.answered_count, 70 - 14 - 8);
    assert!((stats.loss_ratio - 22.0 / 70.0).abs() < 1e-12);
}
