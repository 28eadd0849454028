//! Writes of all kinds go to both, and what they observe is compared.

use super::*;

impl World {
    pub(crate) fn given(&self, ttl: StepTtl) -> (Ttl, Given) {
        match ttl {
            StepTtl::Life(Life::Inherit) => (Ttl::Inherit, Given::Life(Life::Inherit)),
            StepTtl::Life(Life::Never) => (Ttl::Never, Given::Life(Life::Never)),
            StepTtl::Life(Life::Own(n)) => (
                Ttl::After(Duration::from_millis(n)),
                Given::Life(Life::Own(n)),
            ),
            StepTtl::Keep => (Ttl::Keep, Given::Keep),
            StepTtl::Until(offset) => {
                let moment = self.model.time.wall.saturating_add_signed(offset);
                (Ttl::Until(at(moment)), Given::Until(moment))
            }
        }
    }

    pub(super) fn write(&mut self, db: &Database, op: &Op) -> Outcome {
        match op {
            Op::Put(c, k, v, ttl) => {
                let container = self.container(c)?;
                let (given, model) = self.given(*ttl);
                let done = match v.len() % 2 {
                    0 => container.put_with_ttl(k, v, given).map(|()| None),
                    _ => container.upsert(k, v, given).map(|put| Some(put.before)),
                };
                if out_of_range(*ttl) {
                    return refused(done.err());
                }
                if let Some(before) = done.map_err(failed)? {
                    self.check_replaced(c, k, before)?;
                }
                self.commit(&[Write::Put {
                    container: c.clone(),
                    key: k.clone(),
                    value: v.clone(),
                    ttl: model,
                }])
            }
            Op::Delete(c, k) => {
                self.container(c)?.delete(k).map_err(failed)?;
                self.commit(&[Write::Delete {
                    container: c.clone(),
                    key: k.clone(),
                }])
            }
            Op::DeleteRange(c, span) => {
                let container = self.container(c)?;
                let (from, to) = bounds(span);
                match &to {
                    Some(to) => container.delete_range(from.clone()..to.clone()),
                    None => container.delete_range(from.clone()..),
                }
                .map_err(failed)?;
                self.commit(&[Write::DeleteRange {
                    container: c.clone(),
                    from,
                    to,
                }])
            }
            Op::Fill(c, prefix, count, bytes, ttl) => {
                for n in 0..*count {
                    let key = format!("{prefix}{n:03}").into_bytes();
                    let value = crate::op::expand(&format!("{n}*{bytes}"));
                    self.write(db, &Op::Put(c.clone(), key, value, *ttl))?;
                }
                Ok(String::new())
            }
            Op::Batch(ops) => self.write_batch(db, ops),
            _ => unreachable!("{op}"),
        }
    }

    /// A load is durable, and so is all before it. It is the newest write, also of those that come while it goes on, and was
    /// written when it began.
    pub(super) fn load(&mut self, db: &Database, c: &str, parts: &[LoadPart]) -> Outcome {
        let container = self.container(c)?;
        let stamp = self.model.time.now();
        let ttls: Vec<_> = parts
            .iter()
            .map(|part| match part {
                LoadPart::Item(.., ttl) => Some(self.given(*ttl)),
                LoadPart::Meanwhile(_) => None,
            })
            .collect();
        let mut difference = None;
        let given = parts.iter().zip(&ttls).filter_map(|part| match part {
            (LoadPart::Item(k, v, _), ttl) => Some(Ok((k, v, ttl.as_ref()?.0))),
            (LoadPart::Meanwhile(op), _) => {
                let found = match op {
                    Op::Advance(_) => self.turn_clock(op),
                    op => self.act(db, op),
                };
                difference = Some(format!("{op}: {}", found.err()?));
                Some(Err(Error::Stalled))
            }
        });
        let done = container.bulk_load_with_ttl(given);
        if let Some(difference) = difference {
            return Err(difference);
        }
        let items = || {
            parts.iter().zip(&ttls).filter_map(|part| match part {
                (LoadPart::Item(k, v, ttl), given) => Some((k, v, *ttl, given.as_ref()?.1)),
                (LoadPart::Meanwhile(_), _) => None,
            })
        };
        let ascends = items().is_sorted_by(|(one, ..), (next, ..)| one < next);
        let refuses = |ttl: StepTtl| ttl == StepTtl::Keep || out_of_range(ttl);
        if !ascends || items().any(|(_, _, ttl, _)| refuses(ttl)) {
            return refused(done.err());
        }
        done.map_err(failed)?;
        let first = self.model.order + 1;
        let writes = items().map(|(k, v, _, given)| Write::Put {
            container: c.to_owned(),
            key: k.clone(),
            value: v.clone(),
            ttl: given.written_at(stamp),
        });
        let writes: Vec<Write> = writes.collect();
        self.commit(&writes)?;
        let last = self.model.order;
        self.one_version
            .extend((first..last).map(|order| (order, last)));
        self.synced = last;
        Ok(String::new())
    }

    pub(super) fn write_batch(&mut self, db: &Database, ops: &[BatchOp]) -> Outcome {
        let (mut batch, mut parts, mut refuse) = (Batch::new(), vec![], false);
        let mut durable = false;
        for op in ops {
            refuse |= self.add(&mut batch, &mut parts, op)?;
            let settings = matches!(op, BatchOp::SetTtl(..) | BatchOp::ExpireItems(..));
            durable |= settings || matches!(op, BatchOp::Sync);
        }
        let done = db.commit(batch);
        if refuse {
            return refused(done.err());
        }
        let (before, expected) = (self.model.order, self.model.try_commit(&parts));
        match (done, expected) {
            (Ok(written), Ok(stamp)) => {
                if self.model.order > before {
                    same("the stamp", &millis(written.written_at()), &stamp)?;
                }
                if durable {
                    self.synced = self.model.order;
                }
                Ok(String::new())
            }
            (Err(Error::Conflict { container, key }), Err(Refused::Conflict(c, k))) => {
                same("the conflict", &(container, key), &(c.clone(), k.clone()))?;
                Ok(format!("conflict: {c} {}", shorten(&k)))
            }
            (Err(Error::ClockUnsettled { .. }), Err(Refused::Unsettled)) => {
                Ok("refused: the clock is unsettled".into())
            }
            (done, expected) => Err(format!(
                "a batch is answered with {done:?}, and should be with {expected:?}"
            )),
        }
    }

    /// Adds one part of a batch to it, and to the model's input; true: it is to be refused.
    pub(super) fn add(
        &mut self,
        batch: &mut Batch,
        parts: &mut Vec<BatchStep>,
        op: &BatchOp,
    ) -> Result<bool, String> {
        let (c, k) = match op {
            BatchOp::Put(c, k, ..)
            | BatchOp::Create(c, k, ..)
            | BatchOp::Replace(c, k, ..)
            | BatchOp::Touch(c, k)
            | BatchOp::Delete(c, k)
            | BatchOp::Require(c, k, _) => (c.clone(), k.clone()),
            BatchOp::DeleteRange(c, _) | BatchOp::SetTtl(c, _) | BatchOp::ExpireItems(c, _) => {
                (c.clone(), vec![])
            }
            BatchOp::Sync => {
                batch.durability(Durability::Sync);
                return Ok(false);
            }
        };
        let container = self.container(&c)?;
        let require = |need| BatchStep::Require(c.clone(), k.clone(), need);
        match op {
            BatchOp::Put(_, _, v, ttl)
            | BatchOp::Create(_, _, v, ttl)
            | BatchOp::Replace(_, _, v, ttl) => {
                let (given, model) = self.given(*ttl);
                match op {
                    BatchOp::Create(..) => {
                        batch.create(&container, &k, v, given);
                        parts.push(require(Need::Absent));
                    }
                    BatchOp::Replace(..) => {
                        batch.replace(&container, &k, v, given);
                        parts.push(require(Need::Present));
                    }
                    _ => {
                        batch.put_with_ttl(&container, &k, v, given);
                    }
                }
                parts.push(BatchStep::Write(Write::Put {
                    container: c,
                    key: k,
                    value: v.clone(),
                    ttl: model,
                }));
                return Ok(out_of_range(*ttl));
            }
            BatchOp::Touch(..) => {
                batch.touch(&container, &k);
                parts.push(BatchStep::Touch(c, k));
            }
            BatchOp::Delete(..) => {
                batch.delete(&container, &k);
                parts.push(BatchStep::Write(Write::Delete {
                    container: c,
                    key: k,
                }));
            }
            BatchOp::DeleteRange(_, span) => {
                let (from, to) = bounds(span);
                match &to {
                    Some(to) => batch.delete_range(&container, from.clone()..to.clone()),
                    None => batch.delete_range(&container, from.clone()..),
                };
                if to.as_ref().is_none_or(|to| *to > from) {
                    let container = c;
                    parts.push(BatchStep::Write(Write::DeleteRange {
                        container,
                        from,
                        to,
                    }));
                }
            }
            BatchOp::SetTtl(_, standard) => {
                batch.set_default_ttl(&container, default_ttl(*standard));
                let to = *standard;
                parts.push(BatchStep::Write(Write::SetStandard { container: c, to }));
                return Ok(matches!(to, Standard::After(n) if n == 0 || n > MAX_TTL));
            }
            BatchOp::ExpireItems(_, what) => {
                let what = self.told(*what);
                match what {
                    Expire::Before(moment) => batch.expire_before(&container, at(moment)),
                    Expire::WrittenBefore(moment) => {
                        batch.expire_written_before(&container, at(moment))
                    }
                    Expire::All => batch.expire_all(&container),
                };
                parts.push(BatchStep::Write(Write::Expire { container: c, what }));
            }
            BatchOp::Require(_, _, wanted) => {
                let (expect, need) = self.wanted(&container, &c, &k, *wanted)?;
                batch.require(&container, &k, expect);
                parts.push(require(need));
            }
            BatchOp::Sync => unreachable!("answered above"),
        }
        Ok(false)
    }

    pub(super) fn wanted(
        &mut self,
        container: &Container,
        name: &str,
        key: &[u8],
        wanted: Wanted,
    ) -> Result<(Expect, Need), String> {
        let version = container.item(key).map_err(failed)?;
        let version = version.map_or(1, |item| item.version().as_u64());
        let never = Need::Order(u64::MAX);
        Ok(match wanted {
            Wanted::Absent => (Expect::Absent, Need::Absent),
            Wanted::Present => (Expect::Present, Need::Present),
            Wanted::Same => (
                Expect::Version(Version::from_u64(version)),
                self.model.live(name, key).map_or(never, Need::Order),
            ),
            Wanted::Other => (Expect::Version(Version::from_u64(version + 1)), never),
        })
    }

    pub(super) fn take(&mut self, c: &str, k: &[u8]) -> Outcome {
        let taken = self.container(c)?.take(k).map_err(failed)?;
        let found = self.model.find(c, k, u64::MAX);
        same("what is taken", &taken.as_ref().map(seen), &found)?;
        if found.is_some() {
            self.commit(&[Write::Delete {
                container: c.to_owned(),
                key: k.to_vec(),
            }])?;
        }
        Ok(found.map_or("-".into(), |seen| shorten(&seen.value)))
    }

    /// An upsert tells the version that was live before it; which that is, is known if it was looked at.
    fn check_replaced(&mut self, c: &str, k: &[u8], told: Option<Version>) -> Result<(), String> {
        let order = self.model.live(c, k);
        let what = format!("the version of {} that was replaced", shorten(k));
        same(&what, &told.is_some(), &order.is_some())?;
        let order = order.map(|order| *self.one_version.get(&order).unwrap_or(&order));
        match order.and_then(|order| self.versions.get(&order)) {
            Some(known) => same(&what, &told, &Some(*known)),
            None => Ok(()),
        }
    }

    /// From now on the present version of a key represents its place in the order.
    pub(super) fn check_version(&mut self, c: &str, k: &[u8]) -> Result<(), String> {
        let Some(order) = self.model.live(c, k) else {
            return Ok(());
        };
        if order <= self.versions_after || self.unordered.contains(&order) {
            return Ok(());
        }
        let order = *self.one_version.get(&order).unwrap_or(&order);
        let item = self.container(c)?.item(k).map_err(failed)?;
        let version = item.ok_or("it was there a moment ago")?.version();
        let known = *self.versions.entry(order).or_insert(version);
        same(&format!("version of {}", shorten(k)), &version, &known)?;
        let below = self.versions.range(..order).next_back();
        let above = self.versions.range(order + 1..).next();
        let in_order = below.is_none_or(|(_, below)| *below < version)
            && above.is_none_or(|(_, above)| version < *above);
        match in_order {
            true => Ok(()),
            false => Err(format!(
                "version {version} of {}: {below:?}, {above:?}",
                shorten(k)
            )),
        }
    }

    /// Applies to the model what the engine has done.
    pub(super) fn commit(&mut self, writes: &[Write]) -> Outcome {
        self.model.commit(writes);
        Ok(String::new())
    }

    pub(super) fn write_if(&mut self, op: &Op) -> Outcome {
        let (Op::Create(c, k, ..)
        | Op::Replace(c, k, ..)
        | Op::Touch(c, k)
        | Op::Expire(c, k, _)
        | Op::Update(c, k, _)) = op
        else {
            unreachable!("{op}")
        };
        let container = self.container(c)?;
        let found = self.model.find(c, k, u64::MAX);
        let mut shown_to_update = None;
        let (done, ttl) = match op {
            Op::Create(_, _, v, ttl) => (container.create(k, v, self.given(*ttl).0), *ttl),
            Op::Replace(_, _, v, ttl) => (container.replace(k, v, self.given(*ttl).0), *ttl),
            Op::Touch(..) => (container.touch(k), crate::op::INHERIT),
            Op::Expire(_, _, ttl) => (container.expire(k, self.given(*ttl).0), *ttl),
            Op::Update(_, _, change) => {
                let ttl = if let Change::Put(_, ttl) = change {
                    *ttl
                } else {
                    crate::op::INHERIT
                };
                let given = self.given(ttl).0;
                let done = container.update(k, |item| {
                    shown_to_update = item.map(seen);
                    decide(change, item, given)
                });
                same("what update is shown", &shown_to_update, &found)?;
                (done, ttl)
            }
            _ => unreachable!("{op}"),
        };
        if out_of_range(ttl) {
            return refused(done.err());
        }
        let done = done.map_err(failed)?;
        let write = self.model_write_if(op, c, k, found.as_ref());
        same(&format!("{op}"), &done, &write.is_some())?;
        if let Some(write) = write {
            self.commit(&[write])?;
        }
        Ok(done.to_string())
    }

    pub(super) fn model_write_if(
        &self,
        op: &Op,
        c: &str,
        k: &[u8],
        found: Option<&Seen>,
    ) -> Option<Write> {
        let write = |value: &[u8], ttl| Write::Put {
            container: c.to_owned(),
            key: k.to_vec(),
            value: value.to_vec(),
            ttl,
        };
        match (op, found) {
            (Op::Create(_, _, v, ttl), None) | (Op::Replace(_, _, v, ttl), Some(_)) => {
                Some(write(v, self.given(*ttl).1))
            }
            (Op::Expire(_, _, ttl), Some(seen)) => Some(write(&seen.value, self.given(*ttl).1)),
            (Op::Touch(..), Some(seen)) => Some(write(&seen.value, Given::Life(seen.life))),
            (Op::Update(_, _, change), _) => match change {
                Change::Keep => None,
                // Deleting a missing item writes nothing.
                Change::Delete => found.map(|_| Write::Delete {
                    container: c.to_owned(),
                    key: k.to_vec(),
                }),
                Change::Append(v) => {
                    let before = found.map(|seen| seen.value.as_slice()).unwrap_or_default();
                    let life = found.map_or(Life::Inherit, |seen| seen.life);
                    // A ttl of 0 comes only from a moment in the past; no write accepts it.
                    let life = if life == Life::Own(0) {
                        Life::Inherit
                    } else {
                        life
                    };
                    Some(write(&[before, v].concat(), Given::Life(life)))
                }
                Change::Put(v, ttl) => Some(write(v, self.given(*ttl).1)),
            },
            _ => None,
        }
    }

    pub(super) fn count(&mut self) -> Result<(), String> {
        let count = self.counted.len();
        let own = &self.containers[OWN];
        own.put_with_ttl("counter", count.to_string(), Ttl::Never)
            .map_err(failed)?;
        let stamp = own
            .item("counter")
            .map_err(failed)?
            .map(|item| millis(item.written_at()));
        let written_at = self.model.commit(&[put(
            OWN,
            b"counter",
            count.to_string().as_bytes(),
            Life::Never,
        )]);
        self.counted.push(self.model.order);
        same("the stamp", &stamp, &Some(written_at))
    }
}
