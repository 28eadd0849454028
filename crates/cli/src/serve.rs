//! `ebbtide serve`: with the feature `serve`, documents on the protocol of Azure Cosmos DB; with the feature `cluster`, a node of a
//! cluster.

use crate::arguments::Serve;
use crate::failure::{Failure, Outcome};

fn lacks(what: &str, feature: &str) -> Failure {
    Failure::Refused(format!(
        "this build has no {what}: `cargo install ebbtide-cli --features {feature}` makes one that does"
    ))
}

#[cfg(not(feature = "serve"))]
pub fn serve(flags: &Serve) -> Outcome {
    Err(match flags.cluster {
        Some(_) => lacks("nodes of clusters", "cluster"),
        None => lacks("server", "serve"),
    })
}

#[cfg(feature = "serve")]
pub fn serve(flags: &Serve) -> Outcome {
    use std::io::{Write, stdout};

    use ebbtide_server::{Config, ServeError};

    if !cfg!(feature = "cluster") && flags.cluster.is_some() {
        return Err(lacks("nodes of clusters", "cluster"));
    }
    let refused = |error: ServeError| Failure::Refused(error.to_string());
    let config = Config::assemble(flags.config.as_deref(), std::env::vars(), members(flags));
    ebbtide_server::serve(&config.map_err(refused)?, |url| {
        // The program that started the server may not read where it listens.
        let _ = writeln!(stdout(), "{url}");
    })
    .map_err(refused)
}

/// The flags that were given, as members of a file of the configuration.
#[cfg(feature = "serve")]
fn members(flags: &Serve) -> serde_json::Map<String, serde_json::Value> {
    use serde_json::json;

    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| json!(path));
    let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
    let on = |is_given: bool, value: bool| is_given.then(|| json!(value));
    [
        ("dir", path(&flags.dir)),
        ("temporary", on(flags.temporary, true)),
        ("cluster", text(&flags.cluster)),
        ("join", text(&flags.join)),
        ("token-file", path(&flags.token_file)),
        ("join-by-token", on(flags.join_by_token, true)),
        ("advertise", text(&flags.advertise)),
        ("cluster-cert", path(&flags.cluster_cert)),
        ("cluster-key", path(&flags.cluster_key)),
        ("cluster-authority", path(&flags.cluster_authority)),
        ("http", text(&flags.http)),
        ("clock", text(&flags.clock)),
        ("key-file", path(&flags.key_file)),
        (
            "hosts",
            (!flags.hosts.is_empty()).then(|| json!(flags.hosts)),
        ),
        ("cert", path(&flags.cert)),
        ("key", path(&flags.key)),
        ("tls-temporary", on(flags.tls_temporary, true)),
        (
            "max-connections",
            flags.max_connections.map(|most| json!(most)),
        ),
        ("control", on(flags.no_control, false)),
        ("log", text(&flags.log)),
        ("log-level", text(&flags.log_level)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}
