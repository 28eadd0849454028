//! Goal: what transactions move is neither lost nor made, through expiry, kills and power cuts, whoever moves at once.
//!
//! Method: a bank, whose transfers run on threads while copies of its disk are opened, as a kill or a power cut leaves it. Random
//! histories of transactions that are held open stand in tests/contract/model.rs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::UNIX_EPOCH;

use ebbtide::internals::Sim;
use ebbtide::{Batch, Container, Database, ManualClock, Result};
use testkit::random::Random;
use testkit::stage::{NOW, after, ms, on};

/// Accounts, each open for a lease that transfers prolong. What one holds is on record in `deposits`, which does not
/// expire. Of an account whose lease has ended nothing is transferred; it is opened again, with what is on record.
#[derive(Clone)]
struct Bank {
    db: Database,
    leases: Container,
    deposits: Container,
    receipts: Container,
}

const ACCOUNTS: usize = 6;
const EACH: u64 = 100;

impl Bank {
    fn open(sim: &Sim, clock: &ManualClock) -> Bank {
        let options = on(sim, clock).memtable_bytes(64 << 10);
        let db = options.open("/db").unwrap();
        let container = |name| db.container(name).unwrap();
        Bank {
            leases: container("leases"),
            deposits: container("deposits"),
            receipts: container("receipts"),
            db: db.clone(),
        }
    }

    fn found(&self) {
        let mut batch = Batch::new();
        for n in 0..ACCOUNTS {
            batch.put(&self.deposits, format!("{n}"), EACH.to_string());
        }
        self.db.write(&batch).unwrap();
        self.db.sync().unwrap();
    }

    fn transfer(&self, random: &mut Random) -> Result<()> {
        let name = |random: &mut Random| format!("{}", random.below(ACCOUNTS));
        let (from, to, amount) = (name(random), name(random), random.below(20) as u64);
        let receipt = format!("{:016x}", random.next());
        if from == to {
            return Ok(());
        }
        self.db.transaction(|tx| {
            let on_record = |name: &str| -> Result<u64> {
                let value = tx.get(&self.deposits, name)?.expect("it is never deleted");
                Ok(String::from_utf8_lossy(&value).parse().unwrap())
            };
            for name in [&from, &to] {
                if tx.create(&self.leases, name, "", after(5))? {
                    return Ok(());
                }
            }
            let lease = tx.item(&self.leases, &from)?.expect("it is open");
            let (before, after_it) = (on_record(&from)?, on_record(&to)?);
            if before < amount {
                return tx.touch(&self.leases, &from).map(drop);
            }
            let ends = lease
                .expires_at()
                .unwrap()
                .duration_since(UNIX_EPOCH)
                .unwrap();
            tx.put(&self.deposits, &from, (before - amount).to_string())?;
            tx.put(&self.deposits, &to, (after_it + amount).to_string())?;
            tx.put(&self.receipts, &receipt, ends.as_millis().to_string())
        })
    }

    /// Nothing is lost and nothing made, as one transaction sees it and as a scan does; and nothing was transferred
    /// after a lease had ended.
    fn audit(&self) {
        let sum = |items: &mut dyn Iterator<Item = Result<ebbtide::Item>>| -> u64 {
            items
                .map(|item| {
                    String::from_utf8_lossy(item.unwrap().value())
                        .parse::<u64>()
                        .unwrap()
                })
                .sum()
        };
        let tx = self.db.begin();
        assert_eq!(sum(&mut tx.iter(&self.deposits)), EACH * ACCOUNTS as u64);
        assert_eq!(sum(&mut self.deposits.iter().rev()), EACH * ACCOUNTS as u64);
        for receipt in &self.receipts {
            let receipt = receipt.unwrap();
            let ends: u64 = String::from_utf8_lossy(receipt.value()).parse().unwrap();
            assert!(
                receipt.written_at() < UNIX_EPOCH + ms(ends),
                "transferred by a lease that had ended"
            );
        }
    }
}

#[test]
fn the_sum_of_a_bank_holds_through_expiry_kills_and_power_cuts() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let bank = Bank::open(&sim, &clock);
    bank.found();
    let (is_over, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let clerks: Vec<_> = (0..3)
        .map(|seed| {
            let (bank, clock) = (bank.clone(), clock.clone());
            let (is_over, done) = (is_over.clone(), done.clone());
            thread::spawn(move || {
                let mut random = Random(seed);
                while !is_over.load(Ordering::SeqCst) {
                    if random.one_in(4) {
                        clock.advance(ms(1));
                    }
                    match bank.transfer(&mut random) {
                        Ok(()) => drop(done.fetch_add(1, Ordering::SeqCst)),
                        Err(error) => assert!(error.is_conflict(), "{error}"),
                    }
                }
            })
        })
        .collect();
    for round in 0..24 {
        let before = done.load(Ordering::SeqCst);
        testkit::patience::wait_until("more was transferred", || {
            done.load(Ordering::SeqCst) > before + 20
        });
        bank.audit();
        if round % 5 == 0 {
            bank.db.flush().unwrap();
        }
        let left = match round % 2 {
            0 => sim.kill(),
            _ => sim.power_cut(round),
        };
        let copy = Bank::open(&left, &ManualClock::new(NOW + 1_000_000));
        copy.audit();
        copy.db.compact().unwrap();
        copy.audit();
        copy.db.close().unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    clerks.into_iter().for_each(|clerk| clerk.join().unwrap());
    bank.audit();
    assert!(bank.receipts.first().unwrap().is_some());
}
