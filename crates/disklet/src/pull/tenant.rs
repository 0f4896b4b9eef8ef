//! Images for VMs of a cluster's tenants: fetched with their own credentials, and
//! used by nobody who has not proved that the server gives them to them, too.

use std::collections::BTreeSet;

use disklet_core::config::Config;
use disklet_core::facts::ImageFact;
use disklet_core::images::{Access, Came, Credential, Here, Keyring, PullPolicy, Step, next_step};
use disklet_core::names::Sha256;

use super::entry::{Entry, version_of};
use super::http::Client;
use super::origin::{Place, place_of};
use super::registry::pinned;
use super::{LoginFrom, Observer, Order, PullError, PullErrorKind, about, demanded, found_by_name};
use crate::report::with_causes;
use crate::store::{Named, Provenance, Pulling, Store};

type Result<T> = std::result::Result<T, PullError>;

/// Who wants an image.
#[derive(Debug)]
pub struct Tenant<'t> {
    /// The credentials of their pod.
    pub keyring: &'t Keyring,
    /// When it is fetched.
    pub policy: PullPolicy,
}

/// As [`ensure`](super::ensure), for a tenant. The order is one by name. What is
/// returned holds for this tenant alone: look up no name afterwards, which may
/// stand for something else by then.
pub fn ensure_for(
    config: &Config,
    tenant: &Tenant<'_>,
    order: &Order<'_>,
    observer: &dyn Observer,
) -> Result<ImageFact> {
    let place = place_of(order.image, config, &order.mapping);
    let want = Want {
        store: Store::configured(config),
        secrets: tenant.keyring.secrets(),
        source: place.as_ref().ok().map(Place::source),
        tenant,
        order,
        observer,
    };
    want.have(place).map_err(|error| about(order.image, error))
}

struct Want<'w> {
    store: Store,
    tenant: &'w Tenant<'w>,
    secrets: BTreeSet<&'w str>,
    order: &'w Order<'w>,
    /// Where the name leads, as a hash.
    source: Option<String>,
    observer: &'w dyn Observer,
}

/// What the store has, and what is to be done about it.
struct Found {
    here: Option<(ImageFact, Named)>,
    access: Access,
    step: Step,
}

impl Want<'_> {
    fn have(&self, place: Result<Place>) -> Result<ImageFact> {
        if let Some(fact) = self.by_digest()? {
            return Ok(fact);
        }
        let found = self.look()?;
        match (found.step, &found.here) {
            (Step::Use, Some((fact, _))) => return Ok(*fact),
            (Step::Refuse, _) => return Err(not_here()),
            _ => {}
        }
        let place = place?;
        let name = self.order.image.name();
        let digest = match &place {
            Place::Web(address) => demanded(self.order.image, address)?,
            Place::Registry(_) => self.order.image.digest(),
        };
        let pulling = self.store.pulling(name, || self.observer.waits(name))?;
        let errand = Errand {
            want: self,
            place: &place,
            digest,
            pulling: &pulling,
        };
        let outcome = errand.run();
        pulling.finish();
        outcome.map_err(|error| found_by_name(error, self.order.image))
    }

    /// Who has the digest need not care under which name it came.
    fn by_digest(&self) -> Result<Option<ImageFact>> {
        match self.order.image.digest() {
            Some(digest) => Ok(self.store.find_digest(digest, &self.secrets)?),
            None => Ok(None),
        }
    }

    fn look(&self) -> Result<Found> {
        let pinned = self.order.image.digest();
        let here = self.store.find_record(self.order.image.name())?;
        let here = here.filter(|(fact, _)| pinned.is_none_or(|digest| digest == fact.digest));
        let known = here.as_ref().map(|(_, named)| Here {
            access: named.access(&self.secrets),
            came: self.came(named),
        });
        Ok(Found {
            access: known.map_or(Access::Unproven, |known| known.access),
            step: next_step(self.tenant.policy, pinned.is_some(), known),
            here,
        })
    }

    fn came(&self, named: &Named) -> Came {
        let is_from_there = self.source.is_some() && self.source == named.source;
        match (is_from_there, named.validator.is_some()) {
            // What no name leads to has no other way to come.
            _ if named.placed || self.source.is_none() => Came::ByHand,
            (true, true) => Came::FromThere,
            _ => Came::Otherwise,
        }
    }
}

/// A way to the server, while nobody else is on it for the same name.
struct Errand<'e> {
    want: &'e Want<'e>,
    place: &'e Place,
    digest: Option<Sha256>,
    pulling: &'e Pulling,
}

impl Errand<'_> {
    /// Looks again first: somebody may have brought it meanwhile.
    fn run(&self) -> Result<ImageFact> {
        let found = self.want.look()?;
        let here = found.here.as_ref();
        match (found.step, here) {
            (Step::Use, Some((fact, _))) => Ok(*fact),
            (Step::Ask, Some((fact, named))) => match self.ask(named) {
                Ok(true) => Ok(*fact),
                Ok(false) => self.fetch(),
                // Whoever may have it need not be without it because a server is away.
                Err(error) if error.is_passing() && found.access == Access::Given => {
                    let why = with_causes(&error);
                    self.want.observer.stale(self.want.order.image.name(), &why);
                    Ok(*fact)
                }
                Err(error) => Err(error),
            },
            (Step::Refuse, _) => Err(not_here()),
            _ => self.fetch(),
        }
    }

    /// Whether the server gives this tenant what is here.
    fn ask(&self, named: &Named) -> Result<bool> {
        let Some(validator) = &named.validator else {
            return Ok(false);
        };
        let order = self.want.order;
        self.by_any_credential(|place, secret| {
            let is_same = match place {
                Place::Web(address) => Client::new(address)?.has_still(validator)?,
                Place::Registry(registry) => {
                    let now = pinned(registry, order.retries, self.want.observer)?;
                    version_of(&now).as_ref() == Some(validator)
                }
            };
            if is_same {
                self.want.store.grant(named, secret)?;
            }
            Ok(is_same)
        })
    }

    fn fetch(&self) -> Result<ImageFact> {
        self.by_any_credential(|place, secret| {
            let entry = Entry {
                store: &self.want.store,
                order: self.want.order,
                digest: self.digest,
                provenance: Provenance {
                    source: self.want.source.clone(),
                    pull_secrets: secret.map(|uid| BTreeSet::from([uid.to_owned()])),
                    ..Provenance::default()
                },
                pulling: self.pulling,
                observer: self.want.observer,
            };
            let added = match place {
                Place::Web(address) => entry.web(address)?,
                Place::Registry(registry) => entry.registry(registry)?,
            };
            Ok(added.fact)
        })
    }

    /// Tries the tenant's credentials for the server, one after the other. An
    /// administrator's are for everybody.
    fn by_any_credential<T>(&self, act: impl Fn(&Place, Option<&str>) -> Result<T>) -> Result<T> {
        let keyring = self.want.tenant.keyring;
        let theirs: Vec<&Credential> = match self.place {
            Place::Web(address) if address.has_credentials() => Vec::new(),
            Place::Web(address) => keyring.of(&address.url),
            Place::Registry(registry) => match registry.reference.known_as() {
                Ok(url) => keyring.of(&url),
                Err(_) => Vec::new(),
            },
        };
        let Some((last, others)) = theirs.split_last() else {
            return act(&as_whom(self.place, None), None);
        };
        let with = |credential: &Credential| {
            let place = as_whom(self.place, Some(credential));
            act(&place, Some(&credential.secret))
        };
        for credential in others {
            match with(credential) {
                Err(error) if error.kind() == PullErrorKind::Denied => {}
                outcome => return outcome,
            }
        }
        with(last)
    }
}

/// The same place, with a tenant's credential. The node's own logins at registries
/// are no tenant's.
fn as_whom(place: &Place, credential: Option<&Credential>) -> Place {
    let words = credential.map(|credential| credential.authorization.clone());
    let mut place = place.clone();
    match (&mut place, words) {
        (Place::Web(address), Some(words)) => address.transport.authorization = Some(words),
        (Place::Web(_), None) => {}
        (Place::Registry(registry), words) => {
            registry.login = words.map_or(LoginFrom::Nobody, LoginFrom::Words);
        }
    }
    place
}

/// The same words whether it is there or not: it may be another tenant's.
fn not_here() -> PullError {
    PullError::new(
        PullErrorKind::NotHere,
        "it is not on this node for this VM, and its pull policy is Never",
    )
    .help("allow that it is fetched, with imagePullPolicy: IfNotPresent, or have an administrator take it in on the node")
}
