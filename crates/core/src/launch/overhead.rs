//! What a VM's pod needs beside the guest's memory.
//!
//! QEMU runs in the launcher's cgroup, and what exceeds its limit is killed, so
//! this errs on the generous side. See docs/formats/launcher.md.

use super::ports::Ports;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// QEMU without the guest's memory, passt, the launcher and what the kernel
/// keeps for them.
const PROCESSES: u64 = 192 * MIB;
/// A virtual CPU's threads, and what they emulate.
const PER_CPU: u64 = 8 * MIB;
/// A disk's requests; of an overlay, the tables of 64 GiB as well.
const PER_DISK: u64 = 8 * MIB;
/// Page tables: 8 bytes for each 4 KiB, once for QEMU and once for the guest.
const PAGES_PER_TABLE_BYTE: u64 = 256;
/// A socket that passt listens at.
const PER_TCP_PORT: u64 = 5 * KIB;
const PER_UDP_PORT: u64 = 4 * KIB;

/// The pod's memory in MiB, for a guest with so many bytes.
pub(super) fn pod_mebibytes(memory: u64, cpus: u32, disks: usize, tcp: &Ports, udp: &Ports) -> u64 {
    let overhead = PROCESSES
        + PER_CPU * u64::from(cpus)
        + PER_DISK * disks as u64
        + memory / PAGES_PER_TABLE_BYTE
        + PER_TCP_PORT * u64::from(tcp.count())
        + PER_UDP_PORT * u64::from(udp.count());
    memory.saturating_add(overhead).div_ceil(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_memory_cpus_and_ports() {
        let (none, usual) = (Ports::default(), Ports::parse(Ports::TCP).unwrap());
        let pod = |mib, cpus, tcp| pod_mebibytes(mib * MIB, cpus, 2, tcp, &none);
        assert_eq!(pod(1024, 1, &none), 1024 + 192 + 16 + 8 + 4);
        assert_eq!(pod(1024, 4, &none), 1024 + 192 + 16 + 32 + 4);
        assert_eq!(pod(65536, 1, &none), 65536 + 192 + 16 + 8 + 256);
        assert_eq!(pod(1024, 1, &usual), 1024 + 192 + 16 + 8 + 4 + 49);
        assert_eq!(pod_mebibytes(u64::MAX, 1, 0, &none, &none), 1 << 44);
    }
}
