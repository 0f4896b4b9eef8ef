//! Images as QEMU's tools leave them.

use super::*;

const SIZE: usize = (5 << 20) + 512;

/// Makes an image of the sample disk.
fn converted(folder: &Folder, options: &[&str]) -> String {
    let raw = folder.file("sample.raw");
    std::fs::write(&raw, sample(SIZE)).unwrap();
    let image = folder.file("sample.qcow2");
    let mut arguments = vec!["convert", "-f", "raw", "-O", "qcow2"];
    arguments.extend_from_slice(options);
    arguments.extend([raw.as_str(), image.as_str()]);
    run("qemu-img", &arguments);
    image
}

fn assert_as_judged(folder: &Folder, image: &str, what: &str) -> Report {
    let disk = judged(folder, image);
    assert_streams(&std::fs::read(image).unwrap(), &disk, what)
}

#[test]
fn converted_images_stream_with_hardly_anything_parked() {
    let folder = Folder::new("converted");
    for cluster in ["512", "4k", "64k", "2M"] {
        for packing in [&[][..], &["-c"], &["-c", "-o", "compression_type=zstd"]] {
            let option = format!("cluster_size={cluster}");
            let mut options = packing.to_vec();
            options.extend(["-o", &option]);
            let image = converted(&folder, &options);
            let report = assert_as_judged(&folder, &image, &format!("{options:?}"));
            // Tables of reference counts, and what lies before the L1 table.
            let few = 16 << 20;
            assert!(
                report.parked <= few.min(report.file / 2 + (6 << 20)),
                "{options:?} {report:?}"
            );
        }
    }
}

#[test]
fn most_of_a_packed_image_is_never_parked() {
    let folder = Folder::new("parked");
    for packing in ["zlib", "zstd"] {
        let option = format!("compression_type={packing},cluster_size=4k");
        for flags in [&["-c"][..], &["-c", "-W", "-m", "16"]] {
            let mut options = flags.to_vec();
            options.extend(["-o", &option]);
            let image = converted(&folder, &options);
            let report = assert_as_judged(&folder, &image, &option);
            assert!(report.parked < report.file / 20, "{options:?} {report:?}");
        }
    }
}

#[test]
fn older_and_newer_features_stream() {
    let folder = Folder::new("features");
    let variants: [&[&str]; 6] = [
        &["-o", "compat=0.10"],
        &["-o", "extended_l2=on,cluster_size=16k"],
        &["-o", "extended_l2=on,cluster_size=128k"],
        &["-c", "-o", "extended_l2=on,cluster_size=64k"],
        &["-o", "preallocation=metadata"],
        &["-o", "preallocation=full,refcount_bits=64"],
    ];
    for options in variants {
        let image = converted(&folder, options);
        assert_as_judged(&folder, &image, &format!("{options:?}"));
    }
}

#[test]
fn resized_images_stream() {
    let folder = Folder::new("resized");
    // Large enough for another L2 table, so that the L1 table has to move.
    for (cluster, size) in [("512", "7M"), ("4k", "9M"), ("32k", "140M")] {
        for packing in [&[][..], &["-c"]] {
            let option = format!("cluster_size={cluster}");
            let mut options = packing.to_vec();
            options.extend(["-o", &option]);
            let image = converted(&folder, &options);
            run("qemu-img", &["resize", "-q", "-f", "qcow2", &image, size]);
            let report = assert_as_judged(&folder, &image, &format!("grown {options:?}"));
            assert!(report.parked > report.file / 2, "{report:?}");
            let write = [
                "-f",
                "qcow2",
                "-c",
                "write -P 9 3M 2M",
                "-c",
                "write 6M 1M",
                &image,
            ];
            run("qemu-io", &write);
            assert_as_judged(&folder, &image, &format!("written after {options:?}"));
            let shrink = ["resize", "-q", "-f", "qcow2", "--shrink", &image, "4M"];
            run("qemu-img", &shrink);
            assert_as_judged(&folder, &image, &format!("shrunk {options:?}"));
        }
    }
}

#[test]
fn images_with_snapshots_stream_as_they_are_now() {
    let folder = Folder::new("snapshots");
    for packing in [&[][..], &["-c"]] {
        let image = converted(&folder, packing);
        run("qemu-img", &["snapshot", "-c", "before", &image]);
        let write = [
            "-f",
            "qcow2",
            "-c",
            "write -P 9 1M 2M",
            "-c",
            "write -z 0 512k",
            &image,
        ];
        run("qemu-io", &write);
        assert_as_judged(&folder, &image, "snapshot");
        run("qemu-img", &["snapshot", "-a", "before", &image]);
        assert_as_judged(&folder, &image, "reverted");
    }
}

#[test]
fn empty_disks_stream() {
    let folder = Folder::new("empty");
    for size in ["0", "512", "40M"] {
        let image = folder.file("empty.qcow2");
        run("qemu-img", &["create", "-q", "-f", "qcow2", &image, size]);
        assert_as_judged(&folder, &image, size);
    }
}

#[test]
fn bytes_behind_the_last_cluster_do_not_matter() {
    let folder = Folder::new("behind");
    let image = converted(&folder, &[]);
    let disk = judged(&folder, &image);
    let mut file = std::fs::read(&image).unwrap();
    file.resize(file.len().next_multiple_of(65536), 0);
    file.extend_from_slice(&[0xaa; 100_000]);
    assert_streams(&file, &disk, "more");
}
