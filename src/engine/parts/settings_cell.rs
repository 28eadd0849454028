//! A container's settings: one value for readers, which take no lock, and one change at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering, fence};
use crate::base::sync::{ArcSwap, spin_loop};
use crate::base::{Seq, Timestamp};
use crate::env::sleep;
use crate::expiry::{Commands, DefaultMillis, Settings};

/// Settings that readers load as one value without a lock: a sequence lock, whose only writer holds the commit lock.
pub(in crate::engine) struct SettingsCell {
    /// Odd while the words are being replaced.
    version: AtomicU64,
    /// Default, floors, the last command, and the number of those that stand.
    words: [AtomicU64; 6],
    /// Read only where there are some, so that reads pay nothing where there are none.
    commands: ArcSwap<Commands>,
    /// The same settings, and how they came about.
    whole: ArcSwap<Settings>,
    /// The last sequence number of the write that changed them. Stored before they are.
    changed: AtomicU64,
}

/// A change under way: readers of the cell wait until this is dropped, and then see the new settings.
pub(in crate::engine) struct Changing<'a> {
    cell: &'a SettingsCell,
    to: Settings,
}

impl Changing<'_> {
    /// The settings that will be stored: the old ones until `change_to` is called.
    pub(in crate::engine) fn settings(&self) -> Settings {
        self.to.clone()
    }

    /// Changes them, for a write whose last sequence number is this, and which is published.
    pub(in crate::engine) fn change_to(&mut self, to: Settings, last: Seq) {
        self.to = to;
        self.cell.changed.store(last.0, Ordering::Release);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let default = match self.to.default {
            DefaultMillis::Off => 0,
            DefaultMillis::NoDefault => u64::MAX,
            DefaultMillis::Millis(millis) => millis,
        };
        let Settings {
            inherit_floor,
            override_floor,
            floor_seq,
            command_seq,
            ref commands,
            ..
        } = self.to;
        let standing = commands.iter().len() as u64;
        let values = [
            default,
            inherit_floor.0,
            override_floor.0,
            floor_seq.0,
            command_seq.0,
            standing,
        ];
        if *self.cell.commands.load_full() != *commands {
            self.cell.commands.store(Arc::new(commands.clone()));
        }
        self.cell.whole.store(Arc::new(self.to.clone()));
        for (word, value) in self.cell.words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        self.cell.version.fetch_add(1, Ordering::Release);
    }
}

impl SettingsCell {
    /// A cell with these settings, of a write of this sequence number.
    pub(in crate::engine) fn new(settings: Settings, seq: Seq) -> Self {
        let cell = SettingsCell {
            version: AtomicU64::new(0),
            words: Default::default(),
            commands: ArcSwap::from_pointee(Commands::NONE),
            whole: ArcSwap::from_pointee(Settings::default()),
            changed: AtomicU64::new(seq.0),
        };
        drop(cell.begin(settings));
        cell
    }

    /// Whether they are of a write above this sequence number. Asked after they were loaded.
    #[inline]
    pub(in crate::engine) fn are_newer_than(&self, seq: Seq) -> bool {
        self.changed() > seq
    }

    /// The last sequence number of the write that changed them. A change that was begun and not made does not move it:
    /// if it is the same before and after the settings were loaded, nothing has changed them.
    #[inline]
    pub(in crate::engine) fn changed(&self) -> Seq {
        Seq(self.changed.load(Ordering::Acquire))
    }

    /// The settings that were loaded are in force as long as this stays as it was before their load.
    #[inline]
    pub(in crate::engine) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Changes the version alone, for a change besides settings that its holders must notice.
    pub(in crate::engine) fn change_version(&self) {
        self.version.fetch_add(2, Ordering::Release);
    }

    /// Begins a change, which stores `to` unless told otherwise.
    pub(in crate::engine) fn begin(&self, to: Settings) -> Changing<'_> {
        let before = self.version.fetch_add(1, Ordering::Relaxed);
        assert!(before.is_multiple_of(2), "one change at a time");
        // The words are stored after the version is seen to be odd.
        fence(Ordering::SeqCst);
        Changing { cell: self, to }
    }

    /// The settings, and how they came about. Waits for a change under way.
    pub(in crate::engine) fn load_whole(&self) -> Arc<Settings> {
        loop {
            let before = self.version();
            let whole = self.whole.load_full();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version() == before {
                return whole;
            }
            self.load();
        }
    }

    /// The settings, without how they came about. Waits for a change under way.
    #[inline]
    pub(in crate::engine) fn load(&self) -> Settings {
        let mut tries = 0;
        loop {
            if let Some(settings) = self.try_load() {
                return settings;
            }
            // The writer of a change waits for the disk, some milliseconds.
            tries += 1;
            if tries > 100 {
                sleep(Duration::from_micros(50));
            }
            spin_loop();
        }
    }

    /// The settings, if no change is under way.
    #[inline(always)]
    pub(in crate::engine) fn try_load(&self) -> Option<Settings> {
        let before = self.version.load(Ordering::Acquire);
        let words: [u64; 6] = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        let commands = match words[5] {
            0 => Commands::NONE,
            _ => self.some_commands(),
        };
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before;
        is_whole.then(|| SettingsCell::decode(words, commands))
    }

    #[cold]
    fn some_commands(&self) -> Commands {
        Commands::clone(&self.commands.load_full())
    }

    fn decode(
        [
            default,
            inherit_floor,
            override_floor,
            floor_seq,
            command_seq,
            _,
        ]: [u64; 6],
        commands: Commands,
    ) -> Settings {
        Settings {
            default: match default {
                0 => DefaultMillis::Off,
                u64::MAX => DefaultMillis::NoDefault,
                millis => DefaultMillis::Millis(millis),
            },
            inherit_floor: Timestamp(inherit_floor),
            override_floor: Timestamp(override_floor),
            floor_seq: Seq(floor_seq),
            command_seq: Seq(command_seq),
            commands,
            past: None,
        }
    }
}
