//! The table of checks, and the order in which they run.

mod atomicity;
mod coherence;
mod features;
mod locks;

use std::time::Duration;

use clearstream_control::PeerError;
use clearstream_schema::semantics::{
    SemanticsArea, SemanticsCheck, SemanticsClients, SemanticsFound,
    SemanticsVerdict::{Inconclusive, No, NotSupported, Yes},
};
use rustix::io::Errno;

use super::{
    actor::{Actor, CheckError, Checked},
    calls::Operation,
    errno_name,
};

/// One check.
pub(super) struct Check {
    area: SemanticsArea,
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: Run,
}

/// What a check needs.
#[derive(Clone, Copy)]
enum Run {
    /// Processes on one mount.
    One(fn(&mut Stage<'_, '_>) -> Checked<SemanticsFound>),
    /// Two processes, on one mount or on both.
    Pair(fn(&mut Stage<'_, '_>) -> Checked<SemanticsFound>),
    /// Two mounts; a change at the first process is observed at the second one.
    Directed(fn(&mut Stage<'_, '_>) -> Checked<SemanticsFound>),
    /// One process, at the agent.
    Feature,
}

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

/// Verdict yes or no, with a detail each.
fn verdict(is_right: bool, right: &str, wrong: &str) -> SemanticsFound {
    let (verdict, detail) = if is_right { (Yes, right) } else { (No, wrong) };
    let found = SemanticsFound::new(verdict);
    if detail.is_empty() { found } else { found.with(detail) }
}

/// Processes of a check.
pub(super) struct Stage<'s, 'a> {
    pub(super) first: &'s mut Actor<'a>,
    pub(super) second: Option<&'s mut Actor<'a>>,
    /// Starts another process on the mount of the first one.
    start: &'s dyn Fn() -> Result<Actor<'a>, PeerError>,
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

    fn another(&self) -> Checked<Actor<'a>> {
        Ok((self.start)()?)
    }
}

/// Processes of all checks.
pub(super) struct Actors<'s, 'a> {
    pub(super) first: Actor<'a>,
    pub(super) second: Actor<'a>,
    pub(super) peer: Option<Actor<'a>>,
    pub(super) start: &'s dyn Fn() -> Result<Actor<'a>, PeerError>,
    pub(super) wait: Duration,
}

/// One run of a check.
#[derive(Clone, Copy)]
pub(super) struct Step {
    check: &'static Check,
    clients: SemanticsClients,
}

/// All runs of checks, in the order of areas.
pub(super) fn schedule(has_peer: bool) -> Vec<Step> {
    let all = [locks::CHECKS, atomicity::CHECKS, coherence::CHECKS, features::CHECKS];
    let mut steps = Vec::new();
    for check in all.into_iter().flatten() {
        let clients: &[SemanticsClients] = match (check.run, has_peer) {
            (Run::Directed(_), false) => &[],
            (Run::Directed(_), true) => &[SemanticsClients::ToPeer, SemanticsClients::FromPeer],
            (Run::Pair(_), true) => &[SemanticsClients::One, SemanticsClients::Two],
            _ => &[SemanticsClients::One],
        };
        steps.extend(clients.iter().map(|clients| Step { check, clients: *clients }));
    }
    steps.sort_by_key(|step| step.check.area);
    steps
}

impl Step {
    /// Runs it.
    pub(super) fn run(self, number: usize, actors: &mut Actors<'_, '_>) -> Checked<SemanticsFound> {
        let name = format!("{number:03}-{}", self.check.name);
        let (start, wait) = (actors.start, actors.wait);
        let (first, second) = match (self.clients, actors.peer.as_mut()) {
            (SemanticsClients::Two | SemanticsClients::ToPeer, peer) => (&mut actors.first, peer),
            (SemanticsClients::FromPeer, Some(peer)) => (peer, Some(&mut actors.first)),
            _ => (&mut actors.first, Some(&mut actors.second)),
        };
        let mut stage = Stage { first, second, start, name, wait };
        let found = match self.check.run {
            Run::One(run) | Run::Pair(run) | Run::Directed(run) => run(&mut stage),
            Run::Feature => feature(&mut stage, self.check.name),
        };
        for actor in
            [Some(&mut actors.first), Some(&mut actors.second), actors.peer.as_mut()].into_iter().flatten()
        {
            actor.reset()?;
        }
        found
    }

    /// Row of the document.
    pub(super) fn row(self, found: Result<SemanticsFound, &CheckError>) -> SemanticsCheck {
        let found = found.unwrap_or_else(without_verdict);
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

fn feature(stage: &mut Stage<'_, '_>, name: &'static str) -> Checked<SemanticsFound> {
    let acted = stage.first.act(name, Operation::Feature { check: name.to_owned() })?;
    acted.found.ok_or_else(|| CheckError::Precondition("the agent has no such check".to_owned()))
}

/// A check whose calls failed: not supported where the kernel says so.
fn without_verdict(error: &CheckError) -> SemanticsFound {
    let CheckError::System { call, errno } = error else {
        return SemanticsFound::new(Inconclusive).with(error.to_string());
    };
    let is_lacking = matches!(*errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::NOTTY)
        // Open flags that a file system does not know (open(2)), and links without privilege or support (link(2)).
        || (matches!(*call, "direct-io" | "seek-hole") && *errno == Errno::INVAL)
        || (*call == "tmpfile" && matches!(*errno, Errno::ISDIR | Errno::NOENT | Errno::INVAL))
        || (matches!(*call, "hard-link" | "symbolic-link") && *errno == Errno::PERM);
    let verdict = if is_lacking { NotSupported } else { Inconclusive };
    let found = SemanticsFound::new(verdict).with(format!("{call} fails"));
    SemanticsFound { errno: Some(errno.raw_os_error()), ..found }
}
