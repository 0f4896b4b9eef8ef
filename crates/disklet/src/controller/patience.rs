//! How long a VM that ends again and again waits before it is started again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::jiff::SignedDuration;

use super::objects::Key;

/// As the kubelet does it with containers.
const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_mins(5);
/// Who has run for so long is forgiven.
const FORGIVEN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// By VM. It lives as long as the controller: a new one begins with 10 seconds
/// again, which does no harm.
#[derive(Debug, Default)]
pub(super) struct Patience(Mutex<HashMap<Key, Last>>);

#[derive(Debug)]
struct Last {
    pod: String,
    wait: SignedDuration,
}

impl Patience {
    /// How long a VM waits after this pod of its own has ended.
    pub(super) fn after(&self, vm: &Key, pod: &str, ran: SignedDuration) -> SignedDuration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.get(vm);
        if let Some(last) = last.filter(|last| last.pod == pod) {
            return last.wait;
        }
        let wait = match last {
            Some(last) if ran < FORGIVEN_AFTER => (last.wait * 2).min(LONGEST),
            _ => FIRST,
        };
        let pod = pod.to_owned();
        all.insert(vm.clone(), Last { pod, wait });
        wait
    }

    /// The VM is gone.
    pub(super) fn forget(&self, vm: &Key) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(vm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_and_is_forgiven() {
        let patience = Patience::default();
        let short = SignedDuration::from_secs(3);
        let (vm, other) = (Key::new("n", "vm"), Key::new("n", "other"));
        let waits: Vec<_> = ["a", "b", "c", "c", "d", "e", "f", "g"]
            .map(|pod| patience.after(&vm, pod, short).as_secs())
            .into();
        assert_eq!(waits, [10, 20, 40, 40, 80, 160, 300, 300]);
        assert_eq!(patience.after(&other, "a", short).as_secs(), 10);
        let long = SignedDuration::from_mins(11);
        assert_eq!(patience.after(&vm, "h", long).as_secs(), 10);
        patience.forget(&vm);
        assert_eq!(patience.after(&vm, "i", short).as_secs(), 10);
    }
}
