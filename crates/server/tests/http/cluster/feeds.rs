//! The change feed over three nodes. Goal: whichever server gives a page, and whichever gave the one before, a copy that is kept by
//! pages has every document that is there as it is there, and no page tells a version again or a document after its end. Method:
//! threads write through all servers while a copy follows by server after server, at all levels; then again without the leader.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::random::Random;

use super::{DOCS, LEVEL, TOKEN, World, etag, leader, patiently, token};
use crate::client::{Client, KEY, Reply};

const FEED: (&str, &str) = ("a-im", "Incremental Feed");

fn feed(client: Client, headers: &[(&str, &str)]) -> Reply {
    let headers = [&[FEED], headers].concat();
    let page = patiently(|| client.get(DOCS, &headers));
    assert!([200, 304].contains(&page.status), "{}", page.body);
    page
}

fn lsn(row: &Value) -> u64 {
    row["_lsn"].as_u64().unwrap()
}

/// The version that an etag is, which is a document's or a page's.
fn version(etag: &str) -> u64 {
    etag.trim_matches('"').parse().unwrap()
}

/// When a written document ends, in milliseconds since 1970, by its `ttl` and the moment of the answer.
fn end_of(written: &Reply) -> Option<u64> {
    let body = written.json();
    let ttl = body["ttl"].as_u64()?;
    Some(token(written).2 + 1_000 * ttl)
}

/// A copy of the container, and where it goes on.
#[derive(Default)]
struct Copy {
    documents: BTreeMap<String, Value>,
    goes_on: Option<String>,
    /// The latest token that an answer had.
    session: (u64, u64, String),
    pages: usize,
    /// The versions that were told, and the moments of the pages.
    told: BTreeMap<u64, u64>,
}

impl Copy {
    /// Takes a page in, with what the session has seen or not; whether it told something.
    fn page(&mut self, client: Client, level: &str, in_session: bool) -> bool {
        self.pages += 1;
        let size = (1 + self.pages % 5).to_string();
        let mut headers = vec![("x-ms-max-item-count", &*size)];
        let goes_on = self.goes_on.clone();
        headers.extend(goes_on.as_deref().map(|etag| ("if-none-match", etag)));
        let session = self.session.2.clone();
        headers.push((LEVEL, level));
        if in_session {
            headers.push((TOKEN, &session));
        }
        let page = feed(client, &headers);
        let (text, index, at_ms) = token(&page);
        self.session = self.session.clone().max((index, at_ms, text));
        let before = goes_on.map_or(0, |etag| version(&etag));
        self.goes_on = Some(etag(&page));
        let rows = match page.status {
            304 => vec![],
            _ => page.json()["Documents"].as_array().unwrap().clone(),
        };
        let lsns: Vec<u64> = rows.iter().map(lsn).collect();
        assert!(lsns.is_sorted_by(|a, b| a < b), "{lsns:?}");
        let up_to = version(&etag(&page));
        assert!(before <= up_to);
        assert!(lsns.iter().all(|lsn| (before + 1..=up_to).contains(lsn)));
        self.told.extend(lsns.iter().map(|lsn| (*lsn, at_ms)));
        for row in &rows {
            let id = row["id"].as_str().unwrap().to_owned();
            self.documents.insert(id, row.clone());
        }
        !rows.is_empty()
    }

    /// All that there is by now; then the copy is the container, as each server shows it.
    fn compare(&mut self, clients: &[Client]) {
        let count = clients.len();
        while self.page(clients[self.pages % count], "Strong", false) {}
        for client in clients {
            let all = [("x-ms-max-item-count", "1000")];
            let listed = patiently(|| client.get(DOCS, &all)).json();
            let listed = listed["Documents"].as_array().unwrap().clone();
            let listed = listed.into_iter().map(|mut row| {
                row["_lsn"] = json!(version(row["_etag"].as_str().unwrap()));
                (row["id"].as_str().unwrap().to_owned(), row)
            });
            let listed: BTreeMap<String, Value> = listed.collect();
            // Of deletes and ends the feed says nothing.
            self.documents.retain(|id, _| listed.contains_key(id));
            assert_eq!(self.documents, listed);
        }
    }
}

/// Writes until it is told to stop: creates, replacements, deletes. Notes which version ends when.
fn write(client: Client, seed: u64, stop: &AtomicBool, ends: &Mutex<BTreeMap<u64, u64>>) {
    let mut random = Random(seed);
    let upsert = ("x-ms-documentdb-is-upsert", "true");
    while !stop.load(Ordering::Relaxed) {
        let id = random.below(25).to_string();
        let status = match random.below(5) {
            0 => patiently(|| client.ask("DELETE", &format!("{DOCS}/{id}"), "", &[KEY])).status,
            kind => {
                let mut body = json!({"id": id, "pk": "a", "n": random.below(1_000)});
                if kind == 1 {
                    body["ttl"] = json!(1);
                }
                let written = patiently(|| client.post(DOCS, &body.to_string(), &[KEY, upsert]));
                if let Some(end) = end_of(&written) {
                    ends.lock().unwrap().insert(version(&etag(&written)), end);
                }
                written.status
            }
        };
        assert!([200, 201, 204, 404].contains(&status), "{status}");
    }
}

/// Stops the writers, also where a comparison fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Follows through these servers for so many pages, while threads write through them; then compares.
fn follow(copy: &mut Copy, clients: &[Client], pages: usize, ends: &Mutex<BTreeMap<u64, u64>>) {
    let stop = AtomicBool::new(false);
    let levels = ["Session", "Eventual", "Strong"];
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for (number, client) in clients.iter().enumerate() {
            let seed = (copy.pages + number + 1) as u64;
            let stop = &stop;
            scope.spawn(move || write(*client, seed, stop, ends));
        }
        for number in 0..pages {
            let client = clients[number % clients.len()];
            copy.page(client, levels[number / 2 % levels.len()], number % 2 == 0);
        }
    });
    copy.compare(clients);
}

#[test]
fn a_copy_by_pages_of_server_after_server_is_the_container() {
    let mut world = World::new();
    let (mut copy, ends) = (Copy::default(), Mutex::default());
    follow(&mut copy, &world.clients(), 120, &ends);

    let lost = leader(world.clients()[0], &world.nodes);
    world.servers.remove(lost).stop();
    follow(&mut copy, &world.clients(), 60, &ends);

    world.servers.insert(lost, world.start(lost));
    follow(&mut copy, &world.clients(), 60, &ends);

    let ends = ends.into_inner().unwrap();
    let told = copy.told.iter();
    let of_ends = told.filter_map(|(lsn, at_ms)| Some((*at_ms, *ends.get(lsn)?)));
    let of_ends: Vec<(u64, u64)> = of_ends.collect();
    assert!(!of_ends.is_empty());
    assert!(
        of_ends.iter().all(|(at_ms, end)| at_ms < end),
        "{of_ends:?}"
    );
    world.compare();
}

#[test]
fn a_feed_goes_on_at_another_server_where_it_was() {
    let world = World::new();
    let [one, two, three] = world.clients()[..] else {
        panic!("there are three")
    };
    let now = feed(one, &[("if-none-match", "*")]).is(304);
    for (client, id, pk) in [(two, "1", "a"), (three, "2", "b"), (one, "3", "a")] {
        let body = json!({"id": id, "pk": pk}).to_string();
        client.create("carts", &body).is(201);
    }
    let ids = |page: &Reply| {
        let rows = page.rows().into_iter();
        let ids = rows.map(|row| row["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let from = etag(&now);
    let page = feed(
        three,
        &[("if-none-match", &from), ("x-ms-max-item-count", "2")],
    );
    assert_eq!(ids(&page), ["1", "2"]);
    let lsn = page.json()["Documents"][1]["_lsn"].as_u64();
    assert_eq!(lsn, Some(version(&etag(&page))));
    assert_eq!(
        page.header("lsn"),
        Some(&*version(&etag(&page)).to_string())
    );
    let rest = feed(two, &[("if-none-match", &*etag(&page))]);
    assert_eq!(ids(&rest), ["3"]);
    let end = feed(one, &[("if-none-match", &*etag(&rest))]);
    assert_eq!((end.status, &*end.body), (304, ""));
    assert!(version(&etag(&end)) >= version(&etag(&rest)));
    assert_eq!(ids(&feed(two, &[KEY])), ["1", "3"]);
    let then = ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(ids(&feed(three, &[then])), ["1", "2", "3"]);
    let later = ("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT");
    feed(three, &[later]).is(304);
    // A session sees its own writes in each feed, however little it asks for.
    for round in 0..20 {
        let body = json!({"id": format!("s{round}"), "pk": "a"}).to_string();
        let made = patiently(|| one.create("carts", &body));
        let (session, ..) = token(&made);
        let last = format!("\"{}\"", version(&etag(&made)) - 1);
        let asked = [
            ("if-none-match", &*last),
            (TOKEN, &*session),
            (LEVEL, "Eventual"),
        ];
        assert_eq!(ids(&feed(two, &asked)), [format!("s{round}")]);
    }
    one.get(DOCS, &[("a-im", "Full-Fidelity Feed")]).is(501);
    world.compare();
}
