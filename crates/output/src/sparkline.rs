//! A series in one line of text.

/// Steps from the lowest to the highest.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last values as steps between their lowest and their highest, in at most so many columns.
pub fn sparkline(values: &[f64], columns: usize) -> String {
    let lowest = last(values, columns).iter().copied().fold(f64::INFINITY, f64::min);
    steps(last(values, columns), lowest)
}

/// The same with steps from zero: rates are shares of the highest.
pub fn sparkline_of_rates(values: &[f64], columns: usize) -> String {
    steps(last(values, columns), 0.0)
}

fn last(values: &[f64], columns: usize) -> &[f64] {
    &values[values.len().saturating_sub(columns)..]
}

fn steps(values: &[f64], lowest: f64) -> String {
    let highest = values.iter().copied().fold(0.0, f64::max);
    let height = highest - lowest;
    let step = |value: &f64| {
        let place = if height > 0.0 { ((value - lowest) / height * 7.0).round() as usize } else { 0 };
        STEPS[place.min(7)]
    };
    values.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_of_the_last_values() {
        assert_eq!(sparkline(&[99.0, 1.0, 2.0, 8.0], 3), "▁▂█");
        assert_eq!(sparkline_of_rates(&[4.0, 8.0, 0.0], 9), "▅█▁");
        assert_eq!(sparkline(&[5.0, 5.0], 9), "▁▁");
        assert_eq!(sparkline(&[], 9), "");
    }
}
