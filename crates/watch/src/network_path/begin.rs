//! Rounds: which remote host is probed next, by which kind, and through which gateways.

use std::time::Duration;

use super::{Aim, PathAction, PathHealth, Probe, Round, Slot};
use crate::{
    gateway::GatewayHealth,
    probe_kind::{PORT_COUNT, ProbeClass, ProbeKind},
};

/// While some targets respond, one of this many rounds probes a silent one.
const SEARCH_EVERY: u64 = 4;
/// Rounds while a gateway is suspect: of three probes in a row at most two are of the transport and size that failed, so
/// that one whose loss is no matter of kinds is told from the others.
const CONFIRMING: [Confirming; 6] = {
    use Confirming::{Other, Same, SameClass};
    [Same, Other, Same, Other, SameClass, Other]
};
/// Gateways through which a candidate is asked: one may be faulty.
const ASKED_THROUGH: usize = 2;

/// A round while a gateway is suspect.
#[derive(Debug, Clone, Copy)]
enum Confirming {
    /// The kind that failed.
    Same,
    /// The same transport and size from another port.
    SameClass,
    /// Small, by the other transport from another port.
    Other,
}

impl PathHealth {
    /// Sends the probes of a round. While a gateway is suspect, or its reply is overdue, rounds use the shorter interval;
    /// where the load on the fabric does not allow that to all of them, they go through those gateways and one that
    /// responds only.
    pub(super) fn begin(&mut self, now: Duration, actions: &mut Vec<PathAction>) {
        let turn = self.turn;
        self.turn += 1;
        let quick = self.settings.interval.to_std();
        let suspects: Vec<bool> = (self.gateways.iter().enumerate())
            .map(|(index, gateway)| gateway.member && (gateway.is_suspect() || self.is_overdue(now, index)))
            .collect();
        let is_restless = suspects.contains(&true);
        let hurry = is_restless && self.brisk > quick;
        let reference = hurry.then(|| self.references(turn).find(|gateway| !suspects[*gateway])).flatten();
        let (place, kind) = match self.confirmation() {
            Some(found) => found,
            None => {
                let place = self.next_target(turn);
                let class = self.targets[place].next_class(self.large_every);
                (place, self.ports.next(class))
            }
        };
        let through = |gateway: &usize| !hurry || suspects[*gateway] || reference == Some(*gateway);
        let through: Vec<usize> = (0..self.gateways.len()).filter(through).collect();
        self.probe(now, Aim::Target(place), kind, &through, actions);
        if !hurry && self.targets.iter().any(|target| target.echo) {
            self.ask(now, actions);
        }
        let may_return = |gateway: &GatewayHealth| !gateway.member && !gateway.drained;
        let wait = match is_restless {
            true => quick,
            false if self.gateways.iter().any(may_return) => self.brisk,
            false => self.steady,
        };
        self.look_at = (wait > quick).then_some(now + quick);
        // After a pause of the program, rounds continue from now, without a burst.
        self.next_at = (self.next_at + wait).max(now + wait / 2);
    }

    fn probe(
        &mut self,
        now: Duration,
        aim: Aim,
        kind: ProbeKind,
        through: &[usize],
        actions: &mut Vec<PathAction>,
    ) {
        let number = self.next_round;
        self.next_round += 1;
        let (target, echo) = match aim {
            Aim::Target(place) => (self.targets[place].candidate, self.targets[place].echo),
            Aim::Candidate(candidate) => (candidate, false),
        };
        let mut slots = vec![Slot::NotProbed; self.gateways.len()];
        for &gateway in through {
            slots[gateway] = Slot::Waiting;
            if let Aim::Target(_) = aim {
                self.gateways[gateway].sent(kind);
            }
            actions.push(PathAction::Probe(Probe { gateway, target, round: number, kind, echo }));
        }
        self.rounds.push_back(Round { number, aim, kind, sent: now, slots });
    }

    /// Asks the next candidate whether it has a watch.
    fn ask(&mut self, now: Duration, actions: &mut Vec<PathAction>) {
        let Some(candidate) = self.search.next(now) else { return };
        let mut through: Vec<usize> = self.references(self.turn).take(ASKED_THROUGH).collect();
        if through.is_empty() {
            through.push((self.turn % self.gateways.len() as u64) as usize);
        }
        let kind = ProbeKind { class: ProbeClass::BASE, port: (self.turn % PORT_COUNT as u64) as u8 };
        self.probe(now, Aim::Candidate(candidate), kind, &through, actions);
    }

    /// A round that shows whether the kind that failed at a suspect gateway fails always, or that the kind next to
    /// it does: another port, or another size. Without it, such a fault would be met again after many rounds only.
    fn confirmation(&mut self) -> Option<(usize, ProbeKind)> {
        let suspects: Vec<(ProbeClass, Option<u8>)> = (self.gateways.iter())
            .filter(|gateway| gateway.member)
            .filter_map(GatewayHealth::worst)
            .collect();
        if suspects.is_empty() {
            return None;
        }
        let turn = self.confirm_turn;
        self.confirm_turn += 1;
        let cycle = turn as usize / CONFIRMING.len();
        let (failed, port) = suspects[cycle % suspects.len()];
        let another = |port: u8| PORT_COUNT as u8 - 1 - port;
        let mut of = |class: ProbeClass, own: Option<u8>| match own {
            Some(port) => ProbeKind { class, port },
            None => self.ports.next(class),
        };
        let kind = match CONFIRMING[turn as usize % CONFIRMING.len()] {
            Confirming::Same => of(failed, port),
            Confirming::SameClass => of(failed.small(), port.map(another)),
            Confirming::Other => of(failed.other(), port.map(another)),
        };
        let able: Vec<usize> = (0..self.targets.len())
            .filter(|place| self.targets[*place].responds() && self.targets[*place].responds_to(kind.class))
            .collect();
        let place = *able.get((turn / 2) as usize % able.len().max(1))?;
        Some((place, kind))
    }

    /// Target of a round: round robin over those that respond, with occasional
    /// rounds to a silent one, to detect its recovery.
    fn next_target(&self, turn: u64) -> usize {
        let (responding, silent): (Vec<usize>, Vec<usize>) =
            (0..self.targets.len()).partition(|place| self.targets[*place].responds());
        let searches = turn % SEARCH_EVERY == SEARCH_EVERY - 1;
        let at = |of: &[usize], turn: u64| of[(turn % of.len() as u64) as usize];
        match (responding.is_empty(), silent.is_empty()) {
            (true, _) => at(&silent, turn),
            (false, true) => at(&responding, turn),
            (false, false) if searches => at(&silent, turn / SEARCH_EVERY),
            // Rounds to silent targets do not advance the round robin.
            (false, false) => at(&responding, turn - turn / SEARCH_EVERY),
        }
    }

    /// Gateways that respond, beginning with another one in each round.
    fn references(&self, turn: u64) -> impl Iterator<Item = usize> {
        let responding: Vec<usize> =
            (0..self.gateways.len()).filter(|gateway| self.gateways[*gateway].responds(1)).collect();
        let first = turn as usize % responding.len().max(1);
        (0..responding.len()).map(move |place| responding[(first + place) % responding.len()])
    }
}
