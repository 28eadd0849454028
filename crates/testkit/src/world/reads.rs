//! A read of a step, now, of a snapshot or by an open iterator, shows the items of the model.

use super::*;

impl World {
    pub(super) fn view(
        &mut self,
        snapshot: Option<&String>,
        name: &str,
    ) -> Result<Option<(ContainerView, u64)>, String> {
        let Some(snapshot) = snapshot else {
            return Ok(Some((ContainerView::Live(self.container(name)?), u64::MAX)));
        };
        let (taken, order) = self
            .snapshots
            .get(snapshot)
            .ok_or(format!("there is no snapshot {snapshot}"))?;
        match (taken.container(name), self.model.had(name, *order)) {
            (Ok(view), true) => Ok(Some((ContainerView::Then(view), *order))),
            (Err(_), false) => Ok(None),
            (Ok(_), false) => Err(format!(
                "snapshot {snapshot} shows {name}, which was not there"
            )),
            (Err(error), true) => Err(format!("snapshot {snapshot} does not show {name}: {error}")),
        }
    }

    pub(super) fn read(&mut self, op: &Op) -> Outcome {
        let (Op::Get(snapshot, c, _)
        | Op::Item(snapshot, c, _)
        | Op::Contains(snapshot, c, _)
        | Op::Scan(snapshot, c, ..)) = op
        else {
            unreachable!("{op}")
        };
        let Some((reader, order)) = self.view(snapshot.as_ref(), c)? else {
            return Ok("no such container".into());
        };
        match op {
            Op::Get(_, c, k) | Op::Item(_, c, k) | Op::Contains(_, c, k) => {
                let found = self.model.find(c, k, order);
                reader.compare(k, found.as_ref())?;
                Ok(match (op, found) {
                    (Op::Contains(..), found) => found.is_some().to_string(),
                    (_, None) => format!("{} -", shorten(k)),
                    (Op::Get(..), Some(seen)) => {
                        format!("{} = {}", shorten(k), shorten(&seen.value))
                    }
                    (_, Some(seen)) => show_item(&seen),
                })
            }
            Op::Scan(_, c, span, reverse) => {
                let (from, to) = bounds(span);
                let mut expected = self.model.scan(c, &from, to.as_deref(), order);
                let iter = reader.iter(span);
                let found = if *reverse {
                    all(iter.rev())?
                } else {
                    all(iter)?
                };
                if *reverse {
                    expected.reverse();
                }
                same_items(&format!("{op}"), &found, &expected)?;
                Ok(show_items(&found))
            }
            _ => unreachable!("{op}"),
        }
    }

    pub(super) fn keep(&mut self, db: &Database, op: &Op) -> Outcome {
        match op {
            Op::Snapshot(name) => {
                self.snapshots
                    .insert(name.clone(), (db.snapshot(), self.model.order));
            }
            Op::Release(name) => {
                self.snapshots.remove(name);
            }
            Op::Iter(name, c, span) => {
                let iter = ContainerView::Live(self.container(c)?).iter(span);
                let (from, to) = bounds(span);
                let walk = Walk {
                    iter,
                    container: c.clone(),
                    order: self.model.order,
                    from,
                    to,
                    done: false,
                };
                self.walks.insert(name.clone(), walk);
            }
            Op::Next(name, count) | Op::Back(name, count) => {
                return self.walk(name, *count, matches!(op, Op::Back(..)));
            }
            Op::Hold(c, k) => {
                let value = self.container(c)?.get(k).map_err(failed)?;
                let seen = self.model.find(c, k, u64::MAX);
                same(
                    "held value",
                    &value.as_ref().map(|v| v.to_vec()),
                    &seen.map(|seen| seen.value),
                )?;
                self.held.extend(value.map(|value| HeldRead {
                    bytes: value.to_vec(),
                    value,
                }));
            }
            _ => unreachable!("{op}"),
        }
        Ok(String::new())
    }

    pub(super) fn walk(&mut self, name: &str, count: usize, back: bool) -> Outcome {
        let Some(walk) = self.walks.get_mut(name) else {
            return Ok("no such iterator".into());
        };
        let mut shown = vec![];
        for _ in 0..count {
            let mut left = match walk.done {
                true => vec![],
                false => {
                    self.model
                        .scan(&walk.container, &walk.from, walk.to.as_deref(), walk.order)
                }
            };
            let expected = if back {
                left.pop()
            } else {
                left.into_iter().next()
            };
            let found = if back {
                walk.iter.next_back()
            } else {
                walk.iter.next()
            };
            let found = found.transpose().map_err(failed)?.map(|item| seen(&item));
            same(&format!("iterator {name}"), &found, &expected)?;
            match expected {
                None => walk.done = true,
                Some(seen) if back => walk.to = Some(seen.key),
                Some(seen) => walk.from = [seen.key.as_slice(), &[0]].concat(),
            }
            shown.extend(found);
        }
        Ok(show_items(&shown))
    }

    pub(super) fn explain(&self, name: &str) -> String {
        let container = self.containers.get(name);
        container.map_or("-".into(), |container| container.stats().explain)
    }

    pub(super) fn stats(&self, name: &str) -> String {
        let stats = self
            .containers
            .get(name)
            .map(Container::stats)
            .unwrap_or_default();
        let oldest = stats
            .oldest_unreclaimed
            .map_or("-".into(), |moment| show_moment(millis(moment)));
        format!(
            "expired {} superseded {} oldest {oldest} runs {}",
            stats.expired_bytes, stats.superseded_bytes, stats.runs
        )
    }
}
