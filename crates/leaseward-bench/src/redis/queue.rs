//! The raw limits of waiting in the server: connections that wait themselves, one a task.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    clients::{Client, said},
    clients::{Work, requests},
    raw::{ACQUIRE, FREE, RELEASE, RawRedis, Reply, parse, request},
};

/// The list that the token lies in.
pub(crate) const LIST: &str = "token";
const REPLY_LEN: usize = 256;

/// A token passed from connection to connection: who has popped it has the lock. No lease, no owner, no fence.
pub(crate) struct Queue {
    address: String,
    /// The first of them has none.
    stream: Option<TcpStream>,
    pop: Vec<u8>,
    push: Vec<u8>,
}

impl Queue {
    pub(crate) fn at(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            stream: None,
            pop: request(&["BLPOP", LIST, "0"]),
            push: request(&["RPUSH", LIST, "t"]),
        }
    }
}

impl Client for Queue {
    type Held = ();

    async fn join(&self, _: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(&self.address).await.map_err(said)?;
        stream.set_nodelay(true).map_err(said)?;
        Ok(Self { stream: Some(stream), ..Self::at(&self.address) })
    }

    async fn acquire(&mut self) -> Result<(), String> {
        exchange(&mut self.stream, &self.pop, 1).await.map(drop)
    }

    async fn release(&mut self, (): ()) -> Result<(), String> {
        exchange(&mut self.stream, &self.push, 1).await.map(drop)
    }
}

/// A lock whose grant two replicas must have before it counts, one connection a task: the server lets a connection wait
/// only for what it wrote itself.
pub(crate) struct Waited {
    address: String,
    scripts: [String; 3],
    stream: Option<TcpStream>,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl Waited {
    pub(crate) fn at(address: &str) -> Result<Self, String> {
        let mut raw = RawRedis::connect(address)?;
        let scripts = [raw.load(FREE)?, raw.load(ACQUIRE)?, raw.load(RELEASE)?];
        let address = address.to_owned();
        Ok(Self { address, scripts, stream: None, acquire: Vec::new(), release: Vec::new() })
    }
}

impl Client for Waited {
    type Held = ();

    async fn join(&self, name: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(&self.address).await.map_err(said)?;
        stream.set_nodelay(true).map_err(said)?;
        let [mut acquire, release] = requests(Work::Same, &self.scripts, name)
            .map(|words| request(&words.iter().map(String::as_str).collect::<Vec<_>>()));
        acquire.extend(request(&["WAIT", "2", "1000"]));
        let (address, scripts) = (self.address.clone(), self.scripts.clone());
        Ok(Self { address, scripts, stream: Some(stream), acquire, release })
    }

    async fn acquire(&mut self) -> Result<(), String> {
        match exchange(&mut self.stream, &self.acquire, 2).await? {
            Reply::Number(2) => Ok(()),
            other => Err(format!("replicas that have it: {other:?}")),
        }
    }

    async fn release(&mut self, (): ()) -> Result<(), String> {
        exchange(&mut self.stream, &self.release, 1).await.map(drop)
    }
}

/// Sends requests in one write, and waits for all their replies.
pub(crate) async fn exchange(
    stream: &mut Option<TcpStream>,
    requests: &[u8],
    mut replies: usize,
) -> Result<Reply, String> {
    let stream = stream.as_mut().ok_or("not connected")?;
    stream.write_all(requests).await.map_err(said)?;
    let mut inbox = [0; REPLY_LEN];
    let (mut begin, mut end) = (0, 0);
    loop {
        match parse(&inbox[begin..end]) {
            Some((Reply::Refused, _)) => return Err("the server refused".into()),
            Some((reply, len)) => {
                begin += len;
                replies -= 1;
                if replies == 0 {
                    return Ok(reply);
                }
            }
            None => match stream.read(&mut inbox[end..]).await.map_err(said)? {
                0 => return Err("the server closed the connection".into()),
                len => end += len,
            },
        }
    }
}
