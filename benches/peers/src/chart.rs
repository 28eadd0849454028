//! Summaries and samples as one SVG: a row a load.
//!
//! ```text
//!   field, memtables of 64 MiB        engine ── engine ── live ▒▒
//!   MiB on disk                                p99.9, ms
//!   │   ╱╲╱╲                                   ebbtide ▆▆
//!   │▒▒▒▒▒▒▒▒▒▒▒______                         rocksdb ▆▆▆▆▆▆▆▆
//!   └────────────────── s                      fjall   ▆▆▆▆
//! ```
//!
//! The dashed line is the end of the load.

use std::fs;
use std::path::Path;

use clap::ValueEnum;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Result;
use crate::engines::Kind;
use crate::summary::{Sample, Summary};
use crate::table::{Group, MIB, Spread, groups, rows};

/// A part of the drawing.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Of any drawing, in pixels.
pub const WIDTH: u32 = 1_040;
const ROW_HEIGHT: u32 = 330;
const LEGEND_HEIGHT: u32 = 44;
const SERIES_WIDTH: u32 = 690;

/// Text.
pub const INK: RGBColor = RGBColor(33, 37, 41);
/// Lines behind the data.
pub const GRID: RGBColor = RGBColor(233, 236, 239);
const LIVE: RGBColor = RGBColor(206, 212, 218);

/// The colour of an engine.
pub fn color(kind: Kind) -> RGBColor {
    match kind {
        Kind::Ebbtide => RGBColor(11, 114, 133),
        Kind::Rocksdb => RGBColor(217, 72, 15),
        Kind::RocksdbPeriodic => RGBColor(240, 140, 0),
        Kind::RocksdbFifo => RGBColor(148, 92, 40),
        Kind::Fjall => RGBColor(134, 46, 156),
        Kind::FjallFifo => RGBColor(218, 119, 242),
        Kind::Redb => RGBColor(201, 42, 42),
        Kind::Lmdb => RGBColor(92, 124, 50),
        Kind::RocksdbTuned => RGBColor(30, 80, 170),
        Kind::RocksdbBlobs => RGBColor(120, 160, 220),
        Kind::LmdbChecksums => RGBColor(150, 176, 108),
    }
}

/// Text of a size in pixels.
pub fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Draws all loads of a folder.
pub fn draw(summaries: &[Summary], folder: &Path, svg: &Path) -> Result<()> {
    let groups = groups(summaries);
    if groups.is_empty() {
        return Err("the folder holds no summary".into());
    }
    let height = LEGEND_HEIGHT + ROW_HEIGHT * groups.len() as u32;
    let root = SVGBackend::new(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (legend, loads) = root.split_vertically(LEGEND_HEIGHT);
    draw_legend(&legend, summaries)?;
    for (area, group) in loads.split_evenly((groups.len(), 1)).iter().zip(groups) {
        draw_load(area, group, &rows(summaries, group), folder)?;
    }
    root.present()?;
    Ok(())
}

fn draw_legend(area: &Area<'_>, summaries: &[Summary]) -> Result<()> {
    let there = |kind: &&Kind| summaries.iter().any(|s| s.order.engine == **kind);
    let kinds = Kind::value_variants().iter().filter(there);
    let entries = kinds.map(|kind| (kind.name(), color(*kind)));
    let mut x = 24;
    for (name, color) in entries.chain([("live data", LIVE)]) {
        area.draw(&Rectangle::new([(x, 19), (x + 22, 25)], color.filled()))?;
        let style = font(15).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(name, (x + 29, 22), style))?;
        x += 58 + 8 * name.len() as i32;
    }
    Ok(())
}

fn draw_load(
    area: &Area<'_>,
    (name, memtable): Group,
    rows: &[(Kind, Vec<&Summary>)],
    folder: &Path,
) -> Result<()> {
    let plain = name.to_possible_value();
    let name = plain.as_ref().map_or("", |name| name.get_name());
    let title = format!("{name}, memtables of {} MiB", memtable as f64 / MIB);
    area.draw(&Text::new(title, (24, 8), font(18)))?;
    let (series, bars) = area.margin(32, 4, 0, 0).split_horizontally(SERIES_WIDTH);
    draw_series(&series, rows, folder)?;
    let (puts, gets) = bars.split_vertically((ROW_HEIGHT - 36) / 2);
    draw_bars(&puts, "put p99.9, logarithmic", rows, |s| s.put.p999_ms)?;
    draw_bars(&gets, "get p99.9, logarithmic", rows, |s| s.get.p999_ms)
}

/// Disk and live data over time, of each engine's first round.
fn draw_series(area: &Area<'_>, rows: &[(Kind, Vec<&Summary>)], folder: &Path) -> Result<()> {
    let mut series = Vec::new();
    for (kind, rounds) in rows {
        if let Some(summary) = rounds.first() {
            series.push((*kind, samples(summary, folder)?));
        }
    }
    let all = || series.iter().flat_map(|(_, samples)| samples);
    let last = all().map(|s| s.seconds).fold(1.0, f64::max);
    let most = all().map(|s| s.disk_bytes).max().unwrap_or(1) as f64 / MIB;
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(24)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..last, 0.0..most * 1.05)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .axis_style(INK.mix(0.4))
        .label_style(font(13))
        .axis_desc_style(font(13))
        .y_desc("MiB on disk")
        .x_desc("seconds")
        .y_label_formatter(&|mib| format!("{mib:.0}"))
        .x_label_formatter(&|seconds| format!("{seconds:.0}"))
        .draw()?;
    if let Some((_, samples)) = series.first() {
        let live = samples
            .iter()
            .map(|s| (s.seconds, s.live_bytes as f64 / MIB));
        chart.draw_series(AreaSeries::new(live, 0.0, LIVE.filled()))?;
    }
    if let Some(summary) = rows.first().and_then(|(_, rounds)| rounds.first()) {
        let end = [0.0, most * 1.05].map(|mib| (summary.seconds as f64, mib));
        let line = DashedLineSeries::new(end, 4, 4, INK.mix(0.5).stroke_width(1));
        chart.draw_series(line)?;
    }
    // The first engine is drawn last, above the others.
    for (kind, samples) in series.iter().rev() {
        let width = if *kind == Kind::Ebbtide { 3 } else { 2 };
        let disk = samples
            .iter()
            .map(|s| (s.seconds, s.disk_bytes as f64 / MIB));
        chart.draw_series(LineSeries::new(disk, color(*kind).stroke_width(width)))?;
    }
    Ok(())
}

fn samples(summary: &Summary, folder: &Path) -> Result<Vec<Sample>> {
    let name = summary.order.samples.file_name();
    let file = folder.join(name.ok_or("a summary names no samples")?);
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let lines = text.lines().map(serde_json::from_str);
    Ok(lines.collect::<serde_json::Result<_>>()?)
}

/// One bar an engine, on a logarithmic scale from a hundredth of a millisecond on.
fn draw_bars(
    area: &Area<'_>,
    title: &str,
    rows: &[(Kind, Vec<&Summary>)],
    of: fn(&Summary) -> f64,
) -> Result<()> {
    const LEAST_MS: f64 = 0.01;
    let medians = rows.iter().filter_map(|(kind, rounds)| {
        let spread = Spread::of(rounds.iter().map(|s| of(s)))?;
        Some((*kind, spread.median))
    });
    let medians: Vec<(Kind, f64)> = medians.collect();
    let most = medians.iter().map(|(_, ms)| *ms).fold(1.0, f64::max);
    let place = |ms: f64| (ms.max(LEAST_MS) / LEAST_MS).ln() / (most / LEAST_MS).ln();
    let (width, height) = area.dim_in_pixel();
    area.draw(&Text::new(title.to_owned(), (0, 0), font(14)))?;
    let room = (height as i32 - 30) / medians.len().max(1) as i32;
    let (from, longest) = (118, width as i32 - 118 - 90);
    for (n, (kind, ms)) in medians.iter().enumerate() {
        let middle = 22 + room * n as i32 + room / 2;
        let end = from + (place(*ms) * f64::from(longest)) as i32;
        let half = (room / 3).clamp(2, 8);
        let bar = [(from, middle - half), (end.max(from + 1), middle + half)];
        area.draw(&Rectangle::new(bar, color(*kind).filled()))?;
        let left = font(13).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(kind.name(), (from - 8, middle), left))?;
        let right = font(13).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(milliseconds(*ms), (end + 7, middle), right))?;
    }
    Ok(())
}

fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}
