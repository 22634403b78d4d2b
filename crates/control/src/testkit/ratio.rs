//! Fractions, for oracles that round nothing.

use std::ops::{Add, Div, Mul, Sub};

/// An exact fraction in lowest terms. Arithmetic that leaves 128 bits panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    numerator: i128,
    denominator: i128,
}

impl Ratio {
    /// 0.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };
    /// 1.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// `numerator / denominator`.
    ///
    /// # Panics
    /// If the denominator is 0.
    #[must_use]
    pub fn new(numerator: i128, denominator: i128) -> Self {
        assert!(denominator != 0, "a fraction has a denominator");
        let divisor = greatest_common_divisor(numerator, denominator) * denominator.signum();
        Self { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    /// The nearest number.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

fn greatest_common_divisor(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn times(a: i128, b: i128) -> i128 {
    a.checked_mul(b).expect("a fraction's parts have 128 bits")
}

impl From<u32> for Ratio {
    fn from(whole: u32) -> Self {
        Self { numerator: i128::from(whole), denominator: 1 }
    }
}

impl Add for Ratio {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let shared = greatest_common_divisor(self.denominator, other.denominator);
        let (own, others) = (other.denominator / shared, self.denominator / shared);
        Self::new(times(self.numerator, own) + times(other.numerator, others), times(self.denominator, own))
    }
}

impl Sub for Ratio {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + Self { numerator: -other.numerator, ..other }
    }
}

impl Mul for Ratio {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        // Crosswise first, so that the products are in lowest terms.
        let a = Self::new(self.numerator, other.denominator);
        let b = Self::new(other.numerator, self.denominator);
        Self { numerator: times(a.numerator, b.numerator), denominator: times(a.denominator, b.denominator) }
    }
}

impl Div for Ratio {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        // Crosswise first, as for products.
        let a = Self::new(self.numerator, other.numerator);
        let b = Self::new(other.denominator, self.denominator);
        Self::new(times(a.numerator, b.numerator), times(a.denominator, b.denominator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_that_of_fractions() {
        let (a, b) = (Ratio::new(1, 6), Ratio::new(-3, 4));
        assert_eq!(a + b, Ratio::new(-7, 12));
        assert_eq!(a - b, Ratio::new(11, 12));
        assert_eq!(a * b, Ratio::new(1, -8));
        assert_eq!(a / b, Ratio::new(-2, 9));
        assert_eq!(Ratio::new(-7, -28), Ratio::new(1, 4));
        assert_eq!(Ratio::from(3) * Ratio::ZERO, Ratio::ZERO);
        assert_eq!(b.to_f64(), -0.75);
    }
}
