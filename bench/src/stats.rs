//! Median and percentiles.

/// The median; of an even count, the mean of the two in the middle.
///
/// # Panics
///
/// When there are no numbers.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let sorted = sorted(numbers);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// The smallest number that at least `percent` of all are not above (nearest rank).
///
/// # Panics
///
/// When there are no numbers, or `percent` is not in 1..=100.
pub(crate) fn percentile(numbers: &[f64], percent: usize) -> f64 {
    assert!((1..=100).contains(&percent), "a percentile is between 1 and 100");
    let sorted = sorted(numbers);
    sorted[(sorted.len() * percent).div_ceil(100) - 1]
}

fn sorted(numbers: &[f64]) -> Vec<f64> {
    assert!(!numbers.is_empty(), "nothing was measured");
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 30.0]), 3.0);
    }

    #[test]
    fn a_percentile_is_one_of_the_numbers() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50), 50.0);
        assert_eq!(percentile(&hundred, 99), 99.0);
        assert_eq!(percentile(&hundred, 100), 100.0);
        assert_eq!(percentile(&hundred, 1), 1.0);
        assert_eq!(percentile(&[7.0, 5.0], 99), 7.0);
        assert_eq!(percentile(&[7.0], 1), 7.0);
    }

    #[test]
    #[should_panic(expected = "nothing was measured")]
    fn nothing_has_no_median() {
        median(&[]);
    }
}
