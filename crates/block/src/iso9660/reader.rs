//! Reads images back, for tests. Unlike other readers it forgives nothing.

use std::collections::{BTreeMap, BTreeSet};

const SECTOR: usize = 2048;

/// Files and directories by path.
pub(super) type Found = BTreeMap<String, Item>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    /// `None` for a directory.
    pub(super) bytes: Option<Vec<u8>>,
    /// With the type, as Rock Ridge has it; else 0.
    pub(super) mode: u32,
    pub(super) links: u32,
}

/// One of the names that a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    RockRidge,
    Joliet,
    Plain,
}

/// The label, and everything in the image.
pub(super) fn read(image: &[u8], view: View) -> (String, Found) {
    assert!(image.len().is_multiple_of(SECTOR));
    let number = match view {
        View::RockRidge | View::Plain => 16,
        View::Joliet => 17,
    };
    let descriptor = &image[number * SECTOR..][..SECTOR];
    let kind = if view == View::Joliet { 2 } else { 1 };
    assert_eq!(&descriptor[..7], [&[kind], &b"CD001\x01"[..]].concat());
    assert_eq!(&image[18 * SECTOR..][..7], b"\xffCD001\x01");
    assert_eq!(both32(descriptor, 80) as usize * SECTOR, image.len());
    assert_eq!(both16(descriptor, 128), 2048);
    let mut walk = Walk {
        image,
        view,
        found: Found::new(),
        used: BTreeSet::new(),
        directories: Vec::new(),
    };
    let root = Record::at(descriptor, 156);
    assert_eq!(root.identifier, [0]);
    let label = text(&descriptor[40..72], view).trim_end().to_owned();
    let root = (root.sector, root.bytes);
    walk.breadth_first(root);
    walk.check_path_tables(descriptor);
    (label, walk.found)
}

struct Walk<'a> {
    image: &'a [u8],
    view: View,
    found: Found,
    /// Every sector belongs to one thing only.
    used: BTreeSet<usize>,
    /// What the path tables must say: identifier, sector, parent's number.
    directories: Vec<(Vec<u8>, u32, u16)>,
}

impl<'a> Walk<'a> {
    fn breadth_first(&mut self, root: (u32, u32)) {
        let mut queue = vec![(String::new(), root, root)];
        self.directories.push((vec![0], root.0, 1));
        let mut next = 0;
        while let Some((path, place, parent)) = queue.get(next).cloned() {
            next += 1;
            let number = u16::try_from(next).unwrap();
            let records = self.records(place);
            assert_eq!(records[0].identifier, [0]);
            assert_eq!((records[0].sector, records[0].bytes), place);
            assert_eq!(records[1].identifier, [1]);
            assert_eq!((records[1].sector, records[1].bytes), parent);
            if self.view == View::RockRidge && path.is_empty() {
                self.check_announcement(&records[0]);
            }
            let sorting: Vec<_> = records[2..].iter().map(Record::without_version).collect();
            assert!(sorting.is_sorted_by(|one, other| one < other));
            for record in &records[2..] {
                let (name, mode, links) = self.name(record);
                let path = format!("{path}{name}");
                let bytes = if record.is_directory {
                    let below = (record.sector, record.bytes);
                    let identifier = record.identifier.to_vec();
                    self.directories.push((identifier, below.0, number));
                    queue.push((format!("{path}/"), below, place));
                    None
                } else {
                    Some(self.take((record.sector, record.bytes)).to_vec())
                };
                let item = Item { bytes, mode, links };
                assert_eq!(self.found.insert(path, item), None);
            }
        }
    }

    fn records(&mut self, place: (u32, u32)) -> Vec<Record<'a>> {
        let mut records = Vec::new();
        assert!(place.1 > 0 && place.1.is_multiple_of(2048));
        for sector in self.take(place).chunks(SECTOR) {
            let mut at = 0;
            while at < SECTOR && sector[at] != 0 {
                records.push(Record::at(sector, at));
                at += sector[at] as usize;
            }
            assert!(sector[at..].iter().all(|byte| *byte == 0));
        }
        records
    }

    /// The bytes of something that nothing else overlaps.
    fn take(&mut self, (sector, bytes): (u32, u32)) -> &'a [u8] {
        let start = sector as usize;
        let sectors = (bytes as usize).div_ceil(SECTOR);
        for sector in start..start + sectors {
            assert!(sector > 18 && self.used.insert(sector));
        }
        &self.image[start * SECTOR..][..bytes as usize]
    }

    fn name(&self, record: &Record<'_>) -> (String, u32, u32) {
        let identifier = text(record.without_version(), self.view);
        if self.view != View::RockRidge {
            return (identifier, 0, 0);
        }
        let fields = fields(record.system_use);
        let name = &fields["NM"];
        assert_eq!(name[0], 0);
        let name = String::from_utf8(name[1..].to_vec()).unwrap();
        let attributes = fields["PX"];
        (name, both32(attributes, 0), both32(attributes, 8))
    }

    fn check_announcement(&mut self, root: &Record<'_>) {
        let fields = fields(root.system_use);
        assert_eq!(fields["SP"], [0xbe, 0xef, 0]);
        assert_eq!(&root.system_use[..2], b"SP");
        let place = fields["CE"];
        assert_eq!(both32(place, 8), 0);
        let definition = self.take((both32(place, 0), both32(place, 16)));
        assert_eq!(&definition[..2], b"ER");
        assert_eq!(definition[2] as usize, definition.len());
        assert_eq!(&definition[8..18], b"RRIP_1991A");
    }

    fn check_path_tables(&mut self, descriptor: &[u8]) {
        let bytes = both32(descriptor, 132);
        let little = u32::from_le_bytes(descriptor[140..144].try_into().unwrap());
        let big = u32::from_be_bytes(descriptor[148..152].try_into().unwrap());
        let mut expected = [Vec::new(), Vec::new()];
        for (identifier, sector, parent) in &self.directories {
            let length = u8::try_from(identifier.len()).unwrap();
            let padding = identifier.len() % 2;
            let little = [&sector.to_le_bytes()[..], &parent.to_le_bytes()].concat();
            let big = [&sector.to_be_bytes()[..], &parent.to_be_bytes()].concat();
            for (table, numbers) in expected.iter_mut().zip([little, big]) {
                table.extend([length, 0]);
                table.extend(numbers);
                table.extend(identifier);
                table.extend(vec![0; padding]);
            }
        }
        assert_eq!(self.take((little, bytes)), expected[0]);
        assert_eq!(self.take((big, bytes)), expected[1]);
    }
}

struct Record<'a> {
    identifier: &'a [u8],
    sector: u32,
    bytes: u32,
    is_directory: bool,
    system_use: &'a [u8],
}

impl<'a> Record<'a> {
    fn at(bytes: &'a [u8], at: usize) -> Self {
        let record = &bytes[at..][..bytes[at] as usize];
        assert!(record.len().is_multiple_of(2));
        assert_eq!(record[18..25], [80, 1, 1, 0, 0, 0, 0]);
        assert_eq!(both16(record, 28), 1);
        let length = record[32] as usize;
        Self {
            identifier: &record[33..][..length],
            sector: both32(record, 2),
            bytes: both32(record, 10),
            is_directory: record[25] == 2,
            system_use: &record[(33 + length).next_multiple_of(2)..],
        }
    }

    fn without_version(&self) -> &'a [u8] {
        let name = self.identifier;
        name.strip_suffix(b";1").unwrap_or(name)
    }
}

/// The fields of Rock Ridge by signature.
fn fields(mut bytes: &[u8]) -> BTreeMap<&str, &[u8]> {
    let mut fields = BTreeMap::new();
    while bytes.len() >= 4 {
        let (field, rest) = bytes.split_at(bytes[2] as usize);
        assert_eq!(field[3], 1);
        let signature = str::from_utf8(&field[..2]).unwrap();
        assert_eq!(fields.insert(signature, &field[4..]), None);
        bytes = rest;
    }
    fields
}

fn text(bytes: &[u8], view: View) -> String {
    match view {
        View::RockRidge | View::Plain => String::from_utf8(bytes.to_vec()).unwrap(),
        View::Joliet => {
            let letters = bytes
                .chunks(2)
                .map(|two| u16::from_be_bytes([two[0], two[1]]));
            String::from_utf16(&letters.collect::<Vec<_>>()).unwrap()
        }
    }
}

/// A number that is written in both byte orders, and must be the same in both.
fn both32(bytes: &[u8], at: usize) -> u32 {
    let little = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let big = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap());
    assert_eq!(little, big);
    little
}

/// A number that is written in both byte orders, and must be the same in both.
fn both16(bytes: &[u8], at: usize) -> u16 {
    let little = u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
    let big = u16::from_be_bytes(bytes[at + 2..at + 4].try_into().unwrap());
    assert_eq!(little, big);
    little
}
