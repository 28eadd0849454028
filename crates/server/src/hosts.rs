//! Hosts by which requests may name the server.
//!
//! A page of some site can have a browser send requests to a server on the same machine, under a name of its own that it
//! lets lead there (DNS rebinding). The header `Host` has that name, so only the server's own are answered: addresses,
//! localhost, and those that the operator names. Addresses are no names, and nobody lets them lead elsewhere.

use std::net::IpAddr;

pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// These names besides addresses and localhost.
    pub fn new(names: &[String]) -> Hosts {
        Hosts(names.iter().map(|name| name.to_lowercase()).collect())
    }

    pub fn has(&self, host: &str) -> bool {
        let name = name(host).to_lowercase();
        name == "localhost"
            || name.ends_with(".localhost")
            || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || self.0.contains(&name)
    }
}

/// The host without its port.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|digit| digit.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_servers_own_names_are_answered() {
        let hosts = Hosts::new(&["Documents.example".to_string()]);
        for host in [
            "127.0.0.1:8081",
            "localhost:8081",
            "LOCALHOST",
            "[::1]:8081",
            "[::1]",
            "a.localhost:1",
            "documents.example:443",
            "192.0.2.7",
        ] {
            assert!(hosts.has(host), "{host}");
        }
        for host in [
            "",
            ":8081",
            "evil.example",
            "evil.example:8081",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8081",
            "xlocalhost",
        ] {
            assert!(!hosts.has(host), "{host}");
        }
    }
}
