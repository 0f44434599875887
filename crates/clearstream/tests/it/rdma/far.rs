//! Two hosts, on which ClearStream is at both ends.

use std::time::Duration;

use clearstream_testkit::namespace::Host;

use crate::common::{assert_valid, clearstream, finish};

use super::Server;

/// The delay of the first message to a peer that may need it: siw, a card.
const PAUSE: Duration = Duration::from_millis(10);
const SERVER: &str = "10.78.0.1";

#[test]
fn root_the_first_message_to_another_host_with_clearstream_goes_without_a_pause() {
    let (near, far) = (Host::new(), Host::new());
    far.tool(&format!("ip link add cs-rdma-a type veth peer name cs-rdma-b netns {}", near.pid()));
    for (host, end, number) in [(&far, "cs-rdma-a", 1), (&near, "cs-rdma-b", 2)] {
        host.tool(&format!("ip address add 10.78.0.{number}/24 dev {end}"));
        host.tool(&format!("ip link set {end} up"));
    }
    let server = Server::start_on(&far, &["serve", "--listen", SERVER]);
    let connect_time = || {
        let mut ping = clearstream(&["rdma", "ping", &server.target(), "-C", "1", "--verify", "--json"]);
        near.enter(&mut ping);
        let document = finish(ping.spawn().unwrap(), Duration::from_secs(30)).json();
        assert_valid("rdma-ping-summary", &document["summary"]);
        assert_eq!(document["summary"]["mismatch_count"], 0);
        Duration::from_nanos(document["summary"]["connect_ns"].as_u64().unwrap())
    };
    // Of several, since a busy machine may delay one.
    let quickest = (0..5).map(|_| connect_time()).min().unwrap();
    assert!(quickest < PAUSE, "{quickest:?}");
}
