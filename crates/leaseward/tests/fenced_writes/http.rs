//! The layer in front of a real HTTP server.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, routing::any};
use leaseward::fenced::{FenceGate, http::FenceLayer};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Mutex, Notify, mpsc},
};

/// A service that records what reaches it, and answers when it is told to.
#[derive(Clone)]
struct Desk {
    came: mpsc::UnboundedSender<String>,
    go: Arc<Notify>,
    is_slow: bool,
}

struct Service {
    address: std::net::SocketAddr,
    came: Mutex<mpsc::UnboundedReceiver<String>>,
    go: Arc<Notify>,
    gate: FenceGate,
}

impl Service {
    async fn start(is_slow: bool, layer: impl FnOnce(FenceGate) -> FenceLayer) -> Self {
        let (sender, came) = mpsc::unbounded_channel();
        let (gate, go) = (FenceGate::new(), Arc::new(Notify::new()));
        let desk = Desk { came: sender, go: go.clone(), is_slow };
        let handler = |State(desk): State<Desk>, body: String| async move {
            desk.came.send(body).expect("somebody listens");
            if desk.is_slow {
                desk.go.notified().await;
            }
            "done"
        };
        let app = Router::new()
            .route("/{*path}", any(handler))
            .with_state(desk)
            .layer(layer(gate.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, came: Mutex::new(came), go, gate }
    }

    /// One request on a connection of its own; the whole answer.
    async fn ask(&self, line: &str, headers: &str, body: &str) -> String {
        ask(self.address, line, headers, body).await
    }

    async fn put(&self, path: &str, fence: u64, body: &str) -> String {
        self.ask(&format!("PUT {path}"), &format!("Leaseward-Fence: {fence}\r\n"), body).await
    }

    async fn next(&self) -> String {
        self.came.lock().await.recv().await.expect("the service is there")
    }

    async fn nothing_came(&self) -> bool {
        self.came.lock().await.try_recv().is_err()
    }
}

async fn ask(address: std::net::SocketAddr, line: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a server");
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).expect("a status line").parse().expect("a number")
}

#[tokio::test]
async fn lets_current_holders_through_and_refuses_the_rest() {
    let service = Service::start(false, FenceLayer::new).await;
    for fence in [5, 5, 8] {
        let answer = service.put("/a", fence, "good").await;
        assert_eq!(status(&answer), 200);
        assert!(answer.ends_with("done"), "{answer}");
        assert_eq!(service.next().await, "good");
    }
    let stale = service.put("/a", 7, "late").await;
    assert_eq!(status(&stale), 412);
    assert!(stale.to_lowercase().contains("\r\nleaseward-fence-seen: 8\r\n"), "{stale}");
    assert_eq!(status(&service.ask("PUT /a", "", "no fence").await), 428);
    assert_eq!(status(&service.ask("PUT /a", "Leaseward-Fence: soon\r\n", "x").await), 400);
    let twice = "Leaseward-Fence: 9\r\nLeaseward-Fence: 10\r\n";
    assert_eq!(status(&service.ask("PUT /a", twice, "x").await), 400);
    let absurd = format!("Leaseward-Fence: {}\r\n", u64::MAX);
    assert_eq!(status(&service.ask("PUT /a", &absurd, "x").await), 400);
    assert!(service.nothing_came().await, "a refused request reached the service");
    assert_eq!(status(&service.put("/b", 1, "another resource").await), 200);
}

#[tokio::test]
async fn reads_may_come_without_a_fence() {
    let service = Service::start(false, |gate| FenceLayer::new(gate).reads_unfenced()).await;
    assert_eq!(status(&service.put("/a", 5, "x").await), 200);
    assert_eq!(status(&service.ask("GET /a", "", "").await), 200);
    assert_eq!(status(&service.ask("GET /a", "Leaseward-Fence: 4\r\n", "").await), 412);
    assert_eq!(status(&service.ask("POST /a", "", "").await), 428);
}

#[tokio::test]
async fn the_resource_and_the_lead_are_the_services_choice() {
    let layer = |gate| {
        let one = FenceLayer::new(gate).resource(|_| "all".into());
        one.lead_max(Duration::MAX)
    };
    let service = Service::start(false, layer).await;
    assert_eq!(status(&service.put("/a", u64::MAX, "x").await), 200);
    assert_eq!(status(&service.put("/b", 1, "x").await), 412);
}

/// The write of the earlier holder is under way in the service: the later one's must not overtake it.
#[tokio::test]
async fn a_later_holder_waits_for_the_request_in_flight() {
    let service = Arc::new(Service::start(true, FenceLayer::new).await);
    let put = |fence, body: &'static str| {
        let service = service.clone();
        tokio::spawn(async move { status(&service.put("/a", fence, body).await) })
    };
    let early = put(1, "early");
    assert_eq!(service.next().await, "early");
    let late = put(2, "late");
    while service.gate.seen("/a").get() < 2 {
        tokio::task::yield_now().await;
    }
    // From here on the earlier holder begins nothing new, and what it began is not overtaken.
    assert_eq!(status(&service.put("/a", 1, "again").await), 412);
    assert!(service.nothing_came().await, "the later request overtook the earlier one");
    service.go.notify_one();
    assert_eq!(early.await.expect("no panic"), 200);
    assert_eq!(service.next().await, "late");
    service.go.notify_one();
    assert_eq!(late.await.expect("no panic"), 200);
}

/// A client that goes away leaves nobody waiting.
#[tokio::test]
async fn a_request_given_up_keeps_nobody_out() {
    let service = Service::start(true, FenceLayer::new).await;
    let address = service.address;
    let header = "Leaseward-Fence: 1\r\n";
    let gone = tokio::spawn(async move { ask(address, "PUT /a", header, "gone").await });
    assert_eq!(service.next().await, "gone");
    gone.abort();
    service.go.notify_one();
    service.go.notify_one();
    assert_eq!(status(&service.put("/a", 2, "next").await), 200);
}
