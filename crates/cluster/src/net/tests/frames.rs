//! The bytes of frames.

use super::*;
use crate::net::frame::{self, Frame, HEAD_BYTES, What, decode};

fn example() -> Frame {
    Frame {
        what: What::Request,
        kind: 0x19,
        format: 0x0a0b,
        within_ms: 0x0c0d_0e0f,
        id: 0x1011_1213_1415_1617,
        cluster: 0x1819_1a1b_1c1d_1e1f_2021_2223_2425_2627,
        from: 0x2829_2a2b_2c2d_2e2f,
        to: 0x3031_3233_3435_3637,
        wall_ms: 0x3839_3a3b_3c3d_3e3f,
        body: Bytes::from_static(b"body"),
    }
}

#[test]
fn golden() {
    let frame = example();
    let hex: String = frame
        .head()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let expected = concat!(
        "45424e01",
        "04000000",
        "01",
        "19",
        "0b0a",
        "0f0e0d0c",
        "1716151413121110",
        "27262524232221201f1e1d1c1b1a1918",
        "2f2e2d2c2b2a2928",
        "3736353433323130",
        "3f3e3d3c3b3a3938",
        "",
    );
    assert_eq!(hex[..128], *expected);
    let mut bytes = BytesMut::from(&frame.head()[..]);
    bytes.extend_from_slice(b"bodyEBN");
    assert_eq!(decode(&mut bytes), Ok(Some(frame)));
    assert_eq!(bytes, "EBN");
}

#[test]
fn a_frame_is_the_same_however_its_bytes_arrive() {
    let long = Frame {
        body: noise(40_000),
        ..example()
    };
    let whole = [&example().head()[..], b"body", &long.head(), &long.body].concat();
    for step in [1, 7, 71, 72, 73, 5_000] {
        let (mut bytes, mut read) = (BytesMut::new(), vec![]);
        for part in whole.chunks(step) {
            bytes.extend_from_slice(part);
            while let Some(frame) = decode(&mut bytes).unwrap() {
                read.push(frame);
            }
        }
        assert_eq!(read, [example(), long.clone()]);
        assert!(bytes.is_empty());
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let whole = [&example().head()[..], b"body"].concat();
    for bit in 0..whole.len() * 8 {
        let mut bytes = BytesMut::from(&whole[..]);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&mut bytes).is_err(), "bit {bit}");
    }
    for len in 0..whole.len() {
        assert_eq!(decode(&mut BytesMut::from(&whole[..len])), Ok(None));
    }
}

#[test]
fn random_bytes_are_never_a_panic() {
    for seed in 0..20_000 {
        let mut bytes = BytesMut::from(&noise(1 + seed % 300)[..]);
        // Half of them begin as a frame does.
        if seed % 2 == 0 && bytes.len() > 4 {
            bytes[..4].copy_from_slice(b"EBN\x01");
        }
        if let Ok(Some(frame)) = decode(&mut bytes) {
            panic!("{frame:?}");
        }
    }
    assert_eq!(HEAD_BYTES, 72);
    assert_eq!(frame::MOST_BODY, 16 << 20);
}
