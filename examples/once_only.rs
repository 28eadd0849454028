//! Payments that are made once, however often a request arrives, and on however many threads at the same moment.
//!
//! The new balance and the answer to the request are one transaction, which first looks whether the request has an answer. Of
//! callers with the same request one writes; the others meet a conflict, run again, and find its answer. An error of the bank's
//! own undoes the rest. Here a client in a hurry asks on eight connections. Answers expire after a day. Each payment survives a
//! power cut before it is answered.
//!
//! `cargo run --example once_only`

use std::thread;

use ebbtide::{Database, Durability, Error, TypedContainer};

const A_DAY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

#[derive(Debug)]
enum Refused {
    Poor { has: u64 },
    Failed(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Failed(error)
    }
}

struct Bank {
    db: Database,
    /// Cents, by account.
    balances: TypedContainer<String, u64>,
    /// The balance after each payment of the last day, by request.
    answers: TypedContainer<String, u64>,
}

impl Bank {
    fn new(db: Database) -> ebbtide::Result<Bank> {
        Ok(Bank {
            balances: db.typed("balances")?,
            answers: db.typed("answers")?,
            db,
        })
    }

    /// The balance after the payment, which is made once for each request.
    fn pay(&self, request: &str, account: &str, cents: u64) -> Result<u64, Refused> {
        let paid = self.db.try_transaction(|tx| -> Result<u64, Refused> {
            let (balances, answers) = (tx.typed(&self.balances), tx.typed(&self.answers));
            if let Some(left) = answers.get(request)? {
                return Ok(left);
            }
            let has = balances.get(account)?.unwrap_or(0);
            let left = has.checked_sub(cents).ok_or(Refused::Poor { has })?;
            balances.put(account, &left)?;
            answers.put_with_ttl(request, &left, A_DAY)?;
            tx.durability(Durability::Sync);
            Ok(left)
        });
        paid.map(|(left, _)| left)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let bank = Bank::new(Database::open(folder.path())?)?;
    bank.balances.put("ada", &5_000)?;
    thread::scope(|threads| {
        let ask = || println!("{:?}", bank.pay("request-17", "ada", 4_200));
        (0..8).for_each(|_| drop(threads.spawn(ask)));
    });
    match bank.pay("request-18", "ada", 1_000) {
        Err(Refused::Failed(error)) => return Err(error.into()),
        Err(Refused::Poor { has }) => println!("refused: she has {has}"),
        Ok(left) => println!("left: {left}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Barrier;
    use std::time::Duration;

    use ebbtide::{ManualClock, Options};

    use super::*;

    fn opened(folder: &Path, options: &Options) -> Bank {
        Bank::new(options.open(folder).unwrap()).unwrap()
    }

    /// Many threads ask for the same request at the same moment, again and again, from two accounts: one of them pays, and all
    /// hear the same answer.
    #[test]
    fn callers_that_ask_at_once_are_charged_once() {
        const CALLERS: u64 = 8;
        const REQUESTS: u64 = 60;
        let folder = tempfile::tempdir().unwrap();
        let bank = opened(folder.path(), &Options::new());
        let accounts = ["ada", "bob"];
        for account in accounts {
            bank.balances.put(account, &1_000_000).unwrap();
        }
        let (bank, start) = (&bank, &Barrier::new(CALLERS as usize));
        let heard = thread::scope(|threads| {
            let callers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    threads.spawn(move || {
                        let account = accounts[caller as usize % 2];
                        let ask = |n| {
                            start.wait();
                            // One that nobody else asks for, so that balances change beside the others.
                            bank.pay(&format!("{caller}-{n}"), account, 1).unwrap();
                            bank.pay(&format!("shared-{n}"), account, 100).unwrap()
                        };
                        (0..REQUESTS).map(ask).collect::<Vec<_>>()
                    })
                })
                .collect();
            let answers = callers.into_iter().map(|caller| caller.join().unwrap());
            answers.collect::<Vec<_>>()
        });
        assert!(heard.iter().all(|answers| *answers == heard[0]));
        let left = accounts.map(|account| bank.balances.get(account).unwrap().unwrap());
        let paid = REQUESTS * (100 + CALLERS);
        assert_eq!(left[0] + left[1], 2_000_000 - paid);
        let answered = bank.answers.count(..).unwrap();
        assert_eq!(answered, REQUESTS * (1 + CALLERS));
    }

    /// Refused requests pay nothing and are not remembered, and no balance becomes negative, in whatever order callers come.
    #[test]
    fn no_more_is_paid_than_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let bank = opened(folder.path(), &Options::new());
        bank.balances.put("ada", &1_000).unwrap();
        thread::scope(|threads| {
            for caller in 0..8 {
                let bank = &bank;
                threads.spawn(move || {
                    for n in 0..10 {
                        let paid = bank.pay(&format!("{caller}-{n}"), "ada", 30);
                        assert!(matches!(paid, Ok(_) | Err(Refused::Poor { has: 10 })));
                    }
                });
            }
        });
        assert_eq!(bank.balances.get("ada").unwrap(), Some(10));
        assert_eq!(bank.answers.count(..).unwrap(), 33);
        let stranger = bank.pay("r", "bob", 1);
        assert!(matches!(stranger, Err(Refused::Poor { has: 0 })));
    }

    #[test]
    fn answers_outlive_the_process_and_not_the_day() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new().clock(clock.clone());
        let bank = opened(folder.path(), &options);
        bank.balances.put("ada", &10).unwrap();
        assert_eq!(bank.pay("r", "ada", 4).unwrap(), 6);
        bank.db.close().unwrap();

        let bank = opened(folder.path(), &options);
        clock.advance(A_DAY - Duration::from_millis(1));
        assert_eq!(bank.pay("r", "ada", 4).unwrap(), 6);
        clock.advance(Duration::from_millis(1));
        assert_eq!(bank.pay("r", "ada", 4).unwrap(), 2);
    }
}
