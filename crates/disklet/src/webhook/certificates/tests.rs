use std::time::Duration;

use super::super::make::{BACK_DATED, make};
use super::*;

const LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
const NOW: u64 = 1_800_000_000;

fn hosts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn at(now: u64) -> Generation {
    make(&hosts(&["disklet-webhook.disklet.svc"]), now, LIFE).unwrap()
}

fn of(generations: &[&Generation]) -> Certificates {
    let add = |all: Certificates, one: &&Generation| all.with((*one).clone(), NOW);
    generations.iter().fold(Certificates::default(), add)
}

#[test]
fn a_new_one_is_made_when_a_third_of_its_life_is_left() {
    let mine = hosts(&["disklet-webhook.disklet.svc"]);
    assert_eq!(
        Certificates::default().wanted(&mine, NOW),
        Some(mine.clone())
    );
    let one = of(&[&at(NOW)]);
    let third = LIFE.as_secs() / 3;
    for (when, makes) in [
        (NOW, false),
        (NOW - BACK_DATED.as_secs(), false),
        (NOW - BACK_DATED.as_secs() - 1, true),
        (NOW + 2 * third - 1, false),
        (NOW + 2 * third, true),
        (NOW + 4 * third, true),
    ] {
        assert_eq!(one.wanted(&mine, when).is_some(), makes, "{when}");
    }
}

#[test]
fn replicas_that_want_other_hosts_do_not_take_turns() {
    let (a, b) = (hosts(&["a.example"]), hosts(&["b.example"]));
    let mut certificates = Certificates::default();
    for round in 0..6 {
        for mine in [&a, &b] {
            if let Some(wanted) = certificates.wanted(mine, NOW) {
                assert_eq!(round, 0, "{wanted:?}");
                let new = make(&wanted, NOW, LIFE).unwrap();
                certificates = certificates.with(new, NOW);
            }
        }
    }
    assert_eq!(certificates.generations().len(), 2);
}

#[test]
fn a_certificate_is_served_once_its_authority_is_known() {
    let (old, new) = (at(NOW - 1000), at(NOW));
    let both = of(&[&old, &new]);
    assert_eq!(both.to_serve(NOW, |_| false), Some(&old));
    assert_eq!(both.to_serve(NOW, |it| *it == new), Some(&new));
    assert_eq!(both.to_serve(NOW, |_| true), Some(&new));
    // A replica that has just started knows of nothing how long it is there.
    assert_eq!(of(&[&new]).to_serve(NOW, |_| false), Some(&new));
    let late = NOW + LIFE.as_secs() - 1;
    assert_eq!(
        both.to_serve(late, |_| false),
        Some(&new),
        "the old one has ended"
    );
    assert_eq!(Certificates::default().to_serve(NOW, |_| true), None);
}

#[test]
fn both_authorities_are_in_the_bundle_until_the_old_one_ends() {
    let (old, new) = (at(NOW - 1000), at(NOW));
    let bundle = of(&[&old, &new]).bundle();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(bundle.contains(old.authority.trim_end()) && bundle.contains(new.authority.trim_end()));
    let much_later = at(NOW + LIFE.as_secs());
    let after = of(&[&old, &new]).with(much_later, NOW + LIFE.as_secs());
    assert_eq!(after.generations().len(), 1);
    let mut many = Certificates::default();
    for _ in 0..9 {
        many = many.with(new.clone(), NOW);
    }
    assert_eq!(many.generations().len(), MOST);
}

#[test]
fn what_is_written_is_read_and_nothing_else() {
    let one = of(&[&at(NOW)]);
    assert_eq!(Certificates::parse(&one.to_text()).unwrap(), one);
    for bad in [
        &b""[..],
        b"{}",
        b"null",
        b"{\"version\":1}",
        b"{\"version\":2,\"generations\":[]}",
        b"\xff",
    ] {
        assert!(Certificates::parse(bad).is_err(), "{bad:?}");
    }
    assert!(!format!("{one:?}").contains("PRIVATE"), "{one:?}");
}
