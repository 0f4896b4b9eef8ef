//! zstd: frames one after the other.

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::{Codec, Step};
use crate::error::{Error, Result, corrupt, unsupported};

/// 32 MiB.
const MAX_WINDOW_LOG: u32 = 25;

pub(super) struct Zstd {
    context: DCtx<'static>,
    between_frames: bool,
    frames: u64,
}

impl Zstd {
    pub(super) fn new() -> Self {
        let mut context = DCtx::create();
        // Refused only for values out of range, which this is not.
        let _ = context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG));
        Self {
            context,
            between_frames: true,
            frames: 0,
        }
    }

    /// For what follows a frame.
    pub(super) fn behind() -> Self {
        Self {
            frames: 1,
            ..Self::new()
        }
    }

    fn failure(&self, code: usize) -> Error {
        let reason = zstd_safe::get_error_name(code);
        if reason.contains("too much memory") {
            return unsupported("the zstd stream needs a window of more than 32 MiB");
        }
        if self.between_frames && self.frames > 0 {
            return corrupt("something that is not zstd follows the zstd stream");
        }
        corrupt(format!("the zstd stream is damaged: {reason}"))
    }
}

impl Codec for Zstd {
    fn decode(&mut self, input: &[u8], output: &mut [u8], _last: bool) -> Result<Step> {
        let mut input = InBuffer::around(input);
        let mut output = OutBuffer::around(output);
        let rest = self
            .context
            .decompress_stream(&mut output, &mut input)
            .map_err(|code| self.failure(code))?;
        let step = Step {
            read: input.pos(),
            written: output.pos(),
        };
        if step.read + step.written > 0 {
            self.between_frames = rest == 0;
            self.frames += u64::from(rest == 0);
        }
        Ok(step)
    }

    fn may_end(&self) -> bool {
        self.between_frames && self.frames > 0
    }
}
