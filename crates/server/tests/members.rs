//! Goal: nodes that are started by a configuration show each other certificates where it names some, and let nobody else in.
//! Method: servers in this process, with certificates that are made here.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use ebbtide_control::{Answer, Request, Secret};
use ebbtide_server::{Config, Server};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A node of this folder, whose certificate is of this authority and which trusts it alone.
fn config(folder: &Path, name: &str, of: &Authority, join: Option<&str>) -> Config {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, of).unwrap();
    let file = |kind: &str, text: String| -> Option<PathBuf> {
        let path = folder.join(format!("{name}-{kind}.pem"));
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let mut config = Config::default();
    config.dir = Some(folder.join(name));
    config.http = "127.0.0.1:0".parse().unwrap();
    config.cluster = Some(socket.local_addr().unwrap());
    config.join = join.map(str::to_owned);
    config.cluster_cert = file("cert", certificate.pem());
    config.cluster_key = file("key", key.serialize_pem());
    config.cluster_authority = file("authority", of.pem());
    config
}

#[test]
fn nodes_of_one_authority_are_a_cluster_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (ours, theirs) = (authority(), authority());
    let first = config(folder, "1", &ours, None);
    let contact = first.cluster.unwrap().to_string();
    let one = Server::start(&first).unwrap();
    let two = Server::start(&config(folder, "2", &ours, Some(&contact))).unwrap();
    let stranger = Server::start(&config(folder, "3", &theirs, Some(&contact)));
    assert!(stranger.is_err(), "it is of another authority");
    let mut open = config(folder, "4", &ours, Some(&contact));
    (open.cluster_cert, open.cluster_key, open.cluster_authority) = (None, None, None);
    assert!(Server::start(&open).is_err(), "it shows no certificate");
    let mut half = config(folder, "5", &ours, Some(&contact));
    half.cluster_key = None;
    let refused = Server::start(&half).err().unwrap().to_string();
    assert!(refused.contains("--cluster-key"), "{refused}");
    two.stop();
    one.stop();
}

#[test]
fn a_node_shows_a_token_where_the_others_ask_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ours = authority();
    let by_token = |name: &str, join: Option<&str>| {
        let mut config = config(folder, name, &ours, join);
        config.join_by_token = true;
        config
    };
    let first = by_token("1", None);
    let contact = first.cluster.unwrap().to_string();
    let one = Server::start(&first).unwrap();
    let client = ebbtide_control::connect(folder.join("1")).unwrap().unwrap();
    let asked = client.ask(&Request::ClusterToken { seconds: 60 }, &mut |_| ());
    let Answer::Token(Secret(token)) = asked.unwrap() else {
        panic!("another answer")
    };
    let refused = Server::start(&by_token("2", Some(&contact)));
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("token"), "{refused}");
    let mut second = by_token("3", Some(&contact));
    second.token_file = Some(folder.join("token"));
    assert!(Server::start(&second).is_err(), "there is no such file");
    std::fs::write(folder.join("token"), format!("{token}\n")).unwrap();
    let two = Server::start(&second).unwrap();
    two.stop();
    one.stop();
}
