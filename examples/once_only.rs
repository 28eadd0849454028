//! Payments that are done once, however often their request arrives, and however many threads it arrives on: a request is
//! claimed before it is worked on, and its answer is remembered for a day, in the same step that does the work.
//!
//! `cargo run --example once_only`

use std::thread;
use std::time::Duration;

use ebbtide::{Batch, Container, Database, Ttl};

const A_DAY: Ttl = Ttl::After(Duration::from_secs(24 * 60 * 60));

/// In place of an answer: somebody works on the request.
const CLAIMED: &[u8] = b"";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let shop = Shop::open(folder.path())?;

    let paid = Answer::Given("order-1 paid: 4200".to_owned());
    assert_eq!(shop.pay("request-17", "order-1", 4_200)?, paid);
    // The client did not hear the answer and asks again: it gets the same one, and nothing is paid twice.
    assert_eq!(shop.pay("request-17", "order-1", 4_200)?, paid);

    // A client in a hurry asks on four connections at once.
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| shop.pay("request-18", "order-2", 350));
        }
    });

    for payment in shop.payments.iter() {
        let payment = payment?;
        println!("{}", String::from_utf8_lossy(payment.value()));
    }
    assert_eq!(shop.payments.iter().count(), 2);
    Ok(shop.db.close()?)
}

struct Shop {
    db: Database,
    payments: Container,
    /// The answer that was given to each request of the last day, and the claims of those that are worked on.
    answers: Container,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Given(String),
    /// Another caller works on it: ask again.
    InProgress,
}

impl Shop {
    fn open(folder: &std::path::Path) -> ebbtide::Result<Shop> {
        let db = Database::open(folder)?;
        let (payments, answers) = (db.container("payments")?, db.container("answers")?);
        // One process at a time has the database, so whoever made these claims has ended; and since work and answer are
        // one batch, none of the work was done.
        for claim in answers.iter() {
            let claim = claim?;
            if claim.value() == CLAIMED {
                answers.delete(claim.key())?;
            }
        }
        Ok(Shop {
            db,
            payments,
            answers,
        })
    }

    fn pay(&self, request: &str, order: &str, cents: u32) -> ebbtide::Result<Answer> {
        self.once(request, |batch| {
            let answer = format!("{order} paid: {cents}");
            batch.put(&self.payments, order, &answer);
            answer
        })
    }

    /// Calls `work` once for each request. What it puts into the batch is written together with the answer that it gives.
    fn once(
        &self,
        request: &str,
        work: impl FnOnce(&mut Batch) -> String,
    ) -> ebbtide::Result<Answer> {
        // Of those who ask at once, `create` lets one through.
        while !self.answers.create(request, CLAIMED, Ttl::Never)? {
            match self.answers.get(request)? {
                Some(claim) if *claim == *CLAIMED => return Ok(Answer::InProgress),
                Some(answer) => {
                    return Ok(Answer::Given(String::from_utf8_lossy(&answer).into_owned()));
                }
                // It ended between the two calls.
                None => {}
            }
        }
        let mut claim = Claim {
            shop: self,
            request,
            is_answered: false,
        };
        let mut batch = Batch::new();
        let answer = work(&mut batch);
        batch.put_with_ttl(&self.answers, request, &answer, A_DAY);
        self.db.write(batch)?;
        claim.is_answered = true;
        Ok(Answer::Given(answer))
    }
}

/// A request that is worked on. Without an answer, because of an error or a panic, another caller may claim it.
struct Claim<'a> {
    shop: &'a Shop,
    request: &'a str,
    is_answered: bool,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // A claim that cannot be deleted stays until the shop is opened again.
            let _ = self.shop.answers.delete(self.request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Many threads ask for the same request at the same moment, again and again.
    #[test]
    fn callers_that_ask_at_once_are_charged_once() {
        const CALLERS: usize = 8;
        const REQUESTS: u64 = 500;
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::open(folder.path()).unwrap();
        let (charges, start) = (AtomicU64::new(0), Barrier::new(CALLERS));
        thread::scope(|threads| {
            for _ in 0..CALLERS {
                threads.spawn(|| {
                    for n in 0..REQUESTS {
                        let request = format!("request-{n}");
                        let ask = || {
                            shop.once(&request, |batch| {
                                let charge = charges.fetch_add(1, Ordering::Relaxed);
                                batch.put(&shop.payments, format!("charge-{charge}"), &request);
                                request.clone()
                            })
                        };
                        start.wait();
                        let mut answer = ask().unwrap();
                        while answer == Answer::InProgress {
                            thread::yield_now();
                            answer = ask().unwrap();
                        }
                        assert_eq!(answer, Answer::Given(request.clone()));
                    }
                });
            }
        });
        assert_eq!(charges.into_inner(), REQUESTS);
        assert_eq!(shop.payments.iter().count() as u64, REQUESTS);
    }

    #[test]
    fn work_that_fails_may_be_asked_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::open(folder.path()).unwrap();
        let failing = AssertUnwindSafe(|| shop.once("r", |_| panic!("the card reader is on fire")));
        assert!(catch_unwind(failing).is_err());
        let refused = shop.once("r", |batch| {
            batch.put(&shop.payments, "", "a key must not be empty");
            "paid".to_owned()
        });
        assert!(refused.is_err());
        let paid = shop.once("r", |_| "paid".to_owned()).unwrap();
        assert_eq!(paid, Answer::Given("paid".to_owned()));
    }

    #[test]
    fn a_claim_ends_with_its_process_and_an_answer_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::open(folder.path()).unwrap();
        shop.pay("answered", "order-1", 1).unwrap();
        // What a process leaves that is killed before its batch is written.
        shop.answers.create("claimed", CLAIMED, Ttl::Never).unwrap();
        assert_eq!(
            shop.pay("claimed", "order-2", 2).unwrap(),
            Answer::InProgress
        );
        shop.db.close().unwrap();

        let shop = Shop::open(folder.path()).unwrap();
        let answered = shop.once("answered", |_| unreachable!("it has an answer"));
        let paid = |order| Answer::Given(format!("{order} paid: 1"));
        assert_eq!(answered.unwrap(), paid("order-1"));
        assert_eq!(shop.pay("claimed", "order-2", 1).unwrap(), paid("order-2"));
    }
}
