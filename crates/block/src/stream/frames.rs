//! Wraps bytes as zstd frames, each of which can be unwrapped without the others.

use zstd_safe::{CCtx, CParameter};

use crate::error::{Error, ErrorKind, Result};

/// Fast: what is to be saved are zeroes and text.
const LEVEL: i32 = 1;

/// Makes frames. The same bytes become the same frame.
pub struct Framer(CCtx<'static>);

impl Default for Framer {
    fn default() -> Self {
        let mut context = CCtx::create();
        // Refused only for values out of range, which these are not.
        let _ = context.set_parameter(CParameter::CompressionLevel(LEVEL));
        let _ = context.set_parameter(CParameter::ChecksumFlag(true));
        Self(context)
    }
}

impl Framer {
    /// Puts a frame of these bytes, no less and no more, into `frame`.
    pub fn wrap(&mut self, bytes: &[u8], frame: &mut Vec<u8>) -> Result<()> {
        frame.clear();
        frame.reserve(zstd_safe::compress_bound(bytes.len()));
        match self.0.compress2(frame, bytes) {
            Ok(_) => Ok(()),
            Err(code) => {
                let why = zstd_safe::get_error_name(code);
                let what = format!("no zstd frame can be made: {why}");
                Err(Error::new(ErrorKind::Unsupported, what))
            }
        }
    }
}

impl std::fmt::Debug for Framer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Framer")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::stream::{Unwrap, Unwrapped, Wrapping};

    #[test]
    fn frames_are_unwrapped_one_after_the_other_and_each_by_itself() {
        let (mut framer, mut frame) = (Framer::default(), Vec::new());
        let mut all = Vec::new();
        let parts = [
            vec![0; 1 << 20],
            (0..=255).cycle().take(70_000).collect(),
            vec![],
        ];
        for part in &parts {
            framer.wrap(part, &mut frame).unwrap();
            let unwrap = Unwrap::As(Wrapping::by_magic(&frame));
            let mut unwrapped = Vec::new();
            let mut reader = Unwrapped::new(frame.as_slice(), unwrap).unwrap();
            reader.read_to_end(&mut unwrapped).unwrap();
            assert!(unwrapped == *part);
            assert!(frame.len() < 2000, "{}", frame.len());
            let mut again = Vec::new();
            Framer::default().wrap(part, &mut again).unwrap();
            assert_eq!(frame, again);
            all.extend_from_slice(&frame);
        }
        let mut unwrapped = Vec::new();
        let mut reader = Unwrapped::new(all.as_slice(), Unwrap::ByMagic).unwrap();
        reader.read_to_end(&mut unwrapped).unwrap();
        assert!(unwrapped == parts.concat());
    }
}
