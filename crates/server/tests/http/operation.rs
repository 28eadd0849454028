//! Operation: figures, quotas, restarts, HTTPS.

use ebbtide_server::{ClockKind, Server};

use crate::client::{Client, config, start};

#[test]
fn figures_are_in_the_format_of_prometheus() {
    let (_server, client) = start();
    client.container("c", "");
    client.create("c", r#"{"id":"1","pk":"a"}"#);
    client.read("c", "2");
    let text = client.get("/metrics", &[]).body;
    let figure = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or_else(|| panic!("{name} in {text}"))
    };
    assert_eq!(figure("ebbtide_http_requests_total{class=\"2xx\"}"), 3.0);
    assert_eq!(figure("ebbtide_http_requests_total{class=\"4xx\"}"), 1.0);
    assert!(
        figure("ebbtide_documents_container_info") >= 1.0
            && figure("ebbtide_http_connections") >= 1.0
    );
    for line in text.lines() {
        let is_comment = line.starts_with("# HELP ebbtide_") || line.starts_with("# TYPE ebbtide_");
        assert!(
            is_comment || (line.starts_with("ebbtide_") && line.split(' ').count() == 2),
            "{line}"
        );
    }
}

#[test]
fn a_full_container_takes_no_more() {
    let (_server, client) = start();
    client.container("c", r#","maxLiveBytes":1000"#);
    let body = |id: &str| {
        format!(
            "{{\"id\":\"{id}\",\"pk\":\"a\",\"v\":\"{}\"}}",
            "x".repeat(600)
        )
    };
    client.create("c", &body("1")).is(201);
    let full = client.create("c", &body("2"));
    full.is_refused_as(403, "1014");
    client
        .ask(
            "DELETE",
            "/dbs/shop/colls/c/docs/1",
            "",
            &[crate::client::KEY],
        )
        .is(204);
    client.create("c", &body("2")).is(201);
}

#[test]
fn a_folder_keeps_documents_and_the_moved_clock() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.temporary = false;
    config.dir = Some(folder.path().join("db"));
    let server = Server::start(&config).unwrap();
    let client = Client(server.address());
    client.post("/dbs", r#"{"id":"shop"}"#, &[]);
    client.container("c", r#","defaultTtl":-1"#);
    client.create("c", r#"{"id":"1","pk":"a","ttl":7200}"#);
    client.create("c", r#"{"id":"2","pk":"a"}"#);
    client.advance("1h");
    let asked = ebbtide_control::connect(folder.path().join("db")).unwrap();
    assert!(asked.is_some(), "the command can ask");
    server.stop();

    let server = Server::start(&config).unwrap();
    let client = Client(server.address());
    assert_eq!(
        (client.read("c", "1").status, client.read("c", "2").status),
        (200, 200)
    );
    client.advance("1h");
    assert_eq!(
        (client.read("c", "1").status, client.read("c", "2").status),
        (404, 200)
    );
    assert!(Server::start(&config).is_err(), "another has it open");
    server.stop();
    config.clock = ClockKind::System;
    assert!(
        Server::start(&config).is_err(),
        "the system's clock is behind what has been"
    );
}
