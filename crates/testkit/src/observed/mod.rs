//! One history, and observers beside it, each of which holds its own promise to the model of the history.
//!
//! ```text
//! steps of the history    put  set-ttl  flush  observe transactions 7  load  crash  observe feeds 3  ...
//! World                   engine and model take each step, and see the same
//! observers               before a step that takes something away from them; their own steps; after each step; at the end
//! ```
//!
//! An observer acts in steps of the history alone ([`Op::Observe`]), by choices from the number that the step has. So a
//! history that fails can be made shorter, and written down as a script. What an observer writes goes to the model, too:
//! all others see it.

use crate::op::Op;
use crate::random::Random;
use crate::world::{Outcome, World};

mod copies;
mod feeds;
mod followers;
mod quotas;
mod transactions;

pub use copies::Copies;
pub use feeds::Feeds;
pub use followers::Followers;
pub use quotas::{NAMES as QUOTAS, Quotas};
pub use transactions::Transactions;

/// Keys that observers use: those of the widest history.
const KEYS: usize = 60;

pub trait Observer {
    fn name(&self) -> &'static str;

    /// A step of its own.
    fn act(&mut self, world: &mut World, random: &mut Random) -> Result<(), String>;

    /// Before each step of the history.
    fn before(&mut self, _world: &mut World, _op: &Op) -> Result<(), String> {
        Ok(())
    }

    /// At the end of the history, which is open.
    fn end(&mut self, _world: &mut World) -> Result<(), String> {
        Ok(())
    }

    /// How often it did and met things, so that a test can ask that it met enough.
    fn counts(&self) -> Counts {
        vec![]
    }
}

pub type Counts = Vec<(&'static str, usize)>;

/// Whether a step ends what is open.
fn ends(op: &Op) -> bool {
    matches!(op, Op::Crash | Op::PowerCut(_) | Op::Close | Op::Reopen(_))
}

/// All observers of this file.
pub fn everyone() -> Vec<Box<dyn Observer>> {
    vec![
        Box::<Transactions>::default(),
        Box::<Feeds>::default(),
        Box::<Copies>::default(),
        Box::<Followers>::default(),
        Box::<Quotas>::default(),
    ]
}

/// A world with observers.
pub struct Observed {
    pub world: World,
    pub observers: Vec<Box<dyn Observer>>,
}

impl Observed {
    pub fn run(&mut self, op: &Op) -> Outcome {
        let said = |observer: &dyn Observer, what: String| format!("{}: {what}", observer.name());
        let Op::Observe(name, seed) = op else {
            for observer in &mut self.observers {
                let done = observer.before(&mut self.world, op);
                done.map_err(|what| said(&**observer, what))?;
            }
            return self.world.run(op);
        };
        let mut observers = self.observers.iter_mut();
        let called = observers.find(|observer| observer.name() == name);
        let observer = called.ok_or_else(|| format!("no observer {name} is here"))?;
        let world = &mut self.world;
        world.db()?;
        let done = observer.act(world, &mut Random(*seed));
        done.map_err(|what| said(&**observer, what))?;
        Ok(String::new())
    }

    pub fn end(&mut self) -> Result<(), String> {
        self.world.db()?;
        for observer in &mut self.observers {
            let done = observer.end(&mut self.world);
            done.map_err(|what| format!("{}, at the end: {what}", observer.name()))?;
        }
        self.world.check()
    }
}
