//! Time as the model has it: the wall, uptime, and settled time, by the rules of ttl.md.

/// The two readings of the clock, and the relied-on time.
#[derive(Clone, Debug)]
pub struct Time {
    pub wall: u64,
    pub uptime: u64,
    /// Relied on; never runs backwards while the database is open.
    pub settled: u64,
    /// The uptime at which `settled` last moved.
    moved: u64,
    /// The uptime at which a lead was first seen.
    lead_since: Option<u64>,
    pub skew: u64,
    /// The highest `settled` ever.
    pub settled_most: u64,
}

impl Time {
    pub fn new(wall: u64, skew: u64) -> Time {
        Time {
            wall,
            uptime: 0,
            settled: wall,
            moved: 0,
            lead_since: None,
            skew,
            settled_most: wall,
        }
    }

    /// Reads the clock: is the wall ahead by more than the skew, and for less uptime than that? Otherwise settled time
    /// follows the wall. Returns whether a lead is unsettled.
    fn look(&mut self) -> bool {
        let expected = self.settled + (self.uptime - self.moved);
        if self.wall > expected + self.skew {
            let since = *self.lead_since.get_or_insert(self.uptime);
            if self.uptime - since < self.skew {
                return true;
            }
        }
        self.follow();
        false
    }

    fn follow(&mut self) {
        self.lead_since = None;
        if self.wall > self.settled {
            (self.settled, self.moved) = (self.wall, self.uptime);
            self.settled_most = self.settled_most.max(self.settled);
        }
    }

    pub fn unsettled(&mut self) -> bool {
        self.look()
    }

    /// The time of reads and stamps, in milliseconds since the epoch.
    pub fn now(&mut self) -> u64 {
        if self.look() { self.wall } else { self.settled }
    }

    pub fn advance(&mut self, by: u64) {
        self.wall += by;
        self.uptime += by;
    }

    pub fn confirm(&mut self) {
        self.follow();
    }

    /// The database was opened again, and its time starts at `settled`.
    pub fn restart(&mut self, settled: u64) {
        (self.settled, self.moved, self.lead_since) = (settled, self.uptime, None);
        self.settled_most = self.settled_most.max(settled);
    }
}
