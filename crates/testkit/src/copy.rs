//! A copy of containers, which knows only what changes tell, and judges ends by the rules that it was told.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ebbtide::{Change, ExpiryRule, Item};

/// A container of a copy.
#[derive(Default)]
pub struct Part {
    pub items: BTreeMap<Vec<u8>, Item>,
    pub rule: Option<ExpiryRule>,
}

impl Part {
    /// The items that have not ended by now, in the order of keys; all of them before a rule was told.
    pub fn live(&self, now: SystemTime) -> impl Iterator<Item = &Item> {
        let rule = self.rule.as_ref();
        let items = self.items.values();
        items.filter(move |item| rule.is_none_or(|rule| is_live(item, rule, now)))
    }
}

fn is_live(item: &Item, rule: &ExpiryRule, now: SystemTime) -> bool {
    !rule.is_gone(item.version(), item.written_at(), item.ttl(), now)
}

/// See the file's head.
#[derive(Default)]
pub struct Copy {
    pub parts: BTreeMap<String, Part>,
}

impl Copy {
    fn part(&mut self, name: &str) -> Result<&mut Part, String> {
        let part = self.parts.get_mut(name);
        part.ok_or_else(|| format!("{name} was never told of"))
    }

    /// Takes a change in, told by a pass that began at `now`.
    pub fn apply(&mut self, change: Change, now: SystemTime) -> Result<(), String> {
        match change {
            Change::Containers { names } => {
                let is_named = |name: &String| names.iter().any(|there| **there == **name);
                self.parts.retain(|name, _| is_named(name));
            }
            Change::Created { container, .. } => {
                self.parts.insert(container.to_string(), Part::default());
            }
            Change::Expiry { container, rule } => {
                let part = self.part(&container)?;
                part.items.retain(|_, item| is_live(item, &rule, now));
                part.rule = Some(rule);
            }
            Change::DeleteRange {
                container,
                from,
                to,
                version,
            } => {
                let is_in =
                    |key: &[u8]| key >= &from[..] && to.as_ref().is_none_or(|to| key < &to[..]);
                let items = &mut self.part(&container)?.items;
                items.retain(|key, item| !is_in(key) || item.version() > version);
            }
            Change::Put { container, item } => {
                let items = &mut self.part(&container)?.items;
                items.insert(item.key().to_vec(), item);
            }
            Change::Delete { container, key, .. } => {
                self.part(&container)?.items.remove(&key[..]);
            }
            other => return Err(format!("{other:?}")),
        }
        Ok(())
    }
}
