//! `ebbtide top`: what a database does, while it does it.
//!
//! ```text
//! reading.rs   one look at the database; rates are what lies between two
//! history.rs   the last minutes, as bars
//! view.rs      which container, in what order; a frame of it, in text
//! cluster.rs   of the folder of a node: a row for each node of its cluster
//! ```
//!
//! It follows the process that writes, which neither waits nor knows: it reads the files, and holds no lock of that
//! process. So it shows the figures of the files: writes by their numbers, the log by its length, jobs by their edits.
//! It does not show figures that only the writer knows: latencies, stalls, the step of a job at this moment.

mod cluster;
mod history;
mod reading;
mod view;

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use ebbtide::{Database, Options};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::arguments::Top;
use crate::failure::{Failure, Outcome};
use crate::table;
use reading::TopSample;
use view::View;

/// Of a frame without a terminal.
const ROWS: u16 = 40;

pub fn top(top: &Top, json: bool) -> Outcome {
    let is_node = cluster::is_node(&top.dir);
    if is_node && top.once {
        return cluster::once(top, json);
    }
    if json {
        return Err(Failure::Refused(
            "top prints no JSON: `ebbtide stats --json` does, and of a cluster --once".to_owned(),
        ));
    }
    if is_node {
        let every = top.every;
        return on_terminal(|terminal| cluster::watch(top.dir.clone(), every, terminal));
    }
    let db = Options::new().follow(&top.dir)?;
    let title = top.dir.display().to_string();
    let every = top.every;
    if top.once {
        let before = TopSample::of(&db, None)?;
        std::thread::sleep(every.min(Duration::from_secs(1)));
        db.catch_up()?;
        let reading = TopSample::of(&db, Some(&before))?;
        let columns = u16::try_from(table::columns()).unwrap_or(u16::MAX);
        let frame = View::new(title).text(&reading, columns, ROWS);
        return Ok(stdout().lock().write_all(frame.as_bytes())?);
    }
    on_terminal(|terminal| run(&db, View::new(title), every, terminal))
}

fn on_terminal(run: impl FnOnce(&mut ratatui::DefaultTerminal) -> Outcome) -> Outcome {
    if !stdout().is_terminal() {
        return Err(Failure::Refused(
            "standard output is no terminal: --once prints one frame as text".to_owned(),
        ));
    }
    let mut terminal = ratatui::try_init()?;
    let done = run(&mut terminal);
    ratatui::restore();
    done
}

fn is_quit(key: KeyEvent) -> bool {
    let is_interrupt =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn is_pause(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('p')
}

fn run(
    db: &Database,
    mut view: View,
    every: Duration,
    terminal: &mut ratatui::DefaultTerminal,
) -> Outcome {
    let mut reading = TopSample::of(db, None)?;
    let mut next = Instant::now() + every;
    loop {
        terminal.draw(|frame| view.draw(&reading, frame.area(), frame.buffer_mut()))?;
        if event::poll(next.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && !act(&mut view, &reading, key)
            {
                return Ok(());
            }
        } else {
            next = Instant::now() + every;
            if !view.is_paused {
                db.catch_up()?;
                reading = TopSample::of(db, Some(&reading))?;
                view.history.add(&reading);
            }
        }
    }
}

/// False: it is over.
fn act(view: &mut View, reading: &TopSample, key: KeyEvent) -> bool {
    match key.code {
        _ if is_quit(key) => return false,
        _ if is_pause(key) => view.is_paused = !view.is_paused,
        KeyCode::Up => view.step(reading, -1),
        KeyCode::Down => view.step(reading, 1),
        KeyCode::Char('s') => view.sort = view.sort.next(),
        _ => {}
    }
    true
}
