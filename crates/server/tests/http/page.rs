//! The page: what it is made of, what it tells, and how it stands in a browser.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use data_encoding::BASE64;
use ebbtide_server::Server;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::client::{Client, config, start};

const BROWSER: (&str, &str) = (
    "accept",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
);

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split_once(from).unwrap().1.split_once(to).unwrap().0
}

fn hash(text: &str) -> String {
    format!("'sha256-{}'", BASE64.encode(&Sha256::digest(text)))
}

#[test]
fn browsers_get_a_page_and_sdks_the_account() {
    let (_server, client) = start();
    let page = client.get("/", &[BROWSER]).is(200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(page.header("vary"), Some("accept"));
    for accept in ["application/json", "*/*"] {
        let account = client.get("/", &[("accept", accept)]);
        assert_eq!(account.json()["id"], "ebbtide", "{accept}");
    }
    assert_eq!(client.get("/", &[]).json()["id"], "ebbtide");
    client.post("/", "", &[BROWSER]).is(405);
}

#[test]
fn the_page_refers_to_nothing_else_and_may_run_its_own_script_alone() {
    let (_server, client) = start();
    let page = client.get("/", &[BROWSER]);
    for outside in ["http:", "https:", "//", "@import", "url(", "src=", "style="] {
        let lines = page.body.lines().map(str::trim);
        // Comments of the script begin like a path without a scheme.
        let mut lines = lines.filter(|line| !line.starts_with("// "));
        assert!(!lines.any(|line| line.contains(outside)), "{outside}");
    }
    let policy = page.header("content-security-policy").unwrap();
    let allowed = |name: &str| {
        let mut rules = policy.split("; ").filter_map(|rule| rule.split_once(' '));
        rules
            .find(|(of, _)| *of == name)
            .unwrap_or_else(|| panic!("{name} in {policy}"))
            .1
    };
    let (script, style) = (
        between(&page.body, "<script>", "</script>"),
        between(&page.body, "<style>", "</style>"),
    );
    assert_eq!(allowed("script-src"), hash(script));
    assert_eq!(allowed("style-src"), hash(style));
    assert_eq!(allowed("connect-src"), "'self'");
    for none in ["default-src", "base-uri", "form-action", "frame-ancestors"] {
        assert_eq!(allowed(none), "'none'", "{none}");
    }
}

/// Documents of which 3 end in 5 s, 4 in an hour, 5 in three days, and 2 never; one more has ended.
fn fill(client: &Client) {
    client.container("c", r#","defaultTtl":-1"#);
    client.container("off", "");
    for (at, ttl) in [1, 5, 5, 5, 3_600, 3_600, 3_600, 3_600]
        .into_iter()
        .chain([259_200; 5])
        .enumerate()
    {
        let body = format!(r#"{{"id":"{at}","pk":"a","ttl":{ttl}}}"#);
        client.create("c", &body).is(201);
    }
    client.create("c", r#"{"id":"never","pk":"a"}"#);
    client.create("off", r#"{"id":"never","pk":"a","ttl":5}"#);
    client.advance("2s");
    client.read("c", "1");
}

#[test]
fn the_status_adds_up() {
    let (_server, client) = start();
    fill(&client);
    let status = client.get("/_status", &[]).json();
    let sum = |rows: &Value, name: &str| -> u64 {
        let rows = rows.as_array().unwrap();
        rows.iter().map(|row| row[name].as_u64().unwrap()).sum()
    };
    assert!(status["verdict"].as_str().unwrap().starts_with("On time."));
    assert_eq!(status["isWell"], true);
    assert_eq!(
        sum(&status["disk"]["rows"], "bytes"),
        status["disk"]["bytes"].as_u64().unwrap()
    );

    let due = &status["due"];
    let bars = due["bars"].as_array().unwrap();
    let within = |from: u64, to: u64| -> u64 {
        let bars = bars
            .iter()
            .filter(|bar| (from + 1..=to).contains(&bar["seconds"].as_u64().unwrap()));
        bars.map(|bar| bar["documents"].as_u64().unwrap()).sum()
    };
    assert_eq!(
        [within(0, 10), within(10, 3_600), within(3_600, 345_600)],
        [3, 4, 5],
        "{due}"
    );
    assert_eq!(
        (&due["past"]["documents"], &due["never"]["documents"]),
        (&1.into(), &2.into())
    );
    assert_eq!(status["documents"], 14);
    assert_eq!(sum(&due["bars"], "documents") + 2, 14);

    let containers = &status["containers"];
    assert_eq!(sum(&containers["rows"], "documents"), 14);
    assert_eq!(containers["all"], 2);
    let of = |id: &str| {
        let mut rows = containers["rows"].as_array().unwrap().iter();
        rows.find(|row| row["id"] == id).unwrap()["defaultTtl"].clone()
    };
    assert_eq!((of("c"), of("off")), (Value::from(-1), Value::Null));

    let counters = &status["counters"];
    assert_eq!(
        (&counters["writes"], &counters["reads"]),
        (&15.into(), &1.into())
    );
    client.query("c", "SELECT * FROM c", &[]);
    let later = client.get("/_status", &[]).json();
    assert_eq!(
        (&later["counters"]["writes"], &later["counters"]["reads"]),
        (&15.into(), &2.into())
    );
    for slot in status["slots"].as_array().unwrap() {
        assert!(slot["used"].as_u64() <= slot["most"].as_u64(), "{slot}");
    }
    assert!(
        status["slots"][1]["used"].as_u64() >= Some(1),
        "this request itself"
    );
}

/// A key and a server that asks for it.
fn signed() -> (Server, Client, &'static str) {
    let key = "c29tZSBrZXk=";
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.key_file = Some(folder.path().join("key"));
    std::fs::write(config.key_file.as_ref().unwrap(), key).unwrap();
    let server = Server::start(&config).unwrap();
    let client = Client(server.address());
    (server, client, key)
}

#[test]
fn figures_are_for_those_that_have_the_key_and_the_page_is_for_all() {
    let (_server, client, _) = signed();
    client.get("/", &[BROWSER]).is(200);
    for path in ["/", "/_status", "/metrics"] {
        assert_eq!(client.get(path, &[]).status, 401, "{path}");
    }
    client.get("/_status", &[BROWSER]).is(401);
}

/// Stands before the server, and shows its page in a frame of a width, for a window has a least one. The script is added to
/// the page, before its own.
fn front(server: Client, width: u32, script: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A browser may connect and ask nothing.
            let script = script.clone();
            std::thread::spawn(move || pass_on(stream, server, width, &script));
        }
    });
    address
}

fn pass_on(mut stream: TcpStream, server: Client, width: u32, script: &str) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let kept = ["accept", "authorization", "x-ms-date"];
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .filter(|(name, _)| kept.contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    if path == "/" {
        let frame = format!(
            "<!DOCTYPE html><iframe src=\"/page\" style=\"width:{width}px;height:2000px;border:0\"></iframe>"
        );
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n";
        return stream.write_all((head.to_owned() + &frame).as_bytes()).ok();
    }
    let path = path.replace("/page", "/");
    let mut reply = server.get(&path, &headers);
    let mut policy = String::new();
    if let Some(given) = reply.header("content-security-policy") {
        let more = format!("script-src {} ", hash(script));
        let given = given.replacen("script-src ", &more, 1);
        let given = given.replacen("frame-ancestors 'none'", "frame-ancestors 'self'", 1);
        policy = format!("content-security-policy: {given}\r\n");
        let added = format!("<script>{script}</script><style>");
        reply.body = reply.body.replacen("<style>", &added, 1);
    }
    let kind = reply.header("content-type").unwrap_or("text/plain");
    let head = format!(
        "HTTP/1.1 {} x\r\ncontent-type: {kind}\r\n{policy}content-length: {}\r\nconnection: close\r\n\r\n",
        reply.status,
        reply.body.len()
    );
    stream.write_all((head + &reply.body).as_bytes()).ok()
}

/// The page's document after some seconds of its own time; none where there is no Chromium.
fn seen(address: SocketAddr) -> Option<String> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&str| {
        let mut asked = Command::new(name);
        asked
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    };
    let Some(name) = names.into_iter().find(|name| is_there(name)) else {
        eprintln!("skipped: there is no Chromium");
        return None;
    };
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(name)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            "--virtual-time-budget=6000",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--window-size=1400,1000", "--hide-scrollbars"])
        .arg(format!("http://{address}/"))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Tells the widths of the frame and of what is in it, and what the policy forbade; then the page takes the frame's place.
const PROBE: &str = "let forbidden = ''; \
    addEventListener('securitypolicyviolation', event => forbidden += event.violatedDirective); \
    setTimeout(() => { const root = document.documentElement; \
    root.dataset.stands = `${innerWidth} ${root.scrollWidth} ${forbidden || 'nothing'}`; \
    top.document.replaceChild(top.document.adoptNode(root.cloneNode(true)), top.document.documentElement); }, 3500);";

#[test]
fn in_a_browser_the_page_tells_the_verdict_and_is_as_wide_as_the_window() {
    let (_server, client) = start();
    fill(&client);
    let long = "a".repeat(200);
    client.container(&long, "");
    client.container("<b>bold", "");
    for width in [420, 1280] {
        let Some(dom) = seen(front(client, width, PROBE.to_owned())) else {
            return;
        };
        let stands = between(&dom, "data-stands=\"", "\"");
        assert_eq!(stands, format!("{width} {width} nothing"));
        let verdict = between(&dom, "id=\"verdict\"", "</p>");
        assert!(verdict.contains("<b>On time.</b>"), "{verdict}");
        let told = between(&dom, "id=\"told\"", "</p>");
        assert!(
            told.contains("3 documents within 1&nbsp;min") && told.contains("2 documents never"),
            "{told}"
        );
        assert!(dom.contains("<bdi>&lt;b&gt;bold</bdi>") && dom.contains(&long));
        let drawn = between(&dom, "id=\"bars\"", "id=\"ticks\"")
            .matches("class=\"bar")
            .count();
        assert_eq!(drawn, 18, "up to 7 d");
    }
}

#[test]
fn in_a_browser_the_page_signs_by_the_key() {
    let (_server, client, key) = signed();
    for (key, said) in [
        (key, "On time."),
        ("YW5vdGhlcg==", "The key is not that of this server."),
    ] {
        let types = format!(
            "setTimeout(() => {{ document.getElementById('key').value = '{key}'; \
             document.getElementById('sign').requestSubmit(); }}, 1500); {PROBE}"
        );
        let Some(dom) = seen(front(client, 1280, types)) else {
            return;
        };
        let verdict = between(&dom, "id=\"verdict\"", "</p>");
        assert!(verdict.contains(said), "{verdict}");
    }
}

#[test]
fn metrics_are_those_that_are_listed_and_in_the_format() {
    let (_server, client) = start();
    client.container("a\\\"b", "");
    client.container("q\\u000a", "");
    for _ in 0..2 {
        let text = client.get("/metrics", &[]).body;
        let names = exposed(&text);
        let listed = include_str!("../../../../docs/metrics.md").lines();
        let listed = listed.filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let listed: Vec<&str> = listed
            .map(|(name, _)| name)
            .filter(|name| name.starts_with("ebbtide_"))
            .collect();
        assert!(listed.len() > 20);
        for name in listed {
            assert!(names.contains(&name.to_owned()), "{name}");
        }
        assert!(text.contains("coll=\"a\\\"b\""), "{text}");
        assert!(text.contains("coll=\"q\\n\""), "{text}");
    }
}

/// The names with samples. Each has its help and its kind before them, once, and is in one piece.
fn exposed(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let (name, said) = help
            .strip_prefix("# HELP ")
            .unwrap()
            .split_once(' ')
            .unwrap();
        assert!(
            !said.is_empty() && !names.contains(&name.to_owned()),
            "{help}"
        );
        let kind = lines.next().unwrap();
        let kind = kind.strip_prefix(&format!("# TYPE {name} ")).unwrap();
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} {kind}");
        assert!(["counter", "gauge"].contains(&kind), "{kind}");
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
            let labels = sample.strip_prefix(name).unwrap();
            assert!(labels.is_empty() || are_labels(labels), "{line}");
            assert!(!samples.contains(&sample), "{line}");
            samples.push(sample);
        }
        if !samples.is_empty() {
            names.push(name.to_owned());
        }
    }
    names
}

/// Whether the text is `{name="value",...}` with values whose quotes are escaped.
fn are_labels(text: &str) -> bool {
    let Some(mut rest) = text.strip_prefix('{') else {
        return false;
    };
    loop {
        let Some((name, value)) = rest.split_once("=\"") else {
            return false;
        };
        if name.is_empty()
            || !name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        {
            return false;
        }
        let mut is_escaped = false;
        let end = value.bytes().position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        let Some(end) = end else { return false };
        match &value[end + 1..] {
            "}" => return true,
            more => match more.strip_prefix(',') {
                Some(more) => rest = more,
                None => return false,
            },
        }
    }
}
