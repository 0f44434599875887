//! Both control state machines of iperf3's protocol, parameters and results,
//! and the headers of its datagrams.
#![no_main]

use clearstream_iperf3::{
    ClientMachine, Parameters, Results, ServerMachine,
    datagram_header::{Sequence, read_header},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((at, bytes)) = data.split_first() else { return };
    let (mut client, mut server) = (ClientMachine::new(), ServerMachine::new());
    let (first, second) = bytes.split_at(usize::from(*at).min(bytes.len()));
    if client.take(first).is_ok() {
        client.end();
        let _ = client.take(second);
    }
    if server.take(first).is_ok() {
        server.run();
        if server.take(second).is_ok() {
            server.expect_results();
            let _ = server.take(second);
        }
    }
    let _ = (Parameters::read(bytes), Results::read(bytes));
    let mut sequence = Sequence::default();
    for datagram in bytes.chunks(17) {
        let wide = at % 2 == 0;
        if let Some(header) = read_header(datagram, wide) {
            sequence.take(header, wide, 1 << 40);
        }
    }
});
