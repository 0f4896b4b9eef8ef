//! What the kernel says of this process, under the names that Prometheus'
//! own libraries use.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Looks when it is asked.
#[derive(Debug)]
pub struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(bytes) = resident_bytes() {
            let gauge = ConstGauge::new(bytes);
            let help = "Memory that this process has";
            let name = "process_resident_memory_bytes";
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        if let Some(seconds) = cpu_seconds() {
            let counter = ConstCounter::new(seconds);
            let help = "Processor time that it has used";
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                kind,
            )?)?;
        }
        Ok(())
    }
}

fn resident_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// User and system time, which stand behind the name in parentheses.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    // The kernel tells it in hundredths, whatever it counts in.
    Some((ticks()? + ticks()?) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_this_process() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        assert!(cpu_seconds().unwrap() >= 0.0);
    }
}
