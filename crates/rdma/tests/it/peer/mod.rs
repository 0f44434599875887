//! A peer that implements the control channel byte by byte, on the verbs alone.

use std::{
    net::SocketAddr,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    verbs::{
        AcceptOptions, Access, ConnectError, ConnectOptions, Listener, ProtectionDomain, Region, Rnic,
        RnicOptions,
        raw::{CompletionQueue, QueuePair, QueuePairOptions},
    },
    work::{Completed, Completion, Data, Operation, ReceiveRequest, SendRequest, Status},
};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(20);
const SLOTS: usize = 4;
const SLOT_BYTES: usize = 8192;

static RNIC: LazyLock<Rnic> = LazyLock::new(|| Rnic::open(RnicOptions::default()).unwrap());

/// Calls until there is a result.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(result) = call() {
            return result;
        }
        assert!(Instant::now() < end, "no result within {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// One side of a control channel.
pub(crate) struct Peer {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    memory: Region,
}

/// Connects with this private data; returns that of the rejection.
pub(crate) fn rejection(server: SocketAddr, private_data: Vec<u8>) -> Vec<u8> {
    let options = ConnectOptions { private_data, ..Default::default() };
    match Peer::new().queue_pair.connect(server, &options) {
        Err(ConnectError::Rejected { private_data, .. }) => private_data,
        other => panic!("{other:?}"),
    }
}

/// Listens on a free port of loopback.
pub(crate) fn listener() -> Listener {
    Listener::bind(&RNIC, "127.0.0.1:0".parse().unwrap()).unwrap()
}

impl Peer {
    fn new() -> Self {
        let domain = ProtectionDomain::new(&RNIC);
        let completions = CompletionQueue::new(&RNIC, 64, 0, None).unwrap();
        let mut options = QueuePairOptions::new(&completions);
        (options.send_depth, options.receive_depth) = (16, 16);
        let queue_pair = QueuePair::new(&domain, &options).unwrap();
        let memory = Region::new(&domain, (SLOTS + 1) * SLOT_BYTES, Access::LOCAL_WRITE).unwrap();
        let peer = Self { queue_pair, completions, memory };
        (0..SLOTS as u64).for_each(|slot| peer.post_receive(slot));
        peer
    }

    /// Accepts as a server does.
    pub(crate) fn accept(listener: &Listener) -> Self {
        Self::accept_of_version(listener, 1, false)
    }

    /// Accepts with this version of the private data; with immediate data of messages where `immediate` says so.
    pub(crate) fn accept_of_version(listener: &Listener, version: u8, immediate: bool) -> Self {
        let peer = Self::new();
        let request = listener.accept(Some(TIMEOUT)).unwrap().expect("the client connects");
        assert_eq!(request.private_data[16], version);
        let private_data = [b"clearstream rdma".as_slice(), &[version]].concat();
        let options = AcceptOptions { private_data, immediate_data: immediate, ..Default::default() };
        peer.queue_pair.accept(request, &options).unwrap();
        peer
    }

    /// Connects as a client does.
    pub(crate) fn connect(server: SocketAddr) -> Self {
        Self::connect_of_version(server, [1, 0])
    }

    /// Connects with this version and purpose of the private data, and offers no immediate data of messages.
    pub(crate) fn connect_of_version(server: SocketAddr, version: [u8; 2]) -> Self {
        let peer = Self::new();
        let private_data = [b"clearstream rdma".as_slice(), &version, &[3; 16], &[0, 0]].concat();
        let options = ConnectOptions { private_data, immediate_data: false, ..Default::default() };
        retry(|| match peer.queue_pair.connect(server, &options) {
            // One measurement at a time: the server is free again a moment later.
            Err(ConnectError::Rejected { .. }) => None,
            result => Some(result.unwrap()),
        });
        peer
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let text = message.to_string();
        let offset = SLOTS * SLOT_BYTES;
        self.memory.write(offset, text.as_bytes());
        let segment = self.memory.segment(offset, text.len() as u32);
        let data = Data::Gather([segment].into_iter().collect());
        self.post(Operation::Send { data, solicited: false, invalidate: None });
    }

    pub(crate) fn post(&self, operation: Operation) {
        self.queue_pair.post_send(SendRequest { id: 99, operation, signaled: true, fence: false }).unwrap();
    }

    /// Returns the next message, unread.
    pub(crate) fn completed(&self) -> Completion {
        loop {
            let completion = self.completions.wait(TIMEOUT).unwrap().expect("the peer sends a message");
            assert_eq!(completion.status, Status::Success);
            if completion.id != 99 {
                self.post_receive(completion.id);
                return completion;
            }
        }
    }

    /// Returns the next message; `null` when the connection is closed.
    pub(crate) fn receive(&mut self) -> Value {
        loop {
            let completion = self.completions.wait(TIMEOUT).unwrap().expect("the peer sends a message");
            if completion.status != Status::Success {
                return Value::Null;
            }
            if completion.completed == Completed::Receive {
                let offset = completion.id as usize * SLOT_BYTES;
                let text = self.memory.to_vec(offset, completion.bytes as usize);
                self.post_receive(completion.id);
                return serde_json::from_slice(&text).unwrap();
            }
        }
    }

    /// Waits until the peer has disconnected.
    pub(crate) fn wait_for_close(&mut self) {
        while self.receive() != Value::Null {}
    }

    fn post_receive(&self, slot: u64) {
        let segment = self.memory.segment(slot as usize * SLOT_BYTES, SLOT_BYTES as u32);
        let segments = [segment].into_iter().collect();
        self.queue_pair.post_receive(ReceiveRequest { id: slot, segments }).unwrap();
    }
}
