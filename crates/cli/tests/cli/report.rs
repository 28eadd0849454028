//! Reports: what is on them, and what must not be.

use super::*;

/// A database with names that are markup, end lines, or turn the direction of writing.
fn ugly(world: &World) -> [&'static str; 3] {
    let names = ["<script>alert(1)<b>", "a\"'&\n\u{1b}[31m", "\u{202e}rtl"];
    for name in names {
        world.ok(&[
            "put",
            "db",
            name,
            "secret-key",
            "secret-value",
            "--ttl",
            "1000",
        ]);
    }
    world.told("compact db");
    names
}

#[test]
fn a_page_stands_alone_and_escapes_names() {
    let world = World::new();
    ugly(&world);
    let said = world.told("report db -o r.html");
    assert_eq!(said, "written to r.html");
    let page = std::fs::read_to_string(world.path("r.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<bdi>&lt;script&gt;alert(1)&lt;b&gt;</bdi>"));
    assert_eq!(page.matches("<script").count(), 1, "its own");
    assert!(!page.contains('\u{1b}'));
    for reach in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(reach), "{reach}");
    }
    // Every opened element is closed.
    for tag in [
        "details", "section", "svg", "table", "ul", "figure", "pre", "h3",
    ] {
        let (open, close) = (
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count(),
            page.matches(&format!("</{tag}>")).count(),
        );
        assert_eq!(open, close, "{tag}");
    }
}

#[test]
fn keys_values_and_hidden_names_are_not_told() {
    let world = World::new();
    let names = ugly(&world);
    world.told(&[
        "delete-range",
        "db",
        names[0],
        "--from",
        "secret",
        "--to",
        "secret-l",
    ]);
    world.told("compact db");
    for form in ["report db", "report db --text", "report db --json"] {
        let shown = world.ok(form);
        for secret in ["secret", "7365"] {
            assert!(!shown.contains(secret), "{form:?} has {secret}");
        }
        let hidden = world.ok(&format!("{form} --hide-names"));
        assert!(
            hidden.contains("container 1") && !hidden.contains("alert(1)"),
            "{form:?}"
        );
        assert!(!hidden.contains("rtl"), "{form:?}");
        let told = world.ok(&format!("{form} --keys 2"));
        assert!(
            told.contains("7365") && !told.contains("736563"),
            "{form:?}"
        );
    }
}

#[test]
fn retention_and_edits_are_told() {
    let world = World::new();
    // So little of it is expired on command that no job takes it up at once.
    let line = |item: u32| {
        format!(
            "{{\"id\":\"{item}\",\"ttl\":{}}}\n",
            if item == 0 { 1_000 } else { 100_000 }
        )
    };
    world.write("in.jsonl", &(0..50).map(line).collect::<String>());
    world.told("import db c in.jsonl --key id");
    world.ok("ttl db c 3600");
    world.told("compact db");
    world.ok("ttl db c 60");
    world.told("expire db c --before +1h --yes");
    let text = world.ok("report db --text");
    for part in [
        "container c\ncompression: none\n",
        "\nfloor: gone are items without a ttl of their own, written before ",
        ": gone are items that would have ended before ",
        "c: default ttl 60 s, 1 command to expire\n",
        " of run ",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let all = json(&world.ok("report db --json"));
    assert_eq!(
        all["containers"][0]["run_list"][0]["tables"][0]["records"],
        50
    );
    let edits = all["edits"].as_array().unwrap();
    assert!(edits.len() >= 2, "{edits:?}");
    let fewer = json(&world.ok("report db --json --edits 1"));
    assert_eq!(
        fewer["edits"],
        json(&format!("[{}]", edits[edits.len() - 1]))
    );
    let none = json(&world.ok("report db --json --edits 0"));
    assert_eq!(none["edits"], json("[]"));
}

#[test]
fn a_database_of_nothing_has_a_report() {
    let world = World::new();
    world.ok("put db c k v");
    world.told("drop db c --yes");
    assert!(world.ok("report db").contains("<p>There is none.</p>"));
    assert!(world.ok("report db --text").contains("\nbytes live"));
    world.fails(2, "report missing");
}

#[test]
fn one_frame_is_text_and_needs_no_terminal() {
    let world = World::new();
    world.ok("put db c k v --ttl 1000");
    world.told("compact db");
    let frame = world.ok("top db --once --every 100");
    for part in [
        "UNRECLAIMED     OLDEST       LIVE      ITEMS",
        "        0 B          -       18 B          1",
        "   WRITES/S   LOGGED/S  FLUSHED/S   MERGED/S",
        "          0        0 B        0 B        0 B",
        "> c ",
        "RUNS of c",
        "  1 table  ",
        "LAST EDITS",
    ] {
        assert!(frame.contains(part), "{part:?} is not in\n{frame}");
    }
    assert!(
        frame.lines().all(|line| line.chars().count() <= 80),
        "{frame}"
    );
    let why = world.fails(2, "top db");
    assert!(
        why.starts_with("standard output is no terminal: --once "),
        "{why}"
    );
    world.fails(2, "top db --json");
    world.fails(2, "top missing --once");
}

#[test]
#[cfg(target_os = "linux")]
fn q_leaves_a_terminal_as_it_was() {
    let world = World::new();
    world.ok("put db c k v --ttl 1000");
    let (status, shown) = world.run_on_terminal("top db", 80, b"sq");
    assert_eq!(status, 0, "{shown}");
    assert!(shown.contains("RUNS of c"), "{shown}");
    assert!(shown.contains("\u{1b}[?1049h") && shown.contains("\u{1b}[?1049l"));
}
