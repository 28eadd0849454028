//! Payments that are made once, however often a request arrives, and on however many threads at the same moment.
//!
//! The new balance, the payment and the answer to the request are one batch. It requires that nobody has written the balance
//! since it was read, and creates the answer: of callers with the same request one writes, and the others meet a conflict,
//! read the answer and return it. Answers expire after a day. Each payment survives a power cut before it is answered.
//!
//! `cargo run --example once_only`

use std::path::Path;
use std::thread;
use std::time::Duration;

use ebbtide::{Batch, Container, Database, Durability, Expect, Options};

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let bank = Bank::open(folder.path(), Options::new())?;
    bank.balances.put("ada", "5000")?;

    println!("request 17: {}", bank.pay("request-17", "ada", 4_200)?);
    // The client did not hear the answer, and asks again.
    println!("once again: {}", bank.pay("request-17", "ada", 4_200)?);

    // A client in a hurry asks on four connections at once.
    let answers: ebbtide::Result<Vec<String>> = thread::scope(|threads| {
        let pay = || bank.pay("request-18", "ada", 350);
        let callers = [(); 4].map(|()| threads.spawn(pay));
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect()
    });
    for answer in answers? {
        println!("request 18: {answer}");
    }
    println!("request 19: {}", bank.pay("request-19", "ada", 1_000)?);

    assert_eq!(bank.balances.get("ada")?.unwrap(), "450");
    assert_eq!(bank.payments.count(..)?, 2);
    Ok(bank.db.close()?)
}

struct Bank {
    db: Database,
    /// Cents, as decimal digits, by account.
    balances: Container,
    /// Account and cents, by request.
    payments: Container,
    /// The answer to each request of the last day.
    answers: Container,
}

impl Bank {
    fn open(folder: &Path, options: Options) -> ebbtide::Result<Bank> {
        let db = options.open(folder)?;
        Ok(Bank {
            balances: db.container("balances")?,
            payments: db.container("payments")?,
            answers: db.container("answers")?,
            db,
        })
    }

    /// Pays from the account, once for each request; answers a request that was answered before as it was answered then.
    fn pay(&self, request: &str, account: &str, cents: u64) -> ebbtide::Result<String> {
        loop {
            if let Some(answer) = self.answers.get(request)? {
                return Ok(String::from_utf8_lossy(&answer).into_owned());
            }
            let mut batch = Batch::new();
            let answer = self.decide(&mut batch, request, account, cents)?;
            batch
                .create(&self.answers, request, &answer, A_DAY)
                .durability(Durability::Sync);
            match self.db.write(batch) {
                // The request was answered meanwhile, or the balance has changed: nothing was written.
                Err(error) if error.is_conflict() => continue,
                written => return written.map(|()| answer),
            }
        }
    }

    /// Adds to the batch what the request does, and what it relies on.
    fn decide(
        &self,
        batch: &mut Batch,
        request: &str,
        account: &str,
        cents: u64,
    ) -> ebbtide::Result<String> {
        let Some(balance) = self.balances.item(account)? else {
            batch.require(&self.balances, account, Expect::Absent);
            return Ok(format!("refused: {account} has no account"));
        };
        batch.require(&self.balances, account, Expect::Version(balance.version()));
        let has = amount(balance.value());
        Ok(match has.checked_sub(cents) {
            None => format!("refused: {account} has {has}"),
            Some(rest) => {
                batch.put(&self.balances, account, rest.to_string()).put(
                    &self.payments,
                    request,
                    format!("{account} {cents}"),
                );
                format!("{account} paid {cents}, has {rest}")
            }
        })
    }
}

fn amount(digits: &[u8]) -> u64 {
    String::from_utf8_lossy(digits).parse().expect("digits")
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use ebbtide::ManualClock;

    use super::*;

    /// Many threads ask for the same request at the same moment, again and again, from two accounts: one of them pays, and all
    /// hear the same answer.
    #[test]
    fn callers_that_ask_at_once_are_charged_once() {
        const CALLERS: u64 = 8;
        const REQUESTS: u64 = 60;
        let folder = tempfile::tempdir().unwrap();
        let bank = Bank::open(folder.path(), Options::new()).unwrap();
        let accounts = ["ada", "bob"];
        for account in accounts {
            bank.balances.put(account, "1000000").unwrap();
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
        let rest = accounts.map(|account| amount(&bank.balances.get(account).unwrap().unwrap()));
        let paid = REQUESTS * (100 + CALLERS);
        assert_eq!(rest[0] + rest[1], 2_000_000 - paid);
        let payments = bank.payments.count(..).unwrap();
        assert_eq!(payments, REQUESTS * (1 + CALLERS));
    }

    /// Refused requests pay nothing, and no balance becomes negative, in whatever order callers come.
    #[test]
    fn no_more_is_paid_than_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let bank = Bank::open(folder.path(), Options::new()).unwrap();
        bank.balances.put("ada", "1000").unwrap();
        thread::scope(|threads| {
            for caller in 0..8 {
                let bank = &bank;
                threads.spawn(move || {
                    for n in 0..10 {
                        bank.pay(&format!("{caller}-{n}"), "ada", 30).unwrap();
                    }
                });
            }
        });
        assert_eq!(bank.payments.count(..).unwrap(), 33);
        assert_eq!(bank.balances.get("ada").unwrap().unwrap(), "10");
        assert_eq!(bank.answers.count(..).unwrap(), 80);
        let stranger = bank.pay("r", "bob", 1).unwrap();
        assert_eq!(stranger, "refused: bob has no account");
    }

    #[test]
    fn answers_outlive_the_process_and_not_the_day() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new().clock(clock.clone());
        let bank = Bank::open(folder.path(), options.clone()).unwrap();
        bank.balances.put("ada", "10").unwrap();
        assert_eq!(bank.pay("r", "ada", 4).unwrap(), "ada paid 4, has 6");
        bank.db.close().unwrap();

        let bank = Bank::open(folder.path(), options).unwrap();
        clock.advance(A_DAY - Duration::from_millis(1));
        assert_eq!(bank.pay("r", "ada", 4).unwrap(), "ada paid 4, has 6");
        clock.advance(Duration::from_millis(1));
        assert_eq!(bank.pay("r", "ada", 4).unwrap(), "ada paid 4, has 2");
    }
}
