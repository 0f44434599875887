//! What both agents make of a stop, by measurements that transfer nothing.

use std::{net::IpAddr, thread, time::Duration};

use clearstream_control::{Peer, Services, memory_pair};
use clearstream_schema::control::FailureKind;

use super::*;

/// Waits for the stop, and fails then; `WITHIN` milliseconds are its own to end in.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Waits<const WITHIN: u64>;

impl<const WITHIN: u64> Waits<WITHIN> {
    fn fail(hold: &Hold) -> Result<Side<u64>, Failure> {
        while !hold.is_stopped() {
            thread::sleep(Duration::from_millis(1));
        }
        let message = "the other side is lost".to_owned();
        let failure = Some(Failure { kind: FailureKind::Connection, message });
        Ok(Side { report: WITHIN, failure, peer_closed: true, ..Side::default() })
    }
}

impl<const WITHIN: u64> TwoSided for Waits<WITHIN> {
    type Config = ();
    type Point = ();
    type Report = u64;
    type Waiting = ();
    type Connected = ();

    const NAMES: CallNames = crate::call_names!("waits");
    const END_WITHIN: Duration = Duration::from_millis(WITHIN);

    fn check((): &()) -> Result<(), Failure> {
        Ok(())
    }

    fn cores((): &()) -> [Option<u32>; 2] {
        [None, None]
    }

    fn listen((): &(), _: Option<IpAddr>, _: &Cookie) -> Result<((), Vec<u16>), Failure> {
        Ok(((), vec![1]))
    }

    fn accept((): (), (): &(), _: &Hold) -> Result<Option<()>, Failure> {
        Ok(Some(()))
    }

    fn connect((): &(), _: &[SocketAddr], _: &Cookie, _: &Hold) -> Result<(), Failure> {
        Ok(())
    }

    fn serve((): (), (): &(), hold: &Hold) -> Result<Side<u64>, Failure> {
        Self::fail(hold)
    }

    fn measure((): (), (): &(), hold: &Hold, _: &mut dyn FnMut(())) -> Result<Side<u64>, Failure> {
        Self::fail(hold)
    }
}

fn agent<W: TwoSided>() -> Peer {
    memory_pair(Services::new().with(TwoSidedAgent::<W>::default())).unwrap()
}

fn stopped<const WITHIN: u64>() -> Side<u64> {
    let mut agent = agent::<Waits<WITHIN>>();
    let cookie = Cookie("0".repeat(32));
    agent.call(&Listen::<Waits<WITHIN>> { test: 1, cookie, address: None, config: () }).unwrap();
    agent.call(&Stop { test: 1, of: Waits::<WITHIN> }).unwrap()
}

#[test]
fn only_a_side_that_has_time_to_end_fails_by_a_stop() {
    assert_eq!(stopped::<0>(), Side { report: 0, ..Side::default() });
    let late = stopped::<5000>();
    assert!(late.failure.is_some() && late.peer_closed && late.report == 5000, "{late:?}");
}

#[test]
fn a_call_without_an_address_is_refused_and_one_test_runs_at_a_time() {
    let (mut agent, cookie) = (agent::<Waits<0>>(), Cookie("0".repeat(32)));
    let run = |server| Run::<Waits<0>> { test: 1, cookie: cookie.clone(), server, config: () };
    assert!(agent.call(&run(Vec::new())).unwrap_err().to_string().contains("no address of the server"));
    let here = SocketAddr::from(([127, 0, 0, 1], 9));
    agent.call(&run(vec![here])).unwrap();
    let busy = agent.call(&run(vec![here])).unwrap_err().to_string();
    assert!(busy.contains("waits test 1 still runs here"), "{busy}");
    let unknown = agent.call(&Stop { test: 2, of: Waits::<0> }).unwrap_err().to_string();
    assert!(unknown.contains("there is no waits test 2"), "{unknown}");
    agent.call(&Stop { test: 1, of: Waits::<0> }).unwrap();
}
