//! Storages, each in several spellings: what is written, and which it is.

use crate::model::Identity::{Of, On, One};
use crate::model::Spelling;
use crate::model::Way::{Claim, Direct, Flex};

const UNITS: &[Spelling] = &[
    (
        One("unit 1"),
        Direct("iscsi: {host: {name: a}, portal: 'iqn.2024-01.com.example:x', lun: 1}"),
    ),
    (
        One("unit 1"),
        Direct(
            "iscsi: {host: {name: '::1', port: '3261'}, portal: 'IQN.2024-01.com.EXAMPLE:x/', lun: 1, initiator: 'iqn.2024-01.com.example:me'}",
        ),
    ),
    (
        One("unit 1"),
        Claim(
            "unit-block",
            "volumeMode: Block, iscsi: {targetPortal: 'b:3260', portals: ['c:3260'], iqn: 'iqn.2024-01.com.example:X', lun: 1}",
        ),
    ),
    (
        One("unit 1"),
        Claim(
            "unit-files",
            "volumeMode: Filesystem, iscsi: {targetPortal: c, iqn: 'iqn.2024-01.com.example:x', lun: 1}",
        ),
    ),
    (
        One("unit 1"),
        Claim(
            "mounted-unit",
            "volumeMode: Filesystem, iscsi: {targetPortal: c, iqn: 'iqn.2024-01.com.example:x', lun: 1}",
        ),
    ),
    (
        One("unit 0 of a target that QEMU cannot name"),
        Claim(
            "odd-unit",
            "volumeMode: Block, iscsi: {targetPortal: c, iqn: 'iqn.2024-01.com.example:x/y', lun: 0}",
        ),
    ),
    (
        One("unit 0 of a target that QEMU cannot name"),
        Claim(
            "odd-unit-too",
            "volumeMode: Block, iscsi: {targetPortal: d, iqn: 'iqn.2024-01.com.example:X/y'}",
        ),
    ),
    (
        One("unit 2"),
        Direct("iscsi: {host: {name: a}, portal: 'iqn.2024-01.com.example:x', lun: 2}"),
    ),
    (
        One("unit 1 of another target"),
        Direct("iscsi: {host: {name: a}, portal: 'iqn.2024-01.com.example:y', lun: 1}"),
    ),
];

const IMAGES: &[Spelling] = &[
    (
        Of("x", &["a"]),
        Direct("rbd: {monitors: [{name: a}], pool: rbd, image: x}"),
    ),
    (
        Of("x", &["a", "b"]),
        Direct(
            "rbd: {monitors: [{name: B, port: 3300}, {name: A}], pool: rbd, image: x, user: me}",
        ),
    ),
    (
        Of("x", &["b", "c"]),
        Flex("{type: ceph, monitor: 'b:6790,c', pool: rbd, volume: x}"),
    ),
    (
        Of("x", &["c", "d"]),
        Claim(
            "image",
            "volumeMode: Block, rbd: {monitors: ['c:6789', d], image: x}",
        ),
    ),
    (
        Of("x", &["a", "c"]),
        Claim(
            "mounted-image",
            "volumeMode: Filesystem, rbd: {monitors: ['c:6789', a], image: x}",
        ),
    ),
    (
        Of("x", &["a", "d"]),
        Claim(
            "flex",
            "volumeMode: Filesystem, flexVolume: {driver: virtlet/flexvolume_driver, options: {type: ceph, monitor: 'd,a', pool: rbd, volume: x}}",
        ),
    ),
    (
        Of("z", &["a"]),
        Direct("rbd: {monitors: [{name: a}], pool: rbd, image: z}"),
    ),
    (
        Of("x of another pool", &["a"]),
        Direct("rbd: {monitors: [{name: a}], pool: other, image: x}"),
    ),
];

const EXPORTS: &[Spelling] = &[
    (One("x of a"), Direct("nbd: {host: {name: a}, export: x}")),
    (
        One("x of a"),
        Direct("nbd: {host: {name: A, port: '10809'}, export: x, tls: true}"),
    ),
    (One("X of a"), Direct("nbd: {host: {name: a}, export: X}")),
    (
        One("x of another port"),
        Direct("nbd: {host: {name: a, port: 1}, export: x}"),
    ),
    (
        One("x of v6"),
        Direct("nbd: {host: {name: 'fd00::1'}, export: x}"),
    ),
    (
        One("x of v6"),
        Direct("nbd: {host: {name: '[FD00:0:0::1]'}, export: x}"),
    ),
    (
        One("x of the socket"),
        Direct("nbd: {unix: /run/disklet/nbd/s, export: x}"),
    ),
    (
        One("the default export of the socket"),
        Direct("nbd: {unix: /run/disklet/nbd/s}"),
    ),
    (
        One("the default export of the socket"),
        Direct("nbd: {unix: /run/disklet/nbd/s, export: ''}"),
    ),
    (
        One("x of another socket"),
        Direct("nbd: {unix: /run/disklet/nbd/S, export: x}"),
    ),
];

const PATHS: &[Spelling] = &[
    (
        One("device x"),
        Claim("device", "volumeMode: Block, local: {path: /dev/vg/x}"),
    ),
    (
        One("device x"),
        Claim(
            "same-device",
            "volumeMode: Block, hostPath: {path: /dev//vg/./x/}",
        ),
    ),
    (
        One("device X"),
        Claim(
            "other-device",
            "volumeMode: Block, local: {path: /dev/vg/X}",
        ),
    ),
    (
        One("device x"),
        Claim(
            "mapped-device",
            "volumeMode: Block, local: {path: /dev/mapper/vg-x}",
        ),
    ),
    (
        One("image in x"),
        Claim("files", "volumeMode: Filesystem, local: {path: /srv/x}"),
    ),
    (
        One("image in x"),
        Claim(
            "same-files",
            "volumeMode: Filesystem, hostPath: {path: /srv/x/}",
        ),
    ),
    (
        One("image in x"),
        Claim(
            "linked-files",
            "volumeMode: Filesystem, local: {path: /mnt/link}",
        ),
    ),
    (
        One("image in y"),
        Claim(
            "other-files",
            "volumeMode: Filesystem, local: {path: /srv/y}",
        ),
    ),
    (
        Of("v/a", &["g", "h"]),
        Direct("gluster: {hosts: [{name: g}, {name: h}], volume: v, path: /a}"),
    ),
    (
        Of("v/a", &["h"]),
        Direct("gluster: {hosts: [{name: H, port: 1}], volume: v, path: a}"),
    ),
    (
        Of("v/a", &["i"]),
        Direct("gluster: {hosts: [{name: i}], volume: v, path: a}"),
    ),
];

/// What the node sees at these paths.
pub(crate) const NODE: &str = "
kind: NodeFacts
apiVersion: disklet.io/v1alpha1
paths:
  /dev/vg/x: {block: '253:3', size: 1Gi}
  /dev//vg/./x/: {block: '253:3', size: 1Gi}
  /dev/mapper/vg-x: {block: '253:3', size: 1Gi}
  /dev/vg/X: {block: '253:4', size: 1Gi}
  /srv/x/disk.img: {file: 1Gi, device: '8:1', inode: 12}
  /mnt/link/disk.img: {file: 1Gi, device: '8:1', inode: 12}
  /srv/y/disk.img: {file: 1Gi, device: '8:2', inode: 12}
  /mnt/ssd/disk.img: {file: 1Gi, device: '8:3', inode: 12}
  /mnt/hdd/disk.img: {file: 1Gi, device: '8:4', inode: 12}
";

/// What a driver, or a server of files, calls a volume.
const VOLUMES: &[Spelling] = &[
    (
        One("block volume 1 of the driver"),
        Claim(
            "csi-block",
            "volumeMode: Block, csi: {driver: csi.example.com, volumeHandle: h-1}",
        ),
    ),
    (
        One("block volume 1 of the driver"),
        Claim(
            "csi-same-block",
            "volumeMode: Block, csi: {driver: csi.example.com, volumeHandle: h-1, readOnly: false}",
        ),
    ),
    (
        One("volume 2 of the driver"),
        Claim(
            "csi-files",
            "volumeMode: Filesystem, csi: {driver: csi.example.com, volumeHandle: h-2}",
        ),
    ),
    (
        One("volume 2 of another driver"),
        Claim(
            "csi-other",
            "volumeMode: Filesystem, csi: {driver: other.example.com, volumeHandle: h-2}",
        ),
    ),
    (
        One("export x"),
        Claim(
            "nfs",
            "volumeMode: Filesystem, nfs: {server: a, path: /export/x}",
        ),
    ),
    (
        One("export x"),
        Claim(
            "nfs-same",
            "volumeMode: Filesystem, nfs: {server: A, path: /export//x/}",
        ),
    ),
    (
        One("export X"),
        Claim(
            "nfs-other",
            "volumeMode: Filesystem, nfs: {server: a, path: /export/X}",
        ),
    ),
    (
        One("export x"),
        Claim(
            "nfs-up",
            "volumeMode: Filesystem, nfs: {server: a., path: /export/y/../x}",
        ),
    ),
];

/// Those that Gluster's volumes name.
pub(crate) const SERVERS: &str = "kind: Endpoints\napiVersion: v1\nmetadata: {name: servers}\n\
    subsets: [{addresses: [{ip: 10.0.0.7}], ports: [{port: 1}]}]\n";

/// Servers of files by addresses, Gluster by its Endpoints, and ports.
const ADDRESSED: &[Spelling] = &[
    (
        One("export of v6"),
        Claim(
            "nfs-v6",
            "volumeMode: Filesystem, nfs: {server: 'fd00::1', path: /x}",
        ),
    ),
    (
        One("export of v6"),
        Claim(
            "nfs-v6-long",
            "volumeMode: Filesystem, nfs: {server: '[FD00:0::0:1]', path: /x}",
        ),
    ),
    (
        One("export of v4"),
        Claim(
            "nfs-v4",
            "volumeMode: Filesystem, nfs: {server: 10.0.0.1, path: /x}",
        ),
    ),
    (
        One("export of v4"),
        Claim(
            "nfs-mapped",
            "volumeMode: Filesystem, nfs: {server: '::ffff:10.0.0.1', path: /x}",
        ),
    ),
    (
        Of("v/disk.img", &["10.0.0.7"]),
        Claim(
            "gluster",
            "volumeMode: Filesystem, glusterfs: {endpoints: servers, path: v}",
        ),
    ),
    (
        Of("v/disk.img", &["10.0.0.7"]),
        Claim(
            "gluster-slashes",
            "volumeMode: Filesystem, glusterfs: {endpoints: servers, path: /v/}",
        ),
    ),
    (
        Of("v/disk.img", &["10.0.0.7"]),
        Direct("gluster: {hosts: [{name: 10.0.0.7}], volume: v, path: disk.img}"),
    ),
    (
        Of("unit 1", &["50a"]),
        Claim(
            "fc",
            "volumeMode: Block, fc: {targetWWNs: [50a, 50b], lun: 1}",
        ),
    ),
    (
        Of("unit 1", &["50a"]),
        Claim(
            "mounted-fc",
            "volumeMode: Filesystem, fc: {targetWWNs: [50b, 50c], lun: 1}",
        ),
    ),
    (
        Of("unit 1", &["50a"]),
        Claim(
            "fc-same",
            "volumeMode: Block, fc: {targetWWNs: [50B], lun: 1}",
        ),
    ),
    (
        Of("unit 2", &["50a"]),
        Claim(
            "fc-other",
            "volumeMode: Block, fc: {targetWWNs: [50a], lun: 2}",
        ),
    ),
    (
        Of("unit 2", &["50a"]),
        Claim(
            "fc-spelled",
            "volumeMode: Block, fc: {targetWWNs: ['0x50:A'], lun: 0x2}",
        ),
    ),
];

/// All nodes that are named below.
const ANYWHERE: &[&str] = &["n1", "n2", "n3"];

/// Volumes of nodes, which are often called alike.
const LOCAL: &[Spelling] = &[
    (
        On("ssd", &["n1"]),
        Claim(
            "ssd-n1",
            "volumeMode: Filesystem, local: {path: /mnt/ssd}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}",
        ),
    ),
    (
        On("ssd", &["n2"]),
        Claim(
            "ssd-n2",
            "volumeMode: Filesystem, local: {path: /mnt/ssd/}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}, {key: kubernetes.io/hostname, operator: In, values: [n2]}]}]}}",
        ),
    ),
    (
        On("ssd", &["n2", "n3"]),
        Claim(
            "ssd-n2-n3",
            "volumeMode: Filesystem, local: {path: /mnt/ssd}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n2]}]}, {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n3]}]}]}}",
        ),
    ),
    (
        On("ssd", ANYWHERE),
        Claim(
            "ssd-zone",
            "volumeMode: Filesystem, local: {path: /mnt/ssd}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [n1]}]}]}}",
        ),
    ),
    (
        On("ssd", ANYWHERE),
        Claim(
            "ssd-not-n1",
            "volumeMode: Filesystem, hostPath: {path: /mnt/ssd}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: [n1]}]}]}}",
        ),
    ),
    (
        On("ssd", ANYWHERE),
        Claim(
            "ssd-nowhere",
            "volumeMode: Filesystem, local: {path: /mnt/ssd}, nodeAffinity: {required: {nodeSelectorTerms: []}}",
        ),
    ),
    (
        On("ssd", ANYWHERE),
        Claim(
            "ssd-any",
            "volumeMode: Filesystem, hostPath: {path: /mnt/ssd}",
        ),
    ),
    (
        On("hdd", ANYWHERE),
        Claim(
            "hdd-any",
            "volumeMode: Filesystem, hostPath: {path: /mnt/hdd}",
        ),
    ),
];

/// Claims of one pod (their names begin so) beside others, and disks beside their
/// partitions.
const PARTS: &[Spelling] = &[
    (
        One("volume o-1"),
        Claim(
            "once-a",
            "volumeMode: Block, csi: {driver: csi.example.com, volumeHandle: o-1}",
        ),
    ),
    (
        One("volume o-1"),
        Claim(
            "many-a",
            "volumeMode: Block, csi: {driver: csi.example.com, volumeHandle: o-1}",
        ),
    ),
    (
        Of("disk", &["1", "2"]),
        Claim(
            "disk",
            "volumeMode: Block, awsElasticBlockStore: {volumeID: vol-1}",
        ),
    ),
    (
        Of("disk", &["1", "2"]),
        Claim(
            "disk-0",
            "volumeMode: Block, awsElasticBlockStore: {volumeID: 'aws://zone/vol-1', partition: 0}",
        ),
    ),
    (
        Of("disk", &["1"]),
        Claim(
            "disk-1",
            "volumeMode: Block, awsElasticBlockStore: {volumeID: vol-1, partition: 1}",
        ),
    ),
    (
        Of("disk", &["1"]),
        Claim(
            "once-disk-1",
            "volumeMode: Block, awsElasticBlockStore: {volumeID: 'aws://zone/vol-1', partition: 0x1}",
        ),
    ),
    (
        Of("disk", &["2"]),
        Claim(
            "disk-2",
            "volumeMode: Block, awsElasticBlockStore: {volumeID: vol-1, partition: 2}",
        ),
    ),
];

pub(crate) const FAMILIES: [&[Spelling]; 8] = [
    UNITS, IMAGES, EXPORTS, PATHS, VOLUMES, ADDRESSED, LOCAL, PARTS,
];
