//! The least a Redis client can be: one blocking connection, requests made beforehand, replies matched in order.
//!
//! While the server works on what was written, the requests that its last replies called for gather, and go out as one
//! write. There is no runtime, no task and no allocation: what a library for locks could at best reach if each of its
//! operations were a request of its own.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

const INBOX_LEN: usize = 256 << 10;
/// A server that is silent for so long is not measured any more.
const PATIENCE: Duration = Duration::from_secs(10);

/// Compare and delete, as all libraries of this layout release.
pub(crate) const FREE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// The work of an acquisition with a fence, a queue that is respected, and what is to be known of the holder.
pub(crate) const ACQUIRE: &str = "\
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) > 0 then return 0 end
local now = redis.call('TIME')
local last = tonumber(redis.call('GET', KEYS[4])) or 0
local fence = math.max(last + 1, now[1] * 1000000 + now[2])
local text = string.format('%.0f', fence)
redis.call('SET', KEYS[4], text)
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[3] .. text, 'PX', ARGV[2])
return fence";

/// The work of a release that looks whether somebody waits.
pub(crate) const RELEASE: &str = "\
local held = redis.call('MGET', KEYS[1], KEYS[2])
if not held[1] or string.sub(held[1], 1, #ARGV[1]) ~= ARGV[1] then return 0 end
if held[2] then return -1 end
redis.call('DEL', KEYS[1])
return 1";

/// The work of a node's vote: the lock, and a ballot above the last that is remembered longer than the lock.
pub(crate) const VOTE: &str = "\
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local time = redis.call('TIME')
local ballot = string.format('%010d%06d', time[1], time[2])
local old = redis.call('SET', KEYS[2], ballot .. ARGV[3], 'PX', 610000, 'GET')
if old and string.sub(old, 1, 16) >= ballot then return 0 end
return 1";

/// How long the keys live.
pub(crate) const TTL_MS: &str = "10000";

/// What a reply says, as far as a lock cares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reply {
    Ok,
    Number(i64),
    /// A string, an array, or nothing: how many bytes or items, less than none if nothing.
    Other(i64),
    Refused,
}

impl Reply {
    pub(crate) fn is_good(self) -> bool {
        match self {
            Self::Ok => true,
            Self::Number(number) => number > 0,
            Self::Other(_) | Self::Refused => false,
        }
    }
}

/// The requests of one task: those of a pair, and who is to take turns with them.
pub(crate) struct Requests {
    pub(crate) acquire: Vec<u8>,
    pub(crate) release: Vec<u8>,
}

/// What a drive came to.
#[derive(Default)]
pub(crate) struct Driven {
    /// Microseconds of each pair.
    pub(crate) micros: Vec<f64>,
    pub(crate) errors: u32,
    pub(crate) seconds: f64,
}

pub(crate) struct RawRedis {
    pub(super) stream: TcpStream,
    inbox: Vec<u8>,
    begin: usize,
    end: usize,
}

impl RawRedis {
    pub(crate) fn connect(address: &str) -> Result<Self, String> {
        let open = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = open().map_err(|error: std::io::Error| format!("{address}: {error}"))?;
        Ok(Self { stream, inbox: vec![0; INBOX_LEN], begin: 0, end: 0 })
    }

    /// Sends one request and returns the whole reply, text and all.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<String, String> {
        self.send(&request(words))?;
        loop {
            if let Some((_, len)) = parse(&self.inbox[self.begin..self.end]) {
                let text = &self.inbox[self.begin..self.begin + len];
                let text = String::from_utf8_lossy(text).into_owned();
                self.begin += len;
                return if text.starts_with('-') { Err(text) } else { Ok(text) };
            }
            self.receive()?;
        }
    }

    /// Has the server keep a script; answers its name.
    pub(crate) fn load(&mut self, script: &str) -> Result<String, String> {
        let reply = self.ask(&["SCRIPT", "LOAD", script])?;
        Ok(reply.lines().nth(1).unwrap_or_default().to_owned())
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| error.to_string())
    }

    pub(super) fn receive(&mut self) -> Result<(), String> {
        if self.begin > 0 {
            self.inbox.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
        match self.stream.read(&mut self.inbox[self.end..]) {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(len) => {
                self.end += len;
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The next reply of those that have come, if all of it is there.
    pub(super) fn next_reply(&mut self) -> Option<Reply> {
        let (reply, len) = parse(&self.inbox[self.begin..self.end])?;
        self.begin += len;
        Some(reply)
    }

    /// Tasks that each acquire and release, as many at once as there are requests, for so long.
    pub(crate) fn drive(&mut self, tasks: &[Requests], span: Duration) -> Result<Driven, String> {
        let mut driven = Driven::default();
        let mut out = Vec::with_capacity(INBOX_LEN);
        let start = Instant::now();
        let mut begun = vec![start; tasks.len()];
        let mut holds = vec![false; tasks.len()];
        let mut in_flight: VecDeque<usize> = (0..tasks.len()).collect();
        for task in tasks {
            out.extend_from_slice(&task.acquire);
        }
        while !in_flight.is_empty() {
            self.send(&out)?;
            out.clear();
            self.receive()?;
            let now = Instant::now();
            let is_over = now.duration_since(start) >= span;
            while let Some(reply) = self.next_reply() {
                let task = in_flight.pop_front().ok_or("more replies than requests")?;
                driven.errors += u32::from(!reply.is_good());
                if !holds[task] {
                    holds[task] = true;
                    out.extend_from_slice(&tasks[task].release);
                } else {
                    holds[task] = false;
                    driven.micros.push(now.duration_since(begun[task]).as_secs_f64() * 1e6);
                    if is_over {
                        continue;
                    }
                    begun[task] = now;
                    out.extend_from_slice(&tasks[task].acquire);
                }
                in_flight.push_back(task);
            }
        }
        driven.seconds = start.elapsed().as_secs_f64();
        Ok(driven)
    }
}

/// A request as it goes over the wire.
pub(crate) fn request(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    out
}

/// The first reply in a buffer and its length, once all of it is there.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
    let line = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let number = || number(&bytes[1..line - 2]);
    match bytes[0] {
        b'+' => Some((Reply::Ok, line)),
        b':' => Some((Reply::Number(number()), line)),
        b'$' => {
            let len = number();
            let whole = if len < 0 { line } else { line + len as usize + 2 };
            (bytes.len() >= whole).then_some((Reply::Other(len), whole))
        }
        b'*' => {
            let items = number();
            let mut whole = line;
            for _ in 0..items {
                whole += parse(&bytes[whole..])?.1;
            }
            Some((Reply::Other(items), whole))
        }
        _ => Some((Reply::Refused, line)),
    }
}

fn number(digits: &[u8]) -> i64 {
    let (sign, digits) = match digits {
        [b'-', rest @ ..] => (-1, rest),
        all => (1, all),
    };
    sign * digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit.wrapping_sub(b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_replies_only_once_they_are_whole() {
        let cases: [(&[u8], Reply); 7] = [
            (b"+OK\r\n", Reply::Ok),
            (b":-42\r\n", Reply::Number(-42)),
            (b"$5\r\nhello\r\n", Reply::Other(5)),
            (b"$-1\r\n", Reply::Other(-1)),
            (b"*2\r\n$1\r\na\r\n:7\r\n", Reply::Other(2)),
            (b"*-1\r\n", Reply::Other(-1)),
            (b"-ERR no\r\n", Reply::Refused),
        ];
        for (bytes, expected) in cases {
            assert_eq!(parse(bytes), Some((expected, bytes.len())));
            for len in 0..bytes.len() {
                assert_eq!(parse(&bytes[..len]), None, "{len} bytes of {bytes:?}");
            }
        }
    }
}
