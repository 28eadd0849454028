//! Mutual TLS: each node shows a certificate, and takes those of the cluster's own authority.

#[cfg(feature = "tls")]
mod with_rustls {
    use std::io;
    use std::sync::Arc;

    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::server::WebPkiClientVerifier;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

    use crate::net::socket::Socket;

    /// The certificate of a node, its key, and the authority of its peers' certificates. Both ends of a connection show
    /// a certificate. That of the accepting end has to name the host that the other one connected to.
    #[derive(Clone)]
    pub struct Tls {
        server: Arc<ServerConfig>,
        client: Arc<ClientConfig>,
    }

    impl std::fmt::Debug for Tls {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Tls")
        }
    }

    fn bad(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }

    fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
        let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(bad)?;
        if all.is_empty() {
            let error = "there is no certificate in the PEM text";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        Ok(all)
    }

    impl Tls {
        /// From PEM texts: the node's certificate and those between it and the authority, its private key, and the
        /// certificates of the authorities that its peers' certificates are of.
        ///
        /// # Errors
        /// [`io::ErrorKind::InvalidInput`]: a text has nothing of its kind, the key is not the certificate's, or an
        /// authority cannot be used.
        pub fn from_pem(certificate: &[u8], key: &[u8], authorities: &[u8]) -> io::Result<Tls> {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(bad)?;
            let mut roots = RootCertStore::empty();
            for authority in certificates(authorities)? {
                roots.add(authority).map_err(bad)?;
            }
            let roots = Arc::new(roots);
            let provider = Arc::new(ring::default_provider());
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
                    .build()
                    .map_err(bad)?;
            let server = ServerConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(bad)?
                .with_client_cert_verifier(verifier)
                .with_single_cert(chain.clone(), key.clone_key())
                .map_err(bad)?;
            let client = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(bad)?
                .with_root_certificates(roots)
                .with_client_auth_cert(chain, key)
                .map_err(bad)?;
            Ok(Tls {
                server: Arc::new(server),
                client: Arc::new(client),
            })
        }

        pub(crate) async fn accept(&self, socket: Socket) -> io::Result<server::TlsStream<Socket>> {
            TlsAcceptor::from(self.server.clone()).accept(socket).await
        }

        pub(crate) async fn connect(
            &self,
            host: &str,
            socket: Socket,
        ) -> io::Result<client::TlsStream<Socket>> {
            let name = ServerName::try_from(host.to_string()).map_err(bad)?;
            let connector = TlsConnector::from(self.client.clone());
            connector.connect(name, socket).await
        }
    }
}

#[cfg(feature = "tls")]
pub use with_rustls::Tls;

#[cfg(not(feature = "tls"))]
use super::socket::Socket;

/// There is none without the feature `tls`.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
pub enum Tls {}

#[cfg(not(feature = "tls"))]
impl Tls {
    pub(crate) async fn accept(&self, _: Socket) -> std::io::Result<Socket> {
        match *self {}
    }

    pub(crate) async fn connect(&self, _: &str, _: Socket) -> std::io::Result<Socket> {
        match *self {}
    }
}
