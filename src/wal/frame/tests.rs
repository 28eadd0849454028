use super::*;

fn segment() -> SegmentHeader {
    SegmentHeader {
        identity: 0x1122_3344_5566_7788,
        number: 7,
        start: 1_000,
        base_seq: Seq(500),
        base_written_at: Timestamp(1_772_366_400_000),
        edit: 12,
    }
}

fn frame_header() -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Batch,
        first_seq: Seq(501),
        last_seq: Seq(503),
        written_at: Timestamp(1_772_366_400_250),
        settled: Timestamp(1_772_366_400_240),
        edit: 13,
    }
}

fn head_of(
    encoder: &Encoder,
    places: (u64, u64),
    header: &FrameHeader,
    payload: (usize, PayloadCrc),
) -> FrameHead {
    let mut head = FrameHead::empty();
    encoder.head(&mut head, places, header, payload);
    head
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_are_the_format() {
    let header = segment().encode();
    let expected = concat!(
        "6562627477616c00",
        "080000004cb4cf27",
        "8877665544332211",
        "0700000000000000",
        "e803000000000000",
        "f401000000000000",
        "000a45a99c010000",
        "0c00000000000000",
    );
    assert_eq!(hex(&header), expected);
    let encoder = Encoder::new(segment());
    let crc = PayloadCrc::of(b"payload");
    let head = head_of(&encoder, (1_234, 1_100), &frame_header(), (7, crc));
    let frame = [head.bytes(), b"payload"].concat();
    let expected = "1d07860102f403041402156a2c42565144d37061796c6f6164";
    assert_eq!(hex(&frame), expected);
    let note = SyncedNote {
        identity: segment().identity,
        position: 1_234,
    };
    assert_eq!(hex(&note.encode()), "d2040000000000009add3bfc");
    let mark = RingMark {
        identity: segment().identity,
    };
    assert_eq!(hex(&mark.encode()), "88776655443322112ef1341d00000000");
}

#[test]
fn no_frame_is_shorter_than_the_least() {
    let encoder = Encoder::new(segment());
    let header = FrameHeader {
        first_seq: segment().base_seq,
        last_seq: segment().base_seq,
        written_at: segment().base_written_at,
        settled: segment().base_written_at,
        edit: segment().edit,
        ..frame_header()
    };
    let head = head_of(&encoder, (1_000, 1_000), &header, (0, PayloadCrc::of(b"")));
    assert_eq!(head.bytes().len(), FRAME_LEN_MIN);
}

#[test]
fn a_segment_starts_at_a_position_that_leaves_room() {
    for (start, fits) in [
        (u64::MAX / 2, true),
        (u64::MAX / 2 + 1, false),
        (u64::MAX, false),
    ] {
        let header = SegmentHeader { start, ..segment() };
        assert_eq!(
            SegmentHeader::decode(&header.encode()).is_ok(),
            fits,
            "{start}"
        );
    }
}

#[test]
fn every_number_reads_back() {
    let extremes = [0, 1, 499, 500, 501, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    let encoder = Encoder::new(segment());
    for a in extremes {
        for b in extremes {
            let header = FrameHeader {
                kind: FrameKind::Relog,
                first_seq: Seq(a),
                last_seq: Seq(b),
                written_at: Timestamp(a),
                settled: Timestamp(b),
                edit: a,
            };
            let crc = PayloadCrc::of(b"");
            let head = head_of(&encoder, (a, a.min(b)), &header, (0, crc));
            let bytes = head.bytes();
            let decoded = Decoder::new(segment()).frame(a, bytes).unwrap();
            assert_eq!((decoded.header, decoded.watermark), (header, a.min(b)));
            assert_eq!((decoded.len, decoded.payload), (bytes.len(), &b""[..]));
        }
    }
}

#[test]
fn a_frame_is_whole_and_in_its_place_or_refused() {
    let encoder = Encoder::new(segment());
    let crc = PayloadCrc::of(b"payload");
    let head = head_of(&encoder, (1_234, 1_100), &frame_header(), (7, crc));
    let frame = [head.bytes(), b"payload"].concat();
    let head_len = frame.len() - b"payload".len();
    let frames = Decoder::new(segment());
    assert_eq!(frames.frame(1_234, &frame).unwrap().header, frame_header());
    let refusal = |at: usize| match at {
        at if at < head_len => NoFrame::Nothing,
        _ => NoFrame::Unfinished,
    };
    for at in 0..frame.len() {
        assert_eq!(frames.frame(1_234, &frame[..at]), Err(refusal(at)));
        for bit in 0..8 {
            let mut bad = frame.clone();
            bad[at] ^= 1 << bit;
            assert_eq!(frames.frame(1_234, &bad), Err(refusal(at)));
        }
    }
    let other = |change: fn(&mut SegmentHeader)| {
        let mut header = segment();
        change(&mut header);
        header
    };
    for header in [
        other(|header| header.identity += 1),
        other(|header| header.number += 1),
    ] {
        let found = Decoder::new(header).frame(1_234, &frame);
        assert_eq!(found, Err(NoFrame::Nothing));
    }
    for position in [1_233, 1_235, 1_234 + (1 << 32)] {
        assert_eq!(frames.frame(position, &frame), Err(NoFrame::Nothing));
    }
}

#[test]
fn a_header_is_whole_or_refused() {
    let bytes = segment().encode();
    assert_eq!(SegmentHeader::decode(&bytes).unwrap(), segment());
    for at in 0..HEADER_LEN {
        let mut bad = bytes;
        bad[at] ^= 1;
        assert!(SegmentHeader::decode(&bad).is_err(), "flipped byte {at}");
        assert!(SegmentHeader::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
    let mut newer = bytes;
    newer[8] = 9;
    let crc = header_crc(&newer);
    newer[CRC_AT..IDENTITY_AT].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(
        SegmentHeader::decode(&newer),
        Err(HeaderFault::Version(9))
    ));
    let mut before = bytes;
    before[8] = 6;
    let crc = header_crc(&before);
    before[CRC_AT..IDENTITY_AT].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&before).unwrap(), segment());
}
