//! What a plain scalar means.
//!
//! The rules are those of the YAML library under kubectl and the API server
//! (YAML 1.1 with Go's number syntax), not YAML 1.2's: `on` is true and a
//! leading zero means octal, as `defaultMode: 0400` relies on.

use super::Value;

/// Resolves an unquoted scalar.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            return Value::Bool(true);
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    let starts_a_number = text
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.'));
    if starts_a_number {
        if let Some(number) = integer(text) {
            return Value::Int(number, text.into());
        }
        if let Some(number) = float(text) {
            return Value::Float(number, text.into());
        }
    }
    Value::Str(text.into())
}

fn integer(text: &str) -> Option<i64> {
    let digits = text.replace('_', "");
    let (negative, digits) = match digits.as_bytes().first()? {
        b'-' => (true, &digits[1..]),
        b'+' => (false, &digits[1..]),
        _ => (false, &digits[..]),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|b| char::from(b).is_digit(radix)) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

fn float(text: &str) -> Option<f64> {
    match text.trim_start_matches(['+', '-']) {
        ".inf" | ".Inf" | ".INF" => {
            return Some(if text.starts_with('-') {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            });
        }
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        _ => {}
    }
    let is_float = text.bytes().any(|b| b.is_ascii_digit())
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    is_float.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_they_mean_to_kubernetes() {
        let int = |text: &str, n| assert_eq!(resolve(text), Value::Int(n, text.into()), "{text}");
        int("42", 42);
        int("-1", -1);
        int("0640", 0o640);
        int("0o640", 0o640);
        int("0x1F", 31);
        int("0b101", 5);
        int("1_000", 1000);
        int("0", 0);
        int("-9223372036854775808", i64::MIN);
        assert_eq!(resolve("yes"), Value::Bool(true));
        assert_eq!(resolve("off"), Value::Bool(false));
        assert_eq!(resolve("~"), Value::Null);
        assert_eq!(resolve("1.5"), Value::Float(1.5, "1.5".into()));
        assert_eq!(resolve("1e3"), Value::Float(1000.0, "1e3".into()));
        assert_eq!(resolve("089"), Value::Float(89.0, "089".into()));
        for text in [
            "1024MB",
            "10.192.0.1:6789",
            "1:30",
            "-",
            "1.2.3",
            ".",
            "0x",
            "+",
        ] {
            assert_eq!(resolve(text), Value::Str(text.into()), "{text}");
        }
    }

    #[test]
    fn numbers_too_large_for_64_bits_become_floats() {
        assert!(matches!(resolve("99999999999999999999"), Value::Float(..)));
    }
}
