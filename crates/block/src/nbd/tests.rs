//! Against a server that answers as freely as the protocol lets it, and one
//! that answers anything.

use std::io::{self, Cursor, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::Export;
use super::wire::{CHUNK, GREETING, OPTION, OPTION_REPLY, ZERO, take, take_u32, take_u64};
use crate::device::{Extents, ReadAt, Size};
use crate::error::ErrorKind;

/// How a server answers.
#[derive(Debug, Clone)]
struct Manner {
    /// Reads are cut into pieces of this many bytes.
    piece: usize,
    /// The pieces come from the back to the front.
    backwards: bool,
    /// It says which parts are zeroes.
    tells: bool,
    /// It tells of so many runs at once.
    runs: usize,
    /// A last chunk has nothing in it.
    ends_empty: bool,
}

const BLOCK: usize = 512;

/// Serves a disk until the connection is closed.
fn serve(mut stream: UnixStream, disk: &[u8], manner: &Manner) -> crate::error::Result<()> {
    let out = &mut stream.try_clone().unwrap();
    let mut say = |bytes: &[u8]| out.write_all(bytes).unwrap();
    say(&GREETING.to_be_bytes());
    say(&OPTION.to_be_bytes());
    say(&3_u16.to_be_bytes());
    take_u32(&mut stream)?;
    loop {
        take_u64(&mut stream)?;
        let option = take_u32(&mut stream)?;
        let length = take_u32(&mut stream)?;
        super::wire::take_bytes(&mut stream, length)?;
        let mut reply = |kind: u32, bytes: &[u8]| {
            say(&OPTION_REPLY.to_be_bytes());
            say(&option.to_be_bytes());
            say(&kind.to_be_bytes());
            say(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
            say(bytes);
        };
        match option {
            10 if manner.tells => reply(4, b"\0\0\0\x07base:allocation"),
            10 => {
                reply(1 << 31 | 1, b"");
                continue;
            }
            7 => {
                let size = (disk.len() as u64).to_be_bytes();
                reply(3, &[&[0, 0], &size[..], &[0, 3]].concat());
            }
            _ => {}
        }
        reply(1, b"");
        if option == 7 {
            break;
        }
    }
    loop {
        let [_, _, _, _, _, _, _, command] = take::<8>(&mut stream)?;
        let cookie = take_u64(&mut stream)?;
        let offset = usize::try_from(take_u64(&mut stream)?).unwrap();
        let length = take_u32(&mut stream)? as usize;
        let mut chunks = match command {
            0 => data(&disk[offset..offset + length], offset, manner),
            _ => vec![statuses(disk, offset, manner)],
        };
        if manner.ends_empty {
            chunks.push((0, Vec::new()));
        }
        let last = chunks.len() - 1;
        for (index, (kind, bytes)) in chunks.into_iter().enumerate() {
            say(&CHUNK.to_be_bytes());
            say(&u16::from(index == last).to_be_bytes());
            say(&u16::to_be_bytes(kind));
            say(&cookie.to_be_bytes());
            say(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
            say(&bytes);
        }
    }
}

fn data(bytes: &[u8], offset: usize, manner: &Manner) -> Vec<(u16, Vec<u8>)> {
    let mut chunks = Vec::new();
    for (index, piece) in bytes.chunks(manner.piece).enumerate() {
        let at = ((offset + index * manner.piece) as u64).to_be_bytes();
        chunks.push(match piece.iter().all(|byte| *byte == 0) {
            true => {
                let length = u32::try_from(piece.len()).unwrap().to_be_bytes();
                (2, [&at[..], &length].concat())
            }
            false => (1, [&at[..], piece].concat()),
        });
    }
    if manner.backwards {
        chunks.reverse();
    }
    chunks
}

fn statuses(disk: &[u8], offset: usize, manner: &Manner) -> (u16, Vec<u8>) {
    let mut bytes = 7_u32.to_be_bytes().to_vec();
    // The first run ends with its block.
    let mut at = offset;
    for _ in 0..manner.runs {
        let end = (at + 1).next_multiple_of(BLOCK);
        let block = &disk[at..end.min(disk.len())];
        let zero = block.iter().all(|byte| *byte == 0);
        bytes.extend(u32::try_from(end - at).unwrap().to_be_bytes());
        bytes.extend(if zero { ZERO | 1 } else { 0 }.to_be_bytes());
        at = end;
        if at >= disk.len() {
            break;
        }
    }
    (5, bytes)
}

fn manners() -> impl Strategy<Value = Manner> {
    let numbers = (1..2000_usize, 1..20_usize);
    (numbers, any::<[bool; 3]>()).prop_map(|((piece, runs), [backwards, tells, ends_empty])| {
        Manner {
            piece,
            backwards,
            tells,
            runs,
            ends_empty,
        }
    })
}

/// Blocks that are zeroes or not.
fn disks() -> impl Strategy<Value = Vec<u8>> {
    let blocks = prop::collection::vec(prop::option::of(1..=u8::MAX), 1..40);
    (blocks, 0..BLOCK).prop_map(|(blocks, less)| {
        let bytes = blocks
            .iter()
            .flat_map(|byte| [byte.unwrap_or(0); BLOCK])
            .collect::<Vec<_>>();
        bytes[less..].to_vec()
    })
}

proptest! {
    #[test]
    fn the_disk_is_read_whatever_the_manner(
        disk in disks(),
        manner in manners(),
        connections in 1..4_usize,
        reads in prop::collection::vec((any::<prop::sample::Index>(), 1..3000_usize), 1..8),
    ) {
        thread::scope(|scope| {
            let streams: Vec<_> = (0..connections)
                .map(|_| {
                    let (ours, theirs) = UnixStream::pair().unwrap();
                    let (disk, manner) = (&disk, &manner);
                    scope.spawn(move || serve(theirs, disk, manner));
                    ours
                })
                .collect();
            let export = Export::open(streams, "disk", "a disk").unwrap();
            assert_eq!(export.size().unwrap(), disk.len() as u64);
            thread::scope(|scope| {
                for (start, length) in &reads {
                    let (export, disk) = (&export, &disk);
                    scope.spawn(move || {
                        let start = start.index(disk.len());
                        let end = (start + length).min(disk.len());
                        let mut bytes = vec![0xaa; end - start];
                        export.read_at(&mut bytes, start as u64).unwrap();
                        assert_eq!(bytes, disk[start..end]);
                    });
                }
            });
            let mut at = 0;
            let mut zeroes = 0;
            while at < disk.len() {
                let extent = export.extent_at(at as u64).unwrap();
                let length = usize::try_from(extent.length).unwrap();
                assert!(length > 0 && at + length <= disk.len());
                if extent.zero {
                    assert!(disk[at..at + length].iter().all(|byte| *byte == 0));
                    zeroes += length;
                }
                at += length;
            }
            let is_zero = |block: &&[u8]| block.iter().all(|byte| *byte == 0);
            let wanted: usize = disk.chunks(BLOCK).filter(is_zero).map(<[u8]>::len).sum();
            assert_eq!(zeroes, if manner.tells { wanted } else { 0 });
        });
    }

    /// Whatever is said: an error or an answer, in bounded memory, and an end.
    #[test]
    fn a_server_may_say_anything(
        disk in disks(),
        manner in manners(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut said = recorded(&disk, &manner);
        for (at, byte) in changes {
            let at = at.index(said.len());
            said[at] = byte;
        }
        said.truncate(cut.index(said.len()) + 1);
        let server = Canned(Cursor::new(said));
        if let Ok(export) = Export::open([server], "disk", "a disk") {
            let mut bytes = vec![0; disk.len().min(4096)];
            let _ = export.read_at(&mut bytes, 0);
            let _ = export.extent_at(0);
        }
    }
}

/// A server that does not listen.
#[derive(Debug)]
struct Canned(Cursor<Vec<u8>>);

impl Read for Canned {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Canned {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a server says to whoever reads the beginning and asks for zeroes.
fn recorded(disk: &[u8], manner: &Manner) -> Vec<u8> {
    struct Recorder(UnixStream, Vec<u8>);
    impl Read for Recorder {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.read(buffer)?;
            self.1.extend(&buffer[..length]);
            Ok(length)
        }
    }
    impl Write for Recorder {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    thread::scope(|scope| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        scope.spawn(move || serve(theirs, disk, manner));
        let mut recorder = Recorder(ours, Vec::new());
        {
            let export = Export::open([&mut recorder], "disk", "a disk").unwrap();
            let mut bytes = vec![0; disk.len().min(4096)];
            export.read_at(&mut bytes, 0).unwrap();
            export.extent_at(0).unwrap();
        }
        recorder.1
    })
}

/// A greeting, both options agreed to, and so large.
fn greeted(size: u64) -> Vec<u8> {
    let mut said = Vec::new();
    said.extend(GREETING.to_be_bytes());
    said.extend(OPTION.to_be_bytes());
    said.extend(3_u16.to_be_bytes());
    let mut reply = |option: u32, kind: u32, bytes: &[u8]| {
        said.extend(OPTION_REPLY.to_be_bytes());
        said.extend(option.to_be_bytes());
        said.extend(kind.to_be_bytes());
        said.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        said.extend(bytes);
    };
    reply(8, 1, b"");
    reply(10, 4, b"\0\0\0\x07base:allocation");
    reply(10, 1, b"");
    reply(7, 3, &[&[0, 0], &size.to_be_bytes()[..], &[0, 3]].concat());
    reply(7, 1, b"");
    said
}

fn chunk(flags: u16, kind: u16, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [
        &CHUNK.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &1_u64.to_be_bytes(),
        &length.to_be_bytes(),
        bytes,
    ]
    .concat()
}

/// What reading a KiB comes to, by these chunks.
fn outcome(chunks: &[Vec<u8>]) -> Result<Vec<u8>, (ErrorKind, String)> {
    let said = [greeted(4096), chunks.concat()].concat();
    let export = Export::open([Canned(Cursor::new(said))], "disk", "a disk").unwrap();
    let mut bytes = vec![1; 1024];
    let told = |error: crate::error::Error| (error.kind(), error.to_string());
    let read = export.read_at(&mut bytes, 0).map_err(told);
    if read.is_err() {
        // It is not asked again.
        let again = export.extent_at(0).unwrap_err().to_string();
        assert_eq!(again, "a disk: no connection to its server is left");
    }
    read.map(|()| bytes)
}

fn at(offset: u64, rest: &[u8]) -> Vec<u8> {
    [&offset.to_be_bytes()[..], rest].concat()
}

#[test]
fn an_answer_that_does_not_fit_is_refused() {
    let whole = chunk(1, 1, &at(0, &[5; 1024]));
    assert_eq!(outcome(&[whole]).unwrap(), [5; 1024]);
    let half = |flags, offset| chunk(flags, 1, &at(offset, &[5; 512]));
    let unfit = [
        // Half of it is missing, or comes twice, or lies elsewhere.
        vec![half(1, 0)],
        vec![half(0, 0), half(1, 0)],
        vec![half(0, 0), half(1, 511)],
        vec![half(0, 0), half(1, 1024)],
        vec![half(0, 0), half(1, u64::MAX)],
        // Nothing at all, and holes of nothing.
        vec![chunk(1, 0, &[])],
        vec![half(0, 0), chunk(0, 0, &[]), half(1, 512)],
        vec![chunk(1, 1, &at(0, &[]))],
        vec![chunk(1, 2, &at(0, &0_u32.to_be_bytes()))],
        vec![chunk(1, 2, &at(0, &u32::MAX.to_be_bytes()))],
        vec![chunk(1, 1, &[0; 4])],
        // Something else.
        vec![chunk(1, 5, &[0; 12])],
        vec![chunk(1, 77, &[])],
        vec![vec![0; 64]],
    ];
    for chunks in unfit {
        let (kind, _) = outcome(&chunks).unwrap_err();
        assert_eq!(kind, ErrorKind::Corrupt, "{chunks:?}");
    }
}

#[test]
fn a_server_says_why_it_cannot_read() {
    let words = b"\0\0\0\x05\0\x0bdisk on\nfire".as_slice();
    let (kind, said) = outcome(&[chunk(1, 0x8001, words)]).unwrap_err();
    assert_eq!(kind, ErrorKind::Io);
    assert_eq!(said, "a disk: its server cannot read it: disk on\\nfir");
    let (kind, _) = outcome(&[chunk(1, 0x8002, b"\0\0\0\x05\0\0")]).unwrap_err();
    assert_eq!(kind, ErrorKind::Io);
    let long = vec![0; 1 << 20];
    let (kind, _) = outcome(&[chunk(1, 0x8001, &long)]).unwrap_err();
    assert_eq!(kind, ErrorKind::Limit);
    let (_, said) = outcome(&[]).unwrap_err();
    assert_eq!(said, "a disk: its server has closed the connection");
}

#[test]
fn a_server_that_is_silent_is_not_waited_for_without_end() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    theirs.write_all(&greeted(4096)).unwrap();
    let export = Export::open([ours], "disk", "a disk").unwrap();
    let refused = export.read_at(&mut [0; 16], 0).unwrap_err();
    assert_eq!(refused.to_string(), "a disk: its server does not answer");
}

#[test]
fn what_lies_beyond_the_end_is_not_asked_for() {
    let export = || {
        let said = greeted(4096);
        Export::open([Canned(Cursor::new(said))], "disk", "a disk").unwrap()
    };
    for (offset, length) in [(4096, 1), (4000, 97), (u64::MAX, 2)] {
        let refused = export().read_at(&mut vec![0; length], offset);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
    let refused = export().extent_at(4096).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn no_disk_is_larger_than_an_offset_can_be() {
    let said = greeted(u64::MAX);
    let refused = Export::open([Canned(Cursor::new(said))], "disk", "a disk");
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Corrupt);
}
