//! Frames between the nodes of a cluster. Apart from src/, which the engine's own tests include: those know nothing of nodes.

use bytes::BytesMut;

use super::frame::{Frame, HEAD_BYTES, decode};

/// Bytes on a connection, behind a byte that says in which steps, and whether checksums are put right, so that more than
/// the checksum is tried. However it arrives the frames are the same; one that is read writes the same bytes again.
pub fn cluster_frame(data: &[u8]) {
    let Some((&choices, bytes)) = data.split_first() else {
        return;
    };
    let mut bytes = bytes.to_vec();
    if choices & 1 == 1 {
        put_right(&mut bytes);
    }
    let (whole, read) = frames(&bytes, bytes.len().max(1));
    let (in_steps, _) = frames(&bytes, usize::from(choices >> 1) + 1);
    assert_eq!(whole, in_steps);
    let again = whole.iter().flat_map(|frame| {
        let head = frame.head();
        head.into_iter().chain(frame.body.iter().copied())
    });
    assert!(again.eq(bytes[..read].iter().copied()));
}

/// The frames, and how many bytes they are.
fn frames(bytes: &[u8], step: usize) -> (Vec<Frame>, usize) {
    let (mut arrived, mut frames, mut read) = (BytesMut::new(), vec![], 0);
    for part in bytes.chunks(step) {
        arrived.extend_from_slice(part);
        loop {
            match decode(&mut arrived) {
                Ok(Some(frame)) => {
                    read += HEAD_BYTES + frame.body.len();
                    frames.push(frame);
                }
                Ok(None) => break,
                Err(_) => return (frames, read),
            }
        }
    }
    (frames, read)
}

/// Puts the beginnings and checksums of all frames right, as far as their lengths lead.
fn put_right(bytes: &mut [u8]) {
    let mut rest = bytes;
    while rest.len() >= HEAD_BYTES {
        rest[..4].copy_from_slice(b"EBN\x01");
        let len = u32::from_le_bytes(rest[4..8].try_into().expect("four bytes")) as usize;
        let end = (HEAD_BYTES + len).min(rest.len());
        let crc = crc32fast::hash(&rest[HEAD_BYTES..end]);
        rest[HEAD_BYTES - 8..HEAD_BYTES - 4].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&rest[..HEAD_BYTES - 4]);
        rest[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        rest = &mut rest[end..];
    }
}
