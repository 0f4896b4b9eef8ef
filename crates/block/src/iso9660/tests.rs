use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::reader::{Item, View, read};
use super::tree::Tree;
use super::{IsoFile, IsoImage, MAX_FILES, MAX_IMAGE_BYTES, MAX_PATH};
use crate::error::ErrorKind;

fn file(path: &str, bytes: impl Into<Vec<u8>>) -> IsoFile {
    IsoFile {
        path: path.to_owned(),
        bytes: bytes.into(),
        mode: 0o444,
    }
}

fn image(files: Vec<IsoFile>) -> IsoImage {
    IsoImage {
        label: "cidata".to_owned(),
        files,
    }
}

fn paths(paths: &[&str]) -> IsoImage {
    image(paths.iter().map(|path| file(path, *path)).collect())
}

fn config_drive() -> IsoImage {
    IsoImage {
        label: "config-2".to_owned(),
        files: vec![
            file("openstack/latest/user_data", "#cloud-config\n"),
            file("openstack/latest/meta_data.json", "{}"),
            file("openstack/content/0000", vec![7; 5000]),
            IsoFile {
                mode: 0o555,
                ..file("start.sh", "")
            },
        ],
    }
}

#[test]
fn rock_ridge_has_names_and_modes() {
    let bytes = config_drive().to_bytes().unwrap();
    let (label, found) = read(&bytes, View::RockRidge);
    assert_eq!(label, "config-2");
    let modes: Vec<_> = found
        .iter()
        .map(|(path, item)| (&**path, item.mode, item.links))
        .collect();
    assert_eq!(
        modes,
        [
            ("openstack", 0o040_555, 4),
            ("openstack/content", 0o040_555, 2),
            ("openstack/content/0000", 0o100_444, 1),
            ("openstack/latest", 0o040_555, 2),
            ("openstack/latest/meta_data.json", 0o100_444, 1),
            ("openstack/latest/user_data", 0o100_444, 1),
            ("start.sh", 0o100_555, 1),
        ]
    );
    let content = &found["openstack/content/0000"].bytes;
    assert_eq!(content.as_deref(), Some(&[7; 5000][..]));
    assert_eq!(found["start.sh"].bytes.as_deref(), Some(&[][..]));
}

#[test]
fn joliet_has_the_same_names() {
    let bytes = config_drive().to_bytes().unwrap();
    let (label, joliet) = read(&bytes, View::Joliet);
    let (_, rock_ridge) = read(&bytes, View::RockRidge);
    assert_eq!(label, "config-2");
    let without_modes: BTreeMap<_, _> = rock_ridge
        .into_iter()
        .map(|(path, item)| (path, plain(item.bytes)))
        .collect();
    assert_eq!(joliet, without_modes);
}

#[test]
fn the_plain_names_are_of_level_2() {
    let bytes = config_drive().to_bytes().unwrap();
    let (label, found) = read(&bytes, View::Plain);
    assert_eq!(label, "config-2");
    let paths: Vec<_> = found.keys().map(|path| &**path).collect();
    assert_eq!(
        paths,
        [
            "OPENSTACK",
            "OPENSTACK/CONTENT",
            "OPENSTACK/CONTENT/0000.",
            "OPENSTACK/LATEST",
            "OPENSTACK/LATEST/META_DATA.JSON",
            "OPENSTACK/LATEST/USER_DATA.",
            "START.SH",
        ]
    );
}

#[test]
fn an_image_does_not_change() {
    let bytes = config_drive().to_bytes().unwrap();
    let digest: String = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let known = "f31fd216082a48d19cd019708113f54a7678130939dfc7596b57a01dbbc96c46";
    assert_eq!(digest, known);
}

#[test]
fn the_order_of_files_does_not_show() {
    let mut other = config_drive();
    other.files.reverse();
    assert_eq!(
        other.to_bytes().unwrap(),
        config_drive().to_bytes().unwrap()
    );
}

#[test]
fn an_image_may_be_empty() {
    let bytes = image(Vec::new()).to_bytes().unwrap();
    for view in [View::RockRidge, View::Joliet, View::Plain] {
        assert_eq!(read(&bytes, view), ("cidata".to_owned(), BTreeMap::new()));
    }
}

#[test]
fn the_longest_and_deepest_names_fit() {
    let name = "n".repeat(64);
    let deep = "a/b/c/d/e/f/g/file";
    let long = format!("{}/{name}", "d".repeat(MAX_PATH - 65));
    let bytes = paths(&[&name, deep, &long]).to_bytes().unwrap();
    for view in [View::RockRidge, View::Joliet] {
        let (_, found) = read(&bytes, view);
        for path in [&name, deep, &long] {
            assert_eq!(found[path].bytes.as_deref(), Some(path.as_bytes()));
        }
    }
}

#[test]
fn directories_of_many_sectors_hold_all_their_files() {
    let names: Vec<_> = (0..MAX_FILES)
        .map(|number| format!("directory/a-long-name-that-begins-like-all-others-{number}"))
        .collect();
    let names: Vec<_> = names.iter().map(|name| &**name).collect();
    let bytes = paths(&names).to_bytes().unwrap();
    for view in [View::RockRidge, View::Joliet, View::Plain] {
        assert_eq!(read(&bytes, view).1.len(), MAX_FILES + 1);
    }
}

#[test]
fn labels_are_refused() {
    let refused = [
        (
            "",
            "the label \"\" of an ISO image must have letters, digits, \"-\" and \"_\" only",
        ),
        (
            "a b",
            "the label \"a b\" of an ISO image must have letters, digits, \"-\" and \"_\" only",
        ),
        (
            "ä",
            "the label \"ä\" of an ISO image must have letters, digits, \"-\" and \"_\" only",
        ),
        (
            "12345678901234567",
            "the label \"12345678901234567\" of an ISO image is longer than 16 characters",
        ),
    ];
    for (label, message) in refused {
        let image = IsoImage {
            label: label.to_owned(),
            files: Vec::new(),
        };
        let error = image.to_bytes().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn paths_are_refused() {
    let long_name = "n".repeat(65);
    let long_path = ["d".repeat(60), "d".repeat(60)].join("/");
    let refused = [
        ("", "the path is empty"),
        ("/user-data", "the path is absolute"),
        ("a//b", "the path has an empty name in it"),
        ("a/", "the path has an empty name in it"),
        ("a/../b", "the path has \"..\" in it"),
        ("./a", "the path has \".\" in it"),
        ("a;1", "a name cannot have ';' in it"),
        ("a b", "a name cannot have ' ' in it"),
        ("a\\b", "a name cannot have '\\\\' in it"),
        ("a\nb", "a name cannot have '\\n' in it"),
        ("ä", "a name cannot have 'ä' in it"),
        ("a.", "a name cannot end with a dot"),
        (&long_name, "a name is longer than 64 characters"),
        (&long_path, "the path is longer than 120 characters"),
        ("a/b/c/d/e/f/g/h/i", "more than 7 directories are above it"),
    ];
    for (path, message) in refused {
        let error = paths(&["fine", path]).to_bytes().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let subject = format!("file {path:?} of an ISO image");
        assert_eq!(error.to_string(), format!("{subject}: {message}"));
    }
}

#[test]
fn names_that_clash_are_refused() {
    let refused = [
        (["a/b", "a/b"], "there is a file \"b\" already"),
        (["a", "a/b"], "there is a file \"a\" already"),
        (
            ["a", "A"],
            "\"A\" and \"a\" differ in case only, which is no difference to Joliet",
        ),
        (
            ["a/b", "A/c"],
            "\"A\" and \"a\" differ in case only, which is no difference to Joliet",
        ),
    ];
    for (clash, message) in refused {
        let error = paths(&clash).to_bytes().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let said = error.to_string();
        assert_eq!(said.split_once(": ").unwrap().1, message);
    }
}

#[test]
fn modes_have_permissions_only() {
    let odd = IsoFile {
        mode: 0o100_444,
        ..file("a", "")
    };
    let error = image(vec![odd]).to_bytes().unwrap_err();
    assert_eq!(
        error.to_string(),
        "file \"a\" of an ISO image: mode 0o100444 has more than permissions in it"
    );
}

#[test]
fn what_is_too_large_is_refused() {
    let limit = usize::try_from(MAX_IMAGE_BYTES).unwrap();
    let overhead = image(vec![file("user-data", "")]).to_bytes().unwrap().len();
    let fits = image(vec![file("user-data", vec![1; limit - overhead])]);
    assert_eq!(fits.to_bytes().unwrap().len(), limit);
    let error = image(vec![file("user-data", vec![1; limit - overhead + 1])])
        .to_bytes()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert_eq!(
        error.to_string(),
        "the files of an ISO image take more than 64 MiB"
    );
    let many: Vec<_> = (0..=MAX_FILES).map(|n| file(&n.to_string(), "")).collect();
    let error = image(many).to_bytes().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
}

#[test]
fn contents_do_not_reach_a_log() {
    let logged = format!("{:?}", file("user-data", "secret"));
    assert_eq!(
        logged,
        "IsoFile { path: \"user-data\", bytes: (6), mode: 0o444 }"
    );
}

fn plain(bytes: Option<Vec<u8>>) -> Item {
    Item {
        bytes,
        mode: 0,
        links: 0,
    }
}

/// Files whose paths do not clash.
fn any_files() -> impl Strategy<Value = Vec<IsoFile>> {
    let name = prop_oneof![
        "[a-c][-_.+]?[a-c]{0,2}(\\.[a-d]{1,2})?[a-c]",
        "[a-zA-Z0-9_@~-]{1,30}",
        "x{28,32}[.-]?[0-9]",
    ];
    let path = prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
    let content = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        (2040_usize..2060).prop_map(|length| vec![3; length]),
    ];
    let file = (path, content, 0_u32..0o10000);
    prop::collection::vec(file, 0..40).prop_map(|files| {
        let mut kept: Vec<IsoFile> = Vec::new();
        for (path, bytes, mode) in files {
            kept.push(IsoFile { path, bytes, mode });
            if Tree::of(&kept).is_err() {
                kept.pop();
            }
        }
        kept
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(files in any_files()) {
        let bytes = image(files.clone()).to_bytes().unwrap();
        let mut expected = BTreeMap::new();
        for file in &files {
            expected.insert(file.path.clone(), Some(file.bytes.clone()));
            for (slash, _) in file.path.match_indices('/') {
                expected.insert(file.path[..slash].to_owned(), None);
            }
        }
        for view in [View::RockRidge, View::Joliet] {
            let found = read(&bytes, view).1.into_iter();
            let found: BTreeMap<_, _> = found.map(|(path, item)| (path, item.bytes)).collect();
            prop_assert_eq!(&found, &expected);
        }
        let (_, rock_ridge) = read(&bytes, View::RockRidge);
        for file in &files {
            prop_assert_eq!(rock_ridge[&file.path].mode, 0o100_000 | file.mode);
        }
        let plain = read(&bytes, View::Plain).1;
        prop_assert_eq!(plain.len(), expected.len());
        let contents = |items: Vec<Option<Vec<u8>>>| items.into_iter().collect::<BTreeSet<_>>();
        let read_plainly = contents(plain.into_values().map(|item| item.bytes).collect());
        prop_assert_eq!(read_plainly, contents(expected.into_values().collect()));
        let mut reversed = files;
        reversed.reverse();
        prop_assert_eq!(image(reversed).to_bytes().unwrap(), bytes);
    }
}
