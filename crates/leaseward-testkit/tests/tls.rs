//! Certificates are accepted and refused as they should be.

use std::process::{Command, Stdio};

use leaseward_testkit::{RedisServer, TlsFiles, certificates};

#[test]
fn only_the_right_authority_vouches() {
    let certificates = certificates();
    let server = RedisServer::builder().tls(certificates.server()).start();
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}", server.port()));
    assert_eq!(server.cli(&["set", "a", "1"]), "OK");
    let other = certificates.other_ca();
    let refused = server.try_cli(&["--cacert", other.to_str().expect("a plain path"), "ping"]);
    let refused = refused.expect_err("it has not signed this");
    assert!(refused.contains("certificate verify failed"), "{refused}");
}

#[test]
fn a_client_certificate_can_be_asked_for() {
    let certificates = certificates();
    let asking = TlsFiles { ask_clients: true, ..certificates.server() };
    let server = RedisServer::builder().tls(asking).start();
    let client = certificates.client();
    let ping = |with: &[&std::ffi::OsStr]| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-e", "-p", &server.port().to_string(), "--tls", "--cacert"]);
        let output = cli.arg(certificates.ca()).args(with).arg("ping").output();
        String::from_utf8_lossy(&output.expect("it runs").stdout).trim().to_owned()
    };
    let (cert, key) = (client.cert.as_os_str(), client.key.as_os_str());
    assert_eq!(ping(&["--cert".as_ref(), cert, "--key".as_ref(), key]), "PONG");
    assert_ne!(ping(&[]), "PONG");
}

#[test]
fn the_bad_ones_are_bad_for_one_reason_each() {
    let certificates = certificates();
    let verify = |files: &TlsFiles| {
        let mut openssl = Command::new("openssl");
        openssl.args(["verify", "-verify_ip", "127.0.0.1", "-CAfile"]);
        let output = openssl.arg(&files.ca).arg(&files.cert).stdin(Stdio::null()).output();
        String::from_utf8_lossy(&output.expect("it runs").stderr).into_owned()
    };
    assert_eq!(verify(&certificates.server()), "");
    let expired = verify(&certificates.expired());
    assert!(expired.contains("certificate has expired"), "{expired}");
    assert_eq!(expired.matches(" depth lookup: ").count(), 1, "{expired}");
    let elsewhere = verify(&certificates.wrong_host());
    assert!(elsewhere.contains("IP address mismatch"), "{elsewhere}");
    assert_eq!(elsewhere.matches(" depth lookup: ").count(), 1, "{elsewhere}");
}
