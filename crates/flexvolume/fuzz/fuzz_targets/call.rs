//! What the kubelet says of a volume, and what the driver writes of it.
#![no_main]

use disklet_flexvolume::Volume;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Volume::from_call(bytes) {
        Ok(volume) => {
            let file = volume.to_file();
            assert_eq!(Volume::from_file(file.as_bytes()), Ok(volume));
        }
        Err(error) => drop(error.to_string()),
    }
    if let Ok(volume) = Volume::from_file(bytes) {
        assert_eq!(Volume::from_file(volume.to_file().as_bytes()), Ok(volume));
    }
});
