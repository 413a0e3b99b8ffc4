//! How a connection is made: address, credentials, TLS.

use std::{fs, path::Path, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio_postgres::{Client, Connection, Socket, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    config::{Config, Tls},
    error::{self, Stage},
};
use crate::{Error, ErrorKind};

/// What carries a connection's messages.
pub(super) type Carrier =
    Connection<Socket, <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream>;

/// Silence on an idle connection after which the kernel asks whether the other side is there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// What a server may take to let somebody in, if the time for an answer is not even longer: proving that one knows the
/// password costs both sides far more than any statement.
const CONNECT: Duration = Duration::from_secs(10);

/// The kernel counts these times in whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// Makes connections.
#[derive(Clone)]
pub(super) struct Dialler {
    tls: MakeRustlsConnect,
    ssl_mode: SslMode,
    timeout: Duration,
    name: String,
}

impl Dialler {
    /// Reads what files the configuration names.
    pub(super) fn new(config: &Config, who: &str) -> Result<Self, Error> {
        let (client, ssl_mode) = match &config.tls {
            None => (plain()?, SslMode::Disable),
            Some(tls) => (load(tls)?, SslMode::Require),
        };
        Ok(Self {
            tls: MakeRustlsConnect::new(client),
            ssl_mode,
            timeout: config.timeout,
            name: format!("leaseward {who}"),
        })
    }

    /// Connects.
    pub(super) async fn dial(
        &self,
        server: &tokio_postgres::Config,
        at: &str,
    ) -> Result<(Client, Carrier), Error> {
        let mut server = server.clone();
        let patience = self.timeout.max(CONNECT);
        server.ssl_mode(self.ssl_mode).connect_timeout(patience).application_name(&self.name);
        server.keepalives_idle(KEEPALIVE).keepalives_retries(2);
        server.keepalives_interval(self.timeout.max(SECOND));
        server.tcp_user_timeout(self.timeout.max(SECOND) * 2);
        // Each server of several gets its time, also if it accepts and then says nothing.
        let hosts = u32::try_from(server.get_hosts().len()).unwrap_or(1);
        match tokio::time::timeout(patience * hosts, server.connect(self.tls.clone())).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(error::translate(&error, Stage::Connecting, at)),
            Err(_) => Err(Error::new(ErrorKind::Unavailable, format!("{at} does not answer"))
                .hint("is it overloaded or stopped?")),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Unsupported, "no TLS here").caused_by(error))
}

/// For connections without TLS, which the driver wants to be able to encrypt all the same.
fn plain() -> Result<ClientConfig, Error> {
    Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn load(tls: &Tls) -> Result<ClientConfig, Error> {
    let builder = if tls.any_certificate {
        builder()?.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider())))
    } else {
        builder()?.with_root_certificates(roots(tls.ca.as_deref())?)
    };
    let Some((cert, key)) = &tls.cert_and_key else { return Ok(builder.with_no_client_auth()) };
    let key_der = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| unusable(key))?;
    builder.with_client_auth_cert(certificates(cert)?, key_der).map_err(|_| unusable(cert))
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|_| unusable(file))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(file)?)
        .collect::<Result<_, _>>()
        .map_err(|_| unusable(file))?;
    if found.is_empty() { Err(unusable(file)) } else { Ok(found) }
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    fs::read(file).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, format!("`{}` cannot be read", file.display()))
            .caused_by(error)
    })
}

fn unusable(file: &Path) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("`{}` is of no use for TLS", file.display()))
        .hint("certificates and keys are PEM files")
}

/// Takes anybody for the server. Encrypts, and protects against nobody who is in between.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
