//! One module per kind of figure. Each takes a reduced experiment, says in one
//! sentence what the numbers show, and draws it.

pub(crate) mod cost;
pub(crate) mod delay;
pub(crate) mod effects;
pub(crate) mod gateways;
pub(crate) mod goodput;
pub(crate) mod interrupt;
pub(crate) mod live;
pub(crate) mod matrix;
pub(crate) mod metric;
pub(crate) mod order;
pub(crate) mod row;
pub(crate) mod staircase;
pub(crate) mod throughput;
pub(crate) mod window;

/// Class of the `index`-th level of a factor. The first colour of the palette, `s0`, is that of
/// our trials where there is nothing to tell apart; parts of a whole (`k0`, `k1`) and directions
/// of traffic (`t0` to `t2`) have colours of their own: one colour, one meaning.
pub(crate) fn series_class(index: usize) -> String {
    format!("s{}", 1 + index % 7)
}
