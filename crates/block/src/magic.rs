//! What the first bytes of a file say, for files whose writer is trusted.

use crate::error::{Error, ErrorKind, Result};
use crate::image::Format;
use crate::qcow2::MAGIC;

/// As many bytes as are looked at.
pub const MAGIC_REACH: usize = 72;

/// What is no raw disk, with what it begins with and what to do with it. Taken
/// for raw disks, these would be copied as they are, and no VM would start from
/// them.
const FOREIGN: [(&str, usize, &[u8], &str); 12] = [
    ("VDI", 64, &[0x7f, 0x10, 0xda, 0xbe], CONVERT),
    ("VMDK", 0, b"KDMV", CONVERT),
    ("VMDK", 0, b"COWD", CONVERT),
    ("VMDK", 0, b"# Disk DescriptorFile", CONVERT),
    ("VHDX", 0, b"vhdxfile", CONVERT),
    ("VHD", 0, b"conectix", CONVERT),
    ("QED", 0, b"QED\0", CONVERT),
    ("Parallels", 0, b"WithoutFreeSpace", CONVERT),
    ("Parallels", 0, b"WithouFreSpacExt", CONVERT),
    ("LUKS", 0, b"LUKS\xba\xbe", "decrypt it first"),
    ("bzip2", 0, b"BZh", UNPACK),
    ("lz4", 0, &[0x04, 0x22, 0x4d, 0x18], UNPACK),
];

const CONVERT: &str = "convert it first: qemu-img convert -O qcow2 FILE NEW";
const UNPACK: &str = "unpack it first";

/// Texts that servers send instead of a file, as they begin, in any case.
const PAGES: [(&str, &str); 4] = [
    ("an HTML page", "<!doctype html"),
    ("an HTML page", "<html"),
    ("an HTML page", "<head"),
    ("an XML document", "<?xml"),
];

impl Format {
    /// By the first bytes of a file. A raw disk can begin with any bytes, and
    /// whoever wrote it chooses them: this is for files whose writer is
    /// trusted. What is known to be something else is refused by its name.
    pub fn by_magic(start: &[u8]) -> Result<Self> {
        if start.starts_with(&MAGIC) {
            return Ok(Self::Qcow2);
        }
        match foreign(start) {
            None => Ok(Self::Raw),
            Some((name, remedy)) => {
                let what = format!("begins as {name} does, which is not supported");
                Err(Error::new(ErrorKind::Foreign, what).help(remedy))
            }
        }
    }
}

/// What it is that is no raw disk, and what to do with it.
fn foreign(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let begins = |at: &usize, magic: &&[u8]| {
        let there = start.get(*at..);
        there.is_some_and(|there| there.starts_with(magic))
    };
    let known = FOREIGN.iter().find(|(_, at, magic, _)| begins(at, magic));
    known
        .map(|(name, _, _, remedy)| (*name, *remedy))
        .or_else(|| {
            Some((
                page(start)?,
                "give the image itself: this may be what a server says instead",
            ))
        })
}

/// The kind of text that it begins as.
fn page(start: &[u8]) -> Option<&'static str> {
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let text = text.trim_ascii_start();
    let begins = |tag: &str| {
        let there = text.get(..tag.len());
        there.is_some_and(|there| there.eq_ignore_ascii_case(tag.as_bytes()))
    };
    let page = PAGES.iter().find(|(_, tag)| begins(tag));
    page.map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_formats_are_refused_by_name_and_with_a_remedy() {
        for (name, at, magic, remedy) in FOREIGN {
            let mut start = vec![0; at];
            start.extend(magic);
            start.resize(MAGIC_REACH, 0);
            let error = Format::by_magic(&start).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Foreign);
            let told = error.to_string();
            assert!(told.contains(name), "{told}");
            assert_eq!(error.remedy(), Some(remedy), "{name}");
            assert!(at + magic.len() <= MAGIC_REACH);
        }
        assert_eq!(Format::by_magic(&MAGIC).unwrap(), Format::Qcow2);
        assert_eq!(Format::by_magic(&[0; 72]).unwrap(), Format::Raw);
        assert_eq!(Format::by_magic(&[]).unwrap(), Format::Raw);
    }

    #[test]
    fn pages_are_no_disks() {
        for start in [
            "<!DOCTYPE html><html>",
            "\u{feff}\r\n\n <HTML lang=en>",
            "<head><title>",
        ] {
            let told = Format::by_magic(start.as_bytes()).unwrap_err().to_string();
            assert!(told.contains("begins as an HTML page does"), "{told}");
        }
        let told = Format::by_magic(b"<?xml version").unwrap_err().to_string();
        assert!(told.contains("an XML document"), "{told}");
        for start in ["<", "<htm", "x<html>"] {
            assert_eq!(Format::by_magic(start.as_bytes()).unwrap(), Format::Raw);
        }
    }
}
