//! The bytes of a simulated file, of which most may be zeros: reserved room takes no memory, and a copy of a file shares
//! what neither has written since.
//!
//! ```text
//! page 0 | none | page 2 | none ...   up to `len`
//! ```
//!
//! * A page that is not there is zeros.
//! * Behind `len` a page is zeros, so that a file which grows shows nothing that was cut off.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The unit that a power cut keeps or loses as a whole.
pub(super) const SECTOR: usize = 512;
/// Whole sectors, as many as a page of the machine has.
pub(super) const PAGE: usize = 8 * SECTOR;

#[derive(Clone, Default)]
pub(super) struct Image {
    len: usize,
    pages: BTreeMap<usize, Arc<[u8; PAGE]>>,
}

/// The pieces of a range that lie in one page each: the page, the place in it, the place in the range.
fn pieces(range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    let (start, end) = (range.start, range.end);
    let firsts = (start / PAGE..end.div_ceil(PAGE)).filter(move |_| start < end);
    firsts.map(move |page| {
        let from = start.max(page * PAGE);
        let to = end.min((page + 1) * PAGE);
        let within = from - page * PAGE..to - page * PAGE;
        (page, within, from - start..to - start)
    })
}

impl Image {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Cuts the file off, or adds zeros.
    pub(super) fn resize(&mut self, len: usize) {
        if len < self.len {
            self.clear(len..self.len);
        }
        self.len = len;
    }

    /// Makes bytes zeros, and drops the pages that the range covers.
    pub(super) fn clear(&mut self, range: Range<usize>) {
        assert!(range.end <= self.len, "within the file");
        let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        self.pages.retain(|page, _| !whole.contains(page));
        // The rest of the range lies in its first and in its last page.
        for at in [range.start / PAGE, range.end / PAGE] {
            if let Some(page) = self.pages.get_mut(&at) {
                let from = range.start.max(at * PAGE) - at * PAGE;
                let to = range.end.clamp(at * PAGE, (at + 1) * PAGE) - at * PAGE;
                if from < to {
                    Arc::make_mut(page)[from..to].fill(0);
                }
            }
        }
    }

    /// Writes bytes, up to the end of the file at most.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "within the file");
        for (page, within, piece) in pieces(offset..offset + bytes.len()) {
            let page = self.pages.entry(page);
            let page = page.or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within].copy_from_slice(&bytes[piece]);
        }
    }

    /// Copies bytes out, all of which the file has.
    pub(super) fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(offset + out.len() <= self.len, "within the file");
        out.fill(0);
        self.read_over_zeros(offset, out);
    }

    /// So many bytes, if the file has them.
    pub(super) fn get(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        offset.checked_add(len).filter(|&end| end <= self.len)?;
        // Of zeros that are asked for, the system makes no page before it is touched.
        let mut bytes = vec![0; len];
        self.read_over_zeros(offset, &mut bytes);
        Some(bytes)
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        self.get(0, self.len).expect("the file has its length")
    }

    fn read_over_zeros(&self, offset: usize, out: &mut [u8]) {
        let end = offset + out.len();
        let there = self
            .pages
            .range(offset / PAGE..end.div_ceil(PAGE).max(offset / PAGE));
        for (&at, page) in there {
            let from = offset.max(at * PAGE);
            let to = end.min((at + 1) * PAGE);
            let piece = &page[from - at * PAGE..to - at * PAGE];
            out[from - offset..to - offset].copy_from_slice(piece);
        }
    }

    /// Copies the bytes of a range from a file of at least its length.
    pub(super) fn copy(&mut self, from: &Image, range: Range<usize>) {
        let mut bytes = [0; SECTOR];
        for at in range.clone().step_by(SECTOR) {
            let piece = &mut bytes[..SECTOR.min(range.end - at)];
            from.read(at, piece);
            self.write(at, piece);
        }
    }

    /// The first bytes of the sectors in which the files may differ, in their order.
    pub(super) fn differing(images: [&Image; 3]) -> Vec<usize> {
        let [first, ..] = images;
        let mut pages: Vec<usize> = images
            .iter()
            .flat_map(|image| image.pages.keys().copied())
            .filter(|page| {
                let of = |image: &Image| image.pages.get(page).map(Arc::as_ptr);
                images.iter().any(|image| of(image) != of(first))
            })
            .collect();
        pages.sort_unstable();
        pages.dedup();
        let sectors = pages.iter().flat_map(|page| {
            let sectors = (page * PAGE..(page + 1) * PAGE).step_by(SECTOR);
            sectors.filter(|&at| at < first.len)
        });
        sectors.collect()
    }
}
