use proptest::prelude::*;

use super::*;

fn bytes(text: &str) -> Result<u64, CapacityError> {
    Capacity::parse(text).map(Capacity::bytes)
}

#[test]
fn virtlets_spellings_keep_their_meaning() {
    assert_eq!(Capacity::default().bytes(), 1_024_000_000);
    assert_eq!(bytes("1024MB"), Ok(1_024_000_000));
    assert_eq!(bytes("1024KB"), Ok(1_024_000));
    assert_eq!(bytes("2"), Ok(2_000_384));
    assert_eq!(bytes("2MB"), bytes("2"));
    assert_eq!(bytes("424242"), Ok(424_242_000_384));
    assert_eq!(bytes("1G"), Ok(1 << 30));
    assert_eq!(bytes("1GiB"), Ok(1 << 30));
    assert_eq!(bytes("4096 bytes"), Ok(4096));
    assert_eq!(bytes(" \t1024 \n MB "), Ok(1_024_000_000));
}

#[test]
fn kubernetes_quantities_work_where_libvirt_has_no_other_meaning() {
    assert_eq!(bytes("1Gi"), Ok(1 << 30));
    assert_eq!(bytes("1.5Gi"), Ok(3 << 29));
    assert_eq!(bytes(".5Gi"), Ok(1 << 29));
    assert_eq!(bytes("+1Gi"), Ok(1 << 30));
    assert_eq!(bytes("100Ti"), Ok(100 << 40));
    assert_eq!(bytes("512k"), Ok(512_000));
    assert_eq!(bytes("1e9"), Ok(1_000_000_000));
    assert_eq!(bytes("1.024E9"), Ok(1_024_000_000));
    assert_eq!(bytes("1E"), Ok(1 << 60));
}

#[test]
fn sizes_are_rounded_up_to_sectors() {
    assert_eq!(bytes("1B"), Ok(512));
    assert_eq!(bytes("512B"), Ok(512));
    assert_eq!(bytes("513B"), Ok(1024));
    assert_eq!(bytes("0.1B"), Ok(512));
    assert_eq!(bytes("1e-999999999999"), Ok(512));
}

#[test]
fn what_is_no_size_is_refused() {
    use CapacityError::*;
    assert_eq!(bytes(""), Err(Empty));
    assert_eq!(bytes(" \n"), Err(Empty));
    for text in ["GB", "big", ".", "+", "-", "-GB", "+-1GB", "0x10", "٣GB"] {
        assert!(
            matches!(bytes(text), Err(NotANumber | UnknownUnit(_))),
            "{text}"
        );
    }
    assert_eq!(bytes("-1GB"), Err(Negative));
    assert_eq!(bytes("-0.5"), Err(Negative));
    for text in ["0", "0GB", "0.000Gi", "0e999999999999"] {
        assert_eq!(bytes(text), Err(Zero), "{text}");
    }
    assert_eq!(bytes("500m"), Err(SubByteUnit("m".to_owned())));
    assert_eq!(bytes("5n"), Err(SubByteUnit("n".to_owned())));
    for unit in ["XB", "gb", "1", "GB GB", "e", "e1B", "Gi B", "/s"] {
        let text = format!("12 {unit}");
        assert_eq!(bytes(&text), Err(UnknownUnit(unit.to_owned())), "{text}");
    }
}

#[test]
fn the_largest_disk_is_qemus() {
    let max = Capacity::MAX.bytes();
    assert_eq!(max, 9_223_372_035_781_033_984);
    assert_eq!(bytes(&format!("{max}B")), Ok(max));
    assert_eq!(bytes(&format!("{}B", max - 511)), Ok(max));
    for text in [
        &format!("{}B", max + 1),
        "8EiB",
        "16E",
        "18446744073709551615B",
        "99999999999999999999999999999999999999999999EB",
        "1e999999999",
        "1e99999999999999999999999999",
    ] {
        assert_eq!(bytes(text), Err(CapacityError::TooLarge), "{text}");
    }
}

#[test]
fn misspelt_units_get_a_suggestion() {
    let suggestion = |text| Capacity::parse(text).unwrap_err().suggestion();
    assert_eq!(suggestion("10gb"), Some("GB"));
    assert_eq!(suggestion("10Gib"), Some("GiB"));
    assert_eq!(suggestion("500m"), Some("M"));
    assert_eq!(suggestion("12XB"), None);
    assert_eq!(suggestion("0"), None);
}

/// Every unit of the two grammars, with its bytes written out by hand.
const MODEL: [(&str, u128); 10] = [
    ("B", 1),
    ("", 1_000_000),
    ("KB", 1_000),
    ("K", 1_024),
    ("MiB", 1_048_576),
    ("GB", 1_000_000_000),
    ("Gi", 1_073_741_824),
    ("TB", 1_000_000_000_000),
    ("PiB", 1_125_899_906_842_624),
    ("EB", 1_000_000_000_000_000_000),
];

proptest! {
    #[test]
    fn no_text_upsets_the_parser(text in "\\PC*|[ +-]?[0-9.]{0,30} ?[a-zA-Z]{0,4}[+-]?[0-9]{0,25}") {
        if let Ok(capacity) = Capacity::parse(&text) {
            prop_assert!(capacity.bytes() % Capacity::SECTOR == 0);
            prop_assert!(capacity <= Capacity::MAX);
        }
    }

    #[test]
    fn what_is_printed_reads_back(sectors in 1..=Capacity::MAX.bytes() / Capacity::SECTOR) {
        let capacity = Capacity::parse(&format!("{}B", sectors * Capacity::SECTOR)).unwrap();
        prop_assert_eq!(Capacity::parse(&capacity.to_string()), Ok(capacity));
    }

    #[test]
    fn agrees_with_arithmetic_in_128_bits(
        hundredths in 1..=u64::MAX,
        (unit, unit_bytes) in prop::sample::select(&MODEL[..]),
    ) {
        let text = format!("{}.{:02}{unit}", hundredths / 100, hundredths % 100);
        let exact = (u128::from(hundredths) * unit_bytes).div_ceil(100);
        let rounded = exact.div_ceil(512) * 512;
        let expected = match u64::try_from(rounded) {
            Ok(fits) if fits <= Capacity::MAX.bytes() => Ok(fits),
            _ => Err(CapacityError::TooLarge),
        };
        prop_assert_eq!(bytes(&text), expected);
    }
}
