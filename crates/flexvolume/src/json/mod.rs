//! JSON as FlexVolume calls have it: one object, all of whose values are texts.
//!
//! Anything else is refused at once, so there is no nesting to get lost in.

use std::fmt;

/// No text that is read is longer. The kubelet's are shorter by far: Linux hands
/// a program no argument of 128 KiB.
const MAX_BYTES: usize = 1 << 20;

/// Reads an object of texts; its entries in their order.
pub(crate) fn read_texts(bytes: &[u8]) -> Result<Vec<(String, String)>, JsonError> {
    if bytes.len() > MAX_BYTES {
        return Err(JsonError::TooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::Syntax {
        at: error.valid_up_to(),
        wanted: "UTF-8",
    })?;
    let mut reader = Reader { text, at: 0 };
    let entries = reader.object()?;
    reader.skip_blanks();
    if reader.at < text.len() {
        return Err(JsonError::Rest { at: reader.at });
    }
    let mut keys: Vec<_> = entries.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(JsonError::Repeated(pair[0].clone())),
        None => Ok(entries),
    }
}

/// Writes an object of texts in the order of its keys.
pub(crate) fn write_texts(mut entries: Vec<(&str, String)>) -> String {
    entries.sort_unstable();
    let entries = entries.iter();
    let pairs: Vec<_> = entries
        .map(|(key, value)| format!("{}:{}", quote(key), quote(value)))
        .collect();
    format!("{{{}}}", pairs.join(","))
}

/// A text as JSON has it.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\u{0}'..='\u{1f}' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Why a text is no object of texts. It tells nothing of the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonError {
    /// It is longer than any that is read.
    TooLong,
    /// It is not JSON, or no object.
    Syntax {
        /// Where, in bytes from the beginning.
        at: usize,
        /// What should be there.
        wanted: &'static str,
    },
    /// Something follows the object.
    Rest {
        /// Where, in bytes from the beginning.
        at: usize,
    },
    /// The value of this key is something else than a text.
    NotAText(String),
    /// This key is there twice.
    Repeated(String),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "more than {MAX_BYTES} bytes"),
            Self::Syntax { at, wanted } => write!(f, "no {wanted} at byte {at}"),
            Self::Rest { at } => write!(f, "something follows the object, at byte {at}"),
            Self::NotAText(key) => write!(f, "the value of {key:?} is not a text"),
            Self::Repeated(key) => write!(f, "{key:?} is there twice"),
        }
    }
}

impl std::error::Error for JsonError {}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn object(&mut self) -> Result<Vec<(String, String)>, JsonError> {
        self.expect(b'{', "object")?;
        let mut entries = Vec::new();
        if self.take(b'}') {
            return Ok(entries);
        }
        loop {
            self.expect(b'"', "key")?;
            let key = self.rest_of_text()?;
            self.expect(b':', "colon")?;
            if !self.take(b'"') {
                return Err(JsonError::NotAText(key));
            }
            entries.push((key, self.rest_of_text()?));
            if self.take(b'}') {
                return Ok(entries);
            }
            self.expect(b',', "comma or end of the object")?;
        }
    }

    /// A text, whose opening quote has been read.
    fn rest_of_text(&mut self) -> Result<String, JsonError> {
        let mut text = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let special = |c: char| matches!(c, '"' | '\\' | '\u{0}'..='\u{1f}');
            let plain = rest.find(special).unwrap_or(rest.len());
            text.push_str(&rest[..plain]);
            self.at += plain;
            match self.next_byte() {
                Some(b'"') => return Ok(text),
                Some(b'\\') => text.push(self.escaped()?),
                _ => return Err(self.wants("end of a text")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, JsonError> {
        Ok(match self.next_byte() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code(),
            _ => return Err(self.wants("known escape")),
        })
    }

    /// A character by its number; those beyond 16 bits come in two parts.
    fn code(&mut self) -> Result<char, JsonError> {
        let mut code = self.four_digits()?;
        if let 0xd800..=0xdbff = code {
            let follows = self.next_byte() == Some(b'\\') && self.next_byte() == Some(b'u');
            let low = if follows { self.four_digits()? } else { 0 };
            code = match low {
                0xdc00..=0xdfff => 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00),
                _ => return Err(self.wants("second half of a character")),
            };
        }
        char::from_u32(code).ok_or_else(|| self.wants("first half of a character"))
    }

    fn four_digits(&mut self) -> Result<u32, JsonError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self
                .next_byte()
                .and_then(|byte| char::from(byte).to_digit(16));
            code = code << 4 | digit.ok_or_else(|| self.wants("hexadecimal digit"))?;
        }
        Ok(code)
    }

    fn expect(&mut self, byte: u8, wanted: &'static str) -> Result<(), JsonError> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.wants(wanted))
        }
    }

    /// Whether this byte comes next, blanks aside; it is then read.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let is_next = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_blanks(&mut self) {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().take_while(is_blank).count();
    }

    fn next_byte(&mut self) -> Option<u8> {
        let byte = self.text.as_bytes().get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn wants(&self, wanted: &'static str) -> JsonError {
        let at = self.at;
        JsonError::Syntax { at, wanted }
    }
}

#[cfg(test)]
mod tests;
