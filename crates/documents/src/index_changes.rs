//! Changes of the indexes of a container in the catalog, each a part of a batch. The invariants are those of indexes.rs.

use ebbtide::{ContainerOptions, DefaultTtl, Expect, Item, Quota, WhenFull};

use crate::body::MemberPath;
use crate::definition::{ContainerDefinition, MAX_INDEXES};
use crate::entry;
use crate::error::Result;
use crate::indexes::{Indexes, built_key, covers, entries_name, record_key};
use crate::key_range::KeyRange;
use crate::resource_id::ResourceId;
use crate::store::{ContainerSettings, Store, Writes};

/// The indexes of containers in the catalog and the engine.
pub struct IndexCatalog<'d> {
    pub store: &'d Store,
    pub catalog: &'d ebbtide::Container,
}

impl IndexCatalog<'_> {
    /// Whether there are indexes: the quota of the whole database may end an entry before its document, and not every replica can
    /// have an entry end with it.
    fn are_kept(&self) -> bool {
        let expires = |quota: Quota| quota.when_full == WhenFull::ExpireSoonest;
        self.store.takes_put_like() && !self.store.engine().quota().is_some_and(expires)
    }

    /// Lets all indexes go where none are kept.
    pub fn forget_where_none_are_kept(&self) -> Result<()> {
        if self.are_kept() || self.store.is_replica() {
            return Ok(());
        }
        let mut batch = self.store.writes();
        for key in self.catalog.keys(KeyRange::of_prefix(b"i".to_vec())) {
            let rid = ResourceId::from_bytes(&key?[1..])?;
            self.forget(&mut batch, rid)?;
        }
        if !batch.is_empty() {
            self.store.commit(&batch)?;
        }
        Ok(())
    }

    /// The paths of which a definition has indexes here.
    pub fn paths_of(&self, definition: &ContainerDefinition) -> Vec<MemberPath> {
        if !self.are_kept() {
            return vec![];
        }
        let mut paths = definition.indexing.member_paths();
        paths.truncate(MAX_INDEXES);
        paths
    }

    /// The indexes of a container as they are.
    pub fn read(&self, rid: ResourceId) -> Result<Indexes> {
        let record = self.store.item(self.catalog, record_key(rid))?;
        Indexes::of_record(record, self.store, rid)
    }

    /// Whether indexes are those of these paths, and lack no entry by what became of the defaults.
    pub fn are_as_asked(
        &self,
        indexes: &Indexes,
        paths: &[MemberPath],
        items: &ebbtide::Container,
    ) -> bool {
        match indexes.entries() {
            Some(entries) => {
                indexes.are_of(paths) && covers(entries.default_ttl(), items.default_ttl())
            }
            None => paths.is_empty(),
        }
    }

    /// Adds to a batch that makes a container: its indexes, of these paths.
    pub fn make(
        &self,
        batch: &mut Writes,
        rid: ResourceId,
        paths: Vec<MemberPath>,
        default: DefaultTtl,
    ) {
        if !paths.is_empty() {
            self.make_anew(batch, rid, &Indexes::made(paths, true), default);
        }
    }

    fn make_anew(
        &self,
        batch: &mut Writes,
        rid: ResourceId,
        indexes: &Indexes,
        default: DefaultTtl,
    ) {
        let options = ContainerOptions::new().default_ttl(default);
        batch.create_container(entries_name(rid), options, ContainerSettings::of(default));
        indexes.store(batch, self.catalog, rid);
    }

    /// Adds to a batch: indexes of these paths in place of those that are there, of documents that get this default. A batch of
    /// a replica cannot make a container of entries in place of another one: it drops that, and the next handle makes one.
    pub fn replace(
        &self,
        batch: &mut Writes,
        rid: ResourceId,
        items: &ebbtide::Container,
        paths: Vec<MemberPath>,
        default: DefaultTtl,
    ) -> Result<()> {
        let record = self.record_for(batch, rid)?;
        let old = Indexes::of_record(record, self.store, rid)?;
        let lacks_none =
            |entries: &&ebbtide::Container| covers(entries.default_ttl(), items.default_ttl());
        match old.entries().filter(lacks_none) {
            Some(entries) if !paths.is_empty() => {
                let gone = old.list().iter().filter(|old| !paths.contains(&old.path));
                for index in gone {
                    batch.delete_range(entries, entry::all_of(index.number));
                }
                let options = ContainerOptions::new().default_ttl(default);
                let settings = ContainerSettings::of(default);
                batch.change_container(entries_name(rid), options, settings);
                old.with_paths(paths, false).store(batch, self.catalog, rid);
            }
            _ => {
                let is_dropped = self.drop_all(batch, rid)?;
                let is_later = is_dropped && self.store.is_replica();
                if !paths.is_empty() && !is_later {
                    self.make_anew(batch, rid, &Indexes::made(paths, false), default);
                }
            }
        }
        Ok(())
    }

    /// The record of the indexes of a container, with the condition that it stays.
    fn record_for(&self, batch: &mut Writes, rid: ResourceId) -> Result<Option<Item>> {
        let record = self.store.item(self.catalog, record_key(rid))?;
        let version = record.as_ref().map(Item::version);
        let expect = version.map_or(Expect::Absent, Expect::Version);
        batch.require(self.catalog, record_key(rid), expect);
        Ok(record)
    }

    /// Adds to a batch that no indexes are left.
    pub fn forget(&self, batch: &mut Writes, rid: ResourceId) -> Result<()> {
        self.record_for(batch, rid)?;
        self.drop_all(batch, rid).map(drop)
    }

    /// True: there is a container of entries, and it goes.
    fn drop_all(&self, batch: &mut Writes, rid: ResourceId) -> Result<bool> {
        let is_dropped = self.store.has_container(&entries_name(rid))?;
        if is_dropped {
            batch.drop_container(entries_name(rid));
        }
        for key in [record_key(rid), built_key(rid)] {
            if self.store.item(self.catalog, &key)?.is_some() {
                batch.delete(self.catalog, key);
            }
        }
        Ok(is_dropped)
    }
}
