// The pages of docs/guide, as modules without anything in them, so that their code is compiled and run as examples are.
//
// On the forge the links of a page lead where its last lines say. Here links.txt goes before it: of two definitions of a
// link the first counts, so here they lead to the documentation of the same build, and rustdoc says which lead nowhere.
// tests/sources/guide.rs holds both to the public surface, and writes them anew.

#![doc = include_str!("../docs/guide/links.txt")]
#![doc = include_str!("../docs/guide/README.md")]

macro_rules! pages {
    ($($name:ident)*) => { $(
        #[doc = include_str!("../docs/guide/links.txt")]
        #[doc = include_str!(concat!("../docs/guide/", stringify!($name), ".md"))]
        pub mod $name {}
    )* };
}

pages! {
    which_call ttl durability batches transactions caches indexes reading changes analytical_copies time reclaim options
    looking_inside beside_others backups command_line errors sessions
    documents_queries
    from_rocksdb from_fjall from_redb from_sled from_redis from_cosmos
}
