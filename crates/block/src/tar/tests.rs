use super::*;

const PLENTY: Allowance = Allowance {
    entries: 100,
    passed: 1 << 20,
};

/// A header and its data.
fn entry(name: &str, mark: u8, link: &str, data: &[u8]) -> Vec<u8> {
    let mut block = [0; BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
    block[156] = mark;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..263].copy_from_slice(b"ustar\0");
    sealed(&mut block);
    let mut bytes = block.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn sealed(block: &mut [u8; BLOCK]) {
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in records {
        let body = key.len() + value.len() + 3;
        let length = (body..).find(|all| body + all.to_string().len() == *all);
        bytes.extend_from_slice(format!("{} {key}={value}\n", length.unwrap()).as_bytes());
    }
    entry("pax", b'x', "", &bytes)
}

fn archive(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), vec![0; 2 * BLOCK]].concat()
}

/// What is in it, with the data of files.
fn read(bytes: &[u8]) -> Result<Vec<(String, Kind, Vec<u8>)>> {
    let mut tar = Tar::new(bytes, PLENTY);
    let mut found = Vec::new();
    while let Some(entry) = tar.next_entry()? {
        let mut data = vec![0; usize::try_from(entry.size.min(1 << 20)).unwrap()];
        let mut filled = 0;
        while filled < data.len() {
            filled += tar.read_data(&mut data[filled..])?;
        }
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        found.push((path, entry.kind, data));
    }
    tar.finish()?;
    Ok(found)
}

#[test]
fn entries_come_with_their_data() {
    let long = "d/".repeat(90) + "disk";
    let bytes = archive(&[
        entry("disk/", b'5', "", b""),
        entry("disk/a", b'0', "", &[7; 700]),
        entry("disk/b", b'2', "../a", b""),
        entry("././@LongLink", b'L', "", format!("{long}\0").as_bytes()),
        entry("cut", b'0', "", b"x"),
        pax(&[("path", "disk/é"), ("size", "3"), ("mtime", "1.5")]),
        entry("cut", b'0', "", b"abc"),
        pax(&[("GNU.sparse.major", "1")]),
        entry("holes", b'0', "", b"1\n"),
        entry("old/", 0, "", b""),
    ]);
    let found = read(&bytes).unwrap();
    let link = Kind::Symlink(b"../a".to_vec());
    let wanted = [
        ("disk/", Kind::Directory, vec![]),
        ("disk/a", Kind::File, vec![7; 700]),
        ("disk/b", link, vec![]),
        (&long, Kind::File, b"x".to_vec()),
        ("disk/é", Kind::File, b"abc".to_vec()),
        ("holes", Kind::Sparse, b"1\n".to_vec()),
        ("old/", Kind::Directory, vec![]),
    ];
    let wanted = wanted.map(|(path, kind, data)| (path.to_owned(), kind, data));
    assert_eq!(found, wanted);
}

#[test]
fn what_is_not_read_is_passed_over_and_counts() {
    let bytes = archive(&[
        entry("a", b'0', "", &[1; 5000]),
        entry("b", b'0', "", &[2; 10]),
    ]);
    let mut tar = Tar::new(&bytes[..], PLENTY);
    assert_eq!(tar.next_entry().unwrap().unwrap().path, b"a");
    assert_eq!(tar.read_data(&mut [0; 100]).unwrap(), 100);
    assert_eq!(tar.next_entry().unwrap().unwrap().path, b"b");
    let left = tar.finish().unwrap();
    assert_eq!(left.entries, PLENTY.entries - 2);
    assert_eq!(left.passed, PLENTY.passed - (bytes.len() as u64 - 100));
}

#[test]
fn what_costs_too_much_is_refused_before_it_comes() {
    let mut huge = entry("a", b'0', "", b"");
    huge[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    let mut block: [u8; BLOCK] = huge[..].try_into().unwrap();
    sealed(&mut block);
    let told = read(&block).unwrap_err();
    assert_eq!(
        told.to_string(),
        "the archive ends in the middle: it is truncated"
    );
    let mut tar = Tar::new(&block[..], PLENTY);
    tar.next_entry().unwrap();
    let told = tar.next_entry().unwrap_err();
    assert_eq!(told.kind(), crate::error::ErrorKind::Limit);
    let many = archive(&vec![entry("a", b'5', "", b""); 101]);
    let told = read(&many).unwrap_err().to_string();
    assert_eq!(told, "the archive has too many entries");
    let mut endless = entry("x", b'x', "", b"");
    endless[124..135].copy_from_slice(b"77777777777");
    let mut block: [u8; BLOCK] = endless[..].try_into().unwrap();
    sealed(&mut block);
    let told = read(&block).unwrap_err().to_string();
    assert_eq!(told, "the archive has a name that is too long");
}

#[test]
fn what_is_damaged_is_told() {
    let sound = archive(&[pax(&[("path", "a")]), entry("x", b'0', "", b"data")]);
    read(&sound).unwrap();
    for at in [0, 130, 150, 156, 1024] {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        assert!(read(&bytes).is_err(), "{at}");
    }
    for end in [1, 511, 700, 1300, 1537] {
        assert!(read(&sound[..end]).is_err(), "{end}");
    }
    for records in ["", "9 path=a", "999 path=a\n", "x path=a\n", "8 patha\n"] {
        let bytes = archive(&[
            entry("p", b'x', "", records.as_bytes()),
            entry("x", b'0', "", b""),
        ]);
        assert_eq!(read(&bytes).is_ok(), records.is_empty(), "{records:?}");
    }
}
