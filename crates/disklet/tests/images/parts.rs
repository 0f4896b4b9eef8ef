//! A file of a web server that is read in parts, as a disk is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use disklet::pull::{PullErrorKind, WebDisk};
use disklet_block::device::{Extents, ReadAt, Size};
use disklet_block::error::ErrorKind;
use disklet_core::images::{Address, Transport};
use disklet_core::networks::{Networks, Subnet};
use disklet_core::text::Secret;
use disklet_core::url::Url;

use crate::scratch::noise;
use crate::server::{Reply, Server};

const TAG: &str = "\"one\"";

fn address(url: &str, authorization: Option<&str>) -> Address {
    Address {
        url: Url::parse(url).unwrap(),
        digest: None,
        transport: Transport {
            authorization: authorization.map(Secret::new),
            stall_timeout: Duration::from_secs(20),
            ..Transport::default()
        },
        is_mapped: false,
    }
}

fn open(url: &str) -> WebDisk {
    WebDisk::open(&address(url, None), Arc::default()).unwrap()
}

fn refused(address: &Address) -> (PullErrorKind, String) {
    let error = WebDisk::open(address, Arc::default()).unwrap_err();
    (error.kind(), error.to_string())
}

/// What stands at an offset, or why not.
fn read(disk: &WebDisk, offset: u64, length: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0xee; length];
    let read = disk.read_at(&mut bytes, offset);
    read.map(|()| bytes).map_err(|error| error.to_string())
}

#[test]
fn any_part_can_be_had_by_many_at_once() {
    let bytes = Arc::new(noise(1, 3 << 20));
    let served = Arc::clone(&bytes);
    let server = Server::start(move |request| Reply::file(request, &served, TAG));
    let disk = open(&server.url("/disk"));
    assert_eq!(disk.size().unwrap(), 3 << 20);
    let all = disk.extent_at(5).unwrap();
    assert_eq!((all.length, all.zero), ((3 << 20) - 5, false));
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let (disk, bytes) = (&disk, &bytes);
            scope.spawn(move || {
                for step in 0..8 {
                    let offset = (thread * 8 + step) * 30_011;
                    let part = read(disk, offset as u64, 70_000).unwrap();
                    assert!(part == bytes[offset..][..70_000]);
                }
            });
        }
    });
    assert_eq!(read(&disk, 3 << 20, 0), Ok(Vec::new()));
    assert!(
        read(&disk, (3 << 20) - 1, 2)
            .unwrap_err()
            .contains("beyond the end")
    );
    assert!(
        read(&disk, u64::MAX, 2)
            .unwrap_err()
            .contains("beyond the end")
    );
}

#[test]
fn an_empty_file_has_no_bytes() {
    let server = Server::start(|request| Reply::file(request, &[], TAG));
    assert_eq!(open(&server.url("/disk")).size().unwrap(), 0);
}

#[test]
fn lost_connections_and_busy_servers_are_asked_again() {
    let bytes = Arc::new(noise(2, 100_000));
    let (served, asked) = (Arc::clone(&bytes), AtomicUsize::new(0));
    let server = Server::start(move |request| {
        let file = Reply::file(request, &served, TAG);
        match asked.fetch_add(1, Ordering::Relaxed) {
            1 => file.dropped_at(10),
            2 => Reply::status(503),
            _ => file,
        }
    });
    let disk = open(&server.url("/disk"));
    assert!(read(&disk, 7, 5000).unwrap() == bytes[7..5007]);
    assert_eq!(server.seen().len(), 4);
}

#[test]
fn a_server_that_never_recovers_is_told_once() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let file = Reply::file(request, &[1; 1000], TAG);
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => file,
            _ => file.dropped_at(10),
        }
    });
    let url = server.url("/disk");
    let told = read(&open(&url), 0, 100).unwrap_err();
    assert_eq!(told, format!("{url}: the connection was lost"));
}

#[test]
fn another_file_in_its_place_is_noticed() {
    let longer = |request: &_| Reply::file(request, &[1; 1001], TAG);
    let tagged = |request: &_| Reply::file(request, &[1; 1000], "\"two\"");
    let shorter = |request: &_| Reply::file(request, &[1; 10], TAG);
    let whole = |_: &_| Reply::whole(&[1; 1000]);
    let others: [fn(&_) -> Reply; 4] = [longer, tagged, shorter, whole];
    for (number, other) in others.into_iter().enumerate() {
        let asked = AtomicUsize::new(0);
        let server = Server::start(move |request| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Reply::file(request, &[1; 1000], TAG),
            _ => other(request),
        });
        let told = read(&open(&server.url("/disk")), 500, 100).unwrap_err();
        assert!(told.contains("has become another file"), "{number}: {told}");
    }
}

#[test]
fn a_part_that_was_not_asked_for_is_not_taken() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::file(request, &[1; 1000], TAG),
        _ => {
            let mut reply = Reply::status(206).header("Content-Range", "bytes 0-99/1000");
            reply.body = vec![2; 100];
            reply.header("ETag", TAG)
        }
    });
    let told = read(&open(&server.url("/disk")), 500, 100).unwrap_err();
    assert!(
        told.contains("another part than it was asked for"),
        "{told}"
    );
}

#[test]
fn servers_of_whole_files_are_refused_with_a_remedy() {
    let server = Server::start(|_| Reply::whole(&[1; 1000]));
    let (kind, why) = refused(&address(&server.url("/disk"), None));
    assert_eq!(kind, PullErrorKind::WrongPart);
    assert!(why.contains("whole files only"), "{why}");
}

#[test]
fn words_are_for_whom_the_user_has_named() {
    let bytes = Arc::new(noise(3, 10_000));
    let served = Arc::clone(&bytes);
    let store = Server::start(move |request| Reply::file(request, &served, TAG));
    let to = store.url("/signed");
    let front = Server::start(move |_| Reply::redirect(&to));
    let disk = WebDisk::open(
        &address(&front.url("/disk"), Some("Basic eDp5")),
        Arc::default(),
    );
    let disk = disk.unwrap();
    assert!(read(&disk, 10, 90).unwrap() == bytes[10..100]);
    assert!(read(&disk, 100, 90).unwrap() == bytes[100..190]);
    assert_eq!(store.seen_header("authorization"), [None, None, None]);
    // The way there is asked for once.
    assert_eq!(
        front.seen_header("authorization"),
        [Some("Basic eDp5".to_owned())]
    );
}

#[test]
fn a_way_that_is_over_is_asked_for_again() {
    let bytes = Arc::new(noise(4, 10_000));
    let (served, asked) = (Arc::clone(&bytes), AtomicUsize::new(0));
    let store = Server::start(
        move |request| match asked.fetch_add(1, Ordering::Relaxed) == 1 {
            true => Reply::status(403),
            false => Reply::file(request, &served, TAG),
        },
    );
    let to = store.url("/signed");
    let front = Server::start(move |_| Reply::redirect(&to));
    let disk = open(&front.url("/disk"));
    assert!(read(&disk, 10, 90).unwrap() == bytes[10..100]);
    assert_eq!(front.seen().len(), 2);
}

#[test]
fn nobody_is_followed_into_a_closed_network() {
    let front = Server::start(|_| Reply::redirect("http://127.0.0.2:1/secret"));
    let mut address = address(&front.url("/disk"), None);
    let mut networks = Networks::of_owner();
    networks.deny.push(Subnet::parse("127.0.0.2").unwrap());
    address.transport.networks = Some(networks);
    assert_eq!(refused(&address).0, PullErrorKind::Closed);
}

#[test]
fn whoever_has_changed_their_mind_does_not_wait() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let file = Reply::file(request, &[1; 1000], TAG);
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => file,
            _ => file.stalled_at(10),
        }
    });
    let unwanted = Arc::new(AtomicBool::new(false));
    let disk = WebDisk::open(&address(&server.url("/disk"), None), Arc::clone(&unwanted)).unwrap();
    let begun = Instant::now();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            unwanted.store(true, Ordering::Relaxed);
        });
        disk.read_at(&mut [0; 100], 0).unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(begun.elapsed() < Duration::from_secs(5));
}
