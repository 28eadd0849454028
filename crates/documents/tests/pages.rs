//! The guide's page on documents shows the example that is compiled and run.

#![allow(clippy::disallowed_methods)]

#[test]
fn the_guide_shows_the_example() {
    let page = include_str!("../../../docs/guide/documents.md");
    let (_, shown) = page.split_once("```rust,ignore\n").unwrap();
    let (shown, _) = shown.split_once("```\n").unwrap();
    let example = include_str!("../examples/carts.rs");
    let example = &example[example.find("use ").unwrap()..example.find("\n#[test]").unwrap()];
    assert_eq!(shown, example);
}
