//! What a plain scalar means to a guest.
//!
//! cloud-init reads YAML with PyYAML, whose rules are YAML 1.1's to the letter:
//! `12e4` and `0o17` are texts, `1:30` is ninety, `y` is a letter. User data
//! that is read, merged and written again must mean what it meant before.

use super::Value;

/// Resolves an unquoted scalar.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    if let Some(number) = integer(text) {
        return Value::Int(number, text.into());
    }
    if let Some(number) = float(text) {
        return Value::Float(number, text.into());
    }
    Value::Str(text.into())
}

fn signed(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

/// Whether there is something, and all of it is digits or underscores.
fn is_number(digits: &str, radix: u32) -> bool {
    !digits.is_empty()
        && digits
            .chars()
            .all(|digit| digit == '_' || digit.is_digit(radix))
}

/// A number in base 10 that begins with a digit.
fn is_decimal(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit()) && is_number(text, 10)
}

/// A whole number. One beyond 64 bits stays a text: all its digits count.
fn integer(text: &str) -> Option<i64> {
    let (negative, body) = signed(text);
    let magnitude = if let Some(digits) = body.strip_prefix("0b") {
        in_base(digits, 2)
    } else if let Some(digits) = body.strip_prefix("0x") {
        in_base(digits, 16)
    } else if body == "0" {
        Some(0)
    } else if let Some(digits) = body.strip_prefix('0') {
        is_number(digits, 8).then(|| in_base(body, 8)).flatten()
    } else if is_decimal(body) {
        in_base(body, 10)
    } else {
        let (first, rest) = body.split_once(':')?;
        let first = is_decimal(first).then(|| in_base(first, 10))??;
        rest.split(':').try_fold(first, |sum, part| {
            sum.checked_mul(60)?
                .checked_add(i128::from(sixtieth(part)?))
        })
    }?;
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

fn in_base(digits: &str, radix: u32) -> Option<i128> {
    if !is_number(digits, radix) {
        return None;
    }
    i128::from_str_radix(&digits.replace('_', ""), radix).ok()
}

/// One or two digits, less than sixty.
fn sixtieth(text: &str) -> Option<u8> {
    let sound = matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| sound && *number < 60)
}

fn float(text: &str) -> Option<f64> {
    let (negative, body) = signed(text);
    let sign = if negative { -1.0 } else { 1.0 };
    match body {
        ".inf" | ".Inf" | ".INF" => return Some(sign * f64::INFINITY),
        ".nan" | ".NaN" | ".NAN" if body == text => return Some(f64::NAN),
        _ => {}
    }
    if let Some((hours, rest)) = body.split_once(':') {
        let (parts, fraction) = rest.split_once('.')?;
        if !is_decimal(hours) || !(fraction.is_empty() || is_number(fraction, 10)) {
            return None;
        }
        let mut sum = plain(hours)?;
        for part in parts.split(':') {
            sum = sum * 60.0 + f64::from(sixtieth(part)?);
        }
        let fraction = plain(&format!("0.{fraction}"))?;
        return Some(sign * (sum + fraction));
    }
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (body, None),
    };
    let sound = exponent.is_none_or(|exponent| {
        exponent
            .strip_prefix(['-', '+'])
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    });
    let (whole, fraction) = mantissa.split_once('.')?;
    let sound = sound
        && if whole.is_empty() {
            body == text && is_decimal(fraction)
        } else {
            is_decimal(whole) && (fraction.is_empty() || is_number(fraction, 10))
        };
    sound
        .then(|| plain(body))
        .flatten()
        .map(|number| sign * number)
}

fn plain(text: &str) -> Option<f64> {
    text.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_they_mean_to_a_guest() {
        for text in [
            "12e4",
            "1e3",
            "1.0e3",
            "0o17",
            "0:30",
            "1:60",
            "1::2.5",
            "-.5",
            "y",
            "N",
            "08",
            "1.2.3",
            "-",
            ".",
            "0x",
            "0b2",
            "99999999999999999999",
            "2001-01-01",
            "-.nan",
            "=",
        ] {
            assert_eq!(resolve(text), Value::Str(text.into()), "{text}");
        }
        for (text, number) in [
            ("1:30", 90),
            ("-1:00:00", -3600),
            ("017", 15),
            ("0_7", 7),
            ("0_", 0),
            ("0x_F", 15),
            ("+0b1_0", 2),
            ("1_000", 1000),
            ("-0", 0),
        ] {
            assert_eq!(resolve(text), Value::Int(number, text.into()), "{text}");
        }
        for (text, number) in [
            ("1.", 1.0),
            (".5", 0.5),
            ("1_0.5e+1", 105.0),
            ("1:30.5", 90.5),
        ] {
            assert_eq!(resolve(text), Value::Float(number, text.into()), "{text}");
        }
        assert_eq!(resolve("Off"), Value::Bool(false));
        assert_eq!(resolve("Null"), Value::Null);
    }
}
