//! Goal: the links of the guide's pages lead somewhere, on the forge and in the documentation.
//!
//! Method: the pages in docs/guide are read as text. A name of the public surface in brackets and code marks is a link to its
//! documentation; `[text][page]` is one to a page, `[text][docs/limits.md]` one to a file. Where they lead stands in the last
//! lines of each page, and for rustdoc, which finds its own way, in docs/guide/links.txt; both follow from the page and from
//! docs/public-api.txt. `EBBTIDE_REWRITE=1 cargo test --test sources guide` writes them anew. rustdoc's lints and its tests, which run
//! the pages' code, do the rest.

#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const DOCUMENTATION: &str = "https://docs.rs/ebbtide/latest/ebbtide/";
const FORGE: &str = "https://github.com/ebbtide/ebbtide/blob/main/";

fn root() -> &'static Path {
    testkit::repository()
}

/// The pages, by their names.
fn pages() -> BTreeMap<String, PathBuf> {
    let folder = fs::read_dir(root().join("docs/guide")).unwrap();
    let paths = folder.map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect()
}

/// Where rustdoc documents each public name, by the name as a program writes it.
fn documented() -> BTreeMap<String, String> {
    let list = fs::read_to_string(root().join("docs/public-api.txt")).unwrap();
    let (mut places, mut kinds) = (BTreeMap::new(), BTreeMap::new());
    for line in list.lines() {
        let words = line.trim().trim_start_matches("pub ");
        let Some((kind, rest)) = words.split_once(' ') else {
            continue;
        };
        let name = rest.split(|c: char| !(c.is_alphanumeric() || "_:.".contains(c)));
        let name = name.map(|name| name.trim_end_matches(':')).next().unwrap();
        let name = name.replace('.', "::");
        let place = match (kind, name.split_once("::")) {
            ("struct" | "enum" | "trait" | "fn" | "type", None) => {
                kinds.insert(name.clone(), kind.to_owned());
                format!("{kind}.{name}.html")
            }
            ("fn" | "field" | "variant", Some((of, part))) => {
                // No page speaks of what is in a module.
                let Some(its) = kinds.get(of) else { continue };
                let of = format!("{its}.{of}.html");
                let kind = match kind {
                    "fn" => "method",
                    "field" => "structfield",
                    kind => kind,
                };
                format!("{of}#{kind}.{part}")
            }
            _ => continue,
        };
        places.insert(name, format!("{DOCUMENTATION}{place}"));
    }
    places
}

/// A page without the lines that say where its links lead.
fn body(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !(line.starts_with('[') && line.contains("]: ")));
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned() + "\n"
}

/// The texts in brackets in a page: the labels of its links.
fn labels(body: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut labels = BTreeSet::new();
    for line in body.lines() {
        is_code ^= line.starts_with("```");
        if is_code {
            continue;
        }
        for (at, _) in line.match_indices('[') {
            let label = line[at + 1..]
                .split_once(']')
                .map_or("", |(label, _)| label);
            let is_name = label.starts_with('`') && label.ends_with('`');
            if is_name || line[..at].ends_with(']') {
                labels.insert(label.to_owned());
            }
        }
    }
    labels
}

/// Where a label leads on the forge, and where in rustdoc.
fn leads_to(label: &str, documented: &BTreeMap<String, String>) -> Option<(String, String)> {
    if let Some(name) = label.strip_prefix('`') {
        let name = name.trim_end_matches('`');
        return Some((documented.get(name)?.clone(), format!("crate::{name}")));
    }
    if pages().contains_key(label) {
        return Some((format!("{label}.md"), format!("crate::guide::{label}")));
    }
    let file = label.strip_prefix("docs/");
    let on_forge = file.map_or_else(|| format!("../../{label}"), |file| format!("../{file}"));
    let is_there = root().join(label).exists();
    is_there.then(|| (on_forge, format!("<{FORGE}{label}>")))
}

/// The file is as it should be, or is made so when asked for.
fn check(path: &Path, text: &str, faults: &mut Vec<String>) {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return;
    }
    match std::env::var_os("EBBTIDE_REWRITE") {
        Some(_) => fs::write(path, text).unwrap(),
        None => faults.push(format!(
            "{}: its links have changed; EBBTIDE_REWRITE=1 cargo test --test sources guide writes them anew",
            path.display()
        )),
    }
}

#[test]
fn every_link_of_the_guide_leads_somewhere() {
    let (documented, mut faults) = (documented(), vec![]);
    let mut in_rustdoc = BTreeSet::new();
    for path in pages().values() {
        let body = body(&fs::read_to_string(path).unwrap());
        let mut on_forge = String::new();
        for label in labels(&body) {
            let Some((forge, rustdoc)) = leads_to(&label, &documented) else {
                faults.push(format!("{}: nothing is called {label}", path.display()));
                continue;
            };
            on_forge += &format!("[{label}]: {forge}\n");
            in_rustdoc.insert(format!("[{label}]: {rustdoc}\n"));
        }
        check(path, &format!("{body}\n{on_forge}"), &mut faults);
    }
    let in_rustdoc: String = in_rustdoc.into_iter().collect();
    assert!(in_rustdoc.lines().count() > 100, "the reader is broken");
    check(
        &root().join("docs/guide/links.txt"),
        &(in_rustdoc + "\n"),
        &mut faults,
    );
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// A page that has no module is neither shown by rustdoc nor tested.
#[test]
fn every_page_is_a_module_and_stands_in_the_list_of_pages() {
    let modules = fs::read_to_string(root().join("src/guide.rs")).unwrap();
    let (_, modules) = modules.split_once("pages! {").unwrap();
    let modules: BTreeSet<&str> = modules.trim_end_matches("}\n").split_whitespace().collect();
    let pages = pages();
    let mut names: BTreeSet<&str> = pages.keys().map(String::as_str).collect();
    assert!(names.remove("README"));
    assert_eq!(modules, names);
    let list = labels(&fs::read_to_string(&pages["README"]).unwrap());
    for name in names {
        assert!(
            list.contains(name),
            "docs/guide/README.md has no link to {name}"
        );
    }
}
