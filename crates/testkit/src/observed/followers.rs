//! A follower: until it catches up it shows what it showed before, but for what has ended; then all that was acknowledged. So
//! does a snapshot of it. It writes nothing.

use std::sync::Arc;

use ebbtide::{Database, Snapshot};

use super::{Counts, Observer};
use crate::beside::Beside;
use crate::model::Seen;
use crate::op::Op;
use crate::random::Random;
use crate::world::{Settings, World, all, failed, path, same};

/// Of each container the items.
type Shown = Vec<(String, Vec<Seen>)>;

fn at(shown: &Shown, now: u64) -> Shown {
    let mut shown = shown.clone();
    for (_, items) in &mut shown {
        items.retain(|item| item.expires_at.is_none_or(|end| end > now));
    }
    shown
}

fn by(follower: &Database) -> Result<Shown, String> {
    let own = |name: String| {
        let container = follower.container(&name).map_err(failed)?;
        Ok((name, all(container.iter())?))
    };
    follower.containers().into_iter().map(own).collect()
}

/// A snapshot, and what it shows as long as the settings are those of then.
struct Taken {
    snapshot: Snapshot,
    shown: Shown,
    settings: Settings,
}

struct Following {
    db: Database,
    beside: Beside,
    shown: Shown,
    snapshots: Vec<Taken>,
}

#[derive(Default)]
pub struct Followers {
    follower: Option<Following>,
    caught_up: usize,
}

impl Followers {
    fn follow(&mut self, world: &mut World) -> Result<(), String> {
        let beside = Beside::new(&world.sim);
        let options = world.setup.options(&world.sim, &world.clock);
        let db = options.fs(Arc::new(beside.clone())).follow(path());
        let db = db.map_err(failed)?;
        let shown = world.shown()?;
        same("what a new follower shows", &by(&db)?, &shown)?;
        self.follower = Some(Following {
            db,
            beside,
            shown,
            snapshots: vec![],
        });
        Ok(())
    }
}

/// Time is the same for both while no clock is wrong.
fn is_sure(world: &mut World) -> bool {
    let time = &mut world.model.time;
    !time.unsettled() && time.wall == time.settled
}

impl Observer for Followers {
    fn name(&self) -> &'static str {
        "followers"
    }

    fn act(&mut self, world: &mut World, random: &mut Random) -> Result<(), String> {
        if !is_sure(world) {
            self.follower = None;
            return Ok(());
        }
        let Some(following) = &mut self.follower else {
            return self.follow(world);
        };
        following.beside.set(&world.sim);
        let now = world.model.time.now();
        let before = at(&following.shown, now);
        same("before it catches up", &by(&following.db)?, &before)?;
        let settings = world.settings();
        following
            .snapshots
            .retain(|taken| taken.settings == settings);
        for taken in &following.snapshots {
            for (name, items) in at(&taken.shown, now) {
                let view = taken.snapshot.container(&name).map_err(failed)?;
                same("a follower's snapshot", &all(view.iter())?, &items)?;
            }
        }
        if random.one_in(3) {
            return Ok(());
        }
        following.db.catch_up().map_err(failed)?;
        following.shown = world.shown()?;
        same("a follower", &by(&following.db)?, &following.shown)?;
        let (own, theirs) = (following.db.last_version(), world.db()?.last_version());
        same("the last version", &own, &theirs)?;
        self.caught_up += 1;
        following.snapshots.push(Taken {
            snapshot: following.db.snapshot(),
            shown: following.shown.clone(),
            settings,
        });
        if following.snapshots.len() > 3 {
            following.snapshots.remove(0);
        }
        Ok(())
    }

    fn before(&mut self, _: &mut World, op: &Op) -> Result<(), String> {
        // Writes that it has shown may be lost, or its clock alone has been wrong.
        if matches!(op, Op::PowerCut(_) | Op::Jump(_) | Op::ConfirmClock) {
            self.follower = None;
        }
        Ok(())
    }

    fn end(&mut self, world: &mut World) -> Result<(), String> {
        self.act(world, &mut Random(1))
    }

    fn counts(&self) -> Counts {
        vec![("catching up", self.caught_up)]
    }
}
