//! An outbox: what happened is told to another system at least once, and takes effect there once.
//!
//! An order and its event are one batch, so neither is there without the other. A worker leases an event, delivers it, then
//! deletes it; the lease is an item with a ttl, so the events of a worker that died are free again by themselves. The
//! receiver creates the event's id in the batch that does what the event asks for: the second delivery is a conflict.
//! (Where losing an event is better than telling it twice, `outbox.take(key)` alone delivers at most once.)
//!
//! `cargo run --example outbox`

use std::path::Path;
use std::time::Duration;

use ebbtide::{Batch, Container, Database, Expect, ManualClock, Options, Ttl, Version};

const LEASE: Duration = Duration::from_secs(30);
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    // A clock that is moved by hand, so that the example need not wait for a lease to end.
    let clock = ManualClock::new(1_800_000_000_000);
    let options = Options::new().clock(clock.clone());
    let shop = Shop::open(&folder.path().join("shop"), &options)?;
    let mail = Receiver::open(&folder.path().join("mail"), &options)?;

    for order in ["order-1", "order-2", "order-3"] {
        shop.place(order, "42 apples")?;
    }
    println!("placed:             3 orders");

    // A worker delivers an event and dies before it can say so.
    let lost = shop.lease("worker-1")?.expect("there are events");
    mail.deliver(&lost)?;
    println!("worker 1 died over: {}", lost.id);

    println!(
        "worker 2 delivered: {} events",
        shop.deliver_all("worker-2", &mail)?
    );
    clock.advance(LEASE);
    println!(
        "30 s later:         {} more",
        shop.deliver_all("worker-2", &mail)?
    );
    println!("mails sent:         {}", mail.sent.count(..)?);
    assert_eq!(mail.sent.count(..)?, 3);
    assert!(shop.outbox.is_empty()?);
    shop.db.close()?;
    Ok(mail.db.close()?)
}

struct Shop {
    db: Database,
    orders: Container,
    /// The events that have not been told yet, by id.
    outbox: Container,
    /// The worker that tells each, by the same id.
    leases: Container,
}

/// An event that its worker alone may deliver until the lease ends.
struct Leased {
    id: String,
    event: String,
    version: Version,
}

impl Shop {
    fn open(folder: &Path, options: &Options) -> ebbtide::Result<Shop> {
        let db = options.open(folder)?;
        Ok(Shop {
            orders: db.container("orders")?,
            outbox: db.container("outbox")?,
            leases: db.container("leases")?,
            db,
        })
    }

    /// Places an order, and says so in the outbox. A conflict: there is one of this number.
    fn place(&self, order: &str, what: &str) -> ebbtide::Result<()> {
        let mut batch = Batch::new();
        batch.create(&self.orders, order, what, Ttl::Never).put(
            &self.outbox,
            order,
            format!("thank you for {what}"),
        );
        self.db.write(batch)
    }

    /// Leases the first event that nobody else has; `None`: there is none.
    fn lease(&self, worker: &str) -> ebbtide::Result<Option<Leased>> {
        for event in &self.outbox {
            let event = event?;
            let mut batch = Batch::new();
            batch
                .require(&self.outbox, event.key(), Expect::Present)
                .create(&self.leases, event.key(), worker, LEASE);
            match self.db.commit(batch) {
                // Another worker has it, or has told it already.
                Err(error) if error.is_conflict() => continue,
                Err(error) => return Err(error),
                Ok(written) => {
                    return Ok(Some(Leased {
                        id: text(event.key()),
                        event: text(event.value()),
                        version: written.version(),
                    }));
                }
            }
        }
        Ok(None)
    }

    /// The event is delivered. False: the lease had ended, so another worker may deliver it too.
    fn done(&self, leased: &Leased) -> ebbtide::Result<bool> {
        let mut batch = Batch::new();
        batch
            .require(&self.leases, &leased.id, Expect::Version(leased.version))
            .delete(&self.leases, &leased.id)
            .delete(&self.outbox, &leased.id);
        match self.db.write(batch) {
            Err(error) if error.is_conflict() => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Delivers until no event is free, and says how many it delivered.
    fn deliver_all(&self, worker: &str, to: &Receiver) -> ebbtide::Result<u64> {
        let mut delivered = 0;
        while let Some(leased) = self.lease(worker)? {
            to.deliver(&leased)?;
            // The effect there must be durable before its cause is deleted here.
            to.db.sync()?;
            delivered += u64::from(self.done(&leased)?);
        }
        Ok(delivered)
    }
}

/// Another system, which may have a database of another kind.
struct Receiver {
    db: Database,
    sent: Container,
    /// The ids of events that took effect; kept for longer than an event can be under way.
    seen: Container,
}

impl Receiver {
    fn open(folder: &Path, options: &Options) -> ebbtide::Result<Receiver> {
        let db = options.open(folder)?;
        Ok(Receiver {
            sent: db.container("sent")?,
            seen: db.container("seen")?,
            db,
        })
    }

    /// Sends the mail. False: it was sent before.
    fn deliver(&self, leased: &Leased) -> ebbtide::Result<bool> {
        let mut batch = Batch::new();
        batch.create(&self.seen, &leased.id, "", A_DAY).put(
            &self.sent,
            format!("mail for {}", leased.id),
            &leased.event,
        );
        match self.db.write(batch) {
            Err(error) if error.is_conflict() => Ok(false),
            written => written.map(|()| true),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    /// Workers die between all steps, leases end under workers that are slow, and each event takes effect once.
    #[test]
    fn every_event_takes_effect_once_whoever_dies() {
        const ORDERS: u64 = 400;
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new().clock(clock.clone());
        let shop = &Shop::open(&folder.path().join("shop"), &options).unwrap();
        let mail = &Receiver::open(&folder.path().join("mail"), &options).unwrap();
        let (effects, repeats) = (&AtomicU64::new(0), &AtomicU64::new(0));
        thread::scope(|threads| {
            threads.spawn(|| {
                for n in 0..ORDERS {
                    shop.place(&format!("order-{n}"), "apples").unwrap();
                }
            });
            for worker in 0..4u64 {
                let clock = clock.clone();
                threads.spawn(move || {
                    let mut step = worker;
                    while shop.orders.count(..).unwrap() < ORDERS
                        || !shop.outbox.is_empty().unwrap()
                    {
                        step += 1;
                        let Some(leased) = shop.lease("worker").unwrap() else {
                            clock.advance(LEASE / 4);
                            continue;
                        };
                        if step % 7 == 0 {
                            continue; // died before it delivered
                        }
                        match mail.deliver(&leased).unwrap() {
                            true => effects.fetch_add(1, Ordering::Relaxed),
                            false => repeats.fetch_add(1, Ordering::Relaxed),
                        };
                        match step % 5 {
                            0 => continue,             // died after it delivered
                            1 => clock.advance(LEASE), // was so slow that its lease ended
                            _ => {}
                        }
                        shop.done(&leased).unwrap();
                    }
                });
            }
        });
        assert_eq!(effects.load(Ordering::Relaxed), ORDERS);
        assert_eq!(mail.sent.count(..).unwrap(), ORDERS);
        let repeats = repeats.load(Ordering::Relaxed);
        assert!(repeats > 0, "no event was delivered twice: nobody died");
    }

    #[test]
    fn one_worker_at_a_time_has_an_event_and_a_late_one_does_not_end_it() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new().clock(clock.clone());
        let shop = Shop::open(folder.path(), &options).unwrap();
        shop.place("order-1", "apples").unwrap();
        assert!(shop.place("order-1", "pears").unwrap_err().is_conflict());
        let late = shop.lease("late").unwrap().unwrap();
        assert!(shop.lease("other").unwrap().is_none());
        clock.advance(LEASE);
        let other = shop.lease("other").unwrap().unwrap();
        assert!(!shop.done(&late).unwrap());
        assert!(shop.outbox.contains("order-1").unwrap());
        assert!(shop.done(&other).unwrap());
        assert!(shop.lease("third").unwrap().is_none());
        assert!(shop.outbox.is_empty().unwrap() && shop.leases.is_empty().unwrap());
    }

    /// The process in which shop and receiver run is killed while it places and delivers; what it leaves is delivered by the
    /// next one. Every order that it said it had placed is there, and each order was told once.
    #[test]
    fn a_killed_process_loses_and_repeats_nothing() {
        const FOLDER: &str = "OUTBOX_FOLDER";
        let open = |folder: &Path| {
            let options = Options::new();
            let shop = Shop::open(&folder.join("shop"), &options).unwrap();
            (
                shop,
                Receiver::open(&folder.join("mail"), &options).unwrap(),
            )
        };
        if let Some(folder) = std::env::var_os(FOLDER) {
            let (shop, mail) = open(folder.as_ref());
            let first = shop.orders.count(..).unwrap();
            for n in first.. {
                shop.place(&format!("order-{n}"), "apples").unwrap();
                println!("placed order-{n}.");
                if n % 3 == 2 {
                    // It may meet what a process before left leased: that is for the last one.
                    shop.deliver_all("worker", &mail).unwrap();
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let mut said = 0;
        for round in 1..=3u64 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "tests::a_killed_process_loses_and_repeats_nothing",
                ])
                .arg("--nocapture")
                .env(FOLDER, folder.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let placed = lines.map(Result::unwrap).filter(|line| line.ends_with('.'));
            let few = placed.filter(|line| line.contains("placed order-"));
            let heard = few.take(20 + 7 * round as usize).count();
            child.kill().unwrap();
            child.wait().unwrap();
            said += heard as u64;
        }
        let (shop, mail) = open(folder.path());
        let orders = shop.orders.count(..).unwrap();
        assert!(said > 80 && orders >= said, "{orders} of {said}");
        let told_before = mail.sent.count(..).unwrap();
        // The leases of the killed have to end: nobody else holds one.
        shop.leases.clear().unwrap();
        shop.deliver_all("next", &mail).unwrap();
        assert!(told_before > 0 && shop.outbox.is_empty().unwrap());
        for order in &shop.orders {
            let order = order.unwrap();
            let id = format!("mail for {}", text(order.key()));
            assert!(mail.sent.contains(&id).unwrap(), "nobody was told of {id}");
        }
        assert_eq!(mail.sent.count(..).unwrap(), orders);
        assert_eq!(mail.seen.count(..).unwrap(), orders);
    }
}
