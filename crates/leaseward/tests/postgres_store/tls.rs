//! Encrypted connections, and servers that are not who they should be.

use leaseward::ErrorKind;
use leaseward_testkit::{Postgres, certificates};

use crate::help::{connect, take, try_open};

#[tokio::test(flavor = "multi_thread")]
async fn only_the_right_server_is_spoken_to() {
    let certificates = certificates();
    let server = Postgres::builder().in_memory().tls(certificates.server()).start();
    let (ca, other) = (certificates.ca(), certificates.other_ca());
    let url = |settings: &str| format!("{}?{settings}", server.url());
    let good = url(&format!("sslmode=verify-full&ca={}", ca.display()));
    let locks = connect(&good).await;
    take(locks.lock("a")).await.release().await.expect("given back");
    for bad in [
        url(&format!("sslmode=verify-full&ca={}", other.display())),
        url("sslmode=verify-full"),
        url("sslmode=disable"),
    ] {
        let error = try_open(&bad).await.expect_err("not safe");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    }
    connect(&url("sslmode=require&danger_accept_any_certificate=yes")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_and_borrowed_certificates_are_refused() {
    let certificates = certificates();
    for files in [certificates.expired(), certificates.wrong_host()] {
        let server = Postgres::builder().in_memory().tls(files).start();
        let url =
            format!("{}?sslmode=verify-full&ca={}", server.url(), certificates.ca().display());
        let error = try_open(&url).await.expect_err("not safe");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        assert!(error.to_string().contains("certificate"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_server_is_spoken_to_in_the_clear_that_should_be_safe() {
    let server = Postgres::builder().in_memory().start();
    let error =
        try_open(&format!("{}?sslmode=verify-full", server.url())).await.expect_err("no TLS");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
}
