//! Mutual TLS: by certificates that are made here.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::AsyncWriteExt;

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn tls(of: &CertifiedIssuer<'_, KeyPair>, trusts: &CertifiedIssuer<'_, KeyPair>) -> Tls {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
    let certificate = params.signed_by(&key, of).unwrap();
    let pem = certificate.pem();
    let key = key.serialize_pem();
    Tls::from_pem(pem.as_bytes(), key.as_bytes(), trusts.pem().as_bytes()).unwrap()
}

async fn node(node: u64, tls: Option<Tls>) -> Node {
    Node::with(hello(node), "127.0.0.1:0".parse().unwrap(), tls).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_one_authority_talk_and_no_others() {
    let (ours, theirs) = (authority(), authority());
    let one = node(1, Some(tls(&ours, &ours))).await;
    let two = node(2, Some(tls(&ours, &ours))).await;
    assert_eq!(one.ask(&two, kind::ECHO, "x").await.unwrap(), "x");
    let body = noise(3 << 20);
    assert_eq!(one.ask(&two, kind::ECHO, body.clone()).await.unwrap(), body);
    let sent = one
        .net
        .send(&two.peer, kind::SUM, Bytes::new(), &body[..], LONG);
    assert!(sent.await.unwrap().1.starts_with(b"0 3145728 "));
    let before = two.seen.requests.load(Ordering::SeqCst);
    // One whose certificate is of another authority; one who trusts another; one without TLS; one without a certificate
    // that names the host.
    let strangers = [
        Some(tls(&theirs, &ours)),
        Some(tls(&ours, &theirs)),
        Some(tls(&theirs, &theirs)),
        None,
    ];
    for stranger in strangers {
        let stranger = node(3, stranger).await;
        for _ in 0..3 {
            unreachable(
                timeout(LONG, stranger.ask(&two, kind::ECHO, "x"))
                    .await
                    .unwrap(),
            );
            unreachable(
                timeout(LONG, two.ask(&stranger, kind::ECHO, "x"))
                    .await
                    .unwrap(),
            );
        }
        let sent = stranger
            .net
            .send(&two.peer, kind::SUM, Bytes::new(), &body[..], LONG);
        unreachable(sent.await);
        assert_eq!(stranger.seen.requests.load(Ordering::SeqCst), 0);
    }
    assert_eq!(two.seen.requests.load(Ordering::SeqCst), before);
    assert_eq!(one.ask(&two, kind::ECHO, "on").await.unwrap(), "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_has_to_name_the_host() {
    let ours = authority();
    let two = node(2, Some(tls(&ours, &ours))).await;
    let one = node(1, Some(tls(&ours, &ours))).await;
    let by_name = Peer {
        node: 2,
        addr: format!("localhost:{}", two.net.local_addr().port()),
    };
    let asked = one.net.ask(&by_name, kind::ECHO, Bytes::new(), LONG).await;
    unreachable(asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_bytes_to_a_node_with_tls_end_the_connection() {
    let ours = authority();
    let two = node(2, Some(tls(&ours, &ours))).await;
    let mut stream = tokio::net::TcpStream::connect(&two.peer.addr)
        .await
        .unwrap();
    stream.write_all(&noise(1_000)).await.unwrap();
    let mut rest = vec![];
    let _ = at_once(stream.read_to_end(&mut rest)).await;
    assert!(rest.len() < 100);
}

#[test]
fn what_is_no_pem_is_refused() {
    let ours = authority();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["a".to_string()]).unwrap();
    let pem = params.signed_by(&key, &ours).unwrap().pem();
    let (key, other) = (
        key.serialize_pem(),
        KeyPair::generate().unwrap().serialize_pem(),
    );
    let ca = ours.pem();
    let made = |cert: &str, key: &str, ca: &str| {
        Tls::from_pem(cert.as_bytes(), key.as_bytes(), ca.as_bytes())
    };
    made(&pem, &key, &ca).unwrap();
    for (cert, key, ca) in [
        ("", &*key, &*ca),
        (&pem, "", &ca),
        (&pem, &key, ""),
        (&pem, &other, &ca),
        (&key, &pem, &ca),
        ("nonsense", &key, &ca),
    ] {
        let error = made(cert, key, ca).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
