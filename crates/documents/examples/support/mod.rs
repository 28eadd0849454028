//! The documents that are measured.

/// An order, of about 280 bytes.
pub fn document(at: u64) -> String {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    format!(
        r#"{{"id":"order-{at:09}","customer":"customer-{}","placed":"2026-03-01T09:{:02}:00Z","total":{}.{:02},"paid":{},"address":{{"street":"{} High Street","city":"city-{}","postcode":"{:05}"}},"tags":["tag-{}","tag-{}"],"note":"please leave it at the door, behind the green pots","ttl":86400}}"#,
        mixed % 1_000,
        mixed % 60,
        mixed % 997,
        mixed % 100,
        mixed.is_multiple_of(2),
        mixed % 90,
        mixed % 50,
        mixed % 100_000,
        mixed % 5,
        mixed % 7,
    )
}
