//! What the first bytes of a file say, for files whose writer is trusted.

use crate::error::{Result, unsupported};
use crate::image::Format;
use crate::qcow2::MAGIC;

/// As many bytes as are looked at.
pub const MAGIC_REACH: usize = 72;

/// Formats that are not raw, with what they begin with. Taken for raw disks,
/// they would be copied as they are, and no VM would start from them.
const FOREIGN: [(&str, usize, &[u8]); 12] = [
    ("VDI", 64, &[0x7f, 0x10, 0xda, 0xbe]),
    ("VMDK", 0, b"KDMV"),
    ("VMDK", 0, b"COWD"),
    ("VMDK", 0, b"# Disk DescriptorFile"),
    ("VHDX", 0, b"vhdxfile"),
    ("VHD", 0, b"conectix"),
    ("QED", 0, b"QED\0"),
    ("Parallels", 0, b"WithoutFreeSpace"),
    ("Parallels", 0, b"WithouFreSpacExt"),
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("bzip2", 0, b"BZh"),
    ("lz4", 0, &[0x04, 0x22, 0x4d, 0x18]),
];

impl Format {
    /// By the first bytes of a file. A raw disk can begin with any bytes, and
    /// whoever wrote it chooses them: this is for files whose writer is
    /// trusted. What is known to be something else is refused by its name.
    pub fn by_magic(start: &[u8]) -> Result<Self> {
        if start.starts_with(&MAGIC) {
            return Ok(Self::Qcow2);
        }
        let begins = |at: &usize, magic: &&[u8]| {
            let there = start.get(*at..);
            there.is_some_and(|there| there.starts_with(magic))
        };
        match FOREIGN.iter().find(|(_, at, magic)| begins(at, magic)) {
            None => Ok(Self::Raw),
            Some((name, ..)) => Err(unsupported(format!(
                "begins as {name} does, which is not supported; if it is a raw disk all the same, say so with its format"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_formats_are_refused_by_name() {
        for (name, at, magic) in FOREIGN {
            let mut start = vec![0; at];
            start.extend(magic);
            start.resize(MAGIC_REACH, 0);
            let told = Format::by_magic(&start).unwrap_err().to_string();
            assert!(told.contains(name), "{told}");
            assert!(at + magic.len() <= MAGIC_REACH);
        }
        assert_eq!(Format::by_magic(&MAGIC).unwrap(), Format::Qcow2);
        assert_eq!(Format::by_magic(&[0; 72]).unwrap(), Format::Raw);
        assert_eq!(Format::by_magic(&[]).unwrap(), Format::Raw);
    }
}
