//! A proxy that delays, holds, drops, cuts and refuses.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use leaseward_testkit::{PATIENCE, Proxy, RedisServer, eventually};

fn pair() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address());
    (server, proxy)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).expect("it accepts");
    stream.set_nodelay(true).expect("an option");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    stream
}

fn send(mut stream: &TcpStream, command: &str) {
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("it is open");
}

/// What comes until so many bytes are there, or the end.
fn receive(mut stream: &TcpStream, bytes: usize) -> String {
    let mut all = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match stream.read(&mut all[filled..]).expect("it answers in time") {
            0 => break,
            read => filled += read,
        }
    }
    String::from_utf8_lossy(&all[..filled]).into_owned()
}

fn ask(stream: &TcpStream, command: &str, answer: &str) {
    send(stream, command);
    assert_eq!(receive(stream, answer.len()), answer);
}

fn assert_silent(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("an option");
    let silence = stream.read(&mut [0; 8]).expect_err("nothing comes");
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
}

#[test]
fn passes_and_counts() {
    let (_server, proxy) = pair();
    let stream = connect(&proxy);
    ask(&stream, "PING", "+PONG\r\n");
    ask(&stream, "*2\r\n$4\r\nECHO\r\n$1\r\na", "$1\r\na\r\n");
    assert_eq!((proxy.connections(), proxy.requests()), (1, 2));
    drop(stream);
    eventually("it sees the end", PATIENCE, || (proxy.connections() == 0).then_some(()));
}

#[test]
fn delays_each_way_without_a_queue() {
    let (_server, proxy) = pair();
    let stream = connect(&proxy);
    ask(&stream, "PING", "+PONG\r\n");
    let each_way = Duration::from_millis(50);
    proxy.delay(each_way);
    let begin = Instant::now();
    ask(&stream, "PING", "+PONG\r\n");
    assert!(begin.elapsed() >= 2 * each_way);
    // Twenty at once take two seconds if they wait for each other.
    let begin = Instant::now();
    for _ in 0..20 {
        send(&stream, "PING");
    }
    receive(&stream, 20 * "+PONG\r\n".len());
    assert!(begin.elapsed() >= 2 * each_way);
    assert!(begin.elapsed() < 20 * each_way, "{:?}", begin.elapsed());
}

#[test]
fn holds_and_releases_each_way() {
    let (server, proxy) = pair();
    let stream = connect(&proxy);
    ask(&stream, "PING", "+PONG\r\n");
    proxy.hold_to_server();
    send(&stream, "SET a 1");
    eventually("it is held", PATIENCE, || (proxy.held_to_server() == 9).then_some(()));
    let fresh = connect(&proxy);
    send(&fresh, "PING");
    assert_silent(&fresh);
    assert_eq!(server.cli(&["exists", "a"]), "0");
    proxy.release();
    assert_eq!(receive(&stream, 5), "+OK\r\n");
    assert_eq!(receive(&fresh, 7), "+PONG\r\n");

    proxy.hold_to_client();
    send(&stream, "SET a 2");
    eventually("it is held", PATIENCE, || (proxy.held_to_client() == 5).then_some(()));
    assert_eq!(server.cli(&["get", "a"]), "2");
    proxy.pass();
    assert_eq!(receive(&stream, 5), "+OK\r\n");
}

#[test]
fn a_stranded_request_arrives_after_its_client_has_gone() {
    let (server, proxy) = pair();
    let stream = connect(&proxy);
    ask(&stream, "PING", "+PONG\r\n");
    proxy.strand();
    send(&stream, "SET a late");
    eventually("it is held", PATIENCE, || (proxy.held_to_server() > 0).then_some(()));
    drop(stream);
    let fresh = connect(&proxy);
    ask(&fresh, "DEL a", ":0\r\n");
    proxy.release();
    eventually("it arrives", PATIENCE, || (server.cli(&["get", "a"]) == "late").then_some(()));
    ask(&fresh, "PING", "+PONG\r\n");
}

#[test]
fn drops_the_reply_of_a_request_that_was_carried_out() {
    let (server, proxy) = pair();
    let stream = connect(&proxy);
    proxy.drop_replies_after(2);
    ask(&stream, "SET a 1", "+OK\r\n");
    send(&stream, "SET a 2");
    assert_silent(&stream);
    assert_eq!(server.cli(&["get", "a"]), "2");
    proxy.pass();
    ask(&stream, "GET a", "$1\r\n2\r\n");
}

#[test]
fn cuts_where_it_is_told_and_once() {
    let (server, proxy) = pair();
    proxy.cut_after_reply_bytes(9);
    let stream = connect(&proxy);
    ask(&stream, "SET a 1", "+OK\r\n");
    send(&stream, "SET a 2");
    assert_eq!(receive(&stream, 5), "+OK\r", "four of five bytes, then the end");
    assert_eq!(server.cli(&["get", "a"]), "2");

    proxy.cut_at_reply_chunk(2);
    let stream = connect(&proxy);
    ask(&stream, "SET a 3", "+OK\r\n");
    send(&stream, "SET a 4");
    assert_eq!(receive(&stream, 5), "");
    assert_eq!(server.cli(&["get", "a"]), "4");

    proxy.cut_at_request(2);
    let stream = connect(&proxy);
    ask(&stream, "SET a 5", "+OK\r\n");
    send(&stream, "SET a 6");
    assert_eq!(receive(&stream, 5), "");
    assert_eq!(server.cli(&["get", "a"]), "5");
    ask(&connect(&proxy), "PING", "+PONG\r\n");
}

#[test]
fn refuses_and_cuts_all() {
    let (_server, proxy) = pair();
    let stream = connect(&proxy);
    ask(&stream, "PING", "+PONG\r\n");
    proxy.refuse();
    let refused = TcpStream::connect(proxy.address()).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    ask(&stream, "PING", "+PONG\r\n");
    proxy.cut();
    assert_eq!(receive(&stream, 1), "");
    proxy.accept();
    ask(&connect(&proxy), "PING", "+PONG\r\n");
    let address = proxy.address();
    drop(proxy);
    TcpStream::connect(address).expect_err("it is gone");
}

#[test]
fn hangs_up_when_the_server_does() {
    let (server, proxy) = pair();
    let stream = connect(&proxy);
    ask(&stream, "PING", "+PONG\r\n");
    server.kill();
    assert_eq!(receive(&stream, 1), "");
    assert_eq!(receive(&connect(&proxy), 1), "");
}
