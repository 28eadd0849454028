//! Refusals: of names, sizes, paths, and clients that hold on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ebbtide_server::{ClockKind, Server};

use crate::client::{Client, KEY, config, read, start};

#[test]
fn a_foreign_name_is_not_answered() {
    let (_server, client) = start();
    for (host, status) in [
        ("evil.example", 403),
        ("127.0.0.1:80", 200),
        ("localhost", 200),
    ] {
        assert_eq!(
            client.get("/dbs", &[("host", host)]).status,
            status,
            "{host}"
        );
    }
    let two = [("host", "localhost"), ("host", "evil.example")];
    client.get("/dbs", &two).is(403);
    client
        .get("http://evil.example/dbs", &[("host", "localhost")])
        .is(403);
    for reply in [
        client.get("/dbs", &[("origin", "http://localhost")]),
        client.ask("OPTIONS", "/dbs", "", &[("origin", "http://localhost")]),
    ] {
        assert!(
            reply
                .headers
                .iter()
                .all(|(name, _)| !name.starts_with("access-control")),
            "pages of others get no answers"
        );
    }
}

#[test]
fn a_body_has_two_mebibytes_at_most() {
    let (_server, client) = start();
    client.container("c", "");
    let of = |bytes: usize| {
        let frame = r#"{"id":"1","pk":"a","v":""}"#;
        frame.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - frame.len())))
    };
    client.create("c", &of(2 << 20)).is(201);
    let large = client.put("/dbs/shop/colls/c/docs/1", &of((2 << 20) + 1), &[KEY]);
    large.is_refused(413, "RequestEntityTooLarge");
    // Without a length that is announced.
    let mut stream = TcpStream::connect(client.0).unwrap();
    let head = "PUT /dbs/shop/colls/c/docs/1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
    for _ in 0..40 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n");
    let refused = read(&stream).map(|reply| reply.status);
    assert!(matches!(refused, Ok(413) | Err(_)), "{refused:?}");
    client.read("c", "1").is(200);
}

#[test]
fn json_has_a_depth() {
    let (_server, client) = start();
    client.container("c", "");
    let of = |depth: usize| {
        format!(
            "{{\"id\":\"1\",\"pk\":\"a\",\"v\":{}{}}}",
            "[".repeat(depth - 1),
            "]".repeat(depth - 1)
        )
    };
    client.create("c", &of(128)).is(201);
    client.create("c", &of(129)).is(400);
    client.create("c", &of(100_000)).is(400);
    client
        .query(
            "c",
            &format!(
                "SELECT {}1{} FROM c",
                "(".repeat(50_000),
                ")".repeat(50_000)
            ),
            &[],
        )
        .is(400);
}

#[test]
fn what_there_is_not_is_said() {
    let (_server, client) = start();
    client.container("c", "");
    for (path, word) in [
        ("/dbs/shop/users", "users"),
        ("/dbs/shop/colls/c/sprocs", "stored procedures"),
        ("/dbs/shop/colls/c/triggers/t", "triggers"),
        ("/dbs/shop/colls/c/udfs", "user-defined functions"),
    ] {
        let reply = client.get(path, &[]);
        assert_eq!(
            (reply.status, reply.json()["code"].as_str()),
            (501, Some("NotImplemented")),
            "{path}"
        );
        assert!(reply.body.contains(word), "{}", reply.body);
    }
    assert_eq!(
        (
            client.get("/nothing", &[]).status,
            client.get("/dbs/%zz", &[]).status
        ),
        (404, 400)
    );
    assert_eq!(
        client.get("/dbs/shop/colls/c/conflicts", &[]).json()["_count"],
        0
    );
    client.get("/dbs/shop/colls/c/conflicts/1", &[]).is(404);
    client.create("c", "no JSON").is(400);
    client.create("c", r#"{"id":"a/b","pk":"a"}"#).is(400);
}

#[test]
fn ids_are_any_text_and_paths_have_escapes() {
    let (_server, client) = start();
    client.container("c", "");
    client.create("c", r#"{"id":"é 100%","pk":"a"}"#).is(201);
    assert_eq!(client.read("c", "%C3%A9%20100%25").json()["id"], "é 100%");
}

/// A client that sends the head of a request piece by piece, and one that sends a body of which the rest never comes, keep
/// nobody waiting, and the server ends all the same.
#[test]
fn slow_clients_hold_nobody() {
    let (server, client) = start();
    client.container("c", "");
    let mut slow: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(client.0).unwrap())
        .collect();
    for (n, stream) in slow.iter_mut().enumerate() {
        let text = if n % 2 == 0 {
            "GET /dbs HT"
        } else {
            "POST /dbs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n{"
        };
        stream.write_all(text.as_bytes()).unwrap();
    }
    client.create("c", r#"{"id":"1","pk":"a"}"#).is(201);
    server.stop();
    let mut rest = Vec::new();
    slow[0]
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    assert!(
        slow[0].read_to_end(&mut rest).is_ok(),
        "closed by the server"
    );
}

#[test]
fn there_are_only_so_many_connections() {
    let mut config = config();
    config.max_connections = 2;
    let server = Server::start(&config).unwrap();
    let held: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                .unwrap();
            read(&stream).unwrap().is(200);
            stream
        })
        .collect();
    let mut third = TcpStream::connect(server.address()).unwrap();
    let _ = third.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(read(third).is_err(), "closed unanswered");
    drop(held);
}

#[test]
fn requests_are_signed_where_there_is_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let mut config = config();
    config.key_file = Some(path.clone());
    assert!(Server::start(&config).is_err(), "the file is missing");
    std::fs::write(&path, "no base64!").unwrap();
    assert!(Server::start(&config).is_err());
    std::fs::write(&path, "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==\n").unwrap();
    let server = Server::start(&config).unwrap();
    let client = Client(server.address());
    let refused = client.get("/dbs", &[]);
    refused.is_refused(401, "Unauthorized");
    let old = [
        (
            "authorization",
            "type%3dmaster%26ver%3d1.0%26sig%3dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2bc%2bc%3d",
        ),
        ("x-ms-date", "Thu, 27 Apr 2017 00:51:12 GMT"),
    ];
    assert_eq!(
        client.get("/dbs/ToDoList", &old).status,
        401,
        "a signature is good for minutes"
    );
    for open in ["/healthz", "/readyz"] {
        assert_eq!(client.get(open, &[]).status, 200, "{open}");
    }
    for closed in ["/", "/metrics", "/_clock", "/offers"] {
        assert_eq!(client.get(closed, &[]).status, 401, "{closed}");
    }
}

#[test]
fn the_systems_clock_is_not_moved() {
    let mut config = config();
    config.clock = ClockKind::System;
    let server = Server::start(&config).unwrap();
    Client(server.address())
        .post("/_clock", r#"{"advance":"2h"}"#, &[])
        .is(403);
}
