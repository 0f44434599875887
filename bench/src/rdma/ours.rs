//! Our software RNIC at both ends, by its raw verbs: what the bare ends do,
//! with messages.
//!
//! ```text
//! clearstream-bench iwarp serve PORT CORE inline|asleep|engine
//! clearstream-bench iwarp send|write|stream|both|many ADDRESS PORT CORE inline|asleep|engine plain|crc SIZE COUNT QUEUE_PAIRS
//! ```
//!
//! `inline` polls and never sleeps; `asleep` moves the bytes itself too, and
//! sleeps while there are none; `engine` has an engine move the bytes and sleeps
//! meanwhile.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    memory::{Access, Region},
    stag::Stag,
    verbs::{
        AcceptOptions, CompletionChannel, ConnectOptions, Incoming, Listener, Notify, Progress,
        ProtectionDomain, Rnic, RnicOptions, State,
        raw::{
            Completion, CompletionQueue, Data, Operation, QueuePair, QueuePairOptions, ReceiveRequest,
            Segment, SendRequest,
        },
    },
    work::{Completed, Remote, Status},
};
use clearstream_sys::affinity;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Requests outstanding on a queue pair, at most.
const DEPTH: u32 = 256;
/// Bytes that a stream has outstanding, roughly.
const WINDOW_BYTES: u32 = 8 << 20;
/// Every so many requests of a ping-pong have a completion.
const SIGNALED: u64 = 64;
/// Private data: kind, size, count, queue pairs, tag and address.
const GREETING_BYTES: usize = 40;

pub(super) type Failure = Box<dyn std::error::Error>;

/// Operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sends there and back.
    Send,
    /// Writes there and back; the last byte is polled in memory.
    Write,
    /// Unidirectional Writes, followed by a Send.
    Stream,
    /// The same in both directions at once.
    Both,
    /// Unidirectional Writes over many queue pairs.
    Many,
}

impl Kind {
    const NAMES: [(&'static str, Self); 5] = [
        ("send", Self::Send),
        ("write", Self::Write),
        ("stream", Self::Stream),
        ("both", Self::Both),
        ("many", Self::Many),
    ];
}

/// Private data of the connection request and its reply.
#[derive(Clone, Copy)]
struct Greeting {
    kind: Kind,
    size: u32,
    count: u64,
    queue_pairs: u32,
    memory: Remote,
}

impl Greeting {
    fn encode(self) -> Vec<u8> {
        let kind = Kind::NAMES.iter().position(|(_, kind)| *kind == self.kind).unwrap_or(0) as u64;
        let mut bytes = Vec::with_capacity(GREETING_BYTES);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(self.size.to_be_bytes());
        bytes.extend(self.queue_pairs.to_be_bytes());
        bytes.extend(self.count.to_be_bytes());
        bytes.extend(u64::from(self.memory.stag.0).to_be_bytes());
        bytes.extend(self.memory.address.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        let field = |at: usize, length: usize| -> Option<u64> {
            Some(bytes.get(at..at + length)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        let read = || {
            Some(Self {
                kind: Kind::NAMES.get(field(0, 8)? as usize)?.1,
                size: field(8, 4)? as u32,
                queue_pairs: field(12, 4)? as u32,
                count: field(16, 8)?,
                memory: Remote { stag: Stag(field(24, 8)? as u32), address: field(32, 8)? },
            })
        };
        read()
            .filter(|greeting| greeting.size > 0 && greeting.size <= 1 << 30)
            .ok_or_else(|| "no greeting".into())
    }
}

/// The program; prints one figure (microseconds of half a round trip, or
/// 10^9 bytes per second).
pub(crate) fn main(arguments: &[String]) -> Result<(), String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Many queue pairs are many descriptors.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .map_err(|error| error.to_string())?;
    let outcome = match arguments[..] {
        ["serve", port, core, progress] => serve(number(port)?, number(core)?, progress),
        [kind, address, port, core, progress, crc, size, count, queue_pairs] => {
            let kind = Kind::NAMES.iter().find(|(name, _)| *name == kind).ok_or("send, write, stream, both or many")?.1;
            let (size, count, queue_pairs) = (number(size)?, number(count)?, number(queue_pairs)?);
            let peer = SocketAddr::new(address.parse().map_err(|_| format!("{address} is no address"))?, number(port)?);
            let memory = Remote { stag: Stag(0), address: 0 };
            let greeting = Greeting { kind, size, count, queue_pairs, memory };
            request(peer, number(core)?, progress, crc == "crc", greeting)
        }
        _ => Err("iwarp serve PORT CORE PROGRESS, or iwarp KIND ADDRESS PORT CORE PROGRESS CRC SIZE COUNT QUEUE_PAIRS"
            .into()),
    };
    outcome.map_err(|error| error.to_string())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// An open RNIC with memory for messages.
struct Adapter {
    rnic: Rnic,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    /// Event to wait for, where waiting yields the core.
    channel: Option<CompletionChannel>,
    /// Sent from.
    source: Segment,
    /// Received into, and written by the peer.
    target: Segment,
    landing: Region,
}

impl Adapter {
    fn open(core: u32, progress: &str, size: u32, queue_pairs: u32) -> Result<Self, Failure> {
        let sleeps = progress != "inline";
        let progress = match progress {
            "inline" | "asleep" => {
                affinity::pin_to(core)?;
                Progress::Inline
            }
            "engine" => Progress::Offloaded { cores: vec![core] },
            other => return Err(format!("{other} is none of inline, asleep and engine").into()),
        };
        let rnic = Rnic::open(RnicOptions { progress, ..RnicOptions::default() })?;
        let domain = ProtectionDomain::new(&rnic);
        let channel = if sleeps { Some(CompletionChannel::new()?) } else { None };
        let completions = CompletionQueue::new(&rnic, 2 * DEPTH * queue_pairs, 0, channel.as_ref())?;
        let (from, landing) = (Region::new(size as usize)?, Region::new(size as usize)?);
        // Touched, so that the first round does not meet the kernel's zero page.
        from.write(0, &vec![7; size as usize]);
        landing.write(0, &vec![7; size as usize]);
        let register = |region: &Region, access| -> Result<Segment, Failure> {
            let stag = rnic.memory().register(domain.id(), region.memory(), access, 1)?;
            Ok(Segment { stag, address: region.address(), length: size })
        };
        let source = register(&from, Access::NONE)?;
        let target = register(&landing, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(Self { domain, completions, channel, source, target, landing, rnic })
    }

    fn queue_pair(&self) -> Result<QueuePair, Failure> {
        let depths = QueuePairOptions::new(&self.completions);
        let queue_pair = QueuePair::new(
            &self.domain,
            &QueuePairOptions { send_depth: DEPTH, receive_depth: DEPTH, ..depths },
        )?;
        for _ in 0..4 {
            self.post_receive(&queue_pair)?;
        }
        Ok(queue_pair)
    }

    fn post_receive(&self, queue_pair: &QueuePair) -> Result<(), Failure> {
        let segments = smallvec::SmallVec::from_slice(&[self.target]);
        Ok(queue_pair.post_receive(ReceiveRequest { id: 0, segments })?)
    }

    fn memory(&self) -> Remote {
        Remote { stag: self.target.stag, address: self.target.address }
    }

    /// The next completion, polled for.
    fn next(&self) -> Result<Completion, Failure> {
        loop {
            let mut completion = self.completions.poll_one()?;
            if let (None, Some(channel)) = (&completion, &self.channel) {
                self.completions.arm(Notify::Next)?;
                completion = self.completions.poll_one()?;
                if completion.is_none() {
                    let _ = channel.next(Some(Duration::from_secs(1)));
                }
            }
            if let Some(completion) = completion {
                return match completion.status {
                    Status::Success => Ok(completion),
                    status => Err(format!("{:?} ended with {status:?}", completion.completed).into()),
                };
            }
        }
    }

    /// Polls until a message has arrived.
    fn received(&self) -> Result<(), Failure> {
        while self.next()?.completed != Completed::Receive {}
        Ok(())
    }
}

/// One client, then done.
fn serve(port: u16, core: u32, progress: &str) -> Result<(), Failure> {
    let adapter = Adapter::open(core, progress, 8 << 20, 1024)?;
    let listener = Listener::bind(&adapter.rnic, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let (first, queue_pair) = accept(&adapter, &listener)?;
    let mut queue_pairs = vec![queue_pair];
    for _ in 1..first.queue_pairs {
        queue_pairs.push(accept(&adapter, &listener)?.1);
    }
    match first.kind {
        Kind::Send | Kind::Write => {
            let mut ping =
                Ping { adapter: &adapter, queue_pair: &queue_pairs[0], greeting: first, posted: 0 };
            for index in 0..first.count {
                ping.expect(index)?;
                ping.post(index)?;
            }
        }
        Kind::Stream | Kind::Many => {
            for _ in &queue_pairs {
                adapter.received()?;
            }
            message(&queue_pairs[0])?;
        }
        Kind::Both => {
            Stream::new(&adapter, &queue_pairs, first).run()?;
        }
    }
    // The client closes first: a queue pair that closes before it would give
    // back its receives while it waits for the final Send on another.
    idle_while(&adapter, &queue_pairs, &[State::Rts])?;
    end(&adapter, &queue_pairs)
}

fn accept(adapter: &Adapter, listener: &Listener) -> Result<(Greeting, QueuePair), Failure> {
    let request: Incoming = listener.accept(None)?.ok_or("no client came")?;
    let greeting = Greeting::decode(&request.private_data)?;
    let private_data = Greeting { memory: adapter.memory(), ..greeting }.encode();
    let queue_pair = adapter.queue_pair()?;
    queue_pair.accept(request, &AcceptOptions { private_data, ..AcceptOptions::default() })?;
    Ok((greeting, queue_pair))
}

fn request(peer: SocketAddr, core: u32, progress: &str, crc: bool, wanted: Greeting) -> Result<(), Failure> {
    let adapter = Adapter::open(core, progress, wanted.size, wanted.queue_pairs)?;
    let own = Greeting { memory: adapter.memory(), ..wanted };
    let options = ConnectOptions { private_data: own.encode(), crc, ..ConnectOptions::default() };
    let mut queue_pairs = Vec::new();
    let mut theirs = own;
    for _ in 0..wanted.queue_pairs {
        let queue_pair = adapter.queue_pair()?;
        theirs = Greeting::decode(&queue_pair.connect(peer, &options)?.private_data)?;
        queue_pairs.push(queue_pair);
    }
    let figure = match wanted.kind {
        Kind::Send | Kind::Write => ping_pong(&adapter, &queue_pairs[0], theirs)?,
        Kind::Stream | Kind::Both | Kind::Many => {
            let start = Instant::now();
            Stream::new(&adapter, &queue_pairs, theirs).run()?;
            let directions = if wanted.kind == Kind::Both { 2.0 } else { 1.0 };
            let bytes =
                directions * f64::from(wanted.size) * wanted.count as f64 * f64::from(wanted.queue_pairs);
            bytes / start.elapsed().as_secs_f64() / 1e9
        }
    };
    end(&adapter, &queue_pairs)?;
    println!("{figure}");
    Ok(())
}

fn ping_pong(adapter: &Adapter, queue_pair: &QueuePair, greeting: Greeting) -> Result<f64, Failure> {
    let mut ping = Ping { adapter, queue_pair, greeting, posted: 0 };
    let warm_up = greeting.count / 10;
    let mut start = Instant::now();
    for index in 0..greeting.count {
        if index == warm_up {
            start = Instant::now();
        }
        ping.post(index)?;
        ping.expect(index)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / 2.0 / (greeting.count - warm_up) as f64)
}

/// One end of a ping-pong.
struct Ping<'a> {
    adapter: &'a Adapter,
    queue_pair: &'a QueuePair,
    greeting: Greeting,
    posted: u64,
}

impl Ping<'_> {
    /// The message with this number, counted from 0.
    fn post(&mut self, index: u64) -> Result<(), Failure> {
        self.posted += 1;
        let size = self.greeting.size as usize;
        let mut bytes = [0; 64];
        bytes[size - 1] = mark(index);
        let data = Data::Inline(smallvec::SmallVec::from_slice(&bytes[..size]));
        let operation = match self.greeting.kind {
            Kind::Write => Operation::Write { data, remote: self.greeting.memory },
            _ => Operation::Send { data, solicited: false, invalidate: None },
        };
        let signaled = self.posted.is_multiple_of(SIGNALED);
        Ok(self.queue_pair.post_send(SendRequest { id: index, operation, signaled, fence: false })?)
    }

    fn expect(&self, index: u64) -> Result<(), Failure> {
        if self.greeting.kind == Kind::Send {
            self.adapter.received()?;
            return self.adapter.post_receive(self.queue_pair);
        }
        let mut last = [0];
        loop {
            // Drives the connection; the peer's writes complete nothing here.
            while self.adapter.completions.poll_one()?.is_some() {}
            self.adapter.landing.read(self.greeting.size as usize - 1, &mut last);
            if last[0] == mark(index) {
                return Ok(());
            }
        }
    }
}

/// The last byte of a message: never that of the one before, never 7.
fn mark(index: u64) -> u8 {
    8 + (index % 200) as u8
}

/// Writes over queue pairs, and a Send behind the last on each.
struct Stream<'a> {
    adapter: &'a Adapter,
    queue_pairs: &'a [QueuePair],
    greeting: Greeting,
    /// Writes between two completions.
    batch: u64,
    /// By queue pair: writes posted, and batches without a completion yet.
    posted: Vec<(u64, u32)>,
}

impl<'a> Stream<'a> {
    /// Batches outstanding on a queue pair.
    const BATCHES: u32 = 4;

    fn new(adapter: &'a Adapter, queue_pairs: &'a [QueuePair], greeting: Greeting) -> Self {
        let share = WINDOW_BYTES / greeting.size / Self::BATCHES / greeting.queue_pairs.min(8);
        let batch = u64::from(share.clamp(1, DEPTH / Self::BATCHES - 1));
        Self { adapter, queue_pairs, greeting, batch, posted: vec![(0, 0); queue_pairs.len()] }
    }

    /// Until all of ours is written and reported by a final Send, and the peer has sent its
    /// own: it has all, or it has written its own too.
    fn run(mut self) -> Result<(), Failure> {
        for index in 0..self.queue_pairs.len() {
            for _ in 0..Self::BATCHES {
                self.post(index)?;
            }
        }
        let mut final_sends = 0;
        let mut unfinished = self.queue_pairs.len();
        while unfinished > 0 || final_sends == 0 {
            let completion = self.adapter.next()?;
            match completion.completed {
                Completed::Receive => final_sends += 1,
                Completed::Write => {
                    let index = completion.id as usize;
                    self.posted[index].1 -= 1;
                    self.post(index)?;
                }
                Completed::Send => unfinished -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// The next batch, if there is one; after the last, the final Send.
    fn post(&mut self, index: usize) -> Result<(), Failure> {
        let (posted, batches) = self.posted[index];
        let batch = self.batch.min(self.greeting.count - posted);
        if batch == 0 {
            return Ok(());
        }
        // The server's memory is as large as any message.
        let source = Segment { length: self.greeting.size, ..self.adapter.source };
        let data = || Data::Gather(smallvec::SmallVec::from_slice(&[source]));
        let requests = (1..=batch).map(|number| SendRequest {
            id: index as u64,
            operation: Operation::Write { data: data(), remote: self.greeting.memory },
            signaled: number == batch,
            fence: false,
        });
        self.queue_pairs[index].post_sends(requests)?;
        self.posted[index] = (posted + batch, batches + 1);
        if posted + batch == self.greeting.count {
            message(&self.queue_pairs[index])?;
        }
        Ok(())
    }
}

/// A Send of one byte.
fn message(queue_pair: &QueuePair) -> Result<(), Failure> {
    sent_inline(queue_pair, &[1], true)
}

/// Posts a Send of bytes that are copied.
pub(super) fn sent_inline(queue_pair: &QueuePair, bytes: &[u8], signaled: bool) -> Result<(), Failure> {
    let data = Data::Inline(smallvec::SmallVec::from_slice(bytes));
    let operation = Operation::Send { data, solicited: false, invalidate: None };
    Ok(queue_pair.post_send(SendRequest { id: 0, operation, signaled, fence: false })?)
}

/// Waits until all data is sent, and closes in order.
fn end(adapter: &Adapter, queue_pairs: &[QueuePair]) -> Result<(), Failure> {
    for queue_pair in queue_pairs {
        // The peer may have been quicker.
        let _ = queue_pair.modify(State::Closing);
    }
    idle_while(adapter, queue_pairs, &[State::Rts, State::Closing])
}

/// Polls while a queue pair is in one of the states, up to two seconds.
fn idle_while(adapter: &Adapter, queue_pairs: &[QueuePair], states: &[State]) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs(2);
    while queue_pairs.iter().any(|queue_pair| states.contains(&queue_pair.state())) && Instant::now() < until
    {
        adapter.completions.poll_one()?;
    }
    Ok(())
}
