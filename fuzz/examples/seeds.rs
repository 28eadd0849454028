//! Writes seeds/: a few small inputs for each target, from which mutation reaches the rest. Run it in this folder.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ebbtide::internals::pieces::{Footer, Index, SegmentHeader, Trailer};
use ebbtide::internals::{
    Base, Census, ContainerId, DefaultMillis, Expire, ExpiryHistogram, FrameHeader, FrameKind, Fs,
    Header, ItemTtl, Kind, Log, LogOptions, Op, PayloadCrc, RecordRef, Relogged, Seq, Settings,
    Sim, TableBuilder, TableId, TableMeta, TableOptions, Tally, Timestamp, WriteTtl,
};
use ebbtide::{Compression, Result};
use ebbtide_fuzz::TARGETS;

#[allow(dead_code)]
#[path = "../../crates/cluster/src/net/frame.rs"]
mod net;

/// The targets in documents/ and cluster/.
const OF_OTHER_CRATES: [&str; 6] = [
    "document_query",
    "document_patch",
    "document_path",
    "document_partition_key",
    "document_continuation",
    "cluster_frame",
];

const NOW: u64 = 1_772_366_400_000;

fn main() -> Result<()> {
    let mut seeds: Vec<(&str, Vec<u8>)> = vec![("batch", batch()), ("relog", relog())];
    seeds.extend(headers().map(|header| ("header", header)));
    seeds.extend(censuses().map(|census| ("census", census)));
    seeds.extend(MANIFESTS.map(|lines| ("manifest", [b"\x20\0\x01", lines.as_bytes()].concat())));
    seeds.extend(CHANGES.map(|lines| ("open", [b"\0\0\0", lines.as_bytes()].concat())));
    seeds.push(("open", [b"\x01", &soup(5, 200)[..]].concat()));
    seeds.extend(pieces(&table(Compression::None)?)?);
    seeds.extend(frames());
    for raw in [log(None)?, log(Some(512))?] {
        seeds.push(("log", raw));
    }
    seeds.extend([1, 2].map(|mode| ("log", [&[mode][..], &soup(mode.into(), 600)].concat())));
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let table = table(compression)?;
        seeds.push(("table_file", [b"\0", &table[..]].concat()));
        seeds.push(("table_file", [b"\x01", &table[..]].concat()));
    }
    for compression in [0, 1, 2] {
        seeds.push((
            "table",
            [&[compression, 1, 2, compression & 1][..], &soup(9, 700)].concat(),
        ));
    }
    seeds.extend(LINES.map(|line| ("json", line.into())));
    seeds.extend([300, 900, 900, 2_000].map(|len| ("operations", soup(len as u64, len))));
    seeds.extend([400, 900].map(|len| ("faults", soup(len as u64, len))));
    seeds.extend(LEDGERS.map(|json| ("backup", backup(json).into_bytes())));
    let moment = [&[3][..], &(NOW + 60_000).to_le_bytes()].concat();
    seeds.extend(LEDGERS.map(|json| ("ledger", [&moment, json.as_bytes()].concat())));
    seeds.extend(QUERIES.map(|query| ("document_query", query.into())));
    seeds.extend(PATCHES.map(|patch| ("document_patch", patch.into())));
    seeds.extend(PATHS.map(|path| ("document_path", path.into())));
    seeds.extend(PARTITION_KEYS.map(|keys| ("document_partition_key", keys.into())));
    seeds.extend(CONTINUATIONS.map(|from| ("document_continuation", from.into())));
    seeds.extend(cluster_frames().map(|frames| ("cluster_frame", frames)));
    for name in TARGETS
        .map(|(name, _)| name)
        .into_iter()
        .chain(OF_OTHER_CRATES)
    {
        let folder = Path::new("seeds").join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("seeds/ can be written");
        let of_target = seeds.iter().filter(|(target, _)| *target == name);
        for (number, (_, bytes)) in of_target.enumerate() {
            std::fs::write(folder.join(number.to_string()), bytes).expect("it can be written");
        }
    }
    Ok(())
}

/// Bytes that a seed repeats (S. Vigna, splitmix64): a stream of choices, as good as any.
fn soup(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31).to_le_bytes()
    });
    words.flatten().take(len).collect()
}

fn batch() -> Vec<u8> {
    let (container, key, value) = (ContainerId(300), &b"key"[..], &b"value"[..]);
    let put = |ttl| Op::Put {
        container,
        ttl,
        key,
        value,
    };
    let kept = |ttl| WriteTtl::Kept {
        written_at: Timestamp(NOW),
        ttl,
    };
    let ops = [
        put(WriteTtl::Absent),
        put(WriteTtl::Never),
        put(WriteTtl::Millis(60_000)),
        put(WriteTtl::Until(Timestamp(NOW))),
        put(kept(ItemTtl::Absent)),
        put(kept(ItemTtl::Never)),
        put(kept(ItemTtl::Millis(60_000))),
        Op::SetDefault {
            container,
            default: DefaultMillis::Millis(60_000),
        },
        Op::Expire {
            container,
            what: Expire::Before(Timestamp(NOW)),
        },
        Op::Expire {
            container,
            what: Expire::All,
        },
        Op::Delete { container, key },
        Op::DeleteRange {
            container,
            from: key,
            to: b"",
        },
    ];
    let mut out = vec![];
    ops.iter().for_each(|op| op.encode(&mut out));
    out
}

fn header(seq: u64, kind: Kind, ttl: ItemTtl) -> Header {
    Header {
        kind,
        seq: Seq(seq),
        written_at: Timestamp(NOW + seq),
        ttl,
    }
}

fn relog() -> Vec<u8> {
    let container = ContainerId(1);
    let entries = [
        Relogged::Record {
            container,
            header: header(77, Kind::Put, ItemTtl::Millis(60_000)),
            key: b"key",
            value: b"value",
        },
        Relogged::Record {
            container,
            header: header(78, Kind::Tombstone, ItemTtl::Absent),
            key: b"key",
            value: b"",
        },
        Relogged::Range {
            container,
            seq: Seq(79),
            from: b"a",
            to: b"b",
        },
    ];
    let mut out = vec![];
    entries.iter().for_each(|entry| entry.encode(&mut out));
    out
}

fn headers() -> impl Iterator<Item = Vec<u8>> {
    [ItemTtl::Absent, ItemTtl::Never, ItemTtl::Millis(60_000)]
        .into_iter()
        .map(|ttl| {
            let mut out = vec![0, 7, 0, 9];
            header(NOW, Kind::Put, ttl).encode(Base::default(), &mut out);
            out
        })
}

/// Settings (on without default, floors of one byte each) and the moment; then what is asked.
fn censuses() -> impl Iterator<Item = Vec<u8>> {
    let start = [1, 0, 9, 0, 9, 0, 9, 0, 200];
    let (mut census, mut histogram) = (Census::default(), ExpiryHistogram::default());
    for seq in 1..200 {
        let ttl = [ItemTtl::Absent, ItemTtl::Millis(1_000)][seq as usize % 2];
        let header = header(seq, Kind::Put, ttl);
        census.add(&RecordRef {
            header,
            key: b"key",
            value_len: 10,
        });
        let tally = Tally {
            count: 1,
            bytes: 29,
        };
        histogram.add(Timestamp(NOW + seq * seq), tally);
    }
    let (mut decoded, mut decoded_histogram) = (vec![0], vec![1]);
    census.encode(&mut decoded);
    histogram.encode(&mut decoded_histogram);
    let gathered = [&[2][..], &soup(3, 200)].concat();
    [decoded, decoded_histogram, gathered]
        .into_iter()
        .map(move |asked| [&start[..], &asked].concat())
}

const MANIFESTS: [&str; 2] = [
    concat!(
        r#"{"number":1,"mark":1772366400000,"changes":[{"create_container":{"id":1,"name":"a","created":1,"#,
        r#""compression":"none","settings":{"default":"off","inherit_floor":0,"override_floor":0,"#,
        r#""floor_seq":0}}},{"log":{"chain":7,"first":1,"ring":1}}]}"#,
        "\n",
        r#"{"number":2,"mark":1772366400001,"changes":[{"flushed":[1,9]},{"add_run":[1,{"id":1,"#,
        r#""end":1772366460000,"placed":{"millis":60000},"applied":3,"tables":[{"id":1,"len":900,"#,
        r#""crc":77}]}]},{"add_range_delete":[1,{"seq":8,"from":"6b","to":"6c"}]}]}"#,
        "\n",
        r#"{"number":3,"mark":1772366400001,"changes":[{"remove_run":[1,1]},{"remove_range_delete":[1,8]},"#,
        r#"{"settings":[1,{"default":{"millis":5},"inherit_floor":1,"override_floor":2,"floor_seq":10},10]},"#,
        r#"{"drop_container":1}]}"#,
    ),
    concat!(
        r#"{"number":7,"mark":5,"changes":[{"log":{"chain":7,"first":4,"ring":4}},{"log_synced":800},"#,
        r#"{"used":{"seq":100,"table":5,"run":6,"container":7}}]}"#,
    ),
];

const CHANGES: [&str; 5] = [
    r#"{"settings":[1,{"default":{"millis":5},"inherit_floor":1,"override_floor":2,"floor_seq":10},10]}"#,
    "{\"remove_run\":[1,1]}\n{\"drop_container\":2}",
    r#"{"remove_run":[1,1]},{"add_run":[1,{"id":90,"end":1772366460000,"placed":"off","tables":[$0]}]}"#,
    r#"{"flushed":[1,1000]},{"add_range_delete":[1,{"seq":900,"from":"6b"}]}"#,
    r#"{"log_synced":1000000}"#,
];

const LEDGERS: [&str; 2] = [
    concat!(
        r#"{"mark":1772366400100,"used":60,"containers":[{"id":1,"name":"a","created":1,"compression":"none"#,
        r#"","settings":{"default":{"millis":5000},"inherit_floor":9,"override_floor":9,"floor_seq":50,"com"#,
        r#"mand_seq":55,"commands":[{"seq":55,"at":1772366400050,"inherit":0,"override":1772366460000,"writ"#,
        r#"ten":0}]},"settings_seq":55,"flushed":60,"runs":[{"id":1,"end":1772366460000,"placed":"no_defaul"#,
        r#"t","applied":0,"tables":[{"id":1,"len":900,"crc":77}]}],"range_deletes":[{"seq":58,"from":"6b657"#,
        r#"931","to":"6b657932"}]}]}"#,
    ),
    concat!(
        r#"{"branches":[{"id":9,"from":12,"told":3}],"mark":1772366400100,"used":90,"containers":[{"id":1,""#,
        r#"name":"a","created":1,"compression":"none","settings":{"default":"no_default","inherit_floor":0,"#,
        r#""override_floor":0,"floor_seq":0,"command_seq":80,"past":{"base":{"default":"no_default","inheri"#,
        r#"t_floor":0,"override_floor":0,"floor_seq":0},"known_from":0,"changes":[{"what":{"expire":"all"},"#,
        r#""at":1772366400000,"seq":80}]}},"settings_seq":80,"flushed":90}]}"#,
    ),
];

/// Queries, each with a document behind a zero byte.
const QUERIES: [&str; 8] = [
    "SELECT * FROM c WHERE c.a = 1 AND c[\"b\"].d[0] != @p\0{\"a\":1,\"b\":{\"d\":[2]}}",
    "SELECT DISTINCT TOP 3 c.a, c.b AS x FROM root AS c ORDER BY c.a DESC, c.b\0{\"a\":\"x\",\"b\":null}",
    "SELECT VALUE {n: COUNT(1), m: MAX(c.a)} FROM c GROUP BY c.b\0{\"a\":1.50,\"b\":[1,{\"x\":true}]}",
    "SELECT VALUE t || 'x' FROM t IN c.a WHERE t LIKE '%[a-c]_^%' ESCAPE '^'\0{\"a\":[\"\\u0061b%\",3]}",
    "SELECT VALUE c.a IN (1,2,3,4,5,6,7,8,@s) ? -c.a : (c.b ?? ~5) FROM c\0{\"a\":8,\"b\":-0.5e3}",
    "SELECT VALUE SUBSTRING(REPLACE(UPPER(c.a), 'B', 'é'), 1, 2) FROM c OFFSET 0 LIMIT 9\0{\"a\":\"abcé\"}",
    "SELECT VALUE ARRAY_CONTAINS(c.a, {x: 1}, true) FROM c WHERE NOT IS_NULL(c.pk) OR c.id BETWEEN 'a' AND 'b'\0{\"a\":[{\"x\":1.0}]}",
    "SELECT (c.a + 1) * 2 - 3 / 4 % 5 AS n, [c.b, undefined], ARRAY_SLICE(c.a, -1) FROM c.d AS c\0{\"d\":{\"a\":[1]}}",
];

/// Patches, each with a document behind a zero byte.
const PATCHES: [&str; 3] = [
    concat!(
        r#"[{"op":"set","path":"/a~1b/0","value":[1.50]},{"op":"incr","path":"/n","value":-2e1}]"#,
        "\0",
        r#"{"id":"1","pk":"a","a/b":[true],"n":3}"#
    ),
    concat!(
        r#"{"operations":[{"op":"move","from":"/a/1","path":"/b"},{"op":"remove","path":"/c"}],"condition":"from c where c.n > 0"}"#,
        "\0",
        r#"{"id":"1","pk":null,"a":[0,{"x":1}],"c":"é","n":1}"#
    ),
    concat!(
        r#"[{"op":"add","path":"/tags/-","value":"x"},{"op":"replace","path":"/d/e","value":null},{"op":"add","path":"/ttl","value":60}]"#,
        "\0",
        r#" { "id" : "2" , "tags" : [ ] , "d" : { "e" : 1 } } "#
    ),
];

/// Paths, each with a document behind a zero byte.
const PATHS: [&str; 4] = [
    concat!(r#"/tenant"#, "\0", r#"{"id":"1","tenant":{"a":1}}"#),
    concat!(r#"/a~1b/0"#, "\0", r#"{"id":"1","a/b":[1,2]}"#),
    concat!(r#"/"a b"/c"#, "\0", r#"{"id":"1"}"#),
    concat!(r#"/a/-"#, "\0", r#"{"id":"1","a":[]}"#),
];

/// Partition keys, two and two.
const PARTITION_KEYS: [&str; 5] = [
    concat!(r#"["a",null,1.5]"#, "\0", r#"["a",null,true]"#),
    concat!(r#"[{}]"#, "\0", r#"[""]"#),
    concat!(r#"[-0.0]"#, "\0", r#"[0]"#),
    concat!(r#"["a\u0000b"]"#, "\0", r#"["a"]"#),
    concat!(r#"[1e300,false,"é"]"#, "\0", r#"[]"#),
];

/// Members of continuations, behind what is asked.
const CONTINUATIONS: [&str; 5] = [
    concat!(r#"l"#, "\0", r#"{}"#),
    concat!(r#"q"#, "\0", r#"{"after":"","skipped":1,"emitted":1}"#),
    concat!(r#"o"#, "\0", r#"{"told":3}"#),
    concat!(r#"l"#, "\0", r#"{"of":1,"after":"CGEAMQ"}"#),
    concat!(r#"l"#, "\0", r#"{"after":"CWEAADI"}"#),
];

const LINES: [&str; 6] = [
    "id\n{\"id\":\"s-1\",\"user\":\"ada\",\"ttl\":1800}",
    "_key\n{\"_key\":\"s-1\",\"_ts\":1772366400,\"ttl\":-1,\"_value\":\"plain text\"}",
    "_key\n{\"_key_base64\":\"/w==\",\"_ts\":1772366400,\"_value_base64\":\"AP8=\"}",
    "n\n { \"n\" : 17 , \"nested\" : { \"a\" : [ 1 , { } , \"\\u00e9\" ] } } ",
    "-1\n{\"ttl\":null}",
    "_key\n{\"_key\":\"s\",\"_ts\":1772366400,\"_ts_ms\":1772366400123,\"ttl\":2,\"_ttl_ms\":1001,\"_remaining\":0.7}",
];

/// A backup with this ledger, after the choice to put it under a checksum.
fn backup(ledger: &str) -> String {
    let sha256 = "0123456789abcdef".repeat(4);
    format!(
        r#"{}{{"version":2,"name":"backups/00000000000000000003","store":"0123456789abcdef","after":[{{"name":"{}","sha256":"{sha256}"}}],"taken_at":1772366400000,"files":[{{"path":"tables/000001.table","len":900,"sha256":"{sha256}"}}],"ledger":{ledger},"left_out_before":1772366400900}}"#,
        '\u{1}', "ledgers/00000000000000000002",
    )
}

/// Bytes on connections of nodes, behind the choices: as it is and in one piece; put right, and in steps of 3 and of 64.
fn cluster_frames() -> [Vec<u8>; 4] {
    let frame = |what, body: &[u8]| {
        let frame = net::Frame {
            what,
            kind: 3,
            format: 1,
            within_ms: 1_500,
            id: 9,
            cluster: 0x0123_4567_89ab_cdef,
            from: 17,
            to: 18,
            wall_ms: NOW,
            body: Bytes::copy_from_slice(body),
        };
        [&frame.head()[..], body].concat()
    };
    let [alive, part] = [net::What::Alive, net::What::Part].map(|what| frame(what, b""));
    let request = frame(net::What::Request, &soup(8, 40));
    [
        [&[0xfe][..], &alive, &request].concat(),
        [&[5][..], &alive, &part, &request[..100]].concat(),
        [&[127][..], &request, &request].concat(),
        [&[1][..], &soup(4, 80)].concat(),
    ]
}

/// The files of a log: the length of the first segment, and then the next one or the ring.
fn log(ring_bytes: Option<usize>) -> Result<Vec<u8>> {
    let (sim, dir) = (Sim::new(1), Path::new("/wal"));
    sim.create_dir_all(dir)?;
    let options = LogOptions {
        dir: dir.into(),
        segment_bytes: 200,
        first_segment_bytes: None,
        ring_bytes,
        identity: 7,
    };
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let (log, mut appender) = Log::create(fs, &options, 1, Seq(1), Timestamp(NOW), 1)?;
    let payload = batch();
    for seq in (1..13).step_by(6) {
        let header = FrameHeader {
            kind: FrameKind::Batch,
            first_seq: Seq(seq),
            last_seq: Seq(seq + 5),
            written_at: Timestamp(NOW + seq),
            settled: Timestamp(NOW + seq),
            edit: 1,
        };
        appender.append(&header, &payload, PayloadCrc::of(&payload))?;
    }
    let second = if ring_bytes.is_some() {
        (1, "000001.ring")
    } else {
        log.sync_to(log.end())?;
        (0, "000002.wal")
    };
    let first = sim.read(&dir.join("000001.wal"))?;
    let start = [0, second.0, first.len() as u8, (first.len() >> 8) as u8];
    Ok([&start[..], &first, &sim.read(&dir.join(second.1))?].concat())
}

fn table(compression: Compression) -> Result<Vec<u8>> {
    let (sim, path) = (Sim::new(1), Path::new("/000001.table"));
    let options = TableOptions {
        block_bytes: 128,
        compression,
    };
    let meta = TableMeta {
        id: TableId(1),
        container: ContainerId(1),
        identity: 7,
        settings: Settings::default(),
    };
    let mut builder = TableBuilder::new(sim.create(path)?, options, meta);
    for seq in 1..13 {
        let key = format!("key{seq:02}");
        let value = vec![seq as u8; 20];
        let ttl = [ItemTtl::Absent, ItemTtl::Millis(1_000)][seq as usize % 2];
        let newest = RecordRef {
            header: header(seq + 20, Kind::Put, ttl),
            key: key.as_bytes(),
            value_len: value.len(),
        };
        builder.add(&newest, &value)?;
        if seq % 4 == 0 {
            let older = RecordRef {
                header: header(seq, Kind::Tombstone, ItemTtl::Absent),
                value_len: 0,
                ..newest
            };
            builder.add(&older, b"")?;
        }
    }
    builder.finish()?;
    sim.read(path)
}

/// Block, index, filter and footer of a table, each behind the choices that its target begins with.
fn pieces(table: &[u8]) -> Result<[(&'static str, Vec<u8>); 4]> {
    let tail = &table[table.len() - 72..];
    let (footer, _) = Footer::read(tail, table.len() as u64, Path::new("/table"))?;
    let [filter_at, index_at, index_end] =
        [footer.filter_at, footer.index_at, footer.statistics_at].map(|at| at as usize);
    let part = Bytes::copy_from_slice(&table[index_at..index_end]);
    let first = |blocks| {
        let index = Index::open(part.clone(), blocks).ok()?;
        let page = index.open_page(0, footer.filter_at).ok()?;
        Some((blocks, page.place(0)))
    };
    let (blocks, place) = (1..100).find_map(first).expect("it has some blocks");
    let block = &table[place.start as usize..place.end as usize];
    let body = &block[..Trailer::read(block).expect("it is whole").body_len];
    let index = [
        &[0, blocks as u8, 2][..],
        &(filter_at as u32).to_le_bytes(),
        &part,
    ]
    .concat();
    Ok([
        ("block", [&[4, 0][..], body].concat()),
        ("index", index),
        ("filter", [&[0][..], &table[filter_at..index_at]].concat()),
        ("footer", [&[1][..], tail].concat()),
    ])
}

/// A frame of the log, a segment's head, and a frame of the manifest.
fn frames() -> [(&'static str, Vec<u8>); 3] {
    let segment = SegmentHeader {
        identity: 7,
        number: 1,
        start: 0,
        base_seq: Seq(500),
        base_written_at: Timestamp(NOW),
        edit: 12,
    };
    // Its identity, then small numbers: number, base, time, edit, position, length of the payload; then the frame.
    let numbers = [0, 1, 0, 2, 0, 3, 0, 4, 0, 200, 3];
    let frame = [1 | 1 << 2 | 1 << 4, 3, 50, 2, 6, 4, 2];
    [
        (
            "frame",
            [&[0][..], &7u64.to_le_bytes(), &numbers, b"abc", &frame].concat(),
        ),
        ("frame", [&[1][..], &segment.encode()].concat()),
        ("frame", [&[2, 1][..], b"........{}"].concat()),
    ]
}
