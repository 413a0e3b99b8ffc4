//! TLS, as the stores' URLs ask for it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

use crate::{Error, ErrorKind};

/// Files for TLS, and whether to look at certificates at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::stores) struct Tls {
    pub(in crate::stores) ca: Option<PathBuf>,
    pub(in crate::stores) cert_and_key: Option<(PathBuf, PathBuf)>,
    pub(in crate::stores) any_certificate: bool,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Unsupported, "no TLS here").caused_by(error))
}

/// For a driver that wants to be able to encrypt also where it does not.
#[cfg(feature = "postgres")]
pub(in crate::stores) fn unused() -> Result<ClientConfig, Error> {
    Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Reads the files.
pub(in crate::stores) fn load(tls: &Tls) -> Result<ClientConfig, Error> {
    let builder = if tls.any_certificate {
        builder()?.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider())))
    } else {
        builder()?.with_root_certificates(roots(tls.ca.as_deref())?)
    };
    let Some((cert, key)) = &tls.cert_and_key else { return Ok(builder.with_no_client_auth()) };
    let key_der = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| unusable(key))?;
    builder.with_client_auth_cert(certificates(cert)?, key_der).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => unrelated(cert, key),
        _ => unusable(cert),
    })
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

fn unrelated(cert: &Path, key: &Path) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!("`{}` and `{}` do not match", cert.display(), key.display()),
    )
    .hint("`cert` and `key` are a certificate and the key that it was made for")
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
