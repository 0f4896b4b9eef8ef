//! Tables and times as people read them.

use std::time::SystemTime;

/// Lines of columns; those named in `right` are numbers. The last column of a
/// line has no blanks after it.
#[must_use]
pub fn table(lines: &[Vec<String>], right: &[usize]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        widths.resize(widths.len().max(line.len()), 0);
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells: Vec<_> = cells
            .map(|(column, (cell, &width))| match right.contains(&column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A size in few characters, rounded: for columns and sums.
#[must_use]
pub fn short_size(bytes: u64) -> String {
    let mut unit = 1;
    for name in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if bytes / 1024 < unit {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            return match name {
                "B" => format!("{bytes} B"),
                _ => format!("{}.{} {name}", tenths / 10, tenths % 10),
            };
        }
        unit *= 1024;
    }
    format!("{} PiB", bytes >> 50)
}

/// Whether a file begins with text. Which text is not shown: whoever asked for
/// the file may not be who is allowed to read it.
#[must_use]
pub fn is_text(start: &[u8]) -> bool {
    const ENOUGH: usize = 16;
    let is_text = |byte: &&u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    start.iter().take_while(is_text).count() >= start.len().clamp(1, ENOUGH)
}

/// How long ago something was, as kubectl shows it.
#[must_use]
pub fn age(since: SystemTime) -> String {
    let seconds = since.elapsed().map_or(0, |age| age.as_secs());
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_few_characters() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_052_672, "1.0 MiB"),
            ((10 << 30) + (500 << 20), "10.4 GiB"),
            (u64::MAX, "16383 PiB"),
        ] {
            assert_eq!(short_size(bytes), text);
        }
    }

    #[test]
    fn text_is_told_from_other_bytes() {
        for start in [
            &b"abc"[..],
            b"\n\n <p>a\"b",
            b"sixteen or more \0",
            &b"x".repeat(60),
        ] {
            assert!(is_text(start), "{start:?}");
        }
        for start in [&b""[..], b"ab\x00", b"fifteen or so..\0", b"\x1b[31mred"] {
            assert!(!is_text(start), "{start:?}");
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let line = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let lines = [line(["NAME", "SIZE", "AGE"]), line(["cirros", "5", ""])];
        assert_eq!(table(&lines, &[1]), "NAME    SIZE  AGE\ncirros     5\n");
    }
}
