//! Accepting cycles, found by all ranks together: "one way catch them young" of I. Černá and
//! R. Pelánek ("Distributed Explicit Fair Cycle Detection", SPIN 2003). Of all states those are kept that
//! an accepting one leads to, then those without a predecessor among these are removed, until nothing
//! changes: what is left is there because of a cycle with an accepting state.

use super::{
    ExploreError,
    network::Network,
    reach::{Reach, propagate},
};
use crate::program::Program;

/// Places of accepting states on this rank that an accepting cycle leads to; of all ranks none where there
/// is no such cycle.
pub(crate) fn accepting_cycles(
    program: &Program,
    reach: &Reach<'_>,
    network: &mut Network<'_>,
) -> Result<Vec<u32>, ExploreError> {
    let store = &reach.store;
    let mut member = vec![true; store.len()];
    let mut count = total(&member, network)?;
    loop {
        let seeds: Vec<u32> = kept(&reach.accepting, &member);
        let mut predecessors = vec![0_u32; store.len()];
        let mut reached = vec![false; store.len()];
        seeds.iter().for_each(|place| reached[*place as usize] = true);
        propagate(program, store, network, seeds, |place| {
            if !member[place] {
                return false;
            }
            predecessors[place] += 1;
            !std::mem::replace(&mut reached[place], true)
        })?;
        member = reached;
        let without = (0..store.len() as u32)
            .filter(|place| member[*place as usize] && predecessors[*place as usize] == 0);
        let without: Vec<u32> = without.collect();
        without.iter().for_each(|place| member[*place as usize] = false);
        propagate(program, store, network, without, |place| {
            if !member[place] {
                return false;
            }
            predecessors[place] -= 1;
            if predecessors[place] == 0 {
                member[place] = false;
            }
            !member[place]
        })?;
        let left = total(&member, network)?;
        if left == count || left == 0 {
            return Ok(kept(&reach.accepting, &member));
        }
        count = left;
    }
}

fn kept(accepting: &[u32], member: &[bool]) -> Vec<u32> {
    accepting.iter().copied().filter(|place| member[*place as usize]).collect()
}

fn total(member: &[bool], network: &mut Network<'_>) -> Result<u64, ExploreError> {
    let own = member.iter().filter(|member| **member).count() as u64;
    Ok(network.world().reduce(&[own], |one, other| one + other)?[0])
}
