//! Goal: nothing enters, leaves or changes the library's public surface unseen, it shows nothing of the inside, and
//! burdens nobody with the command's dependencies.
//!
//! Method: the sources are parsed. From the `pub use` lines of lib.rs on, each public name is followed to its definition,
//! and listed with its fields, variants, methods and traits, as far as they are there with the public features. The list is
//! docs/public-api.txt; `EBBTIDE_REWRITE=1 cargo test --test sources public_api` writes it anew. And small programs that depend on
//! the library are compiled: one imports every name of the list, others reach inside and must be refused.
//!
//! Not from rustdoc's JSON, which no stable toolchain writes, and each nightly in a form of its own.

#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Fields, FnArg, ImplItem, Item, ItemUse, Meta, Pat, Signature, Token, TraitItem,
    Type, UseTree, Visibility,
};

const LIST: &str = "docs/public-api.txt";
const HEAD: &str = "\
# The public surface of the library with its public features, as its sources have it. tests/sources/public_api.rs compares them;
# `EBBTIDE_REWRITE=1 cargo test --test sources public_api` writes this file anew.
";

fn root() -> &'static Path {
    testkit::repository()
}

struct Source {
    path: PathBuf,
    /// The outermost module that it is part of.
    module: String,
    items: Vec<Item>,
    /// The names that it imports, with the outermost module that each comes from.
    imports: Vec<(String, String)>,
}

impl Source {
    fn read(path: PathBuf) -> Source {
        let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
        let relative = path.strip_prefix(root().join("src")).unwrap();
        let module = relative.iter().next().unwrap().to_string_lossy();
        let module = module.trim_end_matches(".rs").to_owned();
        let items: Vec<Item> = file.items.into_iter().filter(is_there).collect();
        let mut imports = vec![];
        for item in &items {
            if let Item::Use(line) = item {
                for import in leaves(&line.tree) {
                    let from = match import[0].as_str() {
                        "crate" => import[1].clone(),
                        _ => module.clone(),
                    };
                    imports.push((import.last().unwrap().clone(), from));
                }
            }
        }
        Source {
            path,
            module,
            items,
            imports,
        }
    }

    fn defines(&self, name: &str) -> Option<&Item> {
        self.items
            .iter()
            .find(|item| defined(item).is_some_and(|defined| defined == name))
    }
}

fn sources(folder: &Path, out: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(Source::read(path));
        }
    }
}

/// The name of a type, trait, function or constant that an item defines.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Struct(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Const(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        _ => &[],
    }
}

fn is_there(item: &Item) -> bool {
    has_public_features(attributes(item))
}

/// The one feature that is no part of the surface.
const INTERNALS: &str = "\"unstable-internals\"";

/// Whether the attributes hold for a library with its public features, which is being neither tested nor documented, on
/// whatever system.
fn has_public_features(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .all(|attribute| holds(&attribute.parse_args().unwrap()))
}

fn holds(condition: &Meta) -> bool {
    let name = condition.path().get_ident().unwrap().to_string();
    match condition {
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let mut parts = parts.unwrap().into_iter();
            match name.as_str() {
                "any" => parts.any(|part| holds(&part)),
                "all" => parts.all(|part| holds(&part)),
                "not" => !parts.all(|part| holds(&part)),
                _ => panic!("cfg({name}(..)) is new here"),
            }
        }
        Meta::NameValue(pair) if name == "feature" => text(&pair.value) != INTERNALS,
        _ => !["test", "doc", "doctest", "loom"].contains(&name.as_str()),
    }
}

/// The paths in a `use` line.
fn leaves(tree: &UseTree) -> Vec<Vec<String>> {
    match tree {
        UseTree::Path(path) => leaves(&path.tree)
            .into_iter()
            .map(|rest| [vec![path.ident.to_string()], rest].concat())
            .collect(),
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
        UseTree::Name(name) => vec![vec![name.ident.to_string()]],
        UseTree::Rename(rename) => vec![vec![rename.rename.to_string()]],
        UseTree::Glob(_) => vec![vec!["*".to_owned()]],
    }
}

/// Code on one line, each token and space as the language's usual style has them.
fn text(code: &impl ToTokens) -> String {
    let text = code.to_token_stream().to_string();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    for (at, c) in text.char_indices() {
        let (before, after) = (text[..at].chars().next_back(), text[at..].chars().nth(1));
        let between = before.is_some_and(is_word) && after.is_some_and(is_word);
        let behind_lifetime = c == '[' && out.trim_end_matches(is_word).ends_with('\'');
        if behind_lifetime || is_word(c) && out.ends_with(['>', ')']) {
            out.push(' ');
        }
        if !c.is_whitespace() || between {
            out.push(c);
        }
    }
    for (close, spaced) in [
        (",", ", "),
        ("->", " -> "),
        ("+", " + "),
        ("=", " = "),
        (":", ": "),
        (": : ", "::"),
        ("<<", " << "),
        ("{", " { "),
        (", }", " }"),
        (";type", "; type"),
        ("for&", "for &"),
        (", >", ">"),
        (", )", ")"),
        ("  ", " "),
    ] {
        out = out.replace(close, spaced);
    }
    out.trim().to_owned()
}

/// The attributes that users notice.
fn marks(attributes: &[Attribute]) -> String {
    let mut marks = String::new();
    for attribute in attributes {
        let name = attribute.path().to_token_stream().to_string();
        let is_hidden = name == "doc" && text(attribute).contains("(hidden)");
        match name.as_str() {
            "must_use" | "non_exhaustive" | "deprecated" => marks += &format!("  #[{name}]"),
            _ if is_hidden => marks += "  #[doc(hidden)]",
            "cfg" => marks += &format!("  {}", text(attribute)),
            _ => {}
        }
    }
    marks
}

/// A function's head; whether it changes what it was given is its own affair.
fn signature(sig: &Signature, owner: &str) -> String {
    let mut sig = sig.clone();
    for input in &mut sig.inputs {
        match input {
            FnArg::Receiver(receiver) => receiver.mutability = None,
            FnArg::Typed(typed) => {
                if let Pat::Ident(name) = &mut *typed.pat {
                    name.mutability = None;
                }
            }
        }
    }
    let name = format!("fn {}", sig.ident);
    text(&sig).replacen(&name, &format!("fn {owner}{}", sig.ident), 1)
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn list_fields(name: &str, fields: &Fields, lines: &mut BTreeSet<String>) {
    for (at, field) in fields.iter().enumerate() {
        let ident = field.ident.as_ref().map(ToString::to_string);
        let ident = ident.unwrap_or_else(|| at.to_string());
        if is_public(&field.vis) && has_public_features(&field.attrs) {
            lines.insert(format!("    field {name}.{ident}: {}", text(&field.ty)));
        }
    }
}

/// A definition, and what stands in it: the line of its own, and those below it.
fn list_definition(name: &str, item: &Item) -> (String, BTreeSet<String>) {
    let (marks, mut lines) = (marks(attributes(item)), BTreeSet::new());
    for derived in attributes(item)
        .iter()
        .filter(|attribute| attribute.path().is_ident("derive"))
    {
        let traits = derived.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated);
        for path in traits.unwrap() {
            lines.insert(format!("    impl {} for {name}", text(&path)));
        }
    }
    let head = match item {
        Item::Struct(item) => {
            list_fields(name, &item.fields, &mut lines);
            format!("struct {name}{}", text(&item.generics))
        }
        Item::Enum(item) => {
            for variant in &item.variants {
                let mut plain = variant.clone();
                plain.attrs.clear();
                plain
                    .fields
                    .iter_mut()
                    .for_each(|field| field.attrs.clear());
                lines.insert(format!("    variant {name}::{}", text(&plain)));
            }
            format!("enum {name}{}", text(&item.generics))
        }
        Item::Trait(item) => {
            for member in &item.items {
                let method = match member {
                    TraitItem::Fn(method) => method,
                    TraitItem::Type(ty) => {
                        let generics = text(&ty.generics);
                        lines.insert(format!("    type {name}::{}{generics}", ty.ident));
                        continue;
                    }
                    _ => {
                        panic!("{name} has more than methods and types: this test has to list them")
                    }
                };
                let given = if method.default.is_some() {
                    " { .. }"
                } else {
                    ""
                };
                let method = signature(&method.sig, &format!("{name}::"));
                lines.insert(format!("    {method}{given}"));
            }
            let supertraits = text(&item.supertraits);
            let colon = if supertraits.is_empty() { "" } else { ": " };
            format!("trait {name}{}{colon}{supertraits}", text(&item.generics))
        }
        Item::Type(item) => format!("type {name}{} = {}", text(&item.generics), text(&item.ty)),
        Item::Const(item) => format!("const {name}: {} = {}", text(&item.ty), text(&item.expr)),
        Item::Fn(item) => signature(&item.sig, ""),
        _ => unreachable!("these alone are defined"),
    };
    (format!("pub {head}{marks}"), lines)
}

/// The impls of a type, and those for other types that name it.
fn list_impls(name: &str, home: &Source, sources: &[Source], lines: &mut BTreeSet<String>) {
    for source in sources {
        // A type of the same name may be another one.
        let known = std::ptr::eq(source, home)
            || source.defines(name).is_none()
                && source
                    .imports
                    .iter()
                    .any(|(import, from)| import == name && *from == home.module);
        let impls = source.items.iter().filter_map(|item| match item {
            Item::Impl(block) if known => Some(block),
            _ => None,
        });
        for block in impls {
            let mut own = &*block.self_ty;
            while let Type::Reference(reference) = own {
                own = &reference.elem;
            }
            let own = match own {
                Type::Path(path) => path.path.segments.last().unwrap().ident == name,
                _ => false,
            };
            match &block.trait_ {
                None if own => {
                    let hidden = marks(&block.attrs);
                    for member in &block.items {
                        match member {
                            ImplItem::Fn(method)
                                if is_public(&method.vis) && has_public_features(&method.attrs) =>
                            {
                                let marks = hidden.clone() + &marks(&method.attrs);
                                let method = signature(&method.sig, &format!("{name}::"));
                                lines.insert(format!("    pub {method}{marks}"));
                            }
                            ImplItem::Const(constant) if is_public(&constant.vis) => {
                                let ident = constant.ident.to_string();
                                let ty = text(&constant.ty);
                                lines.insert(format!("    pub const {name}::{ident}: {ty}"));
                            }
                            _ => {}
                        }
                    }
                }
                Some((path, _)) => {
                    let named = path
                        .to_token_stream()
                        .to_string()
                        .split(|c: char| !c.is_alphanumeric())
                        .any(|word| word == name);
                    if own || named {
                        let mut head = block.clone();
                        head.attrs.clear();
                        head.items.retain(|item| matches!(item, ImplItem::Type(_)));
                        let head = text(&head).replace(";}", " }");
                        let head = head.trim_end_matches([' ', ',', '{', '}']);
                        let open = if head.contains('{') { " }" } else { "" };
                        lines.insert(format!("    {head}{open}"));
                    }
                }
                None => {}
            }
        }
    }
}

/// Adds what macros write that are given types alone: `($handle:ident) => { .. }`, or `:ty`, or several.
fn expand(all: &mut [Source]) {
    let mut rules = BTreeMap::new();
    for item in all.iter().flat_map(|source| &source.items) {
        if let Item::Macro(definition) = item
            && let Some(name) = &definition.ident
            && let rule = definition.mac.tokens.to_string().replace("$ ", "$")
            && let Some((pattern, body)) = rule.split_once("=>")
            && let pattern = pattern.replace(['(', ')', ' '], "")
            && let parameters =
                pattern
                    .split(',')
                    .map(|parameter| match parameter.split_once(':') {
                        Some((name, "ident" | "ty")) => Some(name.to_owned()),
                        _ => None,
                    })
            && let Some(parameters) = parameters.collect::<Option<Vec<String>>>()
        {
            let (from, to) = (body.find('{').unwrap(), body.rfind('}').unwrap());
            let body = body[from + 1..to].replace("$crate", "crate");
            rules.insert(name.to_string(), (parameters, body));
        }
    }
    for source in all {
        let mut written = vec![];
        for item in &source.items {
            if let Item::Macro(call) = item
                && let Some((parameters, body)) = rules.get(&text(&call.mac.path))
            {
                let given = Punctuated::<Type, Token![,]>::parse_terminated;
                let given = call.mac.parse_body_with(given).unwrap();
                let pairs = parameters.iter().zip(&given);
                let body = pairs.fold(body.clone(), |body, (parameter, given)| {
                    body.replace(parameter, &given.to_token_stream().to_string())
                });
                written.extend(syn::parse_file(&body).unwrap().items);
            }
        }
        source.items.extend(written);
    }
}

/// The ends of lines that give private types what public ones have.
const PRIVATE: [&str; 3] = [" for Unready", " for WriteTtl", " for NoWall"];

/// Packages whose types and macros are shown as they are.
const FOREIGN: [&str; 2] = ["bytes", "ebbtide_derive"];

/// The lines by which lib.rs and its public modules make names public, with the names of these modules.
fn exports<'a>(lib: &'a Source, all: &'a [Source]) -> Vec<(Option<&'a str>, &'a ItemUse)> {
    let mut exports = vec![];
    for item in &lib.items {
        match item {
            Item::Use(line) if is_public(&line.vis) => exports.push((None, line)),
            // For this project's other crates alone.
            Item::Mod(module) if marks(&module.attrs).contains("(hidden)") => {}
            Item::Mod(module) if is_public(&module.vis) => {
                let name = module.ident.to_string();
                let root = all.iter().find(|source| {
                    source.module == name && source.path.ends_with(format!("{name}/mod.rs"))
                });
                let root = root.unwrap_or_else(|| panic!("{name} has no mod.rs"));
                for item in &root.items {
                    match item {
                        Item::Use(line) if is_public(&line.vis) => {
                            exports.push((Some(&*root.module), line));
                        }
                        _ if defined(item).is_some() => panic!("{name} defines things in mod.rs"),
                        _ => {}
                    }
                }
            }
            _ if defined(item).is_some() => panic!("lib.rs defines nothing of its own"),
            _ => {}
        }
    }
    exports
}

/// The names that are public, and the list.
fn surface() -> (Vec<String>, String) {
    let mut all = vec![];
    sources(&root().join("src"), &mut all);
    expand(&mut all);
    all.sort_by(|a, b| a.path.cmp(&b.path));
    let lib = all.iter().find(|source| source.module == "lib").unwrap();
    let (mut names, mut blocks) = (vec![], vec![]);
    for (within, line) in exports(lib, &all) {
        for path in leaves(&line.tree) {
            let name = path.last().unwrap();
            let full = within.map_or(name.clone(), |module| format!("{module}::{name}"));
            names.push(full.clone());
            if FOREIGN.contains(&path[0].as_str()) {
                blocks.push((full, format!("pub use {}", path.join("::"))));
                continue;
            }
            let module = within.unwrap_or(&path[0]);
            let homes: Vec<&Source> = all
                .iter()
                .filter(|source| source.module == module && source.defines(name).is_some())
                .collect();
            let [home] = homes[..] else {
                panic!("{full} is defined {} times in {module}", homes.len());
            };
            let (head, mut lines) = list_definition(&full, home.defines(name).unwrap());
            let head = head + &marks(&line.attrs);
            list_impls(name, home, &all, &mut lines);
            // The traits of a private type are not public either.
            let is_private = |line: &String| PRIVATE.iter().any(|of| line.ends_with(of));
            let lines = Vec::from_iter(lines.into_iter().filter(|line| !is_private(line)));
            blocks.push((full, [vec![head], lines].concat().join("\n")));
        }
    }
    blocks.sort();
    let blocks: Vec<String> = blocks.into_iter().map(|(_, block)| block).collect();
    (names, format!("{HEAD}\n{}\n", blocks.join("\n\n")))
}

#[test]
fn the_surface_is_what_is_listed() {
    let (names, found) = surface();
    assert!(names.len() > 25, "only {names:?} were found");
    let path = root().join(LIST);
    if testkit::env("EBBTIDE_REWRITE", 0) == 1 {
        fs::write(&path, &found).unwrap();
    }
    let listed = fs::read_to_string(&path).unwrap();
    let (listed, found): (Vec<_>, Vec<_>) = (listed.lines().collect(), found.lines().collect());
    let gone = listed.iter().filter(|line| !found.contains(line));
    let new = found.iter().filter(|line| !listed.contains(line));
    let differing: Vec<String> = gone
        .map(|line| format!("- {}", line.trim()))
        .chain(new.map(|line| format!("+ {}", line.trim())))
        .collect();
    assert!(
        differing.is_empty() && listed == found,
        "the public surface is no longer what {LIST} says; with intent, write it anew (EBBTIDE_REWRITE=1):\n{}",
        differing.join("\n")
    );
}

/// Of the standard library, and parameters. A name that is added here is one that users know.
const KNOWN: &str = "Any Arc AsRef AsyncFnOnce Borrow Bound C ControlFlow Debug Deref DoubleEndedIterator Duration Error ExactSizeIterator Fn FnMut FnOnce \
    FusedIterator Hash Into IntoIter IntoIterator Item Iterator K N Option Output Path PathBuf Range RangeFrom RangeFull \
    RangeInclusive RangeTo RangeToInclusive Self Send Sized String Sync SystemTime T Target Vec Clone Copy Default Display \
    Drop Eq From Ord PartialEq Stream PartialOrd B I \
    Serialize Deserialize DeserializeOwned RangeBounds Borrowed Data Cow Extend FromIterator FromStr Err IpAddr Ipv4Addr \
    Ipv6Addr Uuid P Q ToOwned Owned Tuple";

/// A program can name the type of everything that it gets.
#[test]
fn no_signature_has_a_type_that_is_not_public() {
    let (names, found) = surface();
    let mut unknown = BTreeSet::new();
    let is_known = |word: &str| {
        KNOWN.split_whitespace().any(|known| known == word)
            || names
                .iter()
                .any(|name| name.rsplit("::").next() == Some(word))
    };
    for line in found.lines().filter(|line| !line.starts_with('#')) {
        // The name of a variant or of a function is no type; what it holds or takes is.
        let named = line.trim().strip_prefix("variant ");
        let named = named.or_else(|| Some(line.split_once(" fn ")?.1));
        let types = match named {
            Some(named) => named
                .split_once(['(', '{', '<'])
                .map_or("", |(_, held)| held),
            None => line,
        };
        let words = types.split(|c: char| !c.is_alphanumeric() && c != '_');
        let types = words.filter(|word| {
            word.starts_with(char::is_uppercase) && word.chars().any(char::is_lowercase)
        });
        for word in types.filter(|word| !is_known(word)) {
            unknown.insert(format!("{word}: {}", line.trim()));
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// A package that depends on the library, as others write theirs.
struct Embedder(PathBuf);

impl Embedder {
    fn new() -> Embedder {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("embedder");
        fs::create_dir_all(folder.join("src/bin")).unwrap();
        let manifest = format!(
            "[package]\nname = \"embedder\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\nebbtide = {{ path = {:?}, features = [\"derive\", \"tokio\", \"typed\"] }}\n",
            root()
        );
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        // The versions that are here already, so that nothing is fetched.
        fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        Embedder(folder)
    }

    /// Checks a program; `None` when it is right, or else what the compiler said. In the folder of all that is built, where
    /// much of what that takes is already.
    fn compile(&self, name: &str, program: &str) -> Option<String> {
        fs::write(self.0.join(format!("src/bin/{name}.rs")), program).unwrap();
        let output = Command::new(env!("CARGO"))
            .args([
                "check",
                "--offline",
                "--quiet",
                "--bin",
                name,
                "--target-dir",
            ])
            .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap())
            .current_dir(&self.0)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success()).then_some(said)
    }
}

#[test]
fn embedders_see_the_surface_and_nothing_of_the_inside() {
    let embedder = Embedder::new();
    let (names, _) = surface();
    let imports = format!(
        "#![allow(unused_imports)]\nuse ebbtide::{{{}}};\nfn main() {{}}\n",
        names.join(", ")
    );
    assert_eq!(embedder.compile("imports", &imports), None);

    let inside = "use ebbtide::internals::Sim;\nfn main() {}\n";
    let said = embedder.compile("internals", inside);
    assert!(
        said.as_ref()
            .is_some_and(|said| said.contains("`internals`")),
        "{said:?}"
    );

    let methods = "\
        use ebbtide::{Database, Options};\n\
        pub fn options() { Options::new().fs(()); Options::new().stepped(); Options::new().sizes(1, 1, 1); }\n\
        pub fn database(db: &Database) { db.step(); db.describe(); }\n\
        fn main() {}\n";
    let said = embedder
        .compile("methods", methods)
        .expect("they are refused");
    for method in ["fs", "stepped", "sizes", "step", "describe"] {
        let refused = format!("no method named `{method}` found");
        assert!(said.contains(&refused), "{method}: {said}");
    }

    let lock = fs::read_to_string(embedder.0.join("Cargo.lock")).unwrap();
    for dependency in ["clap", "indicatif", "signal-hook"] {
        assert!(
            !lock.contains(&format!("name = \"{dependency}\"\n")),
            "{dependency}"
        );
    }
}

#[test]
fn the_reader_of_sources_reads() {
    let file = syn::parse_file(
        "#[cfg(any(test, feature = \"unstable-internals\"))] pub struct Gone;\n\
         #[cfg(not(test))] pub struct Here;\n\
         #[derive(Clone, std::fmt::Debug)] #[must_use = \"so\"] pub struct Pair<T>(pub Vec<T>, u8);",
    );
    let items: Vec<Item> = file.unwrap().items.into_iter().filter(is_there).collect();
    let names: Vec<_> = items.iter().filter_map(defined).collect();
    assert_eq!(names, ["Here", "Pair"]);
    let (head, lines) = list_definition("Pair", &items[1]);
    assert_eq!(head, "pub struct Pair<T>  #[must_use]");
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    assert_eq!(
        lines,
        [
            "field Pair.0: Vec<T>",
            "impl Clone for Pair",
            "impl std::fmt::Debug for Pair"
        ]
    );
    let function = "pub fn f<'a, T: A + ?Sized>(mut self, mut b: &'a [u8], c: impl Fn(u8) -> Option<T>) -> Result<(), E> {}";
    let Item::Fn(function) = syn::parse_str(function).unwrap() else {
        panic!("it is a function");
    };
    assert_eq!(
        signature(&function.sig, "S::"),
        "fn S::f<'a, T: A + ?Sized>(self, b: &'a [u8], c: impl Fn(u8) -> Option<T>) -> Result<(), E>"
    );
}
