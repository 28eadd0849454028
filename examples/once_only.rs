//! Payments that are done once, however often their request arrives: the key of a request is remembered for a day, in
//! the same step that does the work.
//!
//! `cargo run --example once_only`

use std::time::Duration;

use ebbtide::{Batch, Container, Database, DefaultTtl, Ttl};

const A_DAY: Ttl = Ttl::After(Duration::from_secs(24 * 60 * 60));

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let shop = Shop::open(folder.path())?;

    assert_eq!(
        shop.pay("request-17", "order-1", 4_200)?,
        "order-1 paid: 4200"
    );
    // The client did not hear the answer and asks again: it gets the same one, and nothing is paid twice.
    assert_eq!(
        shop.pay("request-17", "order-1", 4_200)?,
        "order-1 paid: 4200"
    );
    assert_eq!(shop.pay("request-18", "order-2", 350)?, "order-2 paid: 350");

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
    /// The answer that was given to each request of the last day.
    answers: Container,
}

impl Shop {
    fn open(folder: &std::path::Path) -> ebbtide::Result<Shop> {
        let db = Database::open(folder)?;
        let (payments, answers) = (db.container("payments")?, db.container("answers")?);
        answers.set_default_ttl(DefaultTtl::NoDefault)?;
        Ok(Shop {
            db,
            payments,
            answers,
        })
    }

    /// The caller sees to it that one request is worked on at a time; this, that a later one changes nothing.
    fn pay(&self, request: &str, order: &str, cents: u32) -> ebbtide::Result<String> {
        if let Some(answer) = self.answers.get(request)? {
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
        let answer = format!("{order} paid: {cents}");
        let mut batch = Batch::new();
        batch.put(&self.payments, order, &answer);
        batch.put_with_ttl(&self.answers, request, &answer, A_DAY);
        self.db.write(batch)?;
        Ok(answer)
    }
}
