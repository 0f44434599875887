//! The table of checks, and the order in which they run.

mod atomicity;
mod coherence;
mod lock_kinds;
mod lock_ranges;
mod lock_waits;
mod locks;
mod mappings;
mod own;

use std::time::{Duration, Instant};

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsCheck, SemanticsClients, SemanticsFound,
    SemanticsVerdict::{Inconclusive, Late, LeftOpen, No, Yes},
};
use clearstream_sys::errno::name as errno_name;
use rustix::io::Errno;

use super::{
    actor::{Actor, Agent, CheckError, Checked},
    calls::Operation,
    faults::{Fault, is_circumstance},
    folder::Folder,
    operations::Hands,
};

/// One check.
pub(super) struct Check {
    area: SemanticsArea,
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: Run,
}

type Steps = fn(&mut Stage<'_, '_>) -> Checked<SemanticsFound>;

/// What a check needs.
#[derive(Clone, Copy)]
enum Run {
    /// Processes on one mount.
    One(Steps),
    /// Two processes, on one mount or on both.
    Pair(Steps),
    /// As [`Run::Pair`], several times: a change that is late now and then is late.
    Often(Steps),
    /// Two mounts; a change at the first process is observed at the second one, several times.
    Directed(Steps),
    /// One process, which carries it out by itself in the folder.
    Alone(fn(&Folder) -> Result<SemanticsFound, Fault>),
    /// As [`Run::Alone`], with processes that it starts; what changes late is waited for.
    Own(fn(&mut Hands, Duration) -> Result<SemanticsFound, Fault>),
}

/// Rounds of a check that observes a change.
const ROUNDS: usize = 5;
/// No other round after this time.
const ROUNDS_TIME: Duration = Duration::from_millis(200);

const fn check(
    area: SemanticsArea,
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: Run,
) -> Check {
    Check { area, name, title, standard, run }
}

const fn locks(name: &'static str, title: &'static str, standard: &'static str, run: Run) -> Check {
    check(SemanticsArea::Locks, name, title, standard, run)
}

/// Verdict yes, or no with what is wrong.
fn verdict(is_right: bool, wrong: &str) -> SemanticsFound {
    if is_right { SemanticsFound::new(Yes) } else { SemanticsFound::new(No).with(wrong) }
}

/// Yes, or what the mount does where the standard lets it.
fn left_open(is_there: bool, otherwise: impl Into<String>) -> SemanticsFound {
    if is_there { SemanticsFound::new(Yes) } else { SemanticsFound::new(LeftOpen).with(otherwise) }
}

/// A verdict that an error led to; there is none where the error says nothing about the mount.
fn with_errno(found: SemanticsFound, errno: Errno) -> SemanticsFound {
    let verdict = if is_circumstance(errno) { Inconclusive } else { found.verdict };
    SemanticsFound { verdict, errno: Some(errno.raw_os_error()), ..found }
}

/// Processes of a check.
pub(super) struct Stage<'s, 'a> {
    pub(super) first: &'s mut Actor<'a>,
    pub(super) second: Option<&'s mut Actor<'a>>,
    /// Agent of the first process.
    agent: &'a Agent<'a>,
    /// That of the second one.
    other: &'a Agent<'a>,
    /// Name of the check's file.
    name: String,
    /// Maximum wait for a change to become visible.
    pub(super) wait: Duration,
}

impl<'a> Stage<'_, 'a> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn second(&mut self) -> Checked<&mut Actor<'a>> {
        let none = || CheckError::Precondition("there is no second process".to_owned());
        self.second.as_deref_mut().ok_or_else(none)
    }

    /// Another process on the mount of the first one.
    fn another(&self) -> Checked<Actor<'a>> {
        self.agent.start()
    }

    /// Another process on the mount of the second one.
    fn another_second(&self) -> Checked<Actor<'a>> {
        self.other.start()
    }
}

/// Processes of all checks.
pub(super) struct Actors<'a> {
    first: Actor<'a>,
    second: Actor<'a>,
    peer: Option<Actor<'a>>,
    agent: &'a Agent<'a>,
    other: Option<&'a Agent<'a>>,
    wait: Duration,
}

impl<'a> Actors<'a> {
    /// Starts them; each is on its own, so that they can be two at once on one mount.
    pub(super) fn start(agent: &'a Agent<'_>, other: Option<&'a Agent<'_>>, wait: Duration) -> Checked<Self> {
        let peer = other.map(Agent::start).transpose()?;
        Ok(Self { first: agent.start()?, second: agent.start()?, peer, agent, other, wait })
    }
}

/// One run of a check.
#[derive(Clone, Copy)]
pub(super) struct Step {
    check: &'static Check,
    clients: SemanticsClients,
}

fn all() -> impl Iterator<Item = &'static Check> {
    [
        locks::CHECKS,
        lock_ranges::CHECKS,
        lock_waits::CHECKS,
        lock_kinds::CHECKS,
        atomicity::CHECKS,
        mappings::CHECKS,
        coherence::CHECKS,
    ]
    .into_iter()
    .flatten()
    .chain(own::all())
}

/// All runs of checks, in the order of areas.
pub(super) fn schedule(has_peer: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    for check in all() {
        let clients: &[SemanticsClients] = match (check.run, has_peer) {
            (Run::Directed(_), false) => &[],
            (Run::Directed(_), true) => &[SemanticsClients::ToPeer, SemanticsClients::FromPeer],
            (Run::Pair(_) | Run::Often(_), true) => &[SemanticsClients::One, SemanticsClients::Two],
            _ => &[SemanticsClients::One],
        };
        steps.extend(clients.iter().map(|clients| Step { check, clients: *clients }));
    }
    steps.sort_by_key(|step| step.check.area);
    steps
}

/// Carries out a check of one process in this one.
pub(super) fn own(name: &str, hands: &mut Hands, wait: Duration) -> Result<SemanticsFound, Errno> {
    let check = all().find(|check| check.name == name).ok_or(Errno::INVAL)?;
    let found = match check.run {
        Run::Alone(run) => run(hands.folder()?),
        Run::Own(run) => run(hands, wait),
        _ => return Err(Errno::INVAL),
    };
    Ok(found.unwrap_or_else(Fault::found))
}

impl Step {
    /// Runs it.
    pub(super) fn run(self, number: usize, actors: &mut Actors<'_>) -> Checked<SemanticsFound> {
        let run = match self.check.run {
            Run::One(run) | Run::Pair(run) => return self.round(format!("{number:03}"), run, actors),
            Run::Often(run) | Run::Directed(run) => run,
            Run::Alone(_) | Run::Own(_) => {
                let call = self.check.title;
                let wait_ms = u64::try_from(actors.wait.as_millis()).unwrap_or(u64::MAX);
                let operation = Operation::Feature { check: self.check.name.to_owned(), wait_ms };
                let acted = actors.first.act(call, operation)?;
                let none = || CheckError::Precondition("the agent has no such check".to_owned());
                return acted.found.ok_or_else(none);
            }
        };
        let begun = Instant::now();
        let mut worst = SemanticsFound::new(Yes);
        for round in 0..ROUNDS {
            let found = self.round(format!("{number:03}.{round}"), run, actors)?;
            let is_over = !matches!(found.verdict, Yes | Late) || begun.elapsed() > ROUNDS_TIME;
            if found.verdict != Yes && (is_over || found.stale_ns > worst.stale_ns) {
                worst = found;
            }
            if is_over {
                break;
            }
        }
        Ok(worst)
    }

    fn round(self, prefix: String, run: Steps, actors: &mut Actors<'_>) -> Checked<SemanticsFound> {
        let name = format!("{prefix}-{}", self.check.name);
        let wait = actors.wait;
        let (one, two) = (actors.agent, actors.other.unwrap_or(actors.agent));
        let (first, second, agent, other) = match (self.clients, actors.peer.as_mut()) {
            (SemanticsClients::Two | SemanticsClients::ToPeer, Some(peer)) => {
                (&mut actors.first, peer, one, two)
            }
            (SemanticsClients::FromPeer, Some(peer)) => (peer, &mut actors.first, two, one),
            _ => (&mut actors.first, &mut actors.second, one, one),
        };
        let found = run(&mut Stage { first, second: Some(second), agent, other, name, wait });
        if matches!(found, Err(CheckError::Ended { .. } | CheckError::Hangs { .. } | CheckError::Peer(_))) {
            return found;
        }
        for actor in
            [Some(&mut actors.first), Some(&mut actors.second), actors.peer.as_mut()].into_iter().flatten()
        {
            actor.act("close", Operation::Reset)?;
        }
        found
    }

    /// Row of the document.
    pub(super) fn row(self, found: &Checked<SemanticsFound>) -> SemanticsCheck {
        let found = found.clone().unwrap_or_else(|error| error.found());
        SemanticsCheck {
            area: self.check.area,
            check: self.check.name.to_owned(),
            title: self.check.title.to_owned(),
            clients: self.clients,
            verdict: found.verdict,
            standard: self.check.standard.to_owned(),
            detail: found.detail,
            errno: found.errno.map(errno_name),
            stale_ns: found.stale_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_error_of_the_circumstances_is_no_verdict_on_the_mount() {
        let of = |errno| with_errno(SemanticsFound::new(No).with("a text"), errno).verdict;
        assert_eq!((of(Errno::NOSPC), of(Errno::CONNABORTED)), (Inconclusive, Inconclusive));
        assert_eq!((of(Errno::NAMETOOLONG), of(Errno::IO)), (No, No));
    }

    #[test]
    fn every_check_has_a_name_and_a_standard_of_its_own() {
        let names: BTreeSet<&str> = all().map(|check| check.name).collect();
        assert_eq!(names.len(), all().count());
        for check in all() {
            assert!(!check.standard.is_empty() && check.title.len() <= 30, "{}", check.name);
            assert!(
                check.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
                "{}",
                check.name
            );
        }
    }
}
