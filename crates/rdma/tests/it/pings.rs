//! The server of pings, with several clients at once.

use std::{
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use clearstream_rdma::{SILENCE_LIMIT, Server, ServerEvent, ServerOptions, rping};
use clearstream_schema::rdma::PingConfig;

const CLIENTS: usize = 8;

#[test]
fn clients_that_leave_at_the_same_moment_are_all_served() {
    let ping = rping::PingOptions { verify: true, ..Default::default() };
    let options = ServerOptions { ping, measurements: false, once: false, silence: SILENCE_LIMIT };
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let (stop, served) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let report = |event: ServerEvent<'_>| match event {
        ServerEvent::Started { .. } | ServerEvent::PingText { .. } => {}
        ServerEvent::PingServed { served: one, .. } => {
            served.lock().unwrap().push(Ok((one.rounds, one.mismatches)));
        }
        other => served.lock().unwrap().push(Err(format!("{other:?}"))),
    };
    let together = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        let running = scope.spawn(|| server.run(&stop, &report));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let config = PingConfig { count: Some(3), verify: true, ..PingConfig::default() };
                    let never = AtomicBool::new(false);
                    rping::ping(server.local_address(), None, &config, &never, |number, _| {
                        if number == 2 {
                            together.wait();
                        }
                    })
                })
            })
            .collect();
        for client in clients {
            let summary = client.join().unwrap().unwrap();
            assert_eq!((summary.round_count, summary.mismatch_count), (3, Some(0)));
        }
        while served.lock().unwrap().len() < CLIENTS {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap();
    });
    let served = served.into_inner().unwrap();
    assert_eq!(served, vec![Ok((3, 0)); CLIENTS]);
}
