//! Images whose clusters are in any order.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::shuffle::{Order, shuffled};
use super::*;

const SIZE: u64 = 6 << 20;

/// An image of random writes by QEMU.
fn random_image(folder: &Folder, seed: u64) -> String {
    let mut noise = Noise(seed);
    let image = folder.file(&format!("{seed}.qcow2"));
    let (cluster, features) = VARIANTS[usize::try_from(noise.below(9)).unwrap()];
    let options = format!("cluster_size={cluster}{features}");
    let size = (SIZE - noise.below(8) * 512).to_string();
    run(
        "qemu-img",
        &["create", "-q", "-f", "qcow2", "-o", &options, &image, &size],
    );
    let (packed, others) = random_writes(&mut noise, cluster);
    for commands in [packed, others] {
        let mut arguments = vec!["-t", "unsafe", "-f", "qcow2"];
        arguments.extend(commands.iter().flat_map(|command| ["-c", command.as_str()]));
        // Else it would read commands from its standard input.
        arguments.extend(["-c", "flush", &image]);
        run("qemu-io", &arguments);
    }
    image
}

const VARIANTS: [(u64, &str); 9] = [
    (512, ""),
    (4 << 10, ""),
    (64 << 10, ""),
    (1 << 20, ""),
    (4 << 10, ",compression_type=zstd"),
    (64 << 10, ",compression_type=zstd"),
    (16 << 10, ",extended_l2=on"),
    (64 << 10, ",extended_l2=on"),
    (8 << 10, ",compat=0.10"),
];

/// Packed clusters come first, in a run of QEMU's own and each only once:
/// QEMU 10.0 damages an image in which it packs a cluster after others were
/// overwritten.
fn random_writes(noise: &mut Noise, cluster: u64) -> (Vec<String>, Vec<String>) {
    let unit = cluster.max(64 << 10);
    let packed = (0..SIZE / unit)
        .filter_map(|index| {
            let fill = noise.below(256);
            let from = index * unit;
            (noise.below(3) == 0 && from + unit < SIZE)
                .then(|| format!("write -c -P {fill} {from} {unit}"))
        })
        .collect();
    let others = (0..3 + noise.below(20))
        .map(|_| {
            let offset = noise.below(SIZE * 3 / 4 / 512) * 512;
            let length = (1 + noise.below(600)) * 512;
            match noise.below(6) {
                0 => format!("write -z {offset} {length}"),
                1 => format!("write -z -u {offset} {length}"),
                2 => format!("discard {offset} {length}"),
                _ => format!("write -P {} {offset} {length}", noise.below(256)),
            }
        })
        .collect();
    (packed, others)
}

fn check(folder: &Folder, image: &str, order: Order) -> (Report, Vec<u8>) {
    let disk = judged(folder, image);
    let file = shuffled(&std::fs::read(image).unwrap(), order);
    let path = folder.file("shuffled.qcow2");
    std::fs::write(&path, &file).unwrap();
    let what = format!("{image} {order:?}");
    assert!(
        judged(folder, &path) == disk,
        "the shuffler is wrong: {what}"
    );
    (assert_streams(&file, &disk, &what), file)
}

#[test]
fn tables_may_be_anywhere() {
    let folder = Folder::new("anywhere");
    let raw = folder.file("sample.raw");
    std::fs::write(&raw, sample((4 << 20) + 1536)).unwrap();
    let image = folder.file("sample.qcow2");
    for packing in [&[][..], &["-c"], &["-c", "-o", "compression_type=zstd"]] {
        for cluster in ["512", "4k", "64k"] {
            let option = format!("cluster_size={cluster}");
            let mut arguments = vec!["convert", "-f", "raw", "-O", "qcow2", "-o", &option];
            arguments.extend_from_slice(packing);
            arguments.extend([raw.as_str(), image.as_str()]);
            run("qemu-img", &arguments);
            let (report, _) = check(&folder, &image, Order::TablesLast);
            assert!(report.parked > report.file / 2, "{report:?}");
            let (report, _) = check(&folder, &image, Order::TablesFirst);
            assert_eq!(report.parked, 0);
            check(&folder, &image, Order::Reversed);
            check(&folder, &image, Order::Random(1));
        }
    }
}

/// Each case calls QEMU's tools a dozen times, so there are fewer of them than
/// `PROPTEST_CASES` asks for, which the macro would obey.
fn with_some_numbers(test: impl Fn(u64, u64)) {
    let default = ProptestConfig::default();
    let cases = (default.cases / 50).max(12);
    TestRunner::new(ProptestConfig { cases, ..default })
        .run(&any::<(u64, u64)>(), |(first, second)| {
            test(first, second);
            Ok(())
        })
        .unwrap();
}

#[test]
fn random_images_in_random_orders_stream() {
    with_some_numbers(|seed, order| {
        let folder = Folder::new(&format!("random-{seed}"));
        let image = random_image(&folder, seed);
        let disk = judged(&folder, &image);
        assert_streams(&std::fs::read(&image).unwrap(), &disk, &format!("{seed}"));
        for order in [Order::Random(order), Order::TablesLast, Order::TablesFirst] {
            check(&folder, &image, order);
        }
    });
}

/// How the bytes are cut into chunks makes no difference.
#[test]
fn chunks_of_any_size_lead_to_the_same_disk() {
    with_some_numbers(|seed, cuts| {
        let folder = Folder::new(&format!("chunks-{seed}"));
        let image = random_image(&folder, seed);
        let (_, file) = check(&folder, &image, Order::Random(seed));
        let (disk, _) = stream_qcow2(&file, judged(&folder, &image).len()).unwrap();
        let target = MemoryDevice::zeroed(disk.len());
        let scratch = MemoryDevice::default();
        let trickle = Trickle {
            rest: &file,
            noise: Noise(cuts),
        };
        let options = Options {
            before: Before::Zeroes,
            ..options(Format::Qcow2, Unwrap::As(Wrapping::Plain))
        };
        to_raw(trickle, &options, &target, &scratch, &Unwatched).unwrap();
        assert!(target.contents() == disk, "{seed} {cuts}");
    });
}

/// Reads a few bytes at a time, as a pipe can.
struct Trickle<'f> {
    rest: &'f [u8],
    noise: Noise,
}

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = usize::try_from(1 + self.noise.below(9000)).unwrap();
        let length = most.min(buffer.len()).min(self.rest.len());
        let (now, rest) = self.rest.split_at(length);
        buffer[..length].copy_from_slice(now);
        self.rest = rest;
        Ok(length)
    }
}
