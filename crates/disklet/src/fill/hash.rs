//! A hash that goes on after a restart.

use std::sync::{Arc, Mutex, PoisonError};

use disklet_block::stream::Follower;
use disklet_core::names::Sha256;
use sha2::Digest;
use sha2::digest::common::hazmat::SerializableState;

/// The hash of what has come of a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Hash(Arc<Mutex<sha2::Sha256>>);

impl Hash {
    /// As it was when its state was kept; nothing if that is no state.
    pub(super) fn going_on_from(state: &[u8]) -> Option<Self> {
        let state = state.try_into().ok()?;
        let hash = sha2::Sha256::deserialize(state).ok()?;
        Some(Self(Arc::new(Mutex::new(hash))))
    }

    pub(super) fn finish(&self) -> Sha256 {
        let hash = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Sha256::from_bytes(hash.clone().finalize().into())
    }
}

impl Follower for Hash {
    fn took(&mut self, bytes: &[u8]) {
        let mut hash = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hash.update(bytes);
    }

    fn state(&self) -> Vec<u8> {
        let hash = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hash.serialize().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_goes_on_where_it_was() {
        let mut whole = Hash::default();
        whole.took(&[7; 100]);
        let mut other = Hash::going_on_from(&whole.state()).unwrap();
        for hash in [&mut whole, &mut other] {
            hash.took(&[8; 1000]);
        }
        assert_eq!(whole.finish(), other.finish());
        assert_ne!(whole.finish(), Hash::default().finish());
        assert!(Hash::going_on_from(&[1; 3]).is_none());
    }
}
