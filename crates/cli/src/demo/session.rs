//! Realistic sessions generated from a number: the same number gives the same bytes, so they need not be kept.

use crate::random::Random;

/// `sess:` and 128 bits in hexadecimal digits.
pub fn key(id: u64) -> String {
    let mut random = Random::new(id);
    format!("sess:{:016x}{:016x}", random.next(), random.next())
}

/// A web application's data for a visitor; `version` counts how often it was written.
pub fn value(id: u64, version: u32) -> String {
    const NAMES: [&str; 8] = [
        "ada", "grace", "edsger", "barbara", "donald", "frances", "tony", "lynn",
    ];
    const HOSTS: [&str; 3] = ["example.org", "example.com", "mail.example.net"];
    const ROLES: [&str; 5] = ["reader", "editor", "billing", "support", "admin"];
    const AGENTS: [&str; 3] = [
        "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/130.0.0.0 Safari/537.36",
    ];
    let mut random = Random::new(!id);
    let number = random.below(100_000);
    format!(
        r#"{{"user":{number},"mail":"{}.{number}@{}","roles":["{}","{}"],"address":"203.0.113.{}","agent":"{}","token":"{:016x}","views":{version}}}"#,
        random.pick(&NAMES),
        random.pick(&HOSTS),
        random.pick(&ROLES),
        random.pick(&ROLES),
        random.below(256),
        random.pick(&AGENTS),
        random.next(),
    )
}
