//! Trials whose limit was a delay line of the lab: their values are those of the
//! machine, and so is a comparison of them.

use clearstream_schema::{lab::DELAY_LINE_LIMIT_NOTICE, notice::Notice};

use super::CellComparison;

/// The notice that belongs to a comparison of such trials; `None` where there
/// are none. `trials` is how many each side has in all.
pub(super) fn notice(cells: &[CellComparison], trials: [usize; 2]) -> Option<Notice> {
    let limited: Vec<&CellComparison> = cells.iter().filter(|cell| cell.is_delay_line_limited()).collect();
    if limited.is_empty() {
        return None;
    }
    let base: usize = limited.iter().map(|cell| cell.base_delay_line_limited_count).sum();
    let changed: usize = limited.iter().map(|cell| cell.changed_delay_line_limited_count).sum();
    let (first, second) = (trials[0], trials[1]);
    let cells = match (limited.len(), cells.len()) {
        (1, 1) => "the cell compares".to_owned(),
        (count, all) if count == all => format!("all {all} cells compare"),
        (1, all) => format!("1 of {all} cells compares"),
        (count, all) => format!("{count} of {all} cells compare"),
    };
    Some(Notice {
        id: DELAY_LINE_LIMIT_NOTICE.to_owned(),
        message: format!(
            "the lab's delay line, not the path, was the limit of {base} of {first} trials of the first side and \
             of {changed} of {second} of the second: {cells} this machine, not the path"
        ),
    })
}

/// Number of trials of each side that a delay line limited, and their total.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    pub(super) limited: [usize; 2],
    pub(super) all: [usize; 2],
}

impl Tally {
    pub(super) fn add(&mut self, side: usize, is_limited: bool) {
        self.all[side] += 1;
        self.limited[side] += usize::from(is_limited);
    }
}
