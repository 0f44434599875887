//! How a state is reached: each rank knows the states that it owns, and their first predecessors.

use clearstream_ranks::{RankError, World};

use crate::{
    program::Program,
    store::{Parent, Store},
};

/// States from the initial one to `to` (known at rank 0), for people; at rank 0 only.
pub(crate) fn path(
    world: &mut dyn World,
    program: &Program,
    store: &Store,
    to: Option<Parent>,
) -> Result<Vec<String>, RankError> {
    let mut wanted = to.unwrap_or(Parent::NONE);
    let mut states = Vec::new();
    let mut unpacked = Vec::new();
    loop {
        let parent = |rank: u32, place: u32| [rank.to_le_bytes(), place.to_le_bytes()].concat();
        let Some(next) = read(&world.broadcast(parent(wanted.rank, wanted.place))?) else { break };
        if next == Parent::NONE {
            break;
        }
        let mut own = Vec::new();
        if next.rank as usize == world.rank() {
            let before = store.parent(next.place as usize);
            own = parent(before.rank, before.place);
            own.extend_from_slice(store.state(next.place as usize));
        }
        let replies = world.gather(own)?;
        if let Some(reply) = replies.get(next.rank as usize) {
            let (before, state) = reply.split_at(8);
            wanted = read(before).unwrap_or(Parent::NONE);
            program.unpack(state, &mut unpacked);
            states.push(program.shown(&unpacked));
        }
    }
    states.reverse();
    Ok(states)
}

fn read(bytes: &[u8]) -> Option<Parent> {
    let (rank, place) = bytes.split_at_checked(4)?;
    Some(Parent {
        rank: u32::from_le_bytes(rank.try_into().ok()?),
        place: u32::from_le_bytes(place.get(..4)?.try_into().ok()?),
    })
}
