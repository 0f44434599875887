//! From values to positions, and which values deserve a tick.

/// A straight or logarithmic mapping of values to positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// Equal steps for equal differences.
    Linear {
        /// First and last value.
        domain: (f64, f64),
        /// Their positions.
        range: (f64, f64),
    },
    /// Equal steps for equal ratios; both values must be above zero.
    Logarithmic {
        /// First and last value.
        domain: (f64, f64),
        /// Their positions.
        range: (f64, f64),
    },
}

impl Scale {
    /// Position of a value.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let (value, (low, high), (from, to)) = match *self {
            Self::Linear { domain, range } => (value, domain, range),
            Self::Logarithmic { domain, range } => {
                (value.max(f64::MIN_POSITIVE).ln(), (domain.0.ln(), domain.1.ln()), range)
            }
        };
        if high == low { (from + to) / 2.0 } else { from + (value - low) / (high - low) * (to - from) }
    }

    /// First and last value.
    pub(crate) fn domain(&self) -> (f64, f64) {
        match *self {
            Self::Linear { domain, .. } | Self::Logarithmic { domain, .. } => domain,
        }
    }

    /// The same values over other positions.
    pub(crate) fn over(self, range: (f64, f64)) -> Self {
        match self {
            Self::Linear { domain, .. } => Self::Linear { domain, range },
            Self::Logarithmic { domain, .. } => Self::Logarithmic { domain, range },
        }
    }

    /// A scale from zero to a round number at or above `highest`, with its ticks.
    pub(crate) fn from_zero(highest: f64, tick_count: usize) -> (Self, Vec<f64>) {
        let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
        // A few more ticks are fine where they save empty space above the values.
        let end = |count: usize| {
            let step = nice_step(highest / count.max(1) as f64);
            (step, (highest / step - 1e-9).ceil().max(1.0))
        };
        let (step, steps) = (tick_count..tick_count + 3)
            .map(end)
            .min_by(|a, b| (a.0 * a.1).total_cmp(&(b.0 * b.1)))
            .unwrap_or((highest, 1.0));
        let ticks = (0..=steps as usize).map(|i| i as f64 * step).collect();
        (Self::Linear { domain: (0.0, steps * step), range: (0.0, 1.0) }, ticks)
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `rough`.
pub(crate) fn nice_step(rough: f64) -> f64 {
    if !(rough.is_finite() && rough > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(rough.log10().floor());
    let factor =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= rough * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * power
}

/// Ticks at round numbers inside `low..=high`, about `count` of them.
pub(crate) fn ticks_between(low: f64, high: f64, count: usize) -> Vec<f64> {
    if !(low.is_finite() && high.is_finite()) || high <= low {
        return vec![low];
    }
    let step = nice_step((high - low) / count.max(1) as f64);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|i| i as f64 * step).collect()
}

/// Powers of two inside `low..=high`; every second, third.. when there are more than `count`.
pub(crate) fn powers_of_two(low: f64, high: f64, count: usize) -> Vec<f64> {
    if !(low > 0.0 && high >= low && high.is_finite()) {
        return Vec::new();
    }
    let first = (low.log2() - 1e-9).ceil() as i32;
    let last = (high.log2() + 1e-9).floor() as i32;
    let total = usize::try_from(last - first + 1).unwrap_or(0);
    let stride = total.div_ceil(count.max(1)).max(1);
    (first..=last).step_by(stride).map(|power| 2f64.powi(power)).collect()
}

/// Round numbers inside `low..=high` of a logarithmic axis: 1, 2 and 5 times powers of ten where
/// that gives at most `count` of them, else the powers alone.
pub(crate) fn decades(low: f64, high: f64, count: usize) -> Vec<f64> {
    if !(low > 0.0 && high >= low && high.is_finite()) {
        return Vec::new();
    }
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let inside = |factors: &[f64]| -> Vec<f64> {
        let all =
            powers.clone().flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        all.filter(|value| (low..=high).contains(value)).collect()
    };
    let many = inside(&[1.0, 2.0, 5.0]);
    if many.len() <= count { many } else { inside(&[1.0]) }
}

/// At most `limit` points that keep the shape: per stretch of time its lowest
/// and its highest point, in order. Peaks survive, which a mean would flatten.
pub(crate) fn downsample(points: &[(f64, f64)], limit: usize) -> Vec<(f64, f64)> {
    if points.len() <= limit.max(2) {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil((limit / 2).max(1));
    let mut kept = Vec::with_capacity(limit);
    for chunk in points.chunks(stretch) {
        let lowest = (0..chunk.len()).min_by(|a, b| chunk[*a].1.total_cmp(&chunk[*b].1)).unwrap_or(0);
        let highest = (0..chunk.len()).max_by(|a, b| chunk[*a].1.total_cmp(&chunk[*b].1)).unwrap_or(0);
        kept.push(chunk[lowest.min(highest)]);
        if lowest != highest {
            kept.push(chunk[lowest.max(highest)]);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_computed_by_hand() {
        let linear = Scale::Linear { domain: (0.0, 40.0), range: (300.0, 20.0) };
        // 10 of 40 is a quarter: 300 - 280 / 4.
        assert_eq!(linear.at(10.0), 230.0);
        assert_eq!(linear.at(0.0), 300.0);
        assert_eq!(linear.at(40.0), 20.0);
        let log = Scale::Logarithmic { domain: (65_536.0, 67_108_864.0), range: (50.0, 150.0) };
        // 2^16 to 2^26 is ten doublings, 2^21 the fifth.
        assert!((log.at(2_097_152.0) - 100.0).abs() < 1e-9);
        let flat = Scale::Linear { domain: (3.0, 3.0), range: (0.0, 10.0) };
        assert_eq!(flat.at(3.0), 5.0);
    }

    #[test]
    fn ticks_are_round() {
        let (scale, ticks) = Scale::from_zero(23.3, 5);
        assert_eq!(ticks, [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        assert_eq!(scale.domain(), (0.0, 25.0));
        assert_eq!(Scale::from_zero(20.05, 4).0.domain(), (0.0, 25.0));
        assert_eq!(Scale::from_zero(25.0, 5).1.last(), Some(&25.0));
        assert_eq!(Scale::from_zero(0.0, 5).0.domain(), (0.0, 1.0));
        assert_eq!(ticks_between(16.2, 19.9, 4), [17.0, 18.0, 19.0]);
        assert_eq!(
            powers_of_two(65_536.0, 1_048_576.0, 10),
            [65_536.0, 131_072.0, 262_144.0, 524_288.0, 1_048_576.0]
        );
        assert_eq!(powers_of_two(65_536.0, 1_048_576.0, 3).len(), 3);
        assert!(powers_of_two(0.0, 10.0, 3).is_empty());
        assert_eq!(decades(0.08, 2.5, 9), [0.1, 0.2, 0.5, 1.0, 2.0]);
        assert_eq!(decades(0.02, 25.0, 5), [0.1, 1.0, 10.0]);
        assert!(decades(0.0, 25.0, 5).is_empty());
    }

    #[test]
    fn downsampling_keeps_the_extremes() {
        let points: Vec<_> =
            (0..3000).map(|i| (f64::from(i), if i == 1717 { 99.0 } else { f64::from(i % 7) })).collect();
        let kept = downsample(&points, 200);
        assert!(kept.len() <= 200);
        assert!(kept.contains(&(1717.0, 99.0)));
        assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(downsample(&points[..5], 200), points[..5]);
    }
}
