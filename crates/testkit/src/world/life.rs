//! The database is opened, recovers beside its model, and ends.

use super::*;

impl World {
    pub(super) fn open(&mut self) -> Outcome {
        let wall = self.model.time.wall;
        let least = self.model.mark_least(self.survives);
        let most = self.model.time.settled_most;
        let db = match self.setup.options(&self.sim, &self.clock).open(PATH) {
            Ok(db) => db,
            Err(Error::ClockBehind { wall: stated, mark })
                if self.setup.behind == ClockBehind::Refuse =>
            {
                let (stated, mark) = (millis(stated), millis(mark));
                if stated != wall
                    || !(least..=most).contains(&mark)
                    || mark <= wall + self.setup.skew
                {
                    return Err(format!(
                        "refused at {stated}, mark {mark}; the mark is from {least} to {most}"
                    ));
                }
                if self.persistent {
                    self.setup.behind = ClockBehind::StartAtMark;
                    let shown = self.open();
                    self.setup.behind = ClockBehind::Refuse;
                    return shown;
                }
                return Ok(format!(
                    "refused: the clock is {} behind",
                    show_duration(mark - wall)
                ));
            }
            Err(error) => return Err(format!("the database does not open: {error}")),
        };
        if self.setup.behind == ClockBehind::Refuse && least > wall + self.setup.skew {
            return Err(format!(
                "opened with the clock at {wall}, far behind {least}"
            ));
        }
        self.model.time.skew = self.setup.skew;
        self.recover(db, wall.max(least)..=wall.max(most))?;
        Ok(String::new())
    }

    pub(super) fn recover(
        &mut self,
        db: Database,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Result<(), String> {
        let found = db.containers();
        let known = self.model.containers();
        if found != known && !self.cut {
            return Err(format!("containers are {found:?}, and should be {known:?}"));
        }
        let own = db.container(OWN).map_err(failed)?;
        let count = match own.get("counter").map_err(failed)? {
            Some(value) => String::from_utf8_lossy(&value)
                .parse::<usize>()
                .map_err(|e| e.to_string())?,
            None => 0,
        };
        // A probe relies on the time at which it is written, so it is skipped when the time is known.
        let probing = bounds.start() != bounds.end() || !own.contains("probe").map_err(failed)?;
        let now = if probing {
            own.put_with_ttl("probe", "", Ttl::Never).map_err(failed)?;
            let probe = own
                .item("probe")
                .map_err(failed)?
                .ok_or("the probe is not there")?;
            millis(probe.written_at())
        } else {
            *bounds.start()
        };
        if !bounds.contains(&now) {
            return Err(format!(
                "time starts at {now}, and should start within {bounds:?}"
            ));
        }
        self.model.time.restart(now);
        self.containers = [(OWN.to_owned(), own)].into();
        for name in found.iter().filter(|name| *name != OWN) {
            self.containers
                .insert(name.clone(), db.container(name).map_err(failed)?);
        }
        self.db = Some(db);
        if self.cut {
            self.find_cut(&found, count, now)?;
            self.versions.clear();
            self.one_version.clear();
            self.unordered.clear();
            self.versions_after = self.model.order;
        }
        if !self.model.has(OWN) {
            self.model.create_container(OWN, Standard::NoDefault);
            self.synced = self.model.order;
        }
        self.cut = false;
        if probing {
            self.model.commit(&[put(OWN, b"probe", b"", Life::Never)]);
        }
        Ok(())
    }

    /// Finds what a power cut left of history; time continues from `now`, and the containers `found` exist. Of several
    /// prefixes that explain what is visible the longest is used, but only the shortest counts as certain.
    pub(super) fn find_cut(
        &mut self,
        found: &Vec<String>,
        count: usize,
        now: u64,
    ) -> Result<(), String> {
        let lowest = self.survives;
        let (mut low, mut high) = (lowest, u64::MAX);
        if self.counting {
            let order = *self
                .counted
                .get(count)
                .ok_or(format!("the counter says {count}"))?;
            low = low.max(order);
            high = self
                .counted
                .get(count + 1)
                .map_or(u64::MAX, |next| next - 1);
            if high < lowest {
                return Err(format!(
                    "write {lowest} was synced, and what is left ends before {}",
                    high + 1
                ));
            }
            self.counted.truncate(count + 1);
        }
        let (mut longest, mut closest) = (None, String::new());
        for cut in self.model.cuts(low).into_iter().filter(|&cut| cut <= high) {
            // Time would not start before what a surviving write relied on.
            if self.model.mark_least(cut) > now {
                continue;
            }
            let whole = self.model.clone();
            self.model.truncate(cut);
            let containers = same("containers", found, &self.model.containers());
            let checked = containers.and_then(|()| self.check_scans());
            let model = std::mem::replace(&mut self.model, whole);
            match checked {
                Ok(()) => {
                    longest.get_or_insert(model);
                    self.synced = cut;
                }
                Err(difference) if closest.is_empty() => closest = difference,
                Err(_) => {}
            }
        }
        if let Some(model) = longest {
            self.model = model;
            return Ok(());
        }
        Err(format!(
            "what the power cut left is no prefix of history from {low} on; with all of them: {closest}"
        ))
    }

    /// Drops everything that belongs to the open database.
    pub(super) fn leave(&mut self) {
        self.walks.clear();
        self.snapshots.clear();
        self.acknowledged.clear();
        self.containers.clear();
        self.db = None;
    }

    pub(super) fn end(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Crash => {
                let next = self.sim.kill();
                self.leave();
                self.sim = next;
                if !self.cut {
                    self.survives = self.model.order;
                }
            }
            Op::PowerCut(seed) => {
                let next = self.sim.power_cut(*seed);
                self.leave();
                self.sim = next;
                self.survives = self.survivors();
                self.cut = true;
            }
            Op::Close => {
                if let Some(db) = self.db.take() {
                    db.close().map_err(failed)?;
                    self.synced = self.model.order;
                }
                self.leave();
                if !self.cut {
                    self.survives = self.model.order;
                }
            }
            Op::Reopen(options) => {
                if self.db.is_some() {
                    self.end(&Op::Close)?;
                }
                for (name, value) in options {
                    self.setup.set(name, value)?;
                }
                return self.open();
            }
            _ => unreachable!("{op}"),
        }
        Ok(String::new())
    }

    pub(super) fn survivors(&self) -> u64 {
        // A second crash before any open finds what the first one left.
        if self.cut {
            self.survives
        } else if self.setup.durability == Durability::Sync {
            self.model.order
        } else {
            self.synced
        }
    }
}
