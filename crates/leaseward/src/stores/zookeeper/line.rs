//! One connection to one server, until it breaks.

use std::{collections::VecDeque, io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};

use super::{
    config::{Config, Host},
    error, round,
    running::{Running, Whose},
    session::{self, Fault, Flight, Session},
    wire::{self, Body, Code, Connected, Reader, Request},
};
use crate::{
    Error,
    clock::{Clock, Moment},
};

/// Read at once.
const CHUNK: usize = 16 * 1024;

/// How often it is looked whether an answer is overdue or a heartbeat due: a quarter of what is shorter, between these.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(250);

/// What the driver of a session is told.
pub(super) enum Order {
    Send(Flight),
    /// Ends it: the session too, or only the connection.
    Close {
        session: bool,
    },
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It broke.
    Cut,
    /// The session is over.
    Over,
    /// We closed it.
    Closed,
}

/// So many flights set out as they come. While that many are under way, others gather: then they cost the server little
/// more than one.
const AT_ONCE: usize = 4;

pub(super) struct Line {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    running: VecDeque<Running>,
    /// Flights under way.
    under_way: usize,
    /// Flights that wait for those.
    gathered: Vec<Flight>,
    xid: i32,
    pub(super) connected: Connected,
    /// When the first message was sent.
    pub(super) since: Moment,
    /// When something was last sent that the leader has a part in.
    last_led: Moment,
}

/// What a connection takes up: a session that is there, or a new one.
#[derive(Clone, Debug, Default)]
pub(super) struct Resume {
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
    pub(super) zxid: i64,
}

impl Line {
    /// Connects, and begins or takes up a session.
    pub(super) async fn open(
        config: &Config,
        host: &Host,
        timeout: Duration,
        resume: &Resume,
        clock: &dyn Clock,
    ) -> Result<Self, Error> {
        let at = host.to_string();
        let opening = Self::handshake(config, host, timeout, resume, clock);
        match tokio::time::timeout(config.timeout, opening).await {
            Ok(outcome) => outcome,
            Err(_) => Err(error::unreachable(&at, "it does not answer")),
        }
    }

    async fn handshake(
        config: &Config,
        host: &Host,
        timeout: Duration,
        resume: &Resume,
        clock: &dyn Clock,
    ) -> Result<Self, Error> {
        let at = host.to_string();
        let failed = |why: io::Error| error::unreachable(&at, &why.to_string());
        let stream = TcpStream::connect((host.name.as_str(), host.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let (mut reader, mut writer) = stream.into_split();
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let since = clock.now();
        let mut hello =
            wire::connect(resume.zxid, timeout_ms, resume.session, &padded(&resume.password));
        if let Some(login) = &config.login {
            hello.extend(wire::auth(login));
        }
        writer.write_all(&hello).await.map_err(failed)?;
        let mut incoming = Vec::new();
        let malformed = |_| error::unexpected(&at);
        let first = frame(&mut reader, &mut incoming).await.map_err(failed)?;
        let is_new = resume.session == 0;
        // A server that is slower than a short session lasts says so in several ways.
        let ended = || error::unreachable(&at, "the session ended before it began");
        if first.is_empty() {
            return Err(ended());
        }
        let connected = wire::connected(&mut Reader::new(&first)).map_err(malformed)?;
        if is_new && connected.session == 0 {
            return Err(ended());
        }
        if config.login.is_some() && connected.session != 0 {
            let second = frame(&mut reader, &mut incoming).await.map_err(failed)?;
            let header = wire::header(&mut Reader::new(&second)).map_err(malformed)?;
            if header.code.is_some() {
                return Err(error::login_refused(&at));
            }
        }
        Ok(Self {
            reader,
            writer,
            incoming,
            outgoing: Vec::new(),
            running: VecDeque::new(),
            under_way: 0,
            gathered: Vec::new(),
            xid: 0,
            connected,
            since,
            last_led: since,
        })
    }

    /// Carries requests and answers until the connection ends. `early` was asked for while there was none; what was not
    /// sent in the end is there again.
    pub(super) async fn carry(
        mut self,
        session: &Session,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        early: &mut Vec<Flight>,
    ) -> Ended {
        self.gathered = std::mem::take(early);
        let ended = self.until_it_ends(session, orders).await;
        let fault = if ended == Ended::Over { Fault::Over } else { Fault::Cut };
        for mut running in std::mem::take(&mut self.running) {
            running.fail(fault);
            early.extend(running.tell(session));
        }
        // Watches are of one connection: who wanted one looks again on the next.
        let sets_watch = |flight: &mut Flight| flight.requests.iter().any(Request::sets_watch);
        session::fail(self.gathered.extract_if(.., sets_watch), Fault::NotSent);
        early.append(&mut self.gathered);
        ended
    }

    async fn until_it_ends(
        &mut self,
        session: &Session,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Ended {
        let mut chunk = vec![0; CHUNK];
        let mut closing = false;
        let every = (session.beat.min(session.patience) / 4).clamp(LOOK_MIN, LOOK_MAX);
        let mut look = tokio::time::interval(every);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // In this order, so that what is asked at the same time is written at once.
            tokio::select! {
                biased;
                _ = look.tick() => {
                    let now = session.clock.now();
                    let oldest = self.running.front().map(|oldest| oldest.sent);
                    if oldest.is_some_and(|sent| now >= sent + session.patience) {
                        return if closing { Ended::Closed } else { Ended::Cut };
                    }
                    if now >= self.last_led + session.beat && !closing {
                        self.send(session, vec![Request::Sync], Whose::Nobodys);
                    }
                }
                order = orders.recv(), if !closing => match order {
                    Some(Order::Send(flight)) => self.gathered.push(flight),
                    Some(Order::Close { session: true }) => {
                        self.depart(session);
                        self.send(session, vec![Request::Close], Whose::Nobodys);
                        closing = true;
                    }
                    Some(Order::Close { session: false }) | None => return Ended::Closed,
                },
                () = std::future::ready(()), if self.may_depart() => {
                    self.depart(session);
                }
                read = self.reader.read(&mut chunk) => match read {
                    Ok(0) | Err(_) => return if closing { Ended::Closed } else { Ended::Cut },
                    Ok(len) => {
                        self.incoming.extend_from_slice(&chunk[..len]);
                        if let Some(ended) = self.take_in(session) {
                            return ended;
                        }
                        if closing && self.running.is_empty() {
                            return Ended::Closed;
                        }
                    }
                },
                written = self.writer.write(&self.outgoing), if !self.outgoing.is_empty() => {
                    match written {
                        Ok(len) => drop(self.outgoing.drain(..len)),
                        Err(_) => return Ended::Cut,
                    }
                },
            }
        }
    }

    fn may_depart(&self) -> bool {
        !self.gathered.is_empty() && self.under_way < AT_ONCE
    }

    /// Sends what has gathered.
    fn depart(&mut self, session: &Session) {
        let mut flights = std::mem::take(&mut self.gathered);
        // What was given up while it waited here is not done either.
        flights.retain(|flight| !flight.tell.is_closed());
        if let [_] = flights[..] {
            return self.send_alone(session, flights);
        }
        let means = session.means();
        let departure = round::gather(flights, &means);
        for round in departure.rounds {
            let requests = round.requests(&means);
            self.send(session, requests, Whose::Many(Box::new(round)));
        }
        self.send_alone(session, departure.alone);
    }

    fn send_alone(&mut self, session: &Session, flights: Vec<Flight>) {
        for flight in flights {
            self.send(session, flight.requests, Whose::One(flight.tell));
        }
    }

    fn send(&mut self, session: &Session, requests: Vec<Request>, whose: Whose) {
        let sent = session.clock.now();
        session.sending(sent, requests.len());
        // A request that only reads keeps no session alive where it counts.
        if requests.iter().any(Request::is_led) {
            self.last_led = sent;
        }
        for request in &requests {
            self.xid = self.xid.checked_add(1).unwrap_or(1);
            self.outgoing.extend_from_slice(&request.encode(self.xid));
        }
        self.under_way += whose.flights();
        self.running.push_back(Running::new(requests, whose, sent));
    }

    /// Takes in all whole messages.
    fn take_in(&mut self, session: &Session) -> Option<Ended> {
        let incoming = std::mem::take(&mut self.incoming);
        let mut rest = incoming.as_slice();
        while let Some((message, after)) = split(rest) {
            let Ok(message) = message else { return Some(Ended::Cut) };
            match self.message(session, message) {
                Ok(None) => {}
                Ok(Some(ended)) => return Some(ended),
                Err(wire::Malformed) => return Some(Ended::Cut),
            }
            rest = after;
        }
        self.incoming = rest.to_vec();
        None
    }

    fn message(
        &mut self,
        session: &Session,
        message: &[u8],
    ) -> Result<Option<Ended>, wire::Malformed> {
        let mut reader = Reader::new(message);
        let header = wire::header(&mut reader)?;
        if header.xid == wire::XID_EVENT {
            if let Some(event) = wire::event(&mut reader)? {
                session.told(event);
            }
            return Ok(None);
        }
        let running = self.running.front_mut().ok_or(wire::Malformed)?;
        let request = running.requests.pop_front().ok_or(wire::Malformed)?;
        let answer = match header.code {
            Some(Code::SessionExpired) => return Ok(Some(Ended::Over)),
            // Another server has our session: what this one still says is about the past.
            Some(Code::SessionMoved) => return Ok(Some(Ended::Cut)),
            Some(code) => Err(Fault::Refused(code)),
            None => Body::read(&request, &mut reader)?.map_err(Fault::Refused),
        };
        session.answered(running.sent, request.is_led(), header.zxid);
        running.answers.push(answer);
        if running.requests.is_empty()
            && let Some(done) = self.running.pop_front()
        {
            self.under_way -= done.whose.flights();
            let again = done.tell(session);
            self.send_alone(session, again);
        }
        Ok(None)
    }
}

type Split<'a> = (Result<&'a [u8], wire::Malformed>, &'a [u8]);

/// The first message, and what follows it; `None` if it is not all there yet.
fn split(bytes: &[u8]) -> Option<Split<'_>> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    match usize::try_from(u32::from_be_bytes(*len)) {
        Ok(len) if len <= wire::FRAME_MAX => {
            let (message, after) = rest.split_at_checked(len)?;
            Some((Ok(message), after))
        }
        _ => Some((Err(wire::Malformed), rest)),
    }
}

/// Awaits the next whole message.
async fn frame(reader: &mut OwnedReadHalf, incoming: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut chunk = [0; 1024];
    loop {
        if let Some((message, after)) = split(incoming) {
            let message = message.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            let (message, after) = (message.to_vec(), after.to_vec());
            *incoming = after;
            return Ok(message);
        }
        match reader.read(&mut chunk).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => incoming.extend_from_slice(&chunk[..len]),
        }
    }
}

/// A session's password has sixteen bytes, before there is one too.
fn padded(password: &[u8]) -> Vec<u8> {
    let mut padded = password.to_vec();
    padded.resize(padded.len().max(16), 0);
    padded
}
