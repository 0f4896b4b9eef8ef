//! Images whose clusters are in any order.

use proptest::prelude::*;

use super::shuffle::{Order, shuffled};
use super::*;

const SIZE: u64 = 6 << 20;

/// An image of random writes by QEMU.
fn random_image(folder: &Folder, seed: u64) -> String {
    let mut noise = Noise(seed);
    let image = folder.file(&format!("{seed}.qcow2"));
    let variants = [
        "cluster_size=512",
        "cluster_size=4k",
        "cluster_size=64k",
        "cluster_size=1M",
        "cluster_size=4k,compression_type=zstd",
        "cluster_size=64k,compression_type=zstd",
        "cluster_size=16k,extended_l2=on",
        "cluster_size=64k,extended_l2=on",
        "cluster_size=8k,compat=0.10",
    ];
    let variant = variants[usize::try_from(noise.below(9)).unwrap()];
    let size = (SIZE - noise.below(8) * 512).to_string();
    run(
        "qemu-img",
        &["create", "-q", "-f", "qcow2", "-o", variant, &image, &size],
    );
    let mut commands = Vec::new();
    for _ in 0..3 + noise.below(30) {
        let offset = noise.below(SIZE / 2 / 512) * 512;
        let length = (1 + noise.below(600)) * 512;
        let aligned = offset & !0xf_ffff;
        commands.push(match noise.below(9) {
            0 => format!("write -z {offset} {length}"),
            1 => format!("write -z -u {offset} {length}"),
            2 => format!("discard {offset} {length}"),
            // Whole clusters, packed, behind the others: an allocated one
            // would be refused.
            3..=5 => format!("write -c -P {} {aligned} 1M", noise.below(255)),
            _ => format!(
                "write -P {} {} {length}",
                noise.below(256),
                offset + SIZE / 4
            ),
        });
    }
    let mut arguments = vec!["-f", "qcow2"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command.as_str()]));
    arguments.push(&image);
    // Some commands fail on purpose of the format; the image stays sound.
    let output = Command::new("qemu-io").args(&arguments).output().unwrap();
    assert!(!output.stdout.is_empty(), "{output:?}");
    image
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_images_in_random_orders_stream(seed: u64, order: u64) {
        let folder = Folder::new(&format!("random-{seed}"));
        let image = random_image(&folder, seed);
        let disk = judged(&folder, &image);
        assert_streams(&std::fs::read(&image).unwrap(), &disk, &format!("{seed}"));
        for order in [Order::Random(order), Order::TablesLast, Order::TablesFirst] {
            check(&folder, &image, order);
        }
    }

    /// How the bytes are cut into chunks makes no difference.
    #[test]
    fn chunks_of_any_size_lead_to_the_same_disk(seed: u64) {
        let folder = Folder::new(&format!("chunks-{seed}"));
        let image = random_image(&folder, seed);
        let (_, file) = check(&folder, &image, Order::Random(seed));
        let (disk, _) = stream_qcow2(&file, judged(&folder, &image).len()).unwrap();
        let target = MemoryDevice::zeroed(disk.len());
        let scratch = MemoryDevice::default();
        let trickle = Trickle { rest: &file, noise: Noise(seed) };
        let options = Options {
            before: Before::Zeroes,
            ..options(Format::Qcow2, Unwrap::As(Wrapping::Plain))
        };
        to_raw(trickle, &options, &target, &scratch, &Unwatched).unwrap();
        prop_assert!(target.contents() == disk);
    }
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
