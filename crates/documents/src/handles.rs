//! The handles of containers: found by their names, made where there are none yet, and their indexes built.

use std::sync::Arc;
use std::time::Duration;

use ebbtide::{Expect, Item};

use crate::catalog::{container_key, container_prefix, damaged, no_container, record, rid_in};
use crate::container::{Container, Resource};
use crate::definition::ContainerDefinition;
use crate::documents::Documents;
use crate::error::Result;
use crate::indexes::record_key;
use crate::resource_id::ResourceId;
use crate::store::Commit;
use crate::write::contended;

/// A step of the builder that is so old is the last of a node that is lost. A step that is not goes on for 2 s at most where nobody
/// leads.
const LOST: Duration = Duration::from_secs(5);
/// A replacement that waits for the builder of another node looks so often.
const LOOK: Duration = Duration::from_millis(50);

impl Documents {
    /// Whether the engine has the container of a record: others may drop it.
    pub(crate) fn is_there(&self, item: &Item) -> Result<bool> {
        let name = rid_in(&record(item)?)?.to_string();
        self.store().has_container(&name)
    }

    /// Makes the handle of a container that the engine has.
    pub(crate) fn handle(&self, rid: ResourceId, resource: Resource) -> Result<Container> {
        let name = rid.to_string();
        let items = self.store().container(&name)?;
        let items = items.ok_or_else(|| no_container(&resource.definition.id))?;
        let mut indexes = self.indexes().read(rid)?;
        let paths = self.indexes().paths_of(&resource.definition);
        // A replica drops entries, and makes new ones in a second batch.
        for _ in 0..2 {
            if self.indexes().are_as_asked(&indexes, &paths, &items) {
                break;
            }
            let changed = self.change(|batch| {
                let key = container_key(rid.database(), &resource.definition.id);
                let item = self.record_of(&key)?;
                if item.as_ref().map(Item::version) != Some(resource.version) {
                    return Err(no_container(&resource.definition.id));
                }
                self.require(batch, &key, item.as_ref());
                let (paths, default) = (paths.clone(), items.default_ttl());
                self.indexes().replace(batch, rid, &items, paths, default)
            });
            // Where that cannot be written, as in a database that is only read, queries do without.
            if changed.is_err() {
                break;
            }
            indexes = self.indexes().read(rid)?;
        }
        let container = Container::new(self.store(), items, rid, resource, indexes)?;
        self.keep(&container);
        Ok(container)
    }

    /// The container of this id or `_rid`, in the database of this id or `_rid`.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn container(&self, database: &str, id: &str) -> Result<Container> {
        if self.store().is_replica() {
            // Others may have made another of this name.
            let item = self.container_item(self.database(database)?.rid, id)?;
            let found = self.container_of(&item)?;
            // After an error another call tries; queries do without.
            let _ = self.go_on_building(&found);
            return Ok(found);
        }
        if let Some(named) = self.named(database, id) {
            return Ok(named);
        }
        let changing = self.changing();
        let item = self.container_item(self.database(database)?.rid, id)?;
        let found = self.container_of(&item)?;
        self.keep_named(database, id, &found);
        drop(changing);
        if let Some(_building) = found.upkeep().try_build() {
            // After an error the next open builds it; queries do without.
            let _ = self.build(&found);
        }
        Ok(found)
    }

    /// Builds the indexes of a replica where the node that did is lost.
    fn go_on_building(&self, container: &Container) -> Result<()> {
        if container.upkeep().current().are_whole() || container.hold()?.are_whole() {
            return Ok(());
        }
        let Some(_building) = container.upkeep().try_build() else {
            return Ok(());
        };
        match self.is_builder_lost(container)? {
            true => self.build(container),
            false => Ok(()),
        }
    }

    /// Whether no node has done a step of a replica's indexes for a while.
    fn is_builder_lost(&self, container: &Container) -> Result<bool> {
        let (now, built) = (self.store().now(), container.built()?);
        let is_lost = |built: Item| built.written_at() + LOST < now;
        Ok(built.is_some_and(is_lost))
    }

    /// Builds the indexes that are not whole; over a replica it returns when they are, whichever node has built them. The caller holds
    /// the right to build, on this node.
    pub(crate) fn build_whole(&self, container: &Container) -> Result<()> {
        self.build(container)?;
        // The time of a replica stands where nobody writes: so looks are counted, too.
        let (mut known, mut looks) = (None, 0);
        while self.are_replicated() && !container.hold()?.are_whole() {
            std::thread::sleep(LOOK);
            self.store().renew()?;
            let built = container.built()?.map(|built| built.version());
            looks = if built == known { looks + 1 } else { 0 };
            known = built;
            if LOOK * looks >= LOST || self.is_builder_lost(container)? {
                self.build(container)?;
                looks = 0;
            }
        }
        Ok(())
    }

    /// Builds the indexes that are not whole, unless another node does. The caller holds the right to build, on this node.
    pub(crate) fn build(&self, container: &Container) -> Result<()> {
        let (rid, is_replica) = (container.rid(), self.are_replicated());
        loop {
            let indexes = Arc::clone(&*container.hold()?);
            if indexes.are_whole() {
                return Ok(());
            }
            if !container.add_missing(&indexes)? {
                // Where they stand, another node builds them.
                if is_replica && container.hold()?.version() == indexes.version() {
                    return Ok(());
                }
                continue;
            }
            let _changing = self.changing();
            let mut held = (!is_replica).then(|| container.upkeep().hold_all());
            if held
                .as_ref()
                .is_some_and(|held| held.version() != indexes.version())
            {
                continue;
            }
            let mut batch = self.store().writes();
            let version = indexes.version().map_or(Expect::Absent, Expect::Version);
            batch.require(self.catalog(), record_key(rid), version);
            indexes.all_whole().store(&mut batch, self.catalog(), rid);
            let done = self.store().commit(&batch)?;
            if let Some(held) = &mut held {
                if done == Commit::Conflict {
                    return Err(contended(self.catalog(), &record_key(rid)));
                }
                **held = Arc::new(self.indexes().read(rid)?);
            }
        }
    }

    /// The one handle of a container, whatever it is called by.
    pub(crate) fn container_of(&self, item: &Item) -> Result<Container> {
        let record = record(item)?;
        let rid = rid_in(&record)?;
        let open = self.opened(rid);
        // Others may have replaced the definition of a replica's.
        let is_of_now = |open: &Container| {
            !self.store().is_replica() || open.resource().version == item.version()
        };
        if let Some(open) = open.filter(is_of_now) {
            return Ok(open);
        }
        let definition = record.get("definition").cloned().unwrap_or_default();
        let definition = ContainerDefinition::from_stored(definition.to_string().as_bytes())
            .map_err(|error| damaged(&error.to_string()))?;
        let resource = Resource {
            definition: Arc::new(definition),
            version: item.version(),
            written_at: item.written_at(),
        };
        self.handle(rid, resource)
    }

    /// All containers of a database, in the order of ids.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound).
    pub fn containers(&self, database: &str) -> Result<Vec<Container>> {
        // Over a replica others change it all the same, and waiting for the cluster would be waited for.
        let _changing = (!self.are_replicated()).then(|| self.changing());
        let database = self.database(database)?;
        let items = self.entries(container_prefix(database.rid))?;
        let mut containers = vec![];
        for item in items {
            let item = item?;
            if self.is_there(&item)? {
                containers.push(self.container_of(&item)?);
            }
        }
        Ok(containers)
    }
}
