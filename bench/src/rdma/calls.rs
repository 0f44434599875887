//! Cost of single calls of the verbs, against the card that the verbs were
//! measured on in 2005; what an idle queue pair weighs; and how many queue
//! pairs one engine carries.

use std::{
    fmt::Write as _,
    fs,
    hint::black_box,
    io::{Read, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    memory::{Access, Region},
    verbs::{
        AcceptOptions, ConnectOptions, Listener, Progress, ProtectionDomain, Rnic, RnicOptions,
        raw::{
            CompletionQueue, Data, Operation, QueuePair, QueuePairOptions, ReceiveRequest, Segment,
            SendRequest,
        },
    },
};
use clearstream_sys::affinity;

use super::ours::{Failure, sent_inline};
use crate::results::{range, spread};

/// Measurements of each call; their median counts.
const SAMPLES: usize = 41;
/// Requests posted in a row.
const ROW: usize = 32;
/// Long enough for an engine to do its work, and to fall asleep.
const PAUSE: Duration = Duration::from_millis(3);
/// Connected queue pairs that are weighed.
const IDLE: usize = 500;

/// A call's cost in microseconds: ours, what it has to be, the card's.
struct Cost {
    call: String,
    samples: Vec<f64>,
    most: Option<f64>,
    card: Option<f64>,
}

/// The program: `clearstream-bench calls`; prints the tables.
pub(crate) fn main() -> Result<(), String> {
    print!("{}", page().map_err(|error| error.to_string())?);
    Ok(())
}

fn page() -> Result<String, Failure> {
    affinity::pin_to(0)?;
    let mut costs = Vec::new();
    opening(&mut costs)?;
    for progress in [Progress::Inline, Progress::Offloaded { cores: vec![1] }] {
        requests(&mut costs, &progress)?;
    }
    sockets(&mut costs)?;
    connecting(&mut costs)?;
    let mut page = String::from(
        "### What the calls cost\n\nThe card is an Ammasso 1100 (Dalessandro and Wyckoff, 2005). With inline progress \
         posting a send is the socket's send, and an empty poll is a poll of the socket: neither can cost less than that \
         system call. Offloaded, an engine on the other core does both; a post costs more when it has to wake it.\n\n| call | us | bar, us | the card of 2005, us |\n|---|---|---|---|\n",
    );
    for cost in &costs {
        let found = spread(cost.samples.iter().copied());
        let bar = cost.most.map_or(String::new(), |most| {
            format!("below {most}: {}", if found.median < most { "met" } else { "**missed**" })
        });
        let card = cost.card.map_or(String::new(), |card| card.to_string());
        let _ = writeln!(page, "| {} | {} | {bar} | {card} |", cost.call, range(found, 3));
    }
    page.push('\n');
    page.push_str(&registering()?);
    page.push_str(&idle()?);
    Ok(page)
}

/// Microseconds of one of `row` calls.
fn timed(row: usize, mut act: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    for _ in 0..row {
        act()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / row as f64)
}

fn inline() -> RnicOptions {
    RnicOptions::default()
}

fn opening(costs: &mut Vec<Cost>) -> Result<(), Failure> {
    let mut rows: [Vec<f64>; 6] = Default::default();
    for _ in 0..SAMPLES {
        let start = Instant::now();
        let rnic = Rnic::open(inline())?;
        rows[0].push(start.elapsed().as_secs_f64() * 1e6);
        let domain = ProtectionDomain::new(&rnic);
        rows[1].push(timed(ROW, || {
            drop(black_box(ProtectionDomain::new(&rnic)));
            Ok(())
        })?);
        let completions = CompletionQueue::new(&rnic, 256, 0, None)?;
        rows[2].push(timed(ROW, || {
            drop(black_box(CompletionQueue::new(&rnic, 256, 0, None)?));
            Ok(())
        })?);
        let options = QueuePairOptions::new(&completions);
        let mut made = Vec::with_capacity(ROW);
        rows[3].push(timed(ROW, || {
            made.push(QueuePair::new(&domain, &options)?);
            Ok(())
        })?);
        rows[4].push(timed(ROW, || {
            drop(made.pop());
            Ok(())
        })?);
        drop((completions, domain));
        let start = Instant::now();
        drop(rnic);
        rows[5].push(start.elapsed().as_secs_f64() * 1e6);
    }
    let names = [
        ("open RNIC", None),
        ("allocate and free protection domain", None),
        ("create and destroy completion queue", None),
        ("create queue pair", None),
        ("destroy queue pair", None),
        ("close RNIC", None),
    ];
    for ((call, card), samples) in names.into_iter().zip(rows) {
        costs.push(Cost { call: call.to_owned(), samples, most: None, card });
    }
    Ok(())
}

/// Two connected queue pairs of one process, each of its own RNIC.
struct Pair {
    near: End,
    far: End,
}

struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    target: Segment,
    rnic: Rnic,
}

impl End {
    fn open(progress: &Progress) -> Result<(Self, ProtectionDomain), Failure> {
        let rnic = Rnic::open(RnicOptions { progress: progress.clone(), ..inline() })?;
        let domain = ProtectionDomain::new(&rnic);
        let completions = CompletionQueue::new(&rnic, 1024, 0, None)?;
        let depths = QueuePairOptions::new(&completions);
        let options = QueuePairOptions { send_depth: 256, receive_depth: 256, ..depths };
        let queue_pair = QueuePair::new(&domain, &options)?;
        let region = Region::new(4096)?;
        let stag = rnic.memory().register(domain.id(), region.memory(), Access::LOCAL_WRITE, 1)?;
        let target = Segment { stag, address: region.address(), length: 64 };
        Ok((Self { queue_pair, completions, target, rnic }, domain))
    }

    fn post_receive(&self) -> Result<(), Failure> {
        let segments = smallvec::SmallVec::from_slice(&[self.target]);
        Ok(self.queue_pair.post_receive(ReceiveRequest { id: 0, segments })?)
    }

    /// Polls until so many completions were there.
    fn drain(&self, count: usize) -> Result<(), Failure> {
        let mut taken = 0;
        while taken < count {
            taken += usize::from(self.completions.poll_one()?.is_some());
        }
        Ok(())
    }
}

fn connected(progress: &Progress) -> Result<Pair, Failure> {
    let ((near, near_domain), (far, far_domain)) = (End::open(progress)?, End::open(progress)?);
    let listener = Listener::bind(&far.rnic, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let options = ConnectOptions { crc: false, ..ConnectOptions::default() };
    thread::scope(|scope| -> Result<(), Failure> {
        let accepted = scope.spawn(|| {
            let request = listener.accept(Some(Duration::from_secs(10))).ok().flatten()?;
            far.queue_pair.accept(request, &AcceptOptions::default()).ok()
        });
        near.queue_pair.connect(listener.local_address(), &options)?;
        accepted.join().ok().flatten().ok_or("the other end did not accept")?;
        Ok(())
    })?;
    drop((near_domain, far_domain));
    Ok(Pair { near, far })
}

fn requests(costs: &mut Vec<Cost>, progress: &Progress) -> Result<(), Failure> {
    let pair = connected(progress)?;
    let offloaded = *progress != Progress::Inline;
    let mut rows: [Vec<f64>; 5] = Default::default();
    // The first message lets the other end send; the rest warm up.
    for round in 0..SAMPLES + 5 {
        let receives = timed(ROW, || pair.far.post_receive())?;
        // Awake from here on.
        pair.far.post_receive()?;
        sent_inline(&pair.near.queue_pair, &[1; 64], true)?;
        pair.near.drain(1)?;
        let sends = timed(ROW, || sent_inline(&pair.near.queue_pair, &[1; 64], true))?;
        // Until all of them are in the rings, where that needs no polling.
        if offloaded {
            thread::sleep(PAUSE);
        }
        let full = timed(ROW, || {
            black_box(pair.near.completions.poll_one()?);
            Ok(())
        })?;
        pair.far.drain(ROW + 1)?;
        let empty = timed(ROW, || {
            black_box(pair.near.completions.poll_one()?);
            Ok(())
        })?;
        // An engine that had nothing to do sleeps by now, a program that moves
        // its bytes itself can send many at once.
        let row = if offloaded { 1 } else { ROW };
        timed(row, || pair.far.post_receive())?;
        if offloaded {
            thread::sleep(PAUSE);
        }
        let start = Instant::now();
        pair.near.queue_pair.post_sends((0..row).map(|_| small_send()))?;
        let other = start.elapsed().as_secs_f64() * 1e6 / row as f64;
        pair.near.drain(row)?;
        pair.far.drain(row)?;
        if round >= 5 {
            for (row, sample) in rows.iter_mut().zip([receives, sends, other, full, empty]) {
                row.push(sample);
            }
        }
    }
    let mode = if offloaded { "offloaded" } else { "inline" };
    let other = if offloaded {
        "post send that wakes the engine"
    } else {
        "post send of 64 bytes in a list of 32, each"
    };
    let bar = Some(0.2);
    let names = [
        ("post receive", bar, Some(4.63)),
        ("post send of 64 bytes", bar, Some(4.63)),
        (other, bar.filter(|_| !offloaded), None),
        ("poll, non-empty", bar, Some(1.96)),
        ("poll, empty", bar, Some(0.12)),
    ];
    for ((call, most, card), samples) in names.into_iter().zip(rows) {
        costs.push(Cost { call: format!("{call}, {mode}"), samples, most, card });
    }
    Ok(())
}

fn small_send() -> SendRequest {
    let data = Data::Inline(smallvec::SmallVec::from_slice(&[1; 64]));
    let operation = Operation::Send { data, solicited: false, invalidate: None };
    SendRequest { id: 0, operation, signaled: true, fence: false }
}

/// Lower bound of inline progress: the same calls of a bare socket.
fn sockets(costs: &mut Vec<Cost>) -> Result<(), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    near.set_nonblocking(true)?;
    let mut rows: [Vec<f64>; 2] = Default::default();
    let mut bytes = [0; ROW * 64];
    for _ in 0..SAMPLES {
        rows[0].push(timed(ROW, || Ok(near.write_all(&[1; 64])?))?);
        far.read_exact(&mut bytes)?;
        rows[1].push(timed(ROW, || {
            // Nothing is there.
            let _ = black_box(near.read(&mut bytes));
            Ok(())
        })?);
    }
    let names =
        ["64 bytes into a bare socket, for comparison", "read of an empty bare socket, for comparison"];
    for (call, samples) in names.into_iter().zip(rows) {
        costs.push(Cost { call: call.to_owned(), samples, most: None, card: None });
    }
    Ok(())
}

fn connecting(costs: &mut Vec<Cost>) -> Result<(), Failure> {
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        let ((near, _near_domain), (far, _far_domain)) =
            (End::open(&Progress::Inline)?, End::open(&Progress::Inline)?);
        let listener = Listener::bind(&far.rnic, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let options = ConnectOptions::default();
        let sample = thread::scope(|scope| -> Result<f64, Failure> {
            let accepted = scope.spawn(|| {
                let _ = affinity::pin_to(1);
                let request = listener.accept(Some(Duration::from_secs(10))).ok().flatten()?;
                far.queue_pair.accept(request, &AcceptOptions::default()).ok()
            });
            // The other end waits by then.
            thread::sleep(Duration::from_millis(1));
            let start = Instant::now();
            near.queue_pair.connect(listener.local_address(), &options)?;
            let sample = start.elapsed().as_secs_f64() * 1e6;
            accepted.join().ok().flatten().ok_or("the other end did not accept")?;
            Ok(sample)
        })?;
        samples.push(sample);
    }
    let call = "connect, both ends on this machine".to_owned();
    costs.push(Cost { call, samples, most: Some(300.0), card: Some(305_536.0) });
    Ok(())
}

/// Registration of 1 KiB to 1 GiB, plain and pinned.
fn registering() -> Result<String, Failure> {
    let mut page = String::from(
        "| registration of | us | bar, us | pinned, us | pinned, us per page of 4 KiB | the card of 2005, us |\n\
         |---|---|---|---|---|---|\n",
    );
    let rnic = Rnic::open(inline())?;
    let domain = ProtectionDomain::new(&rnic);
    for power in [10, 12, 16, 20, 24, 28, 30] {
        let bytes = 1usize << power;
        let region = Region::new(bytes)?;
        // Pages that are there: what is measured is not the kernel's zeroing.
        for at in (0..bytes).step_by(4096) {
            region.write(at, &[1]);
        }
        let samples = if power < 24 { SAMPLES } else { 5 };
        let mut plain = Vec::new();
        let mut pinned = Vec::new();
        for _ in 0..samples {
            for (pin, row) in [(false, &mut plain), (true, &mut pinned)] {
                let start = Instant::now();
                let memory = if pin { region.memory().pin()? } else { region.memory() };
                let stag = rnic.memory().register(
                    domain.id(),
                    memory,
                    Access::REMOTE_WRITE | Access::LOCAL_WRITE,
                    1,
                )?;
                row.push(start.elapsed().as_secs_f64() * 1e6);
                rnic.memory().deregister(stag)?;
            }
        }
        let (plain, pinned) = (spread(plain.into_iter()), spread(pinned.into_iter()));
        let bar = match power {
            10 => {
                if plain.median < 2.0 {
                    "below 2: met"
                } else {
                    "below 2: **missed**"
                }
            }
            _ => "",
        };
        let size = match power {
            30.. => format!("{} GiB", bytes >> 30),
            20.. => format!("{} MiB", bytes >> 20),
            _ => format!("{} KiB", bytes >> 10),
        };
        let per_page = pinned.median / bytes.div_ceil(4096) as f64;
        let card = if power == 10 { "60" } else { "" };
        let _ = writeln!(
            page,
            "| {size} | {} | {bar} | {} | {per_page:.3} | {card} |",
            range(plain, 2),
            range(pinned, 1)
        );
    }
    page.push('\n');
    Ok(page)
}

/// Resident memory of this process in bytes.
fn resident() -> Result<usize, Failure> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages: usize = text.split_whitespace().nth(1).ok_or("statm has no resident pages")?.parse()?;
    Ok(pages * 4096)
}

/// Memory of connected queue pairs that have moved a message.
fn idle() -> Result<String, Failure> {
    let mut weights = Vec::new();
    for progress in [Progress::Inline, Progress::Offloaded { cores: vec![1] }] {
        let ((near, near_domain), (far, far_domain)) = (End::open(&progress)?, End::open(&progress)?);
        let listener = Listener::bind(&far.rnic, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let options = ConnectOptions { crc: false, ..ConnectOptions::default() };
        let before = resident()?;
        let mut pairs = Vec::new();
        for _ in 0..IDLE {
            let one = QueuePair::new(&near_domain, &QueuePairOptions::new(&near.completions))?;
            let other = QueuePair::new(&far_domain, &QueuePairOptions::new(&far.completions))?;
            let segments = smallvec::SmallVec::from_slice(&[far.target]);
            other.post_receive(ReceiveRequest { id: 0, segments })?;
            thread::scope(|scope| -> Result<(), Failure> {
                let accepted = scope.spawn(|| {
                    let request = listener.accept(Some(Duration::from_secs(10))).ok().flatten()?;
                    other.accept(request, &AcceptOptions::default()).ok()
                });
                one.connect(listener.local_address(), &options)?;
                accepted.join().ok().flatten().ok_or("the other end did not accept")?;
                Ok(())
            })?;
            sent_inline(&one, &[1; 64], true)?;
            near.drain(1)?;
            far.drain(1)?;
            pairs.push((one, other));
        }
        let weight = (resident()?.saturating_sub(before)) as f64 / (2 * pairs.len()) as f64 / 1024.0;
        let mode = if progress == Progress::Inline { "inline" } else { "offloaded" };
        let met = if weight < 64.0 { "met" } else { "**missed**" };
        weights.push(format!("| {mode} | {weight:.1} | below 64: {met} |\n"));
    }
    Ok(format!(
        "An idle queue pair of 128 requests in each direction, connected and after its first message, of {IDLE} pairs in one \
         process; what the kernel keeps for its socket is not in it.\n\n| progress | KiB | bar |\n|---|---|---|\n{}\n",
        weights.concat()
    ))
}
