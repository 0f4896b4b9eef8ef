//! Which parts are zeroes, as far as the server has said.

use std::collections::BTreeMap;

use crate::device::Extent;

/// Runs by where they begin.
#[derive(Debug, Default)]
pub(super) struct Known {
    runs: BTreeMap<u64, Extent>,
}

/// What is read is read from the front to the back, by threads that are not far
/// from each other: what lies furthest in front is forgotten first.
const MOST: usize = 16 << 10;

impl Known {
    /// What is known of the bytes from an offset on.
    pub(super) fn at(&self, offset: u64) -> Option<Extent> {
        let (start, run) = self.runs.range(..=offset).next_back()?;
        let within = offset - start;
        (within < run.length).then(|| Extent {
            length: run.length - within,
            zero: run.zero,
        })
    }

    /// Takes in what a server said of the bytes from an offset on. The last run
    /// may go on further than was asked, but not beyond the end.
    pub(super) fn learn(&mut self, offset: u64, said: &[Extent], size: u64) {
        let mut start = offset;
        let mut waiting: Option<(u64, Extent)> = None;
        for run in said {
            let length = run.length.min(size - start);
            if length == 0 {
                break;
            }
            match &mut waiting {
                Some((_, last)) if last.zero == run.zero => last.length += length,
                _ => {
                    let run = Extent {
                        length,
                        zero: run.zero,
                    };
                    self.keep(waiting.replace((start, run)));
                }
            }
            start += length;
        }
        self.keep(waiting);
        while self.runs.len() > MOST {
            // What was just learnt is wanted next.
            match self.runs.first_key_value() {
                Some((first, _)) if *first < offset => self.runs.pop_first(),
                _ => self.runs.pop_last(),
            };
        }
    }

    fn keep(&mut self, run: Option<(u64, Extent)>) {
        if let Some((start, run)) = run {
            self.runs.insert(start, run);
        }
    }
}
