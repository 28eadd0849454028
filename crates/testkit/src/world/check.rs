//! Everything visible is compared with the model.

use super::*;

impl World {
    /// Compares everything visible with the model.
    pub fn check(&mut self) -> Result<(), String> {
        self.check_scans()?;
        let mut names = self.model.containers();
        names.retain(|name| name != OWN);
        for name in &names {
            let reader = ContainerView::Live(self.container(name)?);
            self.check_keys(&reader, name, u64::MAX)?;
        }
        let snapshots: Vec<String> = self.snapshots.keys().cloned().collect();
        for snapshot in &snapshots {
            for name in &names {
                if let Some((reader, order)) = self.view(Some(snapshot), name)? {
                    self.check_scan(&reader, name, order)
                        .map_err(|e| format!("snapshot {snapshot}: {e}"))?;
                    self.check_keys(&reader, name, order)
                        .map_err(|e| format!("snapshot {snapshot}: {e}"))?;
                }
            }
        }
        for held in &self.held {
            same("a held value", &held.value.to_vec(), &held.bytes)?;
        }
        Ok(())
    }

    /// Every container, forwards and backwards.
    pub fn check_scans(&mut self) -> Result<(), String> {
        for name in self.model.containers().iter().filter(|name| *name != OWN) {
            let reader = ContainerView::Live(self.container(name)?);
            self.check_scan(&reader, name, u64::MAX)?;
        }
        Ok(())
    }

    /// The same after a reopen.
    pub fn check_scans_of_all(&mut self) -> Result<(), String> {
        self.db()?;
        self.check_scans()
    }

    pub(super) fn check_scan(
        &mut self,
        reader: &ContainerView,
        name: &str,
        order: u64,
    ) -> Result<(), String> {
        let expected = self.model.scan(name, b"", None, order);
        same(
            &format!("scan {name}"),
            &all(reader.iter(&Span::default()))?,
            &expected,
        )?;
        let mut back = all(reader.iter(&Span::default()).rev())?;
        back.reverse();
        same_items(&format!("scan {name} reverse"), &back, &expected)
    }

    pub(super) fn check_keys(
        &mut self,
        reader: &ContainerView,
        name: &str,
        order: u64,
    ) -> Result<(), String> {
        for key in self.model.keys(name) {
            let found = self.model.find(name, &key, order);
            reader
                .compare(&key, found.as_ref())
                .map_err(|e| format!("{name}: {e}"))?;
            self.check_version(name, &key)
                .map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(())
    }
}

/// A container, or a snapshot's view of one.
pub(super) enum ContainerView {
    Live(Container),
    Then(View),
}

impl ContainerView {
    pub(super) fn iter(&self, span: &Span) -> Iter {
        let (from, to) = (span.from.clone(), span.to.clone());
        match (self, span.prefix, to) {
            (ContainerView::Live(c), true, _) => c.prefix(&span.from),
            (ContainerView::Live(c), false, Some(to)) => c.range(from..to),
            (ContainerView::Live(c), false, None) if from.is_empty() => c.iter(),
            (ContainerView::Live(c), false, None) => c.range(from..),
            (ContainerView::Then(v), true, _) => v.prefix(&span.from),
            (ContainerView::Then(v), false, Some(to)) => v.range(from..to),
            (ContainerView::Then(v), false, None) if from.is_empty() => v.iter(),
            (ContainerView::Then(v), false, None) => v.range(from..),
        }
    }

    /// Compares all three ways to read a key.
    pub(super) fn compare(&self, key: &[u8], expected: Option<&Seen>) -> Result<(), String> {
        let (item, value, there) = match self {
            ContainerView::Live(c) => (c.item(key), c.get(key), c.contains(key)),
            ContainerView::Then(v) => (v.item(key), v.get(key), v.contains(key)),
        };
        let word = shorten(key);
        same(
            &format!("item {word}"),
            &item.map_err(failed)?.as_ref().map(seen).as_ref(),
            &expected,
        )?;
        let value = value.map_err(failed)?.map(|value| value.to_vec());
        same(
            &format!("get {word}"),
            &value.as_ref(),
            &expected.map(|seen| &seen.value),
        )?;
        same(
            &format!("contains {word}"),
            &there.map_err(failed)?,
            &expected.is_some(),
        )
    }
}
