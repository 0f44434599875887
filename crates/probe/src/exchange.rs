//! A series of round trips over one channel: paced by absolute time, open loop (a late reply does not delay
//! the next probe), on one thread that sleeps in `poll`.
//!
//! Where the kernel timestamps packets, the results exclude the thread's wake-up latency; otherwise they
//! include it, which is reported.
//!
//! The kernel timestamps a probe twice when sent: before the queueing discipline of the host and at the
//! driver. The delay counts from the driver; the difference is the local queueing delay.

use std::{
    io,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use clearstream_sys::timestamp::Stage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    delay::RoundTrip,
    wire::{Header, Kind},
};

/// Input that a channel read from the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arrival {
    /// A reply, and the kernel's receive timestamp.
    Reply { header: Header, stamp_ns: Option<u64> },
    /// Timestamp of a probe passed to the queueing discipline or to the driver.
    Sent { sequence: u32, stage: Stage, stamp_ns: u64 },
}

/// A socket for probes.
pub(crate) trait Channel {
    fn socket(&self) -> BorrowedFd<'_>;
    /// Poll events of interest.
    fn interest(&self) -> PollFlags;
    fn send(&mut self, kind: Kind, sequence: u32) -> io::Result<()>;
    /// Reads everything available, without blocking.
    fn take(&mut self, each: &mut dyn FnMut(Arrival)) -> io::Result<()>;
}

/// Timing of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub count: u32,
    pub interval: Duration,
    pub timeout: Duration,
}

/// Result of a series.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// Round trips in the order of sending.
    pub trips: Vec<RoundTrip>,
    /// Minimum and maximum hop counts of answered probes.
    pub hops: Option<(u32, u32)>,
    /// First error of sending, or the one that ended the channel.
    pub error: Option<io::Error>,
}

#[derive(Clone, Copy)]
struct Flight {
    sent: Instant,
    /// First timestamp before the queueing discipline.
    scheduled_ns: Option<u64>,
    /// Segments of the probe passed to the queueing discipline: more than one when TCP retransmitted it.
    scheduled_count: u32,
    /// First timestamp at the driver.
    driver_ns: Option<u64>,
    /// That timestamp is of a retransmission: the queueing discipline dropped the first transmission.
    is_retransmission: bool,
    reply: Option<Reply>,
}

impl Flight {
    fn new(sent: Instant) -> Self {
        Self {
            sent,
            scheduled_ns: None,
            scheduled_count: 0,
            driver_ns: None,
            is_retransmission: false,
            reply: None,
        }
    }

    /// Records the first timestamp of a stage: a delay counts from the first transmission of a message.
    fn stamp(&mut self, stage: Stage, stamp_ns: u64) {
        match stage {
            Stage::Scheduler => {
                self.scheduled_ns.get_or_insert(stamp_ns);
                self.scheduled_count += 1;
            }
            Stage::Driver if self.driver_ns.is_none() => {
                self.driver_ns = Some(stamp_ns);
                // TCP does not retransmit what is still in the host's queue
                // (skb_still_in_host_queue, net/ipv4/tcp_output.c).
                self.is_retransmission = self.scheduled_count > 1;
            }
            Stage::Driver => {}
        }
    }
}

#[derive(Clone, Copy)]
struct Reply {
    application_ns: u64,
    stamp_ns: Option<u64>,
    turnaround_ns: u64,
}

/// Waits until input is available, at most until `deadline`.
fn wait(channel: &impl Channel, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
    let mut watched = [PollFd::from_borrowed_fd(channel.socket(), channel.interest())];
    match poll(&mut watched, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends greetings until one is answered and returns the last reply. Tries for at most three timeouts, and
/// for a little longer when the kernel has only just enabled timestamps.
pub(crate) fn greet(channel: &mut impl Channel, timeout: Duration) -> io::Result<Option<Header>> {
    const MOST: u32 = 12;
    let mut received = None;
    let mut silent = 0;
    for attempt in 0..MOST {
        let sequence = u32::MAX - attempt;
        if let Err(error) = channel.send(Kind::Greeting, sequence) {
            // A queued ICMP error of the previous attempt.
            if silent >= 2 || error.kind() != io::ErrorKind::ConnectionRefused {
                return Err(error);
            }
        }
        let deadline = Instant::now() + timeout;
        let mut last_reply = None;
        while last_reply.is_none() && Instant::now() < deadline {
            wait(channel, deadline)?;
            channel.take(&mut |arrival| {
                if let Arrival::Reply { header, stamp_ns } = arrival
                    && header.kind == Kind::Greeting
                    && header.sequence == sequence
                {
                    last_reply = Some((header, stamp_ns));
                }
            })?;
        }
        match last_reply {
            Some((header, stamp)) => {
                received = Some(header);
                if stamp.is_some() && attempt > 0 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            None => silent += 1,
        }
        if silent == 3 {
            break;
        }
    }
    Ok(received)
}

/// Sends `pace.count` probes and collects the replies.
pub(crate) fn run(channel: &mut impl Channel, pace: Pace) -> Series {
    let mut flights: Vec<Flight> = Vec::with_capacity(pace.count as usize);
    let mut series = Series::default();
    let mut open = 0usize;
    let start = Instant::now();
    loop {
        let now = Instant::now();
        let next = u32::try_from(flights.len()).unwrap_or(u32::MAX);
        let due = start + pace.interval * next;
        if next < pace.count && now >= due {
            flights.push(Flight::new(now));
            open += 1;
            if let Err(error) = channel.send(Kind::Delay, next) {
                series.error.get_or_insert(error);
            }
        } else {
            let expiry = flights.last().map_or(now, |last| last.sent + pace.timeout);
            if next == pace.count && (open == 0 || now >= expiry) {
                break;
            }
            if let Err(error) = wait(channel, if next < pace.count { due } else { expiry }) {
                series.error = Some(error);
                break;
            }
        }
        let outcome = channel.take(&mut |arrival| {
            open -= usize::from(record(&mut flights, &mut series.hops, arrival, pace.timeout));
        });
        if let Err(error) = outcome {
            series.error = Some(error);
            break;
        }
    }
    series.trips = flights.iter().map(round_trip).collect();
    series
}

/// Records an arrival; true when it answered an outstanding probe.
fn record(
    flights: &mut [Flight],
    hops: &mut Option<(u32, u32)>,
    arrival: Arrival,
    timeout: Duration,
) -> bool {
    match arrival {
        Arrival::Sent { sequence, stage, stamp_ns } => {
            if let Some(flight) = flights.get_mut(sequence as usize) {
                flight.stamp(stage, stamp_ns);
            }
            false
        }
        Arrival::Reply { header, stamp_ns } => {
            if header.kind != Kind::Delay {
                return false;
            }
            let Some(flight) = flights.get_mut(header.sequence as usize) else { return false };
            let whole = flight.sent.elapsed();
            // A duplicate, or too late.
            if flight.reply.is_some() || whole > timeout {
                return false;
            }
            if header.arrived_time_to_live > 0 {
                let passed =
                    u32::from(header.sent_time_to_live.saturating_sub(header.arrived_time_to_live)) + 1;
                let (fewest, most) = hops.unwrap_or((passed, passed));
                *hops = Some((fewest.min(passed), most.max(passed)));
            }
            flight.reply = Some(Reply {
                application_ns: u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX),
                stamp_ns,
                turnaround_ns: header.turnaround_ns,
            });
            true
        }
    }
}

fn round_trip(flight: &Flight) -> RoundTrip {
    let is_stuck = flight.scheduled_ns.is_some() && flight.driver_ns.is_none();
    let Some(reply) = flight.reply else { return RoundTrip { is_stuck, ..RoundTrip::default() } };
    // The kernel's two timestamps lie within the program's two clock readings. Where they do not, the wall
    // clock was stepped in between (or an old kernel numbered the timestamps differently) and they are
    // invalid. The slack covers the slewing of the wall clock, at most 500 ppm by adjtimex(2).
    let between = |sent: Option<u64>| {
        sent.zip(reply.stamp_ns)
            .and_then(|(sent, received)| received.checked_sub(sent))
            .filter(|&between| between <= reply.application_ns + reply.application_ns / 1000 + 1_000)
    };
    // A probe that never reached the driver counts from when it was scheduled.
    let first = if flight.is_retransmission { flight.scheduled_ns } else { flight.driver_ns };
    let queued = flight.driver_ns.zip(flight.scheduled_ns).filter(|_| !flight.is_retransmission);
    RoundTrip {
        application_ns: Some(reply.application_ns),
        kernel_ns: between(first),
        scheduled_ns: between(flight.scheduled_ns),
        queueing_ns: queued.and_then(|(driver, scheduled)| driver.checked_sub(scheduled)),
        turnaround_ns: reply.turnaround_ns,
        is_stuck: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(sequence: u32, stamp_ns: Option<u64>) -> Arrival {
        let mut header = Header::probe(Kind::Delay, sequence, 255, 64);
        header.is_reply = true;
        header.arrived_time_to_live = 253;
        header.turnaround_ns = 7;
        Arrival::Reply { header, stamp_ns }
    }

    #[test]
    fn arrivals_are_recorded_in_any_order() {
        let sent = Instant::now().checked_sub(Duration::from_millis(5)).unwrap();
        let mut flights = vec![Flight::new(sent); 3];
        let mut hops = None;
        let timeout = Duration::from_secs(60);
        assert!(record(&mut flights, &mut hops, reply(2, Some(1_000_900)), timeout));
        for (stage, stamp_ns) in [
            (Stage::Scheduler, 999_600),
            (Stage::Driver, 1_000_000),
            (Stage::Scheduler, 1_000_700),
            (Stage::Driver, 1_000_800),
        ] {
            let stamp = Arrival::Sent { sequence: 2, stage, stamp_ns };
            assert!(!record(&mut flights, &mut hops, stamp, timeout));
        }
        assert!(!record(&mut flights, &mut hops, reply(2, None), timeout), "a duplicate is not counted");
        assert!(!record(&mut flights, &mut hops, reply(3, None), timeout), "nor what was never sent");
        assert!(
            !record(&mut flights, &mut hops, reply(0, None), Duration::from_millis(1)),
            "nor what is late"
        );
        assert_eq!(hops, Some((3, 3)), "two routers and the destination");
        let trip = round_trip(&flights[2]);
        assert_eq!(
            (trip.kernel_ns, trip.queueing_ns, trip.scheduled_ns),
            (Some(900), Some(400), Some(1_300))
        );
        assert_eq!(trip.turnaround_ns, 7);
        assert_eq!(round_trip(&flights[0]), RoundTrip::default());
    }

    /// A segment dropped by the host's own queue has only the driver timestamp of its retransmission; the
    /// message counts from its first transmission.
    #[test]
    fn segments_dropped_by_the_local_queue_count_from_scheduling() {
        let mut flight = Flight::new(Instant::now());
        for (stage, stamp_ns) in
            [(Stage::Scheduler, 1_000), (Stage::Scheduler, 201_000), (Stage::Driver, 201_500)]
        {
            flight.stamp(stage, stamp_ns);
        }
        flight.reply = Some(Reply { application_ns: 300_000, stamp_ns: Some(202_000), turnaround_ns: 100 });
        let trip = round_trip(&flight);
        assert_eq!((trip.kernel_ns, trip.queueing_ns), (Some(201_000), None));
        let mut lost = Flight::new(Instant::now());
        lost.stamp(Stage::Scheduler, 1_000);
        assert!(round_trip(&lost).is_stuck);
    }

    #[test]
    fn timestamps_of_a_stepped_clock_are_not_used() {
        let flight = |sent, received| Flight {
            driver_ns: Some(sent),
            reply: Some(Reply { application_ns: 1_000_000, stamp_ns: Some(received), turnaround_ns: 0 }),
            ..Flight::new(Instant::now())
        };
        assert_eq!(round_trip(&flight(5_000_000, 5_900_000)).kernel_ns, Some(900_000));
        assert_eq!(round_trip(&flight(5_000_000, 4_000_000)).kernel_ns, None, "stepped back");
        assert_eq!(round_trip(&flight(5_000_000, 9_000_000_000)).kernel_ns, None, "stepped forward");
    }
}
