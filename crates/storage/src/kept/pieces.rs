//! Which rank has to do with what: in the same run, and in a later one that may have more ranks than the first, or fewer.

use serde::{Deserialize, Serialize};

/// What one rank made, in the order in which it did: transfers, or items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Rank that made them.
    pub(crate) owner: usize,
    /// Number of the first one.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// They have the name that renaming gives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_renamed: bool,
}

impl Piece {
    pub(crate) fn new(owner: usize, first: u64, count: u64) -> Self {
        Self { owner, first, count, is_renamed: false }
    }

    /// The first `count` of it, and the rest.
    pub(crate) fn split(self, count: u64) -> (Self, Self) {
        let count = count.min(self.count);
        (Self { count, ..self }, Self { first: self.first + count, count: self.count - count, ..self })
    }
}

/// Everything that as many ranks made.
pub(crate) fn whole(counts: &[u64]) -> Vec<Piece> {
    counts.iter().enumerate().map(|(owner, count)| Piece::new(owner, 0, *count)).collect()
}

/// Pieces of one share of `shares`: what one rank made when as many come as `owners` made it, else an equal part of
/// everything, each number in one share.
pub(crate) fn shared(all: &[Piece], owners: usize, shares: usize, share: usize) -> Vec<Piece> {
    if shares == owners {
        return all.iter().filter(|piece| piece.owner == share).copied().collect();
    }
    let sum: u128 = all.iter().map(|piece| u128::from(piece.count)).sum();
    let bound = |share: usize| sum * share as u128 / shares.max(1) as u128;
    let (from, to) = (bound(share), bound(share + 1));
    let mut before = 0_u128;
    let mut found = Vec::new();
    for piece in all {
        let behind = before + u128::from(piece.count);
        let (first, last) = (from.max(before), to.min(behind));
        if first < last {
            let part = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
            let (_, rest) = piece.split(part(first - before));
            found.push(rest.split(part(last - first)).0);
        }
        before = behind;
    }
    found
}

/// In the order of owners and numbers, neighbours as one.
pub(crate) fn joined(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.retain(|piece| piece.count > 0);
    pieces.sort_by_key(|piece| (piece.owner, piece.first));
    let mut found: Vec<Piece> = Vec::new();
    for piece in pieces {
        match found.last_mut() {
            Some(last)
                if (last.owner, last.is_renamed) == (piece.owner, piece.is_renamed)
                    && last.first + last.count == piece.first =>
            {
                last.count += piece.count;
            }
            _ => found.push(piece),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_one_share_by_any_number_of_ranks() {
        let holes =
            vec![Piece::new(0, 4, 3), Piece::new(0, 9, 1), Piece { is_renamed: true, ..Piece::new(2, 1, 6) }];
        let cases = [whole(&[5, 5, 5]), whole(&[7, 0, 2, 11]), whole(&[1]), whole(&[0, 0]), holes];
        let numbers = |pieces: &[Piece]| -> Vec<(usize, u64, bool)> {
            let of = |piece: &Piece| {
                let Piece { owner, first, count, is_renamed } = *piece;
                (first..first + count).map(move |number| (owner, number, is_renamed))
            };
            pieces.iter().flat_map(of).collect()
        };
        for all in cases {
            for (owners, shares) in (1..9).flat_map(|shares| [(4, shares), (3, shares)]) {
                if all.iter().any(|piece| piece.owner >= owners) {
                    continue;
                }
                let found: Vec<Piece> =
                    (0..shares).flat_map(|share| shared(&all, owners, shares, share)).collect();
                assert_eq!(numbers(&found), numbers(&all), "{all:?} by {shares}");
                assert_eq!(joined(found), joined(all.clone()), "{all:?} by {shares}");
            }
        }
    }
}
