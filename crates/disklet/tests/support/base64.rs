//! base64, so that the tests do not believe the program's own.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The padded base64 of some bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit <= group.len() {
                let index = (bits >> (18 - 6 * digit)) & 63;
                text.push(char::from(DIGITS[index as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// The bytes of a base64 text; line breaks in it do not matter.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let packed: String = text.split_ascii_whitespace().collect();
    let digits = packed.trim_end_matches('=');
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for digit in digits.bytes() {
        let value = DIGITS.iter().position(|known| *known == digit)?;
        bits = (bits << 6 | u32::try_from(value).ok()?) & 0xf_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    (encode(&bytes) == packed).then_some(bytes)
}

#[test]
fn base64_goes_there_and_back() {
    for (bytes, text) in [
        (&b""[..], ""),
        (b"f", "Zg=="),
        (b"fo", "Zm8="),
        (b"foo", "Zm9v"),
        (b"\xff\xfe\xfd\x00", "//79AA=="),
    ] {
        assert_eq!(encode(bytes), text);
        assert_eq!(decode(text).as_deref(), Some(bytes));
    }
    assert_eq!(decode("Zm9"), None);
    assert_eq!(decode("a b!"), None);
}
