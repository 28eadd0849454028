//! Goal: the order of the `mod` lines is the architecture.
//!
//! Method: the sources are read as text, without comments and unit tests. Every path that starts with `crate::`,
//! `super::`, `self::` or a folder's own module is followed, name by name and through re-exports, to a module; its
//! `mod` line must be above that of the module that uses it (inside a folder, the folder's mod.rs gives the order). A
//! folder's mod.rs counts as after the last of its modules that it uses: only later ones may use it; re-exports are no
//! use. Also checked: who may use files, time and threads, where `unsafe` may be, how long files and functions may be,
//! leftovers such as TODOs, and how comments begin (comments.rs). In documents: every relative link leads to a file and
//! to a heading in it, files and names that they tell of exist (named.rs), pictures of bytes are those of the sources, and DESIGN.md stays short.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

mod comments;
mod features;
mod named;

/// These shelves do not know of each other.
const SIBLINGS: [&str; 3] = ["wal", "mem", "table"];
const UNSAFE: [&str; 8] = [
    "base/prefetch.rs",
    "mem/arena.rs",
    "mem/kept.rs",
    "mem/load.rs",
    "mem/node.rs",
    "mem/tree.rs",
    "env/aio.rs",
    "env/system.rs",
];

/// No file of the libraries and the command is longer, in lines, and no file of tests than the second.
const FILE_LINES: usize = 600;
const TEST_LINES: usize = 900;
/// No function of the library is longer, in lines; a longer one is a list of named steps.
const FUNCTION_LINES: usize = 60;

struct Source {
    /// Relative to src.
    name: String,
    /// Its module's path: `["env", "clock"]`; empty for lib.rs.
    module: Vec<String>,
    /// Without comments, strings and unit tests.
    code: String,
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            // A package of its own has a folder of what is built.
            if !path.ends_with("target") {
                files(&path, out);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// The library's sources: other packages stand on its public face, which the compiler sees to.
fn sources() -> Vec<Source> {
    let root = testkit::repository().join("src");
    let mut paths = vec![];
    files(&root, &mut paths);
    let name = |path: &PathBuf| {
        path.strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/")
    };
    paths
        .iter()
        .filter(|path| !path.ends_with("tests.rs") && !path.ends_with("models.rs"))
        .filter(|path| !name(path).contains("/tests/"))
        .map(|path| {
            let name = name(path);
            let module = name
                .trim_end_matches(".rs")
                .trim_end_matches("/mod")
                .split('/')
                .map(str::to_owned);
            let module: Vec<String> = module.filter(|part| part != "lib").collect();
            Source {
                code: without_tests(&without_comments(&fs::read_to_string(path).unwrap())),
                name,
                module,
            }
        })
        .collect()
}

/// Leaves out comments and what strings say; keeps the lines.
fn without_comments(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), String::new(), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if let Some(len) = raw_string(rest).or_else(|| string(rest)) {
            out.push_str("\"\"");
            out.extend(rest[..len].chars().filter(|&c| c == '\n'));
            at += len;
        } else if let Some(len) = char_literal(rest) {
            out.push_str("' '");
            at += len;
        } else {
            let next = rest.chars().next().unwrap();
            out.push(next);
            at += next.len_utf8();
        }
    }
    out
}

fn raw_string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let quoted = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(rest.len() - quoted.len() + quoted.find(&close)? + close.len())
}

fn string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('"')?;
    let mut escaped = false;
    let end = body.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some(end + 2)
}

fn char_literal(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    if let Some(escaped) = body.strip_prefix('\\') {
        return Some(escaped.char_indices().skip(1).find(|(_, c)| *c == '\'')?.0 + 3);
    }
    let first = body.chars().next()?;
    body[first.len_utf8()..]
        .starts_with('\'')
        .then(|| first.len_utf8() + 2)
}

/// Leaves out whatever stands under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let (mut out, mut rest) = (String::new(), code);
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        let mut depth = 0;
        let end = item.char_indices().find(|&(_, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && (c == '}' || c == ';')
        });
        rest = &item[end.map_or(item.len(), |(at, c)| at + c.len_utf8())..];
    }
    out + rest
}

/// The names in a module's `mod` lines, in order.
fn mod_lines(code: &str) -> Vec<String> {
    let lines = code.lines().filter_map(|line| {
        let line = line
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub ");
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    lines.map(str::to_owned).collect()
}

/// A path, as it stands in the code.
#[derive(Debug, PartialEq)]
struct Use {
    path: Vec<String>,
    /// How many inline modules it stands in.
    inline: usize,
    /// It is a re-export.
    public: bool,
}

/// Every path in the code that starts at a module: `use crate::{a::b, c}` is two of them.
fn uses(code: &str, children: &[String]) -> Vec<Use> {
    let tokens = tokens(code);
    let (mut found, mut depth, mut inline) = (vec![], 0, vec![]);
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inline.retain(|&opened| opened < depth);
            }
            "mod" if tokens.get(at + 2).is_some_and(|token| token == "{") => inline.push(depth),
            _ => {}
        }
        let follows = at > 0 && tokens[at - 1] == "::";
        let starts =
            ["crate", "super", "self"].contains(&token.as_str()) || children.contains(token);
        // `pub(in crate::engine)` says who sees it, and imports nothing.
        let is_visibility = at > 2 && tokens[at - 3..at] == ["pub", "(", "in"];
        if starts
            && !follows
            && !is_visibility
            && tokens.get(at + 1).is_some_and(|token| token == "::")
        {
            let public = at > 1
                && tokens[at - 1] == "use"
                && (tokens[at - 2] == "pub" || tokens[at - 2] == ")");
            let mut paths = vec![];
            follow(&tokens, at, &[], &mut paths);
            found.extend(paths.into_iter().map(|path| Use {
                path,
                inline: inline.len(),
                public,
            }));
        }
    }
    found
}

fn tokens(code: &str) -> Vec<String> {
    let (mut tokens, mut rest) = (vec![], code);
    while let Some(first) = rest.chars().next() {
        let word = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let len = match first {
            _ if word > 0 => word,
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() {
            tokens.push(rest[..len].to_owned());
        }
        rest = &rest[len..];
    }
    tokens
}

/// Reads one path, or a group of them, from `at`; answers where it ends.
fn follow(
    tokens: &[String],
    mut at: usize,
    start: &[String],
    found: &mut Vec<Vec<String>>,
) -> usize {
    let mut path = start.to_vec();
    while let Some(token) = tokens.get(at) {
        if token == "{" {
            at += 1;
            while tokens.get(at).is_some_and(|token| token != "}") {
                at = follow(tokens, at, &path, found);
                at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
            }
            return at + 1;
        }
        let word = token.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '*');
        if !word {
            break;
        }
        path.push(token.clone());
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            if tokens.get(at).is_some_and(|token| token == "as") {
                at += 2;
            }
            break;
        }
        at += 1;
    }
    found.push(path);
    at.max(1)
}

/// A module's `mod` lines, and where the names come from that it re-exports.
#[derive(Default)]
struct Face {
    order: Vec<String>,
    re_exports: BTreeMap<String, Vec<String>>,
    /// How many of these, from the front, the module itself stands behind: up to the last one that it uses.
    stands_behind: usize,
}

type Faces = BTreeMap<Vec<String>, Face>;

fn faces(sources: &[Source]) -> Faces {
    let mut faces: Faces = BTreeMap::new();
    for source in sources {
        let order = mod_lines(&source.code);
        faces.insert(
            source.module.clone(),
            Face {
                order,
                ..Face::default()
            },
        );
    }
    for source in sources {
        for one in uses(&source.code, &faces[&source.module].order) {
            let to = resolve(&source.module, &one, &faces);
            let inside = to.len() > source.module.len() && to.starts_with(&source.module);
            let face = faces.get_mut(&source.module).unwrap();
            if one.public {
                face.re_exports.insert(one.path.last().unwrap().clone(), to);
            } else if inside {
                let child = &to[source.module.len()];
                let place = face.order.iter().position(|known| known == child);
                face.stands_behind = face.stands_behind.max(place.map_or(0, |place| place + 1));
            }
        }
    }
    faces
}

/// Where a path leads, as far as modules go.
fn resolve(from: &[String], one: &Use, faces: &Faces) -> Vec<String> {
    let mut module = match one.path[0].as_str() {
        "crate" => vec![],
        _ => from.to_vec(),
    };
    let mut inline = one.inline;
    for part in &one.path {
        let face = faces.get(&module);
        match part.as_str() {
            "crate" | "self" => {}
            "super" if inline > 0 => inline -= 1,
            "super" => drop(module.pop()),
            name if face.is_some_and(|face| face.order.iter().any(|known| known == name)) => {
                module.push(name.to_owned());
            }
            name => {
                return face
                    .and_then(|face| face.re_exports.get(name))
                    .unwrap_or(&module)
                    .clone();
            }
        }
    }
    module
}

/// Says what is wrong with `from` using `to`.
fn judge(from: &[String], to: &[String], faces: &Faces) -> Option<String> {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    if common == from.len() {
        // Itself, or what lies in it.
        return None;
    }
    if common == to.len() {
        return match to {
            [] => Some("reaches into lib.rs".into()),
            _ => {
                let face = &faces[to];
                let place = face.order.iter().position(|known| *known == from[common]);
                (place < Some(face.stands_behind)).then(|| {
                    format!(
                        "uses {}, the folder it lies in, which uses it or what is below it",
                        to.join("::")
                    )
                })
            }
        };
    }
    let order = &faces[&from[..common]].order;
    let place = |name: &String| order.iter().position(|known| known == name);
    if place(&to[common]) > place(&from[common]) {
        return Some(format!("uses {}, which stands below it", to.join("::")));
    }
    let siblings = |name: &str| SIBLINGS.contains(&name);
    (common == 0 && siblings(&from[0]) && siblings(&to[0]))
        .then(|| format!("uses {}, its sibling", to.join("::")))
}

fn report(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn imports_point_up() {
    let sources = sources();
    let faces = faces(&sources);
    let (mut faults, mut followed) = (vec![], 0);
    for source in sources.iter().filter(|source| !source.module.is_empty()) {
        for one in uses(&source.code, &faces[&source.module].order) {
            let to = resolve(&source.module, &one, &faces);
            followed += 1;
            if let Some(fault) = judge(&source.module, &to, &faces) {
                faults.push(format!(
                    "src/{} {fault} ({})",
                    source.name,
                    one.path.join("::")
                ));
            }
        }
    }
    assert!(
        followed > 50,
        "only {followed} paths were found: the reader of sources is broken"
    );
    faults.dedup();
    report(faults);
}

/// The public types ask the engine. Of the folders that it stands on they know values alone.
#[test]
fn the_api_calls_the_engine_alone() {
    let sources = sources();
    let faces = faces(&sources);
    let mut faults = vec![];
    for source in sources.iter().filter(|it| it.name.starts_with("api/")) {
        for one in uses(&source.code, &faces[&source.module].order) {
            let to = resolve(&source.module, &one, &faces).join("::");
            let folder = to.split("::").next().unwrap_or_default();
            let is_below = ["wal", "mem", "table", "catalog", "compact"].contains(&folder);
            if is_below && to != "catalog::ledger" {
                faults.push(format!("src/{} uses {to}", source.name));
            }
        }
    }
    report(faults);
}

#[test]
fn every_file_is_a_module_in_order() {
    let sources = sources();
    let faces = faces(&sources);
    let mut faults = vec![];
    for source in sources.iter().filter(|source| !source.module.is_empty()) {
        let (name, folder) = source.module.split_last().unwrap();
        if !faces
            .get(folder)
            .is_some_and(|face| face.order.contains(name))
        {
            faults.push(format!("src/{} has no `mod` line", source.name));
        }
    }
    report(faults);
}

#[test]
fn only_env_touches_the_world() {
    let mut faults = vec![];
    for source in sources()
        .iter()
        .filter(|source| !source.name.starts_with("env/"))
    {
        for world in [
            "std::fs",
            "fs::File",
            "std::thread",
            "thread::sleep",
            "Instant",
            "SystemTime::now",
            "memmap2",
            "rustix",
        ] {
            if source.code.contains(world) {
                faults.push(format!("src/{} uses {world}", source.name));
            }
        }
    }
    report(faults);
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    let mut faults = vec![];
    for source in sources() {
        let has = tokens(&source.code).iter().any(|token| token == "unsafe");
        if has && !UNSAFE.contains(&source.name.as_str()) {
            faults.push(format!("src/{} has unsafe code", source.name));
        }
    }
    report(faults);
}

/// Each part of the engine owns its state: what stands in its struct is its file's alone, and the engine's own fields are
/// its folder's. Options are a value, and no state.
#[test]
fn no_part_of_the_engine_shows_its_fields() {
    let mut faults = vec![];
    for source in sources()
        .iter()
        .filter(|source| source.name.starts_with("engine/"))
        .filter(|source| source.name != "engine/options.rs")
    {
        for (number, line) in source.code.lines().enumerate() {
            let line = line.trim();
            let opened = ["pub(super) ", "pub(crate) ", "pub(in "];
            let is_field = |rest: &str| !rest.starts_with("fn ") && rest.contains(": ");
            let rest = opened.iter().find_map(|opened| line.strip_prefix(opened));
            if rest.is_some_and(is_field) && line.ends_with(',') {
                faults.push(format!("src/{}:{}: {line}", source.name, number + 1));
            }
        }
    }
    report(faults);
}

/// The functions in the code, with their lines: from the one with `fn` to that of the closing brace.
fn functions(code: &str) -> Vec<(String, usize)> {
    let (mut found, mut open, mut depth) = (vec![], vec![], 0);
    let mut named = None;
    for (line, text) in code.lines().enumerate() {
        let tokens = tokens(text);
        for (at, token) in tokens.iter().enumerate() {
            match token.as_str() {
                "fn" if tokens.get(at + 1).is_some_and(|next| next != "(") => {
                    named = Some((tokens[at + 1].clone(), line));
                }
                // A declaration; but an array's length in a signature is no end.
                ";" if depth == open.last().map_or(0, |&(_, _, depth)| depth) => named = None,
                "[" | "(" => depth += 1,
                "]" | ")" => depth -= 1,
                "{" => {
                    open.extend(named.take().map(|(name, line)| (name, line, depth)));
                    depth += 1;
                }
                "}" => {
                    depth -= 1;
                    if open.last().is_some_and(|&(_, _, outside)| outside == depth) {
                        let (name, from, _) = open.pop().unwrap();
                        found.push((name, line - from + 1));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// A fault for each file or function that is too long.
fn too_long(lines: &BTreeMap<String, usize>) -> Vec<String> {
    let told = |(name, lines)| format!("{name} has {lines} lines");
    lines.iter().map(told).collect()
}

#[test]
fn no_file_is_too_long() {
    let root = testkit::repository();
    let mut paths = vec![];
    files(&root.join("src"), &mut paths);
    files(&root.join("tests"), &mut paths);
    files(&root.join("crates"), &mut paths);
    let mut long = BTreeMap::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap();
        let name = name.to_string_lossy().replace('\\', "/");
        let of_tests = ["tests", "testkit", "models.rs"];
        let is_test = of_tests.iter().any(|part| name.contains(part));
        let most = if is_test { TEST_LINES } else { FILE_LINES };
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        if lines > most {
            long.insert(name, lines);
        }
    }
    report(too_long(&long));
}

#[test]
fn no_function_is_too_long() {
    let (mut long, mut seen) = (BTreeMap::new(), 0);
    for source in sources() {
        for (name, lines) in functions(&source.code) {
            seen += 1;
            if lines > FUNCTION_LINES {
                long.insert(format!("src/{} {name}", source.name), lines);
            }
        }
    }
    assert!(seen > 500, "only {seen} functions were found");
    report(too_long(&long));
}

#[test]
fn nothing_is_left_behind() {
    let root = testkit::repository();
    let mut paths = vec![];
    files(&root.join("src"), &mut paths);
    files(&root.join("crates"), &mut paths);
    let mut faults = vec![];
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for word in ["TODO", "FIXME", "XXX", "todo!", "unimplemented!", "dbg!"] {
            for (number, _) in text
                .lines()
                .enumerate()
                .filter(|(_, line)| line.contains(word))
            {
                faults.push(format!("{}:{} has {word}", path.display(), number + 1));
            }
        }
    }
    report(faults);
}

/// A person reads so many in twenty minutes.
const DESIGN_BYTES: u64 = 20_480;

/// The documents of the root folder and all of docs/.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.join("docs")];
    let mut found = vec![];
    let mut look = |folder: &Path, folders: Option<&mut Vec<PathBuf>>| {
        let paths = fs::read_dir(folder).unwrap();
        let (inner, flat): (Vec<_>, Vec<_>) = paths
            .map(|entry| entry.unwrap().path())
            .partition(|path| path.is_dir());
        let is_document = |path: &PathBuf| path.extension().is_some_and(|name| name == "md");
        found.extend(flat.into_iter().filter(is_document));
        if let Some(folders) = folders {
            folders.extend(inner);
        }
    };
    look(root, None);
    while let Some(folder) = folders.pop() {
        look(&folder, Some(&mut folders));
    }
    found.sort();
    found
}

/// Without fenced blocks of code.
fn without_code(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Where its links lead: `](here)`.
fn links(text: &str) -> Vec<String> {
    let text = without_code(text);
    let behind = text.split("](").skip(1);
    behind
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link.to_owned())
        .collect()
}

/// The names by which links lead to its headings.
fn anchors(text: &str) -> Vec<String> {
    let text = without_code(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let root = testkit::repository();
    let (mut faults, mut followed) = (vec![], 0);
    for document in documents(root) {
        let text = fs::read_to_string(&document).unwrap();
        let folder = document.parent().unwrap();
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            followed += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let to = match file {
                "" => document.clone(),
                file => folder.join(file),
            };
            let is_right = match anchor {
                "" => to.exists(),
                anchor => fs::read_to_string(&to)
                    .is_ok_and(|text| anchors(&text).iter().any(|known| known == anchor)),
            };
            if !is_right {
                faults.push(format!("{}: nothing at {link}", document.display()));
            }
        }
    }
    assert!(
        followed > 20,
        "only {followed} links were found: the reader of documents is broken"
    );
    report(faults);
}

/// Comments of the sources name documents by their place in the repository.
#[test]
fn documents_that_sources_name_exist() {
    let root = testkit::repository();
    let mut paths = vec![];
    for folder in ["src", "examples"] {
        files(&root.join(folder), &mut paths);
    }
    let mut faults = vec![];
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("docs/") {
            let name = text[at..].split(|c: char| !(c.is_alphanumeric() || "/-_.".contains(c)));
            let name = name.map(|name| name.trim_end_matches('.')).next().unwrap();
            if name.ends_with(".md") && !root.join(name).exists() {
                faults.push(format!("{} names {name}", path.display()));
            }
        }
    }
    report(faults);
}

/// docs/format.md shows the pictures of bytes that stand at the heads of the files that write them.
#[test]
fn pictures_of_bytes_are_those_of_the_sources() {
    let root = testkit::repository();
    let text = fs::read_to_string(root.join("docs/format.md")).unwrap();
    let (mut faults, mut compared) = (vec![], 0);
    for part in text.split("\n```\n") {
        let Some((before, picture)) = part.split_once("```text\n") else {
            continue;
        };
        let name = before.trim_end().trim_end_matches(':');
        let name = name.rsplit(char::is_whitespace).next().unwrap();
        let source = fs::read_to_string(root.join(name)).unwrap();
        let head = source.lines().map_while(|line| line.strip_prefix("//!"));
        let head = head.map(|line| line.strip_prefix(' ').unwrap_or(line));
        let head = head.collect::<Vec<_>>().join("\n");
        compared += 1;
        if !head.contains(&format!("```text\n{picture}\n```")) {
            faults.push(format!("docs/format.md has another picture than {name}"));
        }
    }
    assert!(
        compared > 10,
        "only {compared} pictures were found: the reader of documents is broken"
    );
    report(faults);
}

#[test]
fn the_design_is_short() {
    let path = testkit::repository().join("DESIGN.md");
    let len = fs::metadata(path).unwrap().len();
    assert!(
        len <= DESIGN_BYTES,
        "DESIGN.md has {len} bytes, more than {DESIGN_BYTES}: what need not be read by all goes to docs/"
    );
}

#[test]
fn the_reader_of_documents_reads() {
    let text =
        "# A `b()`: c-d, e_f\n[x](y.md#z) ![p](q.svg)\n```\n# no\n[n](no)\n```\n[w](#a-b-c-d-e_f)";
    assert_eq!(links(text), ["y.md#z", "q.svg", "#a-b-c-d-e_f"]);
    assert_eq!(anchors(text), ["a-b-c-d-e_f"]);
}

#[test]
fn the_reader_of_sources_reads() {
    let code = without_tests(&without_comments(
        "use crate::{a::b, c as d};\n// use crate::e;\nlet x = \"crate::f\";\nlet y = 'x';\n\
         fn g<'a>() -> super::h::I { self::j() }\n#[cfg(test)]\nmod tests { use crate::k; fn t() {} }\npub use l::*;\n\
         mod m { use super::N; }",
    ));
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let found = uses(&code, &names(&["l"]));
    let shown: Vec<String> = found.iter().map(|one| one.path.join("::")).collect();
    assert_eq!(
        shown,
        [
            "crate::a::b",
            "crate::c",
            "super::h::I",
            "self::j",
            "l::*",
            "super::N"
        ]
    );
    assert!(found[4].public && !found[0].public);
    assert_eq!((found[5].inline, found[3].inline), (1, 0));
}

#[test]
fn the_counter_of_lines_counts() {
    let code = "trait T {\n  fn a(&self);\n  fn b(&self) -> [u8; 2]\n  {\n    fn c() {}\n    [0; 2]\n  }\n}\nfn d(\n  f: fn(u8),\n) {\n}\n";
    let found = functions(code);
    let shown: Vec<(&str, usize)> = found
        .iter()
        .map(|(name, lines)| (name.as_str(), *lines))
        .collect();
    assert_eq!(shown, [("c", 1), ("b", 5), ("d", 4)]);
}

#[test]
fn the_judge_of_imports_judges() {
    let source = |name: &str, module: &[&str], code: &str| Source {
        name: name.to_owned(),
        module: module.iter().map(|part| (*part).to_owned()).collect(),
        code: code.to_owned(),
    };
    let sources = [
        source(
            "lib",
            &[],
            "mod low;\nmod wal;\nmod mem;\nmod knot;\npub use mem::Thing;",
        ),
        source("low", &["low"], ""),
        source("wal", &["wal"], ""),
        source(
            "mem",
            &["mem"],
            "mod first;\nmod second;\npub use second::Deep;\npub struct Own;",
        ),
        source("mem/first", &["mem", "first"], ""),
        source("mem/second", &["mem", "second"], ""),
        source(
            "knot",
            &["knot"],
            "mod before;\nmod end;\nmod after;\nfn f() { end::g() }",
        ),
        source("knot/before", &["knot", "before"], ""),
        source("knot/end", &["knot", "end"], ""),
        source("knot/after", &["knot", "after"], ""),
    ];
    let faces = faces(&sources);
    let wrong = |from: &str, path: &str| {
        let split = |text: &str| text.split("::").map(str::to_owned).collect::<Vec<_>>();
        let from = split(from);
        let one = Use {
            path: split(path),
            inline: 0,
            public: false,
        };
        judge(&from, &resolve(&from, &one, &faces), &faces).is_some()
    };
    assert!(!wrong("mem", "crate::low::Thing"));
    assert!(wrong("low", "crate::mem::Thing"));
    assert!(wrong("mem::first", "crate::wal::Thing"), "a sibling");
    assert!(
        wrong("mem::first", "super::second::Thing"),
        "below it in the folder"
    );
    assert!(
        wrong("mem::first", "super::Deep"),
        "the same through a re-export"
    );
    assert!(!wrong("mem::second", "super::first::Thing"));
    assert!(!wrong("mem::second", "super::Own"));
    assert!(
        wrong("knot::end", "super::Own"),
        "the folder uses it in turn"
    );
    assert!(
        wrong("knot::before", "super::Own"),
        "the folder uses what may use it"
    );
    assert!(!wrong("knot::after", "super::Own"));
    assert!(wrong("low", "crate::Thing"), "below it, through lib.rs");
    assert!(!wrong("knot", "crate::Thing"));
}
