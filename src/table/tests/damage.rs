//! Damaged bytes: the result is an error or the right answer, never a wrong one, never a panic.

use super::*;
use crate::data::cursor::{Cursor, Position, Seek};
use crate::table::encode::block::TRAILER_LEN;
use crate::table::encode::format::{FOOTER_LEN, FORMAT_VERSION, checksum};
use crate::table::encode::index::Index;

/// Some blocks, versions, tombstones, and a large value that compresses well, because a long checksum is slow in Miri.
fn records() -> Vec<Record> {
    let mut records = vec![];
    for i in 0..12u64 {
        let key = format!("key{i:02}").into_bytes();
        let ttl = [ItemTtl::Absent, ItemTtl::Never, ItemTtl::Millis(77)][i as usize % 3];
        records.push(put(&key, 20 + i, 100 + i, ttl, &[i as u8; 24]));
        if i % 4 == 1 {
            records.push(tombstone(&key, 10, 50));
            records.push(put(&key, 9, 40, ItemTtl::Absent, b"old"));
        }
        if i == 6 && !cfg!(miri) {
            records.push(put(&key, 8, 40, ItemTtl::Absent, &[5; 17_000]));
        }
    }
    records
}

/// Makes every read: each result is right or an error about damage.
fn read_all(table: &Arc<Table>, records: &[Record]) {
    let damage = |error: Error| assert!(error.is_corruption(), "{error}");
    for record in records {
        let (key, seq) = (&record.key, record.header.seq);
        match table.get(hash_key(key), key, seq) {
            Ok(found) => {
                let found = found.expect("a key does not vanish");
                assert_eq!(found.header, record.header);
                found
                    .value::<Wait>()
                    .map_or_else(damage, |value| assert_eq!(value, record.value));
            }
            Err(error) => damage(error),
        }
    }
    match table.get(hash_key(b"none"), b"none", Seq::MAX) {
        Ok(found) => assert!(found.is_none()),
        Err(error) => damage(error),
    }
    for forward in [true, false] {
        let mut cursor = table.cursor();
        let to = if forward { Seek::First } else { Seek::Last };
        let mut left: Vec<_> = records.iter().collect();
        let mut result = cursor.seek(to, None);
        while result.is_ok() && cursor.position() != Position::End {
            let expected = if forward {
                left.remove(0)
            } else {
                left.pop().unwrap()
            };
            assert_eq!(cursor.position(), Position::Record(record_ref(expected)));
            match cursor.value() {
                Ok(value) => assert_eq!(value, expected.value),
                Err(error) => damage(error),
            }
            result = if forward {
                cursor.advance(None)
            } else {
                cursor.retreat(None)
            };
        }
        match result {
            Ok(()) => assert!(left.is_empty()),
            Err(error) => {
                damage(error);
                assert_eq!(cursor.position(), Position::End);
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    for &compression in COMPRESSIONS {
        let records = records();
        let (bytes, finished) = build(5, &records, options(128, compression));
        read_all(&open(bytes.clone(), &finished, None).unwrap(), &records);
        // The uncompressed value is one long checksum: a few of its bytes stand for all.
        let large = if compression == Compression::None && !cfg!(miri) {
            16_000
        } else {
            0
        };
        let places = (0..bytes.len()).filter(|&at| at >= large || at % 997 == 0);
        let (each, bits) = if cfg!(miri) { (211, 3..4) } else { (1, 0..8) };
        for at in places.step_by(each) {
            for bit in bits.clone() {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 1 << bit;
                match open(Bytes::from(damaged), &finished, Some(1 << 16)) {
                    Ok(table) => {
                        read_all(&table, &records);
                        let error = table.verify().expect_err("verify reads every byte");
                        assert!(error.is_corruption(), "byte {at}, bit {bit}: {error}");
                    }
                    Err(error) => assert!(error.is_corruption(), "byte {at}, bit {bit}: {error}"),
                }
            }
        }
    }
}

#[test]
fn a_table_that_is_cut_short_does_not_open() {
    let (bytes, finished) = build(5, &records(), options(128, Compression::Lz4));
    for len in 0..bytes.len() {
        let mut shorter = finished.clone();
        for expected_len in [finished.len, len as u64] {
            shorter.len = expected_len;
            let error = open(bytes.slice(..len), &shorter, None)
                .err()
                .expect("cut short");
            assert!(error.is_corruption(), "cut at {len}: {error}");
        }
    }
}

/// Makes every checksum right again: of the ranges listed, each of which ends with its own, in order, and of the parts.
fn reseal(bytes: &mut [u8], sealed: &[(usize, usize)]) -> u32 {
    let footer_at = bytes.len() - FOOTER_LEN;
    let identity = u64::from_le_bytes(bytes[footer_at..][..8].try_into().unwrap());
    for &(start, end) in sealed {
        let crc = checksum(identity, start as u64, &[&bytes[start..end - 4]]);
        bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
    }
    let at = |field: usize| {
        u64::from_le_bytes(bytes[footer_at + field..][..8].try_into().unwrap()) as usize
    };
    let (filter, index, statistics) = (at(16), at(24), at(32));
    for (field, part) in [
        (40, filter..index),
        (44, index..statistics),
        (48, statistics..footer_at),
    ] {
        if let Some(covered) = bytes.get(part.clone()) {
            let crc = checksum(identity, part.start as u64, &[covered]);
            bytes[footer_at + field..][..4].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let crc = crc32fast::hash(&bytes[footer_at..footer_at + 60]);
    bytes[footer_at + 60..][..4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Makes every read, and ignores the results.
fn read_anything(table: &Arc<Table>, records: &[Record]) {
    for record in records {
        if let Ok(Some(found)) = table.get(hash_key(&record.key), &record.key, Seq(15)) {
            let _ = found.value::<Wait>();
        }
    }
    for to in [
        Seek::First,
        Seek::AtOrAfter(b"key05"),
        Seek::Last,
        Seek::Before(b"key07"),
    ] {
        let mut cursor = table.cursor();
        let mut result = cursor.seek(to, None);
        while result.is_ok() && cursor.position() != Position::End {
            let _ = cursor.value();
            result = if to.is_forward() {
                cursor.advance(None)
            } else {
                cursor.retreat(None)
            };
        }
    }
    let _ = table.verify();
}

/// Goal: no panic, no endless loop and no huge allocation, even where checksums match. Method: a few bytes are changed
/// at random, near each other or far apart, then the checksums are made right.
#[test]
fn wrong_bytes_under_right_checksums_do_not_panic() {
    let (mut opened, tries) = (0, if cfg!(miri) { 2 } else { 6_000 });
    for (seed, &compression) in COMPRESSIONS.iter().enumerate() {
        let records = records();
        let (bytes, mut finished) = build(5, &records, options(128, compression));
        let table = open(bytes.clone(), &finished, None).unwrap();
        let index = table.index().unwrap();
        let blocks: Vec<(usize, usize)> = (0..index.len())
            .map(|number| table.place(number).unwrap())
            .map(|place| (place.start as usize, place.end as usize))
            .collect();
        assert!(blocks.iter().all(|(start, end)| end - start > TRAILER_LEN));
        let at = table.footer.index_at as usize;
        let pages = (0..index.top().len()).map(|page| index.sealed_page(page).place);
        let part = &bytes[at..table.footer.statistics_at as usize];
        let top = Index::sealed_top(part).unwrap().place;
        let of_index = pages.chain([top]);
        let of_index = of_index.map(|place| (at + place.start, at + place.end + 4));
        let sealed: Vec<(usize, usize)> = blocks.iter().copied().chain(of_index).collect();
        let random = &mut Random(seed as u64);
        for _ in 0..tries {
            let mut wrong = bytes.to_vec();
            let skipped = if random.one_in(4) {
                0
            } else {
                blocks[0].0.min(16_900)
            };
            for _ in 0..1 + random.below(3) {
                let at = skipped + random.below(wrong.len() - skipped);
                wrong[at] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6)];
            }
            finished.crc = reseal(&mut wrong, &sealed);
            if let Ok(table) = open(Bytes::from(wrong), &finished, None) {
                read_anything(&table, &records);
                opened += 1;
            }
        }
    }
    assert!(opened > tries / 2, "{opened} opened");
}

/// Goal: a table of another version is refused, not misread. Method: the version is changed, and the checksum with it.
#[test]
fn another_version_is_refused() {
    let (bytes, finished) = build(1, &records(), options(64, Compression::None));
    for version in [FORMAT_VERSION - 1, FORMAT_VERSION + 1] {
        let mut bytes = bytes.to_vec();
        let footer = bytes.len() - FOOTER_LEN;
        bytes[footer + 56..footer + 60].copy_from_slice(&version.to_le_bytes());
        let crc = crc32fast::hash(&bytes[footer..footer + 60]);
        bytes[footer + 60..footer + 64].copy_from_slice(&crc.to_le_bytes());
        let error = open(bytes.into(), &finished, None)
            .err()
            .expect("it is refused");
        assert!(
            matches!(error, Error::UnsupportedFormat { found, supported, .. }
                if (found, supported) == (version, FORMAT_VERSION)),
            "{error}"
        );
    }
}
