//! The port of a proxy is its own, whatever else its process does. By itself: starting processes all the time disturbs others.

use std::{
    net::{TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use leaseward_testkit::Proxy;

/// A process that is being started has our sockets for a moment, until it runs its own program.
#[test]
fn a_proxy_accepts_again_while_processes_are_started() {
    let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = Proxy::start(&upstream.local_addr().expect("bound").to_string());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    Command::new("true").status().expect("it runs");
                }
            });
        }
        let end = scope.spawn(|| {
            for _ in 0..2_000 {
                proxy.refuse();
                proxy.accept();
            }
        });
        let outcome = end.join();
        is_over.store(true, Ordering::Relaxed);
        outcome.expect("its port is its own");
    });
    proxy.refuse();
    TcpStream::connect(proxy.address()).expect_err("nobody listens");
    proxy.accept();
    TcpStream::connect(proxy.address()).expect("it listens again");
}
