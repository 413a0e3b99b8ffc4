//! URLs that point at something else.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
};

use leaseward::{Error, ErrorKind};
use leaseward_testkit::{Cluster, RedisServer, Sentinels};

async fn refusal(url: &str) -> Error {
    leaseward::connect(url).await.expect_err(url)
}

fn hint(error: &Error) -> &str {
    error.hint_text().unwrap_or_else(|| panic!("no hint: {error}"))
}

#[tokio::test]
async fn nothing_listens() {
    let server = RedisServer::start();
    let url = server.url();
    server.kill();
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains(&server.address()), "{error}");
    assert!(hint(&error).contains("is it running"), "{error:?}");
}

#[tokio::test]
async fn passwords_that_are_wrong_or_missing() {
    let server = RedisServer::builder().requirepass("right").start();
    let address = server.address();
    let wrong = refusal(&format!("redis://:wrong@{address}")).await;
    assert_eq!(wrong.kind(), ErrorKind::Refused);
    assert!(wrong.message().contains("password"), "{wrong}");
    assert!(!format!("{wrong:?}").contains("wrong@"), "{wrong:?}");
    let missing = refusal(&format!("redis://{address}")).await;
    assert_eq!(missing.kind(), ErrorKind::Refused);
    assert!(hint(&missing).contains("LEASEWARD") || hint(&missing).contains("URL"), "{missing:?}");
}

#[tokio::test]
async fn a_database_that_does_not_exist() {
    let server = RedisServer::start();
    let error = refusal(&format!("{}/99", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.message().contains("no database 99"), "{error}");
    assert!(hint(&error).contains("databases"), "{error:?}");
}

#[tokio::test]
async fn a_sentinel_a_replica_a_node_of_a_cluster() {
    let sentinels = Sentinels::start(1);
    let sentinel = sentinels.sentinel_addresses()[0].clone();
    let error = refusal(&format!("redis://{sentinel}")).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(hint(&error).contains(&format!("redis+sentinel://{sentinel}/")), "{error:?}");

    let error = refusal(&sentinels.replicas()[0].url()).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.message().contains("is a replica") && hint(&error).contains("primary"));

    let cluster = Cluster::start_without_replicas();
    let node = cluster.addresses()[0].clone();
    let error = refusal(&format!("redis://{node}")).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(hint(&error).contains(&format!("redis+cluster://{node}")), "{error:?}");

    let primary = sentinels.primary().address();
    let error = refusal(&format!("redis+cluster://{primary}")).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(hint(&error).contains(&format!("redis://{primary}")), "{error:?}");
    let error = refusal(&format!("redis+sentinel://{primary}/{}", sentinels.master_name())).await;
    assert!(error.message().contains("no Sentinel"), "{error:?}");
    let error = refusal(&format!("redis+sentinel://{sentinel}/other")).await;
    assert!(error.message().contains("knows no primary named `other`"), "{error:?}");
}

#[tokio::test]
async fn something_that_is_no_redis() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 1024];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let error = refusal(&format!("redis://{address}")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.message().contains("is no redis"), "{error:?}");
    assert!(hint(&error).contains("another program"), "{error:?}");
}
