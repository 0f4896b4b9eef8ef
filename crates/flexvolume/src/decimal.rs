//! Decimal numbers, exactly.

/// An unsigned decimal number as it is written, such as `12`, `1.5` or `.5`,
/// moved by a power of ten.
///
/// It borrows its digits and is never converted to floating point: sizes come
/// out to the byte. However long the number and however large the exponent,
/// the work is bounded by the length of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal<'t> {
    whole: &'t str,
    fraction: &'t str,
    exponent: i64,
}

/// More digits than this before the point exceed 64 bits, and a 64-bit number
/// divided by ten this often is zero.
const DIGITS_OF_U64: i64 = 20;

impl<'t> Decimal<'t> {
    /// The number at the front of `text`, and what follows it. There must be
    /// a digit before the point or after it.
    #[must_use]
    pub fn split(text: &'t str) -> Option<(Self, &'t str)> {
        let (whole, rest) = split_digits(text);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(after_point) => split_digits(after_point),
            None => ("", rest),
        };
        let number = Self {
            whole,
            fraction,
            exponent: 0,
        };
        (!whole.is_empty() || !fraction.is_empty()).then_some((number, rest))
    }

    /// The power of ten in `text`, which must be nothing but an exponent such
    /// as `e9` or `E-3`. One beyond 64 bits is cut to the nearest that fits:
    /// no size can tell the difference.
    #[must_use]
    pub fn exponent(text: &str) -> Option<i64> {
        let signed = text.strip_prefix(['e', 'E'])?;
        let (digits, limit) = match signed.strip_prefix('-') {
            Some(digits) => (digits, i64::MIN),
            None => (signed.strip_prefix('+').unwrap_or(signed), i64::MAX),
        };
        let all_digits = !digits.is_empty() && split_digits(digits).1.is_empty();
        all_digits.then(|| signed.parse().unwrap_or(limit))
    }

    /// This number times ten to the power of `exponent`.
    #[must_use]
    pub fn shifted(self, exponent: i64) -> Self {
        Self {
            exponent: self.exponent.saturating_add(exponent),
            ..self
        }
    }

    /// Whether it is exactly zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.digits().all(|digit| digit == 0)
    }

    /// The product with `factor`, rounded up to a whole number; nothing if
    /// that exceeds 64 bits.
    #[must_use]
    pub fn times_rounded_up(self, factor: u64) -> Option<u64> {
        if factor == 0 || self.is_zero() {
            return Some(0);
        }
        let whole = self.whole_part()?.checked_mul(u128::from(factor))?;
        let product = whole.checked_add(self.fraction_times_rounded_up(factor))?;
        u64::try_from(product).ok()
    }

    fn digits(self) -> impl DoubleEndedIterator<Item = u8> + 't {
        let (whole, fraction) = (self.whole.bytes(), self.fraction.bytes());
        whole.chain(fraction).map(|byte| byte - b'0')
    }

    /// How many digits stand before the point once the exponent has moved it.
    /// Negative if zeros are to be put in between.
    fn point(self) -> i64 {
        let written = i64::try_from(self.whole.len()).unwrap_or(i64::MAX);
        written.saturating_add(self.exponent)
    }

    fn whole_part(self) -> Option<u128> {
        let leading_zeros = self.digits().take_while(|&digit| digit == 0).count();
        let significant = self
            .point()
            .saturating_sub(i64::try_from(leading_zeros).ok()?);
        if significant > DIGITS_OF_U64 {
            return None;
        }
        let significant = usize::try_from(significant).unwrap_or(0);
        let digits = self
            .digits()
            .skip(leading_zeros)
            .chain(std::iter::repeat(0));
        let push = |number: u128, digit: u8| number * 10 + u128::from(digit);
        Some(digits.take(significant).fold(0, push))
    }

    /// Multiplies as on paper, from the last digit on, and drops what falls
    /// behind the point; whether anything was dropped decides the rounding.
    fn fraction_times_rounded_up(self, factor: u64) -> u128 {
        let point = self.point();
        let behind_point = self.digits().skip(usize::try_from(point).unwrap_or(0));
        let zeros_between = usize::try_from(point.saturating_neg().min(DIGITS_OF_U64)).unwrap_or(0);

        let mut carry = 0;
        let mut dropped = false;
        let written = self.digits().rev().take(behind_point.count());
        for digit in written.chain(std::iter::repeat_n(0, zeros_between)) {
            let sum = u128::from(digit) * u128::from(factor) + carry;
            carry = sum / 10;
            dropped |= !sum.is_multiple_of(10);
        }
        carry + u128::from(dropped)
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Decimal<'_> {
        let (number, rest) = Decimal::split(text).unwrap();
        assert_eq!(rest, "");
        number
    }

    #[test]
    fn a_number_ends_where_its_digits_end() {
        let rest = |text| Decimal::split(text).map(|(_, rest)| rest);
        assert_eq!(rest("12MB"), Some("MB"));
        assert_eq!(rest("1.5.2"), Some(".2"));
        assert_eq!(rest("5."), Some(""));
        assert_eq!(rest(".5Gi"), Some("Gi"));
        assert_eq!(rest("."), None);
        assert_eq!(rest(""), None);
        assert_eq!(rest("-1"), None);
        assert_eq!(rest("٣"), None);
    }

    #[test]
    fn exponents_are_read_whole_or_not_at_all() {
        assert_eq!(Decimal::exponent("e9"), Some(9));
        assert_eq!(Decimal::exponent("E+3"), Some(3));
        assert_eq!(Decimal::exponent("e-3"), Some(-3));
        assert_eq!(Decimal::exponent("e99999999999999999999"), Some(i64::MAX));
        assert_eq!(Decimal::exponent("e-99999999999999999999"), Some(i64::MIN));
        for text in ["e", "E", "e+", "e-", "e+-1", "e1.5", "e1B", "9", "", "ee1"] {
            assert_eq!(Decimal::exponent(text), None, "{text}");
        }
    }

    #[test]
    fn products_are_exact_and_rounded_up() {
        let gib = 1 << 30;
        assert_eq!(number("1.5").times_rounded_up(gib), Some(3 << 29));
        assert_eq!(number("0.1").times_rounded_up(gib), Some(107_374_183));
        assert_eq!(number(".5").times_rounded_up(1), Some(1));
        assert_eq!(number("007.0").times_rounded_up(2), Some(14));
        assert_eq!(number("0.000").times_rounded_up(gib), Some(0));
        assert_eq!(
            number("18446744073709551615").times_rounded_up(1),
            Some(u64::MAX)
        );
        assert_eq!(number("18446744073709551616").times_rounded_up(1), None);
        assert_eq!(
            number("18446744073709551614.1").times_rounded_up(1),
            Some(u64::MAX)
        );
        assert_eq!(
            number("99999999999999999999").times_rounded_up(u64::MAX),
            None
        );
    }

    #[test]
    fn exponents_of_any_size_are_answered_at_once() {
        let one = number("1");
        assert_eq!(one.shifted(i64::MAX).times_rounded_up(1), None);
        assert_eq!(one.shifted(i64::MIN).times_rounded_up(u64::MAX), Some(1));
        assert_eq!(number("0.0").shifted(i64::MAX).times_rounded_up(1), Some(0));
        let tiny = format!("0.{}1", "0".repeat(5000));
        assert_eq!(number(&tiny).shifted(5001).times_rounded_up(7), Some(7));
        assert_eq!(number(&tiny).shifted(5003).times_rounded_up(7), Some(700));
        assert_eq!(number(&tiny).times_rounded_up(u64::MAX), Some(1));
        let long = format!("{}.0", "9".repeat(5000));
        assert_eq!(number(&long).times_rounded_up(1), None);
        assert_eq!(number(&long).shifted(-4999).times_rounded_up(1), Some(10));
    }

    proptest! {
        #[test]
        fn agrees_with_fractions_in_128_bits(
            whole in 0..10_u64.pow(12),
            thousandths in 0..1000_u64,
            exponent in -6..=6_i64,
            factor in 1..=1_u64 << 40,
        ) {
            let text = format!("{whole}.{thousandths:03}");
            let numerator = u128::from(whole * 1000 + thousandths) * u128::from(factor);
            let power = 10_u128.pow(u32::try_from(exponent.abs()).unwrap());
            let exact = if exponent < 0 {
                numerator.div_ceil(1000 * power)
            } else {
                (numerator * power).div_ceil(1000)
            };
            prop_assert_eq!(
                number(&text).shifted(exponent).times_rounded_up(factor),
                u64::try_from(exact).ok()
            );
        }

        #[test]
        fn no_text_upsets_it(text in "[0-9.eE+-]{0,40}|\\PC*", factor: u64, exponent: i64) {
            let _ = Decimal::exponent(&text);
            if let Some((number, rest)) = Decimal::split(&text) {
                prop_assert!(text.ends_with(rest));
                let _ = number.shifted(exponent).times_rounded_up(factor);
            }
        }
    }
}
