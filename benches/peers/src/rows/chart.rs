//! How many times as fast as each peer Ebbtide is, as one SVG: a bar a row and peer, from 1 on, on a logarithmic scale.
//!
//! ```text
//!   1 000 000 items of 16 + 100 bytes           peer ── peer ──
//!   get, present        |▆▆▆▆▆▆▆▆ 5.1
//!                       |▆▆▆ 2.2
//!   synced puts       ▆▆| 0.9
//!                       1
//! ```

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Outcome;
use super::table::{Group, Line, amount, title};
use crate::Result;
use crate::chart::{Area, GRID, INK, WIDTH, color, font};
use crate::engines::Kind;

const HEAD_HEIGHT: u32 = 62;
const BAR_HEIGHT: u32 = 8;
const GAP: u32 = 9;
const FOOT: u32 = 14;
/// Where bars may lie: titles stand left of it, and a figure still fits behind the longest bar.
const BARS: std::ops::Range<i32> = 270..WIDTH as i32 - 60;

/// Draws all scales.
pub fn draw(outcomes: &[Outcome], svg: &Path) -> Result<()> {
    let groups = Group::of_all(outcomes);
    let heights: Vec<u32> = groups.iter().map(height).collect();
    let root = SVGBackend::new(svg, (WIDTH, heights.iter().sum())).into_drawing_area();
    root.fill(&WHITE)?;
    let mut rest = root.clone();
    for (group, height) in groups.iter().zip(heights) {
        let (area, below) = rest.split_vertically(height);
        draw_group(&area, group)?;
        rest = below;
    }
    root.present()?;
    Ok(())
}

fn lines(group: &Group<'_>) -> Vec<Line> {
    let mut lines = group.lines();
    lines.retain(|(row, _)| row.is_compared());
    lines
}

fn line_height(peers: usize) -> u32 {
    BAR_HEIGHT * peers as u32 + GAP
}

fn height(group: &Group<'_>) -> u32 {
    HEAD_HEIGHT + line_height(group.peers().len()) * lines(group).len() as u32 + FOOT
}

/// A logarithmic scale over all ratios and 1. Bars of what lies beyond [`WORTH`] end there, and only the figure tells.
struct Scale {
    least: f64,
    most: f64,
}

const WORTH: std::ops::RangeInclusive<f64> = 0.4..=50.0;

impl Scale {
    fn of(ratios: impl Iterator<Item = f64>) -> Scale {
        let start = Scale {
            least: 1.0,
            most: 2.0,
        };
        ratios.fold(start, |scale, ratio| Scale {
            least: scale.least.min(ratio).max(*WORTH.start()),
            most: scale.most.max(ratio).min(*WORTH.end()),
        })
    }

    fn place(&self, ratio: f64) -> i32 {
        let share = (ratio / self.least).ln() / (self.most / self.least).ln();
        let width = f64::from(BARS.end - BARS.start);
        BARS.start + (share.clamp(0.0, 1.0) * width) as i32
    }
}

fn draw_group(area: &Area<'_>, group: &Group<'_>) -> Result<()> {
    let (lines, peers) = (lines(group), group.peers());
    let ratios = |line: Line| {
        peers
            .iter()
            .filter_map(move |peer| group.ratio(line, *peer))
    };
    let scale = Scale::of(lines.iter().flat_map(|line| ratios(*line)));
    let bottom = (height(group) - FOOT) as i32;
    area.draw(&Text::new(group.title(), (24, 10), font(18)))?;
    draw_legend(area, &peers)?;
    for times in [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0] {
        if times < scale.least || times > scale.most {
            continue;
        }
        let x = scale.place(times);
        let ink = if times == 1.0 {
            INK.mix(0.6)
        } else {
            GRID.mix(1.0)
        };
        area.draw(&PathElement::new(
            [(x, HEAD_HEIGHT as i32), (x, bottom)],
            ink,
        ))?;
        let style = font(12).pos(Pos::new(HPos::Center, VPos::Bottom));
        let text = format!("{times} x");
        area.draw(&Text::new(text, (x, HEAD_HEIGHT as i32 - 3), style))?;
    }
    for (n, line) in lines.iter().enumerate() {
        let top = HEAD_HEIGHT + line_height(peers.len()) * n as u32 + GAP / 2;
        draw_line(area, top as i32, *line, group, &scale)?;
    }
    Ok(())
}

fn draw_legend(area: &Area<'_>, peers: &[Kind]) -> Result<()> {
    let style = || font(14).pos(Pos::new(HPos::Left, VPos::Center));
    let text = "Ebbtide, times as fast as";
    area.draw(&Text::new(text, (BARS.start + 190, 20), style()))?;
    let mut x = BARS.start + 375;
    for peer in peers {
        area.draw(&Rectangle::new(
            [(x, 17), (x + 18, 23)],
            color(*peer).filled(),
        ))?;
        area.draw(&Text::new(peer.name(), (x + 24, 20), style()))?;
        x += 46 + 8 * peer.name().len() as i32;
    }
    Ok(())
}

fn draw_line(
    area: &Area<'_>,
    top: i32,
    line: Line,
    group: &Group<'_>,
    scale: &Scale,
) -> Result<()> {
    let (peers, bar) = (group.peers(), BAR_HEIGHT as i32);
    let middle = top + bar * peers.len() as i32 / 2;
    let left = font(13).pos(Pos::new(HPos::Right, VPos::Center));
    area.draw(&Text::new(title(line), (BARS.start - 30, middle), left))?;
    for (n, peer) in peers.iter().enumerate() {
        let Some(ratio) = group.ratio(line, *peer) else {
            continue;
        };
        let (one, end, top) = (scale.place(1.0), scale.place(ratio), top + bar * n as i32);
        let corners = [
            (one.min(end), top),
            (one.max(end).max(one + 1), top + bar - 1),
        ];
        area.draw(&Rectangle::new(corners, color(*peer).filled()))?;
        let right = font(10).pos(Pos::new(HPos::Left, VPos::Center));
        let place = (one.max(end) + 4, top + bar / 2);
        area.draw(&Text::new(amount(ratio), place, right))?;
    }
    Ok(())
}
