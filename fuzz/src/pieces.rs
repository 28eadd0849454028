//! The pieces of files, without the checksums that stand before them: so every byte counts.

use std::path::Path;

use bytes::Bytes;
use ebbtide::internals::pieces::{
    Decoder, Encoder, Footer, FrameHead, Index, Layout, SegmentHeader, Share, Trailer,
    build_filter, may_contain,
};
use ebbtide::internals::{
    ByteReader, PayloadCrc, Seek, Seq, Timestamp, hash_key, put_frame, read_frame,
};

use super::input::Input;

/// Frames of the log and of the manifest, and the head of a segment. Each has one spelling.
pub fn frame(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(3) {
        0 => log_frame(&mut input),
        1 => {
            let bytes = input.rest();
            if let Ok(header) = SegmentHeader::decode(bytes) {
                let again = header.encode();
                // One of the format before has another version, and so another checksum.
                let is_older = bytes[8] == 6 && bytes[16..].starts_with(&again[16..]);
                assert!(bytes.starts_with(&again) || is_older);
            }
        }
        _ => {
            let sealed = input.flag();
            let mut bytes = input.rest().to_vec();
            if let Some((start, payload)) = bytes.split_at_mut_checked(8)
                && sealed
            {
                start[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
                let crc = crc32fast::hash(&[&start[..4], payload].concat());
                start[4..].copy_from_slice(&crc.to_le_bytes());
            }
            let mut reader = ByteReader::new(&bytes);
            match read_frame(&mut reader) {
                Ok(payload) => {
                    let mut again = vec![];
                    put_frame(&mut again, payload);
                    assert_eq!(again, bytes[..reader.offset()]);
                }
                Err(_) => assert!(!sealed || bytes.len() < 8),
            }
        }
    }
}

fn log_frame(input: &mut Input<'_>) {
    let segment = SegmentHeader {
        identity: input.u64(),
        number: input.any_size(),
        start: 0,
        base_seq: Seq(input.any_size()),
        base_written_at: Timestamp(input.any_size()),
        edit: input.any_size(),
    };
    let (position, payload_len) = (input.any_size() >> 1, input.below(32));
    let payload = input.take(payload_len);
    // The payload's and the head's checksums are made right where the numbers end, four varints and more behind the
    // first byte.
    let mut bytes = input.take(71).to_vec();
    let numbers = bytes.iter().enumerate().skip(1);
    let seldom = bytes.first().map_or(0, |first| first >> 2 & 7);
    let last = 3 + seldom.count_ones() as usize;
    let ends = numbers.filter(|(_, byte)| **byte < 0x80).nth(last);
    if let Some((end, _)) = ends {
        bytes.truncate(end + 1);
        bytes.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let place = [segment.identity, segment.number, position].map(u64::to_le_bytes);
        let crc = crc32fast::hash(&[&place.concat(), &bytes[..]].concat());
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(payload);
    }
    bytes.extend_from_slice(input.rest());
    if let Ok(found) = Decoder::new(segment).frame(position, &bytes) {
        let crc = PayloadCrc::of(found.payload);
        let encoder = Encoder::new(segment);
        let of_payload = (found.payload.len(), crc);
        let mut head = FrameHead::empty();
        encoder.head(
            &mut head,
            (position, found.watermark),
            &found.header,
            of_payload,
        );
        assert_eq!([head.bytes(), found.payload].concat(), bytes[..found.len]);
        // Elsewhere it is none.
        assert!(Decoder::new(segment).frame(position + 1, &bytes).is_err());
    }
}

/// A body of records. What is found is what was asked for.
pub fn block(data: &[u8]) {
    let mut input = Input::new(data);
    let max = Seq(input.any_size());
    let body = input.rest();
    let _ = Trailer::read(body);
    let Ok(layout) = Layout::of(body) else {
        return;
    };
    let block = layout.block(body);
    for index in 0..layout.count().min(64) {
        let (Ok(key), Ok(entry)) = (block.key(index), block.entry(index)) else {
            continue;
        };
        assert_eq!(&body[entry.key()], key);
        match entry.value() {
            Some(value) => assert_eq!(body[value].len(), entry.value_len()),
            None => drop(block.extent(index)),
        }
        for max in [Seq::MAX, max, entry.header.seq] {
            if let Ok(Some((at, found))) = block.find(hash_key(key), key, max) {
                assert_eq!((block.key(at), found.header.seq <= max), (Ok(key), true));
            }
        }
        for to in [Seek::AtOrAfter(key), Seek::After(key)] {
            // Any share: it says only where to look first.
            let share = Share(entry.header.seq.0 as u16);
            let mut search = block.search(to, share);
            while search.found().is_none() && block.narrow(&mut search, to).is_ok() {}
            assert!(search.found().is_none_or(|found| found <= layout.count()));
        }
    }
}

/// An index that opens answers every question with one of its rows.
pub fn index(data: &[u8]) {
    let mut input = Input::new(data);
    let (blocks, data_end) = (input.any_size() & 0xffff, input.any_size());
    let part = Bytes::copy_from_slice(input.rest());
    if let Ok(sealed) = Index::sealed_top(&part) {
        assert!(sealed.place.end <= part.len());
    }
    let Ok(index) = Index::open(part.clone(), blocks) else {
        return;
    };
    assert_eq!(index.len() as u64, blocks);
    for number in 0..index.top().len() {
        let place = index.sealed_page(number).place;
        assert!(place.end <= part.len());
        let Ok(page) = index.open_page(number, data_end) else {
            continue;
        };
        assert_eq!(page.len(), index.blocks_of(number).len());
        assert_eq!(index.page_of(index.blocks_of(number).start), number);
        for row in 0..page.len() {
            let (first, last) = (page.first_key(row), page.last_key(row));
            assert!(page.place(row).end <= data_end);
            assert!(page.census(row).total().count > 0);
            assert_eq!(page.find(first), Some(row));
            assert!(page.find(last).is_some_and(|found| found >= row));
            for to in [Seek::AtOrAfter(first), Seek::AtOrBefore(last)] {
                assert!(page.row_for(to).is_some());
            }
            for to in [Seek::AtOrAfter(first), Seek::After(last)] {
                let about = page.row_about(to).expect("forwards there is one");
                assert!(page.row_for(to).is_none_or(|found| found - about <= 1));
            }
            for to in [Seek::After(last), Seek::Before(first)] {
                assert!(page.row_for(to).is_none_or(|found| found < page.len()));
            }
        }
    }
}

/// A filter denies nothing that is in it, and takes any bytes for one.
pub fn filter(data: &[u8]) {
    let mut input = Input::new(data);
    let others = input.below(16);
    let mut hashes: Vec<u64> = (0..others).map(|_| input.u64()).collect();
    let rest = input.rest();
    let blocks = rest.len() / 32 * 32;
    if blocks > 0 {
        hashes.iter().for_each(|&hash| {
            may_contain(&rest[..blocks], hash);
        });
    }
    hashes.extend(rest.chunks(3).map(hash_key));
    hashes.sort_unstable();
    hashes.dedup();
    if !hashes.is_empty() {
        let filter = build_filter(&hashes);
        assert!(hashes.iter().all(|&hash| may_contain(&filter, hash)));
    }
}

/// The end of a table's file has one spelling. If the first byte is odd, its checksum is made right first.
pub fn footer(data: &[u8]) {
    let mut input = Input::new(data);
    let forged = input.flag();
    let mut bytes = input.rest().to_vec();
    if let Some(tail) = bytes.last_chunk_mut::<72>()
        && forged
    {
        tail[64..].copy_from_slice(b"ebbtable");
        let crc = crc32fast::hash(&tail[..60]);
        tail[60..64].copy_from_slice(&crc.to_le_bytes());
    }
    let (tail, len) = (&bytes[bytes.len().saturating_sub(72)..], bytes.len() as u64);
    if let Ok((footer, crc)) = Footer::read(tail, len, Path::new("/table")) {
        let (again, again_crc) = footer.encode();
        assert!(bytes.ends_with(&again) && crc == again_crc);
        assert!(footer.statistics_at < bytes.len() as u64);
    }
}
