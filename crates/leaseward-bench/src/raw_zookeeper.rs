//! One connection to ZooKeeper with no library around it: the requests of a lock, any number of them under way.

use std::{
    collections::VecDeque,
    io::{self, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

const CREATE: i32 = 15;
const CHILDREN: i32 = 12;
const DELETE: i32 = 2;
const CREATE_CONTAINER: i32 = 19;

/// What an answer is to.
enum Sent {
    Create(usize),
    Children(usize),
    Delete(usize),
}

/// Messages to be sent, and the next one's number.
#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    xid: i32,
}

impl Out {
    fn message(&mut self, body: &[u8]) {
        self.bytes.extend(u32::try_from(body.len()).unwrap_or(0).to_be_bytes());
        self.bytes.extend(body);
    }

    fn request(&mut self, kind: i32, fields: &[&[u8]]) {
        self.xid += 1;
        let head = [self.xid.to_be_bytes(), kind.to_be_bytes()].concat();
        self.message(&[&head[..], &fields.concat()].concat());
    }
}

fn text(text: &str) -> Vec<u8> {
    let len = i32::try_from(text.len()).unwrap_or(0).to_be_bytes();
    [&len[..], text.as_bytes()].concat()
}

/// What follows the path and the data of a node to be created: everybody may do everything; its flags.
fn rest(flags: i32) -> Vec<u8> {
    let numbers = [1_i32.to_be_bytes(), 31_i32.to_be_bytes()].concat();
    [&numbers[..], &text("world"), &text("anyone"), &flags.to_be_bytes()].concat()
}

fn read(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut message = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// Takes and gives back names of their own, so many at once; pairs a second.
pub(crate) fn pairs(port: u16, tasks: usize, span: Duration) -> io::Result<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut out = Out::default();
    let hello = [&[0; 12][..], &30_000_i32.to_be_bytes(), &[0; 8], &16_i32.to_be_bytes(), &[0; 17]];
    out.message(&hello.concat());
    let folders: Vec<String> = (0..tasks).map(|task| format!("/bench/raw-{task}")).collect();
    for folder in &folders {
        out.request(CREATE_CONTAINER, &[&text(folder), &text(""), &rest(4)]);
    }
    stream.write_all(&std::mem::take(&mut out.bytes))?;
    for _ in 0..=tasks {
        read(&mut input)?;
    }
    // As much as ours says about itself.
    let data = text("{\"who\":\"localhost:123456\",\"ttl_ms\":10000}");
    let mut waiting = VecDeque::new();
    let begin_pair = |task: usize, out: &mut Out, waiting: &mut VecDeque<Sent>| {
        let node = format!("{}/0123456789abcdef0123456789abcdef__lock__", folders[task]);
        out.request(CREATE, &[&text(&node), &data, &rest(3)]);
        out.request(CHILDREN, &[&text(&folders[task]), &[0]]);
        waiting.extend([Sent::Create(task), Sent::Children(task)]);
    };
    for task in 0..tasks {
        begin_pair(task, &mut out, &mut waiting);
    }
    let mut made = vec![Vec::new(); tasks];
    let (begin, mut pairs) = (Instant::now(), 0.0);
    while let Some(sent) = waiting.pop_front() {
        if !out.bytes.is_empty() && input.buffer().is_empty() {
            stream.write_all(&std::mem::take(&mut out.bytes))?;
        }
        let answer = read(&mut input)?;
        if answer[12..16] != [0; 4] {
            return Err(io::Error::other("the server refuses"));
        }
        match sent {
            Sent::Create(task) => {
                let len = u32::from_be_bytes([answer[16], answer[17], answer[18], answer[19]]);
                made[task] = answer[16..20 + len as usize].to_vec();
            }
            Sent::Children(task) => {
                out.request(DELETE, &[&made[task], &(-1_i32).to_be_bytes()]);
                waiting.push_back(Sent::Delete(task));
            }
            Sent::Delete(task) => {
                pairs += 1.0;
                if begin.elapsed() < span {
                    begin_pair(task, &mut out, &mut waiting);
                }
            }
        }
    }
    Ok(pairs / begin.elapsed().as_secs_f64())
}
