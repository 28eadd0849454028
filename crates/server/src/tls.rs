//! HTTPS.

use std::io;

use tokio::net::TcpStream;

use crate::config::{Config, ServeError};

#[cfg(feature = "tls")]
mod with_rustls {
    use std::path::Path;
    use std::sync::Arc;

    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio_rustls::server::TlsStream;

    use super::*;
    use crate::limits::HANDSHAKE_TIME;

    pub(crate) struct Tls(TlsAcceptor);

    impl Tls {
        /// The certificate that the configuration asks for, if it does.
        pub fn new(config: &Config) -> Result<Option<Tls>, ServeError> {
            let (certificates, key) = match (&config.cert, &config.key, config.tls_temporary) {
                (None, None, false) => return Ok(None),
                (Some(cert), Some(key), false) => read(cert, key)?,
                (None, None, true) => temporary(&config.hosts)?,
                _ => {
                    return Err(ServeError::new(
                        "HTTPS has either --cert and --key, or --tls-temporary.",
                    ));
                }
            };
            let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .and_then(|builder| {
                    builder
                        .with_no_client_auth()
                        .with_single_cert(certificates, key)
                })
                .map_err(|error| {
                    ServeError::new(format!(
                        "The certificate and its key cannot be used: {error}."
                    ))
                })?;
            Ok(Some(Tls(TlsAcceptor::from(Arc::new(config)))))
        }

        pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
            tokio::time::timeout(HANDSHAKE_TIME, self.0.accept(stream)).await?
        }
    }

    type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

    fn read(cert: &Path, key: &Path) -> Result<Pair, ServeError> {
        let fails = |path: &Path, error: &dyn std::fmt::Display| {
            ServeError::new(format!("{}: {error}.", path.display()))
        };
        let certificates = CertificateDer::pem_file_iter(cert)
            .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
            .map_err(|error| fails(cert, &error))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| fails(key, &error))?;
        Ok((certificates, key))
    }

    /// A certificate for this process alone, which clients have to be told to trust.
    fn temporary(hosts: &[String]) -> Result<Pair, ServeError> {
        let mut names = vec![
            "localhost".to_string(),
            "127.0.0.1".to_string(),
            "::1".to_string(),
        ];
        names.extend(hosts.iter().cloned());
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| ServeError::new(format!("No certificate can be made: {error}.")))?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok((vec![made.cert.der().clone()], key.into()))
    }
}

#[cfg(feature = "tls")]
pub(crate) use with_rustls::Tls;

/// There is none without the feature `tls`.
#[cfg(not(feature = "tls"))]
pub(crate) enum Tls {}

#[cfg(not(feature = "tls"))]
impl Tls {
    pub fn new(config: &Config) -> Result<Option<Tls>, ServeError> {
        if config.cert.is_some() || config.key.is_some() || config.tls_temporary {
            return Err(ServeError::new(
                "This build has no HTTPS: it was made without the feature tls of ebbtide-server.",
            ));
        }
        Ok(None)
    }

    pub async fn accept(&self, _stream: TcpStream) -> io::Result<TcpStream> {
        match *self {}
    }
}
