//! `ebbtide top` over a cluster: a row for each node, by the word of each about itself.
//!
//! ```text
//! cluster, node that is asked                          1 line
//! nodes, one each: place in the log, rates, disk       as many as there are
//! what troubles them, one each; why nothing is told    as many as have any
//! keys                                                 1 line, on a terminal
//! ```
//!
//! The node of the folder is asked by its control socket, and asks the others: one that does not answer within a second has no
//! figures. Rates are what lies between two looks, by each node's own time.

use std::collections::HashMap;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ebbtide_control::{ClusterMember, ClusterStatus, MemberFigures, Request};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::style::{Modifier, Style};
use serde_json::{Value, json};

use super::{is_pause, is_quit};
use crate::arguments::Top;
use crate::failure::{Failure, Outcome};
use crate::{cluster, show, table};

const HEADER: [&str; 12] = [
    "ADDRESS", "ROLE", "TERM", "APPLIED", "LAG", "BEHIND", "WRITES/S", "READS/S", "ENDS/S", "LIVE",
    "DISK", "OVERDUE",
];
/// [`MemberFigures::ends`] is about so many seconds.
const ENDS_WITHIN: f64 = 10.0;

/// Whether a folder is that of a node of a cluster.
pub fn is_node(dir: &Path) -> bool {
    dir.join("node").is_file() && dir.join("group-0").is_dir()
}

/// Of a node, since the look before.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    writes: f64,
    reads: f64,
}

impl Rates {
    /// None: it was opened again in between.
    fn between(before: &MemberFigures, now: &MemberFigures) -> Option<Rates> {
        let millis = now.uptime_ms.checked_sub(before.uptime_ms)?.max(1) as f64;
        let rate = |before: u64, now: u64| Some(now.checked_sub(before)? as f64 * 1e3 / millis);
        Some(Rates {
            writes: rate(before.writes, now.writes)?,
            reads: rate(before.reads, now.reads)?,
        })
    }
}

/// One look at a cluster.
struct Look {
    status: ClusterStatus,
    /// By id.
    rates: HashMap<u64, Rates>,
}

impl Look {
    fn at(dir: &Path, before: Option<&Look>) -> Outcome<Look> {
        let status = cluster::asked(dir, &Request::ClusterTop)?;
        let was = |id| {
            let members = before?.status.members.iter();
            members
                .filter(|member| member.id == id)
                .find_map(|member| member.figures.as_ref())
        };
        let rates = status.members.iter().filter_map(|member| {
            let rates = Rates::between(was(member.id)?, member.figures.as_ref()?)?;
            Some((member.id, rates))
        });
        let rates = rates.collect();
        Ok(Look { status, rates })
    }

    fn row(&self, member: &ClusterMember) -> Vec<String> {
        let none = || "-".to_owned();
        let count = |number: Option<u64>| number.map_or_else(none, show::count);
        let rate =
            |rate: Option<f64>| rate.map_or_else(none, |rate| show::count(rate.round() as u64));
        let span = |millis: u64| match millis {
            0 => "0".to_owned(),
            _ => show::time(Duration::from_millis(millis)),
        };
        let (figures, rates) = (member.figures.as_ref(), self.rates.get(&member.id));
        let figure = |of: fn(&MemberFigures) -> u64| figures.map(of);
        let behind = self.status.behind_ms(member);
        vec![
            member.addr.clone(),
            member.role().to_owned(),
            count(figure(|figures| figures.term)),
            count(member.applied),
            count(self.status.lag(member)),
            behind.map_or_else(none, span),
            rate(rates.map(|rates| rates.writes)),
            rate(rates.map(|rates| rates.reads)),
            rate(figures.map(|figures| figures.ends as f64 / ENDS_WITHIN)),
            figure(|figures| figures.live_bytes).map_or_else(none, show::bytes),
            figure(|figures| figures.disk_bytes).map_or_else(none, show::bytes),
            figure(|figures| figures.overdue_ms).map_or_else(none, span),
        ]
    }

    /// `columns`: none, all of them.
    fn text(&self, columns: Option<usize>) -> String {
        let status = &self.status;
        let (cluster, format) = (&status.cluster, status.format);
        let asked = status
            .members
            .iter()
            .find(|member| member.id == status.node);
        let asked = asked.map_or("-", |member| member.addr.as_str());
        let mut text = format!("cluster {cluster}  by {asked}  log of format {format}\n");
        let rows: Vec<Vec<String>> = status
            .members
            .iter()
            .map(|member| self.row(member))
            .collect();
        text += &match columns {
            Some(columns) => table::fitted(&HEADER, &rows, columns),
            None => table::whole(&HEADER, &rows),
        };
        for member in &status.members {
            if let Some(trouble) = &member.trouble {
                text += &format!("{}: {}\n", member.addr, table::printable(trouble));
            }
        }
        text
    }

    /// That of `ebbtide cluster status` with the figures.
    fn json(&self) -> Value {
        let mut whole = self.status.json();
        let members = whole["members"].as_array_mut().into_iter().flatten();
        for (told, member) in members.zip(&self.status.members) {
            let rates = self.rates.get(&member.id);
            told["writes_per_second"] = json!(rates.map(|rates| rates.writes));
            told["reads_per_second"] = json!(rates.map(|rates| rates.reads));
            let Some(figures) = &member.figures else {
                continue;
            };
            told["term"] = json!(figures.term);
            told["behind_seconds"] = json!(self.status.behind_ms(member).map(seconds));
            told["ends_per_second"] = json!(figures.ends as f64 / ENDS_WITHIN);
            told["live_items"] = json!(figures.live_items);
            told["live_bytes"] = json!(figures.live_bytes);
            told["disk_bytes"] = json!(figures.disk_bytes);
            told["overdue_seconds"] = json!(seconds(figures.overdue_ms));
        }
        whole
    }
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1e3
}

/// One look, with the rates of an interval of a second at most.
pub fn once(top: &Top, json: bool) -> Outcome {
    let before = Look::at(&top.dir, None)?;
    std::thread::sleep(top.every.min(Duration::from_secs(1)));
    let look = Look::at(&top.dir, Some(&before))?;
    let text = match json {
        true => look.json().to_string() + "\n",
        false => look.text(None),
    };
    Ok(stdout().lock().write_all(text.as_bytes())?)
}

/// Until a key ends it, also over a restart of the node that is asked.
pub fn watch(dir: PathBuf, every: Duration, terminal: &mut ratatui::DefaultTerminal) -> Outcome {
    let mut look = Look::at(&dir, None)?;
    let (mut is_paused, mut failure) = (false, None);
    let mut next = Instant::now() + every;
    loop {
        terminal.draw(|frame| draw(&look, failure.as_ref(), is_paused, frame))?;
        if event::poll(next.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Release => {}
                Event::Key(key) if is_quit(key) => return Ok(()),
                Event::Key(key) if is_pause(key) => is_paused = !is_paused,
                _ => {}
            }
            continue;
        }
        next = Instant::now() + every;
        if !is_paused {
            failure = match Look::at(&dir, Some(&look)) {
                Ok(now) => {
                    look = now;
                    None
                }
                Err(error) => Some(error),
            };
        }
    }
}

fn draw(look: &Look, failure: Option<&Failure>, is_paused: bool, frame: &mut ratatui::Frame<'_>) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let (width, buffer) = (usize::from(area.width), frame.buffer_mut());
    let mut text = look.text(Some(width));
    if let Some(failure) = failure {
        text += &format!("as it was last: {}\n", failure.why());
    }
    let last = area.bottom().saturating_sub(1);
    for (y, line) in (area.y..last).zip(text.lines()) {
        let style = match y - area.y {
            0 | 1 => Style::new().add_modifier(Modifier::BOLD),
            _ => Style::new(),
        };
        buffer.set_stringn(area.x, y, format!("{line:<width$}"), width, style);
    }
    let paused = if is_paused { "  PAUSED" } else { "" };
    let keys = format!("q quit  p pause{paused}");
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    buffer.set_stringn(area.x, last, format!("{keys:<width$}"), width, reversed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(uptime_ms: u64, writes: u64) -> MemberFigures {
        MemberFigures {
            term: 3,
            uptime_ms,
            writes,
            reads: 4 * writes,
            time_ms: 1_000_000 + 40 * uptime_ms,
            ends: 25,
            disk_bytes: 3 << 20,
            live_items: 7,
            live_bytes: 2 << 20,
            overdue_ms: 0,
        }
    }

    fn member(id: u64, figures: Option<MemberFigures>) -> ClusterMember {
        ClusterMember {
            id,
            addr: format!("10.0.0.{id}:7421"),
            votes: true,
            leads: id == 1,
            applied: figures.as_ref().map(|_| 1_000 - id),
            trouble: figures
                .is_none()
                .then(|| "there was no\nanswer in time".to_owned()),
            disk_free: None,
            speaks: Some(2),
            is_removed: false,
            figures,
        }
    }

    #[test]
    fn rates_are_by_the_nodes_own_time_and_none_over_a_restart() {
        let rates = Rates::between(&figures(1_000, 10), &figures(3_000, 20));
        let of = |writes: f64| Rates {
            writes,
            reads: 4.0 * writes,
        };
        assert_eq!(rates, Some(of(5.0)));
        for (before, now) in [((9_000, 1), (50, 5)), ((1_000, 10), (9_000, 9))] {
            assert_eq!(
                Rates::between(&figures(before.0, before.1), &figures(now.0, now.1)),
                None
            );
        }
    }

    #[test]
    fn a_row_has_what_its_node_says_and_a_node_that_says_nothing_has_none() {
        let status = ClusterStatus {
            cluster: "ab".repeat(16),
            node: 1,
            term: 3,
            format: 2,
            joins_by_token: false,
            members: vec![
                member(1, Some(figures(5_000, 30))),
                member(2, Some(figures(50, 1))),
                member(3, None),
            ],
        };
        let rates = HashMap::from([(
            1,
            Rates {
                writes: 12.4,
                reads: 1_999.6,
            },
        )]);
        let look = Look { status, rates };
        let text = look.text(None);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let all = "10.0.0.1:7421 leader 3 999 0 0 12 2,000 3 2.0 MiB 3.0 MiB 0";
        assert_eq!(lines[2].join(" "), all);
        assert!(
            lines[3]
                .join(" ")
                .starts_with("10.0.0.2:7421 voter 3 998 1 3 min - - 3 "),
            "{text}"
        );
        assert_eq!(
            lines[4].join(" "),
            "10.0.0.3:7421 voter - - - - - - - - - -"
        );
        assert_eq!(
            lines[5].join(" "),
            r"10.0.0.3:7421: there was no\nanswer in time"
        );
        assert!(
            text.starts_with("cluster abab")
                && text.contains("by 10.0.0.1:7421  log of format 2\n")
        );
        // Columns without room are named.
        let narrow = look.text(Some(60));
        assert!(
            narrow.contains("Not shown: ") && narrow.contains("overdue."),
            "{narrow}"
        );
        let json = look.json();
        assert_eq!(json["members"][0]["writes_per_second"], 12.4);
        assert_eq!(json["members"][0]["ends_per_second"], 2.5);
        assert!(json["members"][1]["writes_per_second"].is_null());
        assert!(json["members"][2].get("term").is_none());
    }
}
