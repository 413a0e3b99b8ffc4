//! One connection to one member.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::Stream;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

use super::{
    config::{Config, Tls},
    error::{self, Asked, Class},
    proto::{AuthenticateRequest, AuthenticateResponse, Empty, StatusResponse},
};
use crate::{Error, ErrorKind, clock::BoxFuture};

/// The largest answer that is taken: a page of keys is far smaller.
const ANSWER_MAX: usize = 64 << 20;

/// A member that is up answers a connection at once; one that is not is left for the next.
const CONNECT: Duration = Duration::from_secs(1);

/// Silence on the connection after which the kernel asks whether the other side is there.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// A request without an answer for so long has the member asked whether it is there at all, and it has as long again.
const SUSPICIOUS: Duration = Duration::from_secs(1);

pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(super) const LEASE_TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(super) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
pub(super) const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
pub(super) const MEMBERS: &str = "/etcdserverpb.Cluster/MemberList";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// A message either way.
pub(super) trait Wire: prost::Message + Default + 'static {}
impl<M: prost::Message + Default + 'static> Wire for M {}

pub(super) struct Conn {
    pub(super) at: String,
    channel: Channel,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    is_over: AtomicBool,
    over: Notify,
}

impl Conn {
    pub(super) async fn open(config: &Config, at: &str) -> Result<Self, Error> {
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let bad = |error: tonic::transport::Error| {
            Error::new(ErrorKind::InvalidInput, format!("`{at}` is no address")).caused_by(error)
        };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{at}"))
            .map_err(bad)?
            .connect_timeout(CONNECT.min(config.timeout))
            .tcp_nodelay(true)
            .tcp_keepalive(Some(KEEPALIVE));
        if let Some(tls) = &config.tls {
            endpoint = endpoint.tls_config(load(tls)?).map_err(|error| {
                Error::new(ErrorKind::InvalidInput, "the files for TLS are of no use")
                    .hint("certificates and keys are PEM files")
                    .caused_by(error)
            })?;
        }
        // The whole of it: a member that takes the connection and says nothing is as good as none.
        let channel = match tokio::time::timeout(CONNECT * 2, endpoint.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(error::unreached(at, &error)),
            Err(_) => return Err(error::timed_out(Asked::Read, at)),
        };
        let conn = Self {
            at: at.to_owned(),
            channel,
            token: Mutex::default(),
            is_over: AtomicBool::new(false),
            over: Notify::new(),
        };
        conn.authenticate(config).await?;
        Ok(conn)
    }

    /// Proves who we are, if the configuration says who that is.
    pub(super) async fn authenticate(&self, config: &Config) -> Result<(), Error> {
        let Some(known) = &config.credentials else { return Ok(()) };
        let request =
            AuthenticateRequest { name: known.user.clone(), password: known.password.clone() };
        *self.token.lock() = None;
        let answer = self.unary::<_, AuthenticateResponse>(AUTHENTICATE, request);
        match tokio::time::timeout(config.timeout, answer).await {
            Ok(Ok(answer)) => {
                let token = answer.token.parse().map_err(|_| error::unexpected())?;
                *self.token.lock() = Some(token);
                Ok(())
            }
            // A cluster that asks nobody for a password lets everybody in.
            Ok(Err(status)) if Class::of(&status) == Class::NoAuth => Ok(()),
            Ok(Err(status)) => Err(error::translate(&status, Asked::Read, &self.at)),
            Err(_) => Err(error::timed_out(Asked::Read, &self.at)),
        }
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_MAX)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        // A member without a leader then says so at once, instead of letting everybody wait for one.
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = self.token.lock().clone() {
            metadata.insert("token", token);
        }
        request
    }

    /// One request, one answer.
    pub(super) async fn unary<Q: Wire, A: Wire>(
        &self,
        method: &'static str,
        message: Q,
    ) -> Result<A, Status> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(method);
        Ok(grpc.unary(self.request(message), path, codec).await?.into_inner())
    }

    /// The same, given up early if the member is not there at all: frozen, or cut off.
    pub(super) async fn asked<Q: Wire, A: Wire>(
        &self,
        method: &'static str,
        message: Q,
    ) -> Result<A, Status> {
        let mut answer = std::pin::pin!(self.unary(method, message));
        loop {
            if let Ok(answer) = tokio::time::timeout(SUSPICIOUS, &mut answer).await {
                return answer;
            }
            let probe = self.unary::<_, StatusResponse>(STATUS, Empty {});
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                probed = tokio::time::timeout(SUSPICIOUS, probe) => {
                    if probed.is_err() {
                        return Err(Status::unavailable("no sign of life"));
                    }
                }
            }
        }
    }

    /// Messages either way.
    pub(super) fn stream<Q: Wire, A: Wire>(
        &self,
        method: &'static str,
        messages: mpsc::UnboundedReceiver<Q>,
    ) -> Answers<A> {
        let mut grpc = self.grpc();
        let request = self.request(to_stream(messages));
        let opening = async move {
            grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
            let codec = ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(method);
            Ok(grpc.streaming(request, path, codec).await?.into_inner())
        };
        Answers::Opening(Box::pin(opening))
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.over.notify_waiters();
    }

    /// Resolves once nobody uses it any more.
    pub(super) async fn ended(&self) {
        let mut notified = std::pin::pin!(self.over.notified());
        notified.as_mut().enable();
        if !self.is_over() {
            notified.await;
        }
    }
}

/// What comes back over a stream. etcd opens its side with the first answer, so it is open only when something was sent.
pub(super) enum Answers<A> {
    Opening(BoxFuture<'static, Result<Streaming<A>, Status>>),
    Open(Box<Streaming<A>>),
}

impl<A: Wire> Answers<A> {
    /// The next one. Nothing is lost if this is dropped.
    pub(super) async fn next(&mut self) -> Result<A, Status> {
        loop {
            match self {
                Self::Opening(opening) => *self = Self::Open(Box::new(opening.await?)),
                Self::Open(stream) => {
                    let ended = || Status::unavailable("the stream ended");
                    return stream.message().await?.ok_or_else(ended);
                }
            }
        }
    }
}

fn to_stream<Q: Send + 'static>(
    mut messages: mpsc::UnboundedReceiver<Q>,
) -> impl Stream<Item = Q> + Send + 'static {
    futures_util::stream::poll_fn(move |cx| messages.poll_recv(cx))
}

fn load(tls: &Tls) -> Result<ClientTlsConfig, Error> {
    let mut config = match &tls.ca {
        Some(file) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(file)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((cert, key)) = &tls.cert_and_key {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(config)
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    fs::read(file).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, format!("`{}` cannot be read", file.display()))
            .caused_by(error)
    })
}
