//! Containers with a quota, of so few items that samples have all: each put is taken or refused as the live bytes of the model
//! say, to the byte, as long as the clock has not jumped. An item counts until it has ended, by the clock, a change or a
//! command, and no longer. Where what ends soonest makes room, nothing goes in vain, no more than is needed, and nothing goes
//! that ends later than what stays.

use std::time::Duration;

use ebbtide::{Container, Error, Quota, Ttl, WhenFull};

use super::{Counts, Observer};
use crate::model::{Expire, Given, Life, Seen, Write};
use crate::op::{Bytes, Op};
use crate::random::Random;
use crate::world::{World, all, failed, same};

/// The containers that only this one puts to; the first refuses, the second makes room.
pub const NAMES: [&str; 2] = ["full", "soonest"];
/// An item weighs more than a 64th of it, which may be exceeded.
const LIMIT: u64 = 6_000;
/// Of an item beside key and value.
const ITEM: usize = 16;
/// Percent that are freed beside what a put needs.
const SPARE: u64 = 3;

fn weight(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len() + ITEM) as u64
}

fn weights(items: &[Seen]) -> u64 {
    let weights = items.iter().map(|seen| weight(&seen.key, &seen.value));
    weights.sum()
}

/// An item to be put.
struct New {
    key: Bytes,
    value: Bytes,
    ttl: Ttl,
    life: Life,
}

impl New {
    fn draw(random: &mut Random) -> New {
        let (ttl, life) = match random.below(8) {
            0 => (Ttl::Never, Life::Never),
            1 | 2 => (Ttl::Inherit, Life::Inherit),
            _ => {
                let millis = 500 << random.below(9);
                (Ttl::After(Duration::from_millis(millis)), Life::Own(millis))
            }
        };
        New {
            key: format!("{:04}", random.below(150)).into_bytes(),
            value: vec![b'.'; 75 + random.below(45)],
            ttl,
            life,
        }
    }

    fn write(self, name: &str) -> Write {
        Write::Put {
            container: name.to_owned(),
            key: self.key,
            value: self.value,
            ttl: Given::Life(self.life),
        }
    }
}

#[derive(Default)]
pub struct Quotas {
    /// The births of the containers that have their quota.
    set: [Option<u64>; 2],
    /// Time may go back, to before the moment at which the bytes were counted.
    has_jumped: bool,
    taken: usize,
    refused: usize,
    made_room: usize,
}

impl Quotas {
    /// The container, with its quota.
    fn container(&mut self, world: &mut World, which: usize) -> Result<Container, String> {
        let container = world.container(NAMES[which])?;
        let born = world.model.born(NAMES[which]);
        if self.set[which] != born {
            let quota = Quota {
                max_live_bytes: LIMIT,
                when_full: [WhenFull::Refuse, WhenFull::ExpireSoonest][which],
            };
            container.set_quota(Some(quota)).map_err(failed)?;
            self.set[which] = born;
        }
        Ok(container)
    }

    fn put(&mut self, world: &mut World, which: usize, random: &mut Random) -> Result<(), String> {
        let container = self.container(world, which)?;
        let live = world.model.scan(NAMES[which], b"", None, u64::MAX);
        let new = New::draw(random);
        let replaced = live.iter().find(|seen| seen.key == new.key);
        let freed = replaced.map_or(0, |seen| weight(&seen.key, &seen.value));
        let adds = weight(&new.key, &new.value).saturating_sub(freed);
        let would_be = weights(&live) + adds;
        let fits = adds == 0 || would_be <= LIMIT;
        let may_make_room = which == 1 && !world.model.time.unsettled();
        match container.put_with_ttl(&new.key, &new.value, new.ttl) {
            Ok(()) if fits || may_make_room => {
                self.taken += 1;
                if !fits {
                    self.made_room += 1;
                    let early = makes_room(world, &container, &new.key, &live)?;
                    let without = would_be - early;
                    if without * 100 <= LIMIT * (100 - SPARE) {
                        return Err(format!("{without} of {LIMIT} would have been enough"));
                    }
                }
                world.model.commit(&[new.write(NAMES[which])]);
                let left = weights(&world.model.scan(NAMES[which], b"", None, u64::MAX));
                same("it fits", &(fits || left <= LIMIT), &true)
            }
            Err(Error::QuotaFull { .. }) if !fits => {
                self.refused += 1;
                Ok(())
            }
            other => Err(format!("{would_be} of {LIMIT}, {adds} added: {other:?}")),
        }
    }
}

/// The items that a put has ended are those that end soonest; the model learns of it as of a command. Tells the bytes of those
/// that ended before the last quarter of that time: what ends almost together goes together.
fn makes_room(
    world: &mut World,
    container: &Container,
    put: &[u8],
    live: &[Seen],
) -> Result<u64, String> {
    let there = all(container.iter())?;
    let others = live.iter().filter(|seen| seen.key != put);
    let (left, gone): (Vec<&Seen>, Vec<&Seen>) =
        others.partition(|seen| there.iter().any(|item| item.key == seen.key));
    let last = gone.iter().map(|seen| seen.expires_at).max();
    let Some(last) = last else {
        return Ok(0);
    };
    let last = last.ok_or("what has no end was ended")?;
    let stays = left.iter().filter_map(|seen| seen.expires_at).min();
    if stays.is_some_and(|end| end < last) {
        return Err(format!("{last} was ended, and {stays:?} stays"));
    }
    let told = world
        .model
        .expire(container.name(), Expire::Before(last + 1));
    same("a command can be given", &told, &true)?;
    let late = last - (last - world.model.time.now()) / 4;
    let early = gone.iter().filter(|seen| seen.expires_at < Some(late));
    Ok(early.map(|seen| weight(&seen.key, &seen.value)).sum())
}

impl Observer for Quotas {
    fn name(&self) -> &'static str {
        "quotas"
    }

    fn act(&mut self, world: &mut World, random: &mut Random) -> Result<(), String> {
        if self.has_jumped {
            return Ok(());
        }
        let which = random.below(2);
        (0..1 + random.below(12)).try_for_each(|_| {
            // Few items end in one and the same moment.
            world.run(&Op::Advance(1 + random.below(30) as u64))?;
            let put =
                |world: &mut World, _: &_| self.put(world, which, random).map(|()| String::new());
            world.step(put).map(drop)
        })
    }

    /// A power cut may take the quota with it.
    fn before(&mut self, _: &mut World, op: &Op) -> Result<(), String> {
        match op {
            Op::PowerCut(_) => self.set = [None; 2],
            Op::Jump(_) => self.has_jumped = true,
            _ => {}
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        vec![
            ("puts taken", self.taken),
            ("puts refused", self.refused),
            ("room made", self.made_room),
        ]
    }
}
