//! `disklet-node` killed at every boundary between two steps.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use support::{Machine, guest};

fn machine(name: &str) -> (Machine, String) {
    let machine = Machine::new(name);
    machine.add_image("tiny", &guest::disk());
    let pod = machine.pod(name, "8MB");
    (machine, pod)
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_up_is_finished_by_the_next() {
    let (machine, pod) = machine("kill-up");
    let up = ["up", "-f", &pod];
    let mut boundary = 1;
    while machine.killed(&up, boundary) {
        machine.done(&up);
        machine.done(&["down", "kill-up"]);
        assert_eq!(machine.leftovers(), [""; 0], "boundary {boundary}");
        boundary += 1;
    }
    // Eight steps, and the end.
    assert!(boundary >= 8, "only {boundary} boundaries");
    machine.done(&["down", "kill-up"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_up_is_undone_by_down() {
    let (machine, pod) = machine("kill-down");
    let up = ["up", "-f", &pod];
    let mut boundary = 1;
    while machine.killed(&up, boundary) {
        machine.done(&["down", "kill-down"]);
        assert_eq!(machine.leftovers(), [""; 0], "boundary {boundary}");
        boundary += 1;
    }
    machine.done(&["down", "kill-down"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_down_is_finished_by_the_next() {
    let (machine, pod) = machine("kill-twice");
    let down = ["down", "kill-twice"];
    let mut boundary = 1;
    loop {
        machine.done(&["up", "-f", &pod]);
        if !machine.killed(&down, boundary) {
            break;
        }
        machine.done(&down);
        assert_eq!(machine.leftovers(), [""; 0], "boundary {boundary}");
        boundary += 1;
    }
    assert!(boundary >= 5, "only {boundary} boundaries");
    assert_eq!(machine.leftovers(), [""; 0]);
}
