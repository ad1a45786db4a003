//! TLS: which certificates are trusted.
//!
//! `sslmode=require` verifies the server's certificate and host name, against `sslrootcert` or the system's root
//! certificates. `sslmode=prefer` encrypts if the server supports it, and verifies nothing, as in libpq.

use std::sync::Arc;

use outlast_core::WorldError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The TLS connector for a mode.
pub(crate) fn tls_connector(mode: SslMode, root_cert: Option<&str>) -> Result<MakeRustlsConnect, WorldError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| WorldError::invalid(format!("TLS cannot be used: {error}")))?;
    let config = if mode == SslMode::Require || root_cert.is_some() {
        builder.with_root_certificates(trusted_roots(root_cert)?).with_no_client_auth()
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
            .with_no_client_auth()
    };
    Ok(MakeRustlsConnect::new(config))
}

/// The certificates of the authorities that may sign a server's certificate: those of the file, otherwise those of the
/// system.
fn trusted_roots(root_cert: Option<&str>) -> Result<RootCertStore, WorldError> {
    let mut trusted_roots = RootCertStore::empty();
    if let Some(path) = root_cert {
        let unreadable = |error: &dyn std::fmt::Display| {
            WorldError::invalid(format!(
                "`sslrootcert={path}` cannot be read ({error}); give the path of a PEM file with certificates"
            ))
        };
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            trusted_roots.add(certificate).map_err(|error| unreadable(&error))?;
        }
        if trusted_roots.is_empty() {
            return Err(unreadable(&"there is no certificate in it"));
        }
        return Ok(trusted_roots);
    }
    trusted_roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if trusted_roots.is_empty() {
        return Err(WorldError::Invalid(
            "the system has no root certificates, so `sslmode=require` can verify no server; \
             install them (`ca-certificates`), or give `sslrootcert`"
                .into(),
        ));
    }
    Ok(trusted_roots)
}

/// Accepts every certificate.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
