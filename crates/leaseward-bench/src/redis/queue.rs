//! The raw limits of waiting in the server: connections that wait themselves, one a task.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    clients::{Client, said},
    raw::{parse, request},
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
        exchange(&mut self.stream, &self.pop, 1).await
    }

    async fn release(&mut self, (): ()) -> Result<(), String> {
        exchange(&mut self.stream, &self.push, 1).await
    }
}

/// Sends requests in one write, and waits for all their replies.
pub(crate) async fn exchange(
    stream: &mut Option<TcpStream>,
    requests: &[u8],
    mut replies: usize,
) -> Result<(), String> {
    let stream = stream.as_mut().ok_or("not connected")?;
    stream.write_all(requests).await.map_err(said)?;
    let mut inbox = [0; REPLY_LEN];
    let (mut begin, mut end) = (0, 0);
    while replies > 0 {
        match parse(&inbox[begin..end]) {
            Some((super::raw::Reply::Refused, _)) => return Err("the server refused".into()),
            Some((_, len)) => {
                begin += len;
                replies -= 1;
            }
            None => match stream.read(&mut inbox[end..]).await.map_err(said)? {
                0 => return Err("the server closed the connection".into()),
                len => end += len,
            },
        }
    }
    Ok(())
}
