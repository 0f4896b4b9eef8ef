//! Pools: directories of ours that libvirt lists as well.

use uuid::Uuid;
use virt::error::{Error, ErrorNumber};
use virt::storage_pool::StoragePool;

use super::Libvirt;
use crate::failure::{Failure, Result};

/// In which pools get their UUIDs, by their directories.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f6a_1d5c_42ab_4a2f_8d27_35a6_c0f1_9e10);

/// The UUID of the pool that is this directory: by it we know ours.
pub(crate) fn pool_uuid(directory: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, directory.as_bytes())
}

impl Libvirt {
    /// Has libvirt list a directory. A pool that somebody else has made of the
    /// same directory does as well.
    pub(crate) fn ensure_pool(&self, name: &str, directory: &str) -> Result<()> {
        let failed = |error| Failure::new(format!("pool {name} cannot be made")).because(error);
        let uuid = pool_uuid(directory);
        let pool = match self.find_pool(uuid)? {
            Some(pool) => pool,
            None if self.is_pool(directory) => return Ok(()),
            None => self.define_pool(name, uuid, directory).map_err(failed)?,
        };
        if pool.is_active().map_err(failed)? {
            return Ok(());
        }
        match pool.create(0) {
            // Another VM's `up` was faster.
            Err(_) if pool.is_active().is_ok_and(|active| active) => Ok(()),
            outcome => outcome.map_err(failed),
        }
    }

    /// Has libvirt forget a pool of ours. The directory stays.
    pub(crate) fn forget_pool(&self, uuid: Uuid) -> Result<()> {
        let failed =
            |error| Failure::new(format!("pool {uuid} cannot be forgotten")).because(error);
        let Some(pool) = self.find_pool(uuid)? else {
            return Ok(());
        };
        if pool.is_active().map_err(failed)? {
            pool.destroy().map_err(failed)?;
        }
        pool.undefine().map_err(failed)
    }

    fn find_pool(&self, uuid: Uuid) -> Result<Option<StoragePool>> {
        match self
            .connect
            .lookup_storage_pool_by_uuid_string(&uuid.to_string())
        {
            Ok(pool) => Ok(Some(pool)),
            Err(error) if error.code().is(ErrorNumber::NoStoragePool) => Ok(None),
            Err(error) => Err(Failure::new("libvirt's pools cannot be looked up").because(error)),
        }
    }

    fn is_pool(&self, directory: &str) -> bool {
        self.connect
            .lookup_storage_pool_by_target_path(directory)
            .is_ok()
    }

    /// Under its name, or under one beside it if somebody else has that for
    /// another directory, or takes it at this moment.
    fn define_pool(
        &self,
        name: &str,
        uuid: Uuid,
        directory: &str,
    ) -> std::result::Result<StoragePool, Error> {
        let define = |name: &str| {
            let xml = pool_xml(name, uuid, directory);
            self.connect.define_storage_pool_xml(&xml, 0)
        };
        define(name).or_else(|_| define(&format!("{name}-{}", &uuid.simple().to_string()[..8])))
    }
}

fn pool_xml(name: &str, uuid: Uuid, directory: &str) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<pool type='dir'><name>{}</name><uuid>{uuid}</uuid><target><path>{}</path></target></pool>",
        escape(name),
        escape(directory)
    )
}
