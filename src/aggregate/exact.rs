//! Exact sums: integers of any size, in 64-bit limbs.
//!
//! A float is an integer times a power of two, so a sum of floats is an integer too when the unit is the least float
//! (2^-1074). Adding integers loses nothing: what is added and later taken away leaves no trace, which no sum in
//! floating point can promise. Only the limbs between the lowest and the highest that are used are kept, so that a
//! sum of ordinary values takes two or three of them. (The idea is Kulisch's long accumulator.)

use crate::error::{Error, Result};
use arrow::datatypes::i256;

/// The power of two that is the unit of a sum of floats.
pub(crate) const FLOAT_UNIT: i64 = -1074;

/// An integer: `limbs`, least first, in two's complement with the last limb's sign going on forever, times
/// 2^(64 * base).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Exact {
    base: usize,
    limbs: Vec<u64>,
}

impl Exact {
    /// Adds a finite float, so many times, in units of 2^-1074.
    pub(crate) fn add_float(&mut self, value: f64, times: i64) {
        let (mantissa, exponent) = parts_of(value);
        if mantissa != 0 {
            self.add_shifted(i128::from(mantissa) * i128::from(times), exponent);
        }
    }

    /// Adds the product of two finite floats, so many times, in units of 2^-2148.
    pub(crate) fn add_product(&mut self, a: f64, b: f64, times: i64) {
        let (a, a_exponent) = parts_of(a);
        let (b, b_exponent) = parts_of(b);
        let product = i128::from(a) * i128::from(b);
        if product == 0 {
            return;
        }
        // The product has up to 106 bits: two halves leave room for the weight.
        let (high, low) = (product >> 53, product & ((1 << 53) - 1));
        let exponent = a_exponent + b_exponent;
        self.add_shifted(low * i128::from(times), exponent);
        self.add_shifted(high * i128::from(times), exponent + 53);
    }

    /// Adds value * 2^shift.
    pub(crate) fn add_shifted(&mut self, value: i128, shift: usize) {
        let (limb, bits) = (shift / 64, shift % 64);
        let low = (value as u128) << bits;
        let high = if bits == 0 { value >> 127 } else { value >> (128 - bits) };
        self.add_limbs(limb, &[low as u64, (low >> 64) as u64, high as u64]);
    }

    /// Adds another one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.add_limbs(other.base, &other.limbs);
    }

    /// Adds a 256-bit integer.
    pub(crate) fn add_i256(&mut self, value: i256) {
        let (low, high) = value.to_parts();
        let high = high as u128;
        self.add_limbs(0, &[low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64]);
    }

    fn add_limbs(&mut self, base: usize, other: &[u64]) {
        let Some(other_fill) = other.last().map(|limb| fill_of(*limb)) else {
            return;
        };
        if self.limbs.is_empty() {
            self.base = base;
        }
        if base < self.base {
            self.limbs.splice(0..0, std::iter::repeat_n(0, self.base - base));
            self.base = base;
        }
        // One limb more than either has, so that the sum cannot overflow.
        let from = base - self.base;
        let fill = self.fill();
        let needed = (from + other.len()).max(self.limbs.len()) + 1;
        self.limbs.resize(needed, fill);
        let mut carry = false;
        for (index, limb) in self.limbs[from..].iter_mut().enumerate() {
            let part = other.get(index).copied().unwrap_or(other_fill);
            let (sum, first) = limb.overflowing_add(part);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            *limb = sum;
            carry = first || second;
        }
        self.trim();
    }

    /// Drops limbs that say nothing: equal numbers are equal in every field.
    fn trim(&mut self) {
        while let [.., before, last] = self.limbs.as_slice() {
            if *last != fill_of(*before) {
                break;
            }
            self.limbs.pop();
        }
        let zeros = self.limbs.iter().take_while(|limb| **limb == 0).count();
        if zeros == self.limbs.len() {
            *self = Self::default();
        } else if zeros > 0 {
            self.limbs.drain(..zeros);
            self.base += zeros;
        }
    }

    fn fill(&self) -> u64 {
        self.limbs.last().map_or(0, |limb| fill_of(*limb))
    }

    /// Whether it is 0.
    pub(crate) fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    /// Whether it is below 0.
    pub(crate) fn is_negative(&self) -> bool {
        self.fill() != 0
    }

    /// The number times -1.
    pub(crate) fn negated(&self) -> Self {
        let mut negated = Self {
            base: self.base,
            limbs: self.limbs.iter().map(|limb| !limb).collect(),
        };
        if !self.is_zero() {
            negated.add_limbs(self.base, &[1, 0]);
        }
        negated
    }

    /// The absolute value's limbs from limb 0 on, unsigned.
    fn magnitude(&self) -> Vec<u64> {
        let positive = if self.is_negative() {
            self.negated()
        } else {
            self.clone()
        };
        let mut limbs = vec![0; positive.base];
        limbs.extend_from_slice(&positive.limbs);
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
        limbs
    }

    fn from_magnitude(mut limbs: Vec<u64>, negative: bool) -> Self {
        limbs.push(0);
        let mut number = Self { base: 0, limbs };
        number.trim();
        if negative { number.negated() } else { number }
    }

    /// The product of two.
    pub(crate) fn product(&self, other: &Self) -> Self {
        let positive = |number: &Self| {
            if number.is_negative() {
                number.negated()
            } else {
                number.clone()
            }
        };
        let (a, b) = (positive(self), positive(other));
        let mut limbs = vec![0_u64; a.limbs.len() + b.limbs.len() + 1];
        for (i, x) in a.limbs.iter().enumerate() {
            let mut carry = 0_u128;
            for (j, y) in b.limbs.iter().enumerate() {
                let sum = u128::from(*x) * u128::from(*y) + u128::from(limbs[i + j]) + carry;
                limbs[i + j] = sum as u64;
                carry = sum >> 64;
            }
            limbs[i + b.limbs.len()] = carry as u64;
        }
        let mut product = Self {
            base: a.base + b.base,
            limbs,
        };
        product.trim();
        if self.is_negative() == other.is_negative() {
            product
        } else {
            product.negated()
        }
    }

    /// The product with a small integer.
    pub(crate) fn times(&self, factor: i64) -> Self {
        let mut small = Self::default();
        small.add_shifted(i128::from(factor), 0);
        self.product(&small)
    }

    /// The quotient by positive integers one after another, rounded half away from zero.
    pub(crate) fn divided(&self, divisors: &[u64]) -> Self {
        // floor(floor(a / b) / c) = floor(a / (b * c)); and rounding is floor(2 * a / d + 1) / 2.
        let mut limbs = self.times(2).magnitude();
        for divisor in divisors {
            let mut rest = 0_u128;
            for limb in limbs.iter_mut().rev() {
                let part = (rest << 64) | u128::from(*limb);
                *limb = (part / u128::from(*divisor)) as u64;
                rest = part % u128::from(*divisor);
            }
        }
        let mut twice = Self::from_magnitude(limbs, false);
        twice.add_shifted(1, 0);
        let mut limbs = twice.magnitude();
        for index in 0..limbs.len() {
            let next = limbs.get(index + 1).copied().unwrap_or(0);
            limbs[index] = (limbs[index] >> 1) | (next << 63);
        }
        Self::from_magnitude(limbs, self.is_negative())
    }

    /// The number as a 256-bit integer, if it fits.
    pub(crate) fn to_i256(&self) -> Option<i256> {
        if self.base + self.limbs.len() > 4 {
            return None;
        }
        let limb = |index: usize| match index.checked_sub(self.base) {
            None => 0,
            Some(place) => self.limbs.get(place).copied().unwrap_or(self.fill()),
        };
        let low = u128::from(limb(0)) | (u128::from(limb(1)) << 64);
        let high = u128::from(limb(2)) | (u128::from(limb(3)) << 64);
        Some(i256::from_parts(low, high as i128))
    }

    /// The nearest float f and an exponent e such that the number is about f * 2^e, 2^52 <= |f| <= 2^53 (ties to
    /// even); f is 0 for 0, and smaller for numbers of fewer bits.
    pub(crate) fn to_scaled(&self) -> (f64, i64) {
        let limbs = self.magnitude();
        let Some(last) = limbs.last() else {
            return (0.0, 0);
        };
        let bits = limbs.len() * 64 - last.leading_zeros() as usize;
        let shift = bits.saturating_sub(53);
        let bit = |index: usize| (limbs[index / 64] >> (index % 64)) & 1;
        let (limb, offset) = (shift / 64, shift % 64);
        let low = u128::from(limbs[limb]) | (u128::from(limbs.get(limb + 1).copied().unwrap_or(0)) << 64);
        let mut mantissa = (low >> offset) as u64 & ((1 << 53) - 1);
        if shift > 0 && bit(shift - 1) == 1 {
            let sticky = (0..(shift - 1) / 64).any(|index| limbs[index] != 0)
                || limbs[(shift - 1) / 64] & ((1 << ((shift - 1) % 64)) - 1) != 0;
            mantissa += u64::from(sticky || mantissa & 1 == 1);
        }
        let float = mantissa as f64;
        (if self.is_negative() { -float } else { float }, shift as i64)
    }

    /// The float nearest to the number times 2^-1074; `None` when it is too large for one.
    pub(crate) fn to_float(&self) -> Option<f64> {
        let (mantissa, shift) = self.to_scaled();
        // A number of up to 53 bits is, as a float in units of 2^-1074, its own bit pattern; each further power of
        // two is one more in the exponent field.
        let magnitude = mantissa.abs() as u64;
        let bits = if shift == 0 {
            magnitude
        } else {
            ((shift as u64) << 52).checked_add(magnitude)?
        };
        let float = f64::from_bits(bits);
        (shift < 2048 && float.is_finite()).then_some(if mantissa < 0.0 { -float } else { float })
    }

    /// Appends the number to a state.
    pub(crate) fn write(&self, state: &mut Vec<u8>) {
        super::state::put_u64(state, self.base as u64);
        super::state::put_u64(state, self.limbs.len() as u64);
        for limb in &self.limbs {
            state.extend_from_slice(&limb.to_le_bytes());
        }
    }

    /// Takes the number from a state.
    pub(crate) fn read(state: &mut &[u8]) -> Result<Self> {
        let base = super::state::take_u64(state)? as usize;
        let count = super::state::take_u64(state)? as usize;
        let bytes = state
            .split_off(..count.saturating_mul(8))
            .ok_or_else(super::state::damaged)?;
        let limbs = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|limb| u64::from_le_bytes(*limb))
            .collect();
        Ok(Self { base, limbs })
    }
}

/// All ones for a negative last limb, all zeros for another.
fn fill_of(limb: u64) -> u64 {
    if limb >> 63 == 1 { u64::MAX } else { 0 }
}

/// A finite float's signed mantissa and its shift: value = mantissa * 2^(shift - 1074).
fn parts_of(value: f64) -> (i64, usize) {
    let bits = value.to_bits();
    let field = ((bits >> 52) & 0x7ff) as usize;
    let fraction = (bits & ((1 << 52) - 1)) as i64;
    let (mantissa, shift) = if field == 0 {
        (fraction, 0)
    } else {
        (fraction | (1 << 52), field - 1)
    };
    (if value.is_sign_negative() { -mantissa } else { mantissa }, shift)
}

/// value * 2^exponent, also where 2^exponent alone is no float.
pub(crate) fn scale_by_power(value: f64, exponent: i64) -> f64 {
    let mut value = value;
    let mut left = exponent.clamp(-5000, 5000);
    while left != 0 {
        let step = left.clamp(-1000, 1000);
        value *= 2.0_f64.powi(step as i32);
        left -= step;
    }
    value
}

/// The error for a float result that is too large.
pub(crate) fn float_overflow() -> Error {
    Error::semantic("22003", "value out of range: overflow")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[f64]) -> Exact {
        let mut sum = Exact::default();
        values.iter().for_each(|value| sum.add_float(*value, 1));
        sum
    }

    #[test]
    fn what_came_and_went_leaves_no_trace() {
        let mut total = sum(&[0.1, 1e300, -1e300, 5e-324, 1e-300]);
        total.add_float(5e-324, -1);
        total.add_float(1e-300, -1);
        assert_eq!(total.to_float(), Some(0.1));
        total.add_float(0.1, -1);
        assert_eq!(total, Exact::default());
    }

    #[test]
    fn one_value_comes_back_as_it_is() {
        for value in [
            1.0,
            -1.0,
            0.1,
            5e-324,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            1e-310,
            12345.678,
        ] {
            assert_eq!(sum(&[value]).to_float(), Some(value), "{value}");
        }
    }

    #[test]
    fn sums_are_rounded_once_and_overflow_is_seen() {
        assert_eq!(sum(&[1e16, 1.0, 1.0]).to_float(), Some(1e16 + 2.0));
        assert_eq!(sum(&[1.0, 2.0_f64.powi(-53)]).to_float(), Some(1.0));
        assert_eq!(
            sum(&[1.0, 2.0_f64.powi(-53), 5e-324]).to_float(),
            Some(1.0 + f64::EPSILON)
        );
        assert_eq!(sum(&[f64::MAX, f64::MAX]).to_float(), None);
    }

    #[test]
    fn integers_multiply_and_divide() {
        let number = |value: i128| {
            let mut number = Exact::default();
            number.add_shifted(value, 0);
            number
        };
        for a in [
            0_i128,
            1,
            -1,
            7,
            -12_345_678_901_234_567_890,
            i128::from(i64::MIN),
            1 << 100,
        ] {
            for b in [1_i64, -3, 1 << 20, i64::MAX] {
                let expected = i256::from_i128(a).wrapping_mul(i256::from_i128(i128::from(b)));
                assert_eq!(number(a).times(b).to_i256(), Some(expected), "{a} * {b}");
            }
            assert_eq!(number(a).negated().to_i256(), Some(i256::from_i128(-a)));
        }
        assert_eq!(number(7).divided(&[2]).to_i256(), Some(i256::from_i128(4)));
        assert_eq!(number(-7).divided(&[2]).to_i256(), Some(i256::from_i128(-4)));
        assert_eq!(number(100).divided(&[3, 4]).to_i256(), Some(i256::from_i128(8)));
        assert_eq!(number(1 << 64).divided(&[1]).to_i256(), Some(i256::from_i128(1 << 64)));
    }

    #[test]
    fn a_state_comes_back() -> Result<()> {
        let number = sum(&[1e300, -3.5, 1e-300]);
        let mut state = Vec::new();
        number.write(&mut state);
        assert_eq!(Exact::read(&mut state.as_slice())?, number);
        Ok(())
    }
}
