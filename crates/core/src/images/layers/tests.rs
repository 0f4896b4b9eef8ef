use proptest::prelude::*;

use super::*;

type Entries = Vec<(String, Node)>;

/// The disk, and which entry of which layer was taken, uppermost first.
fn find(
    wanted: Option<&str>,
    layers: &[Entries],
) -> Result<(String, Vec<(usize, usize)>), Problem> {
    let wanted = wanted.map(|path| DiskPath::parse(path).unwrap());
    let mut finder = Finder::new(wanted.as_ref());
    let mut taken = Vec::new();
    for (layer, entries) in layers.iter().enumerate() {
        for (at, (path, node)) in entries.iter().enumerate() {
            if finder.entry(path.as_bytes(), node.clone())? == Verdict::Take {
                taken.push((layer, at));
            }
        }
        if finder.layer_ends()? == Outlook::Decided {
            break;
        }
    }
    finder.finish().map(|path| (path, taken))
}

fn layer(entries: &[(&str, Node)]) -> Entries {
    let owned = |(path, node): &(&str, Node)| ((*path).to_owned(), node.clone());
    entries.iter().map(owned).collect()
}

fn files(paths: &[&str]) -> Entries {
    let entries: Vec<_> = paths.iter().map(|path| (*path, Node::File)).collect();
    layer(&entries)
}

fn said(wanted: Option<&str>, layers: &[Entries]) -> String {
    find(wanted, layers).unwrap_err().to_string()
}

#[test]
fn upper_layers_win() {
    let base = files(&["disk/a"]);
    let found = |upper: &[&str]| find(None, &[files(upper), base.clone()]);
    assert_eq!(
        found(&["etc/x"]).unwrap(),
        ("disk/a".to_owned(), vec![(1, 0)])
    );
    assert_eq!(
        found(&["./disk/a"]).unwrap(),
        ("./disk/a".to_owned(), vec![(0, 0)])
    );
    for upper in [
        ["disk/.wh.a", "disk/b"],
        ["disk/.wh..wh..opq", "disk/b"],
        [".wh.disk", "/disk/b"],
        ["disk/b", ".wh..wh..opq"],
    ] {
        assert_eq!(found(&upper).unwrap().1.len(), 1, "{upper:?}");
    }
    assert_eq!(
        said(None, &[files(&["disk/.wh.a", "var/b.qcow2"]), base.clone()]),
        "the image has no file in /disk; elsewhere it has var/b.qcow2"
    );
    // A layer's own files are not hidden by what it says of lower ones.
    let both = files(&["disk/x", "disk/.wh.x", "disk/.wh.a"]);
    assert_eq!(find(None, &[both, base]).unwrap().0, "disk/x");
}

#[test]
fn what_is_no_single_file_is_told() {
    let link = |to: &str| Node::Symlink(to.into());
    for (entries, wanted) in [
        (
            files(&["disk/a", "disk/b"]),
            "the image has several files where its disk should be: disk/a, disk/b",
        ),
        (
            layer(&[("disk/a", link("../../etc/shadow"))]),
            "the disk is no file of its own: disk/a (a symbolic link to ../../etc/shadow)",
        ),
        (
            layer(&[("disk/a", Node::HardLink(b"x".to_vec()))]),
            "the disk is no file of its own: disk/a (a hard link to x)",
        ),
        (
            layer(&[("disk/a", Node::Special)]),
            "the disk is no file of its own: disk/a (a device or a pipe)",
        ),
        (
            layer(&[("disk", link("etc"))]),
            "the way to the disk is no directory: disk (a symbolic link to etc)",
        ),
        (
            files(&["disk/../etc/a"]),
            "the image has a name that leads out of it: disk/../etc/a",
        ),
        (
            files(&["disk/a", "disk/a"]),
            "a layer of the image contradicts itself about disk/a",
        ),
        (
            layer(&[("disk", link("x")), ("disk/a", Node::File)]),
            "a layer of the image contradicts itself about disk/a",
        ),
        (
            layer(&[("disk/a", Node::File), ("disk", link("x"))]),
            "a layer of the image contradicts itself about disk",
        ),
        (
            layer(&[("disk/a", Node::File), ("disk/a/b", Node::File)]),
            "a layer of the image contradicts itself about disk/a/b",
        ),
    ] {
        assert_eq!(said(None, &[entries]), wanted);
    }
    let base = files(&["a/b/disk.img", "a/c"]);
    assert_eq!(
        find(Some("/a/b/disk.img"), std::slice::from_ref(&base))
            .unwrap()
            .0,
        "a/b/disk.img"
    );
    assert_eq!(
        find(Some("a/c"), std::slice::from_ref(&base)).unwrap().0,
        "a/c"
    );
    assert_eq!(
        said(Some("/a/b"), std::slice::from_ref(&base)),
        "the disk is no file of its own: a/b/disk.img (a directory)"
    );
    assert_eq!(
        said(Some("/x"), &[base]),
        "the image has no file /x; elsewhere it has a/b/disk.img"
    );
}

#[test]
fn a_directory_of_endless_names_is_given_up() {
    let mut finder = Finder::new(None);
    let told = (0..20_000).find_map(|at| {
        let path = format!("disk/.wh.{at}");
        finder.entry(path.as_bytes(), Node::File).err()
    });
    assert_eq!(told, Some(Problem::TooMany("/disk".to_owned())));
}

/// What a layer is made of: no name twice, nothing below a file.
fn any_layer() -> impl Strategy<Value = Entries> {
    let part = prop_oneof![3 => Just("disk"), 2 => Just("a"), 1 => Just("b"), 1 => Just(".wh.a"), 1 => Just(".wh.disk"), 1 => Just(".wh..wh..opq")];
    let node = prop_oneof![4 => Just(Node::File), 2 => Just(Node::Directory), 1 => Just(Node::Symlink(b"a".to_vec()))];
    let entry = (prop::collection::vec(part, 1..4), node);
    prop::collection::vec(entry, 0..6).prop_map(|entries| {
        let mut kept: Entries = Vec::new();
        for (parts, node) in entries {
            let (last, above) = parts.split_last().unwrap();
            if above.iter().any(|part| part.starts_with(".wh.")) {
                continue;
            }
            let node = if last.starts_with(".wh.") {
                Node::File
            } else {
                node
            };
            let path = parts.join("/");
            let is_below = |one: &str, other: &str| one.starts_with(&format!("{other}/"));
            let clashes = kept.iter().any(|(other, theirs)| {
                *other == path
                    || (is_below(&path, other) && *theirs != Node::Directory)
                    || (is_below(other, &path)
                        && node != Node::Directory
                        && !last.starts_with(".wh."))
            });
            if !clashes {
                kept.push((path, node));
            }
        }
        kept
    })
}

/// Every layer put over those below it, as a container runtime does it.
fn materialised(layers: &[Entries]) -> BTreeMap<String, (Node, (usize, usize))> {
    let mut tree = BTreeMap::new();
    for (layer, entries) in layers.iter().enumerate().rev() {
        for (path, _) in entries {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let below = |directory: &str| match directory {
                "" => String::new(),
                directory => format!("{directory}/"),
            };
            if name == ".wh..wh..opq" {
                let directory = below(above);
                tree.retain(|path: &String, _| !path.starts_with(&directory));
            } else if let Some(gone) = name.strip_prefix(".wh.") {
                let gone = format!("{}{gone}", below(above));
                let inside = below(&gone);
                tree.retain(|path: &String, _| *path != gone && !path.starts_with(&inside));
            }
        }
        let is_whiteout = |path: &str| path.rsplit('/').next().unwrap().starts_with(".wh.");
        for (at, (path, node)) in entries.iter().enumerate() {
            if is_whiteout(path) {
                continue;
            }
            for (slash, _) in path.match_indices('/') {
                let above = tree.entry(path[..slash].to_owned());
                let above = above.or_insert((Node::Directory, (layer, at)));
                above.0 = Node::Directory;
            }
            if *node != Node::Directory {
                let inside = format!("{path}/");
                tree.retain(|path: &String, _| !path.starts_with(&inside));
            }
            tree.insert(path.clone(), (node.clone(), (layer, at)));
        }
    }
    tree
}

proptest! {
    #[test]
    fn the_merged_view_counts(layers in prop::collection::vec(any_layer(), 1..5)) {
        let tree = materialised(&layers);
        for wanted in [None, Some("disk"), Some("a"), Some("disk/a"), Some("a/disk/a")] {
            let candidates: Vec<_> = tree.iter().filter(|(path, (node, _))| match wanted {
                Some(wanted) => *path == wanted,
                None => path.strip_prefix("disk/").is_some_and(|name| !name.contains('/')) && *node != Node::Directory,
            }).collect();
            let found = find(wanted, &layers);
            match candidates.as_slice() {
                [(path, (Node::File, at))] => {
                    let (name, taken) = found.unwrap();
                    prop_assert_eq!(&&name, path);
                    prop_assert_eq!(taken, vec![*at]);
                }
                [] => prop_assert!(matches!(found, Err(Problem::Nothing { .. } | Problem::Obstacle(_))), "{:?} {:?}", wanted, found),
                _ => prop_assert!(matches!(found, Err(Problem::NoFile(_) | Problem::Several(_))), "{:?} {:?}", wanted, found),
            }
        }
    }
}
