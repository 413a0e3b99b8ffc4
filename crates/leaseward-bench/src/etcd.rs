//! etcd by itself, as one task uses it: the same transactions as ours without a library, and its own lock API.

use prost::Message;
use tonic::{client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

use crate::redis::clients::{Client, said};

/// The TTL of leases, in seconds.
const TTL: i64 = 10;

#[derive(Clone, PartialEq, Message)]
struct Compare {
    /// 0: equal, 1: greater.
    #[prost(int32, tag = "1")]
    result: i32,
    /// 1: the create revision.
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
    #[prost(bytes = "vec", tag = "64")]
    range_end: Vec<u8>,
}

/// A put, a range or a deletion: all have the key first.
#[derive(Clone, PartialEq, Message)]
struct Keyed {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    second: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct RequestOp {
    #[prost(message, optional, tag = "1")]
    range: Option<Keyed>,
    #[prost(message, optional, tag = "2")]
    put: Option<Keyed>,
    #[prost(message, optional, tag = "3")]
    delete: Option<Keyed>,
}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnAnswer {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

async fn call<Q, A>(channel: &Channel, method: &'static str, message: Q) -> Result<A, String>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(said)?;
    let path = PathAndQuery::from_static(method);
    let request = tonic::Request::new(message);
    let answer = grpc.unary(request, path, ProstCodec::<Q, A>::default()).await.map_err(said)?;
    Ok(answer.into_inner())
}

/// Connects, with a lease.
async fn connect(address: &str) -> Result<(Channel, i64), String> {
    let endpoint = Channel::from_shared(format!("http://{address}")).map_err(said)?;
    let channel = endpoint.tcp_nodelay(true).connect().await.map_err(said)?;
    let lease = grant(&channel).await?;
    Ok((channel, lease))
}

async fn grant(channel: &Channel) -> Result<i64, String> {
    let granted: Granted =
        call(channel, "/etcdserverpb.Lease/LeaseGrant", Grant { ttl: TTL }).await?;
    Ok(granted.id)
}

/// The transactions of an acquisition and of a release, one lease for all.
pub(crate) struct Raw {
    channel: Channel,
    lease: i64,
    name: String,
}

impl Raw {
    pub(crate) async fn connect(address: &str) -> Result<Self, String> {
        let (channel, lease) = connect(address).await?;
        Ok(Self { channel, lease, name: String::new() })
    }

    fn key(&self) -> Vec<u8> {
        format!("raw/{}/0123456789abcdef-1", self.name).into_bytes()
    }
}

impl Client for Raw {
    type Held = ();

    async fn join(&self, name: &str) -> Result<Self, String> {
        let (channel, lease) = (self.channel.clone(), self.lease);
        Ok(Self { channel, lease, name: name.to_owned() })
    }

    async fn acquire(&mut self) -> Result<(), String> {
        let (room, end) = (format!("raw/{}/", self.name), format!("raw/{}0", self.name));
        let value = br#"{"who":"host:1234","token":"0123456789abcdef0123456789abcdef","mode":"exclusive","ttl_ms":10000,"since_us":0}"#;
        let look = RequestOp {
            range: Some(Keyed {
                key: room.clone().into_bytes(),
                second: end.clone().into_bytes(),
                lease: 0,
            }),
            ..RequestOp::default()
        };
        let put = Keyed { key: self.key(), second: value.to_vec(), lease: self.lease };
        let is_free = Compare {
            result: 0,
            target: 1,
            key: room.into_bytes(),
            create_revision: Some(0),
            range_end: end.into_bytes(),
        };
        let txn = Txn {
            compare: vec![is_free],
            success: vec![RequestOp { put: Some(put), ..RequestOp::default() }],
            failure: vec![look],
        };
        let answer: TxnAnswer = call(&self.channel, "/etcdserverpb.KV/Txn", txn).await?;
        if answer.succeeded { Ok(()) } else { Err("not free".into()) }
    }

    async fn release(&mut self, (): ()) -> Result<(), String> {
        let key = self.key();
        let is_there = Compare {
            result: 1,
            target: 1,
            key: key.clone(),
            create_revision: Some(0),
            range_end: Vec::new(),
        };
        let delete = Keyed { key, ..Keyed::default() };
        let txn = Txn {
            compare: vec![is_there],
            success: vec![RequestOp { delete: Some(delete), ..RequestOp::default() }],
            failure: Vec::new(),
        };
        let answer: TxnAnswer = call(&self.channel, "/etcdserverpb.KV/Txn", txn).await?;
        if answer.succeeded { Ok(()) } else { Err("not ours".into()) }
    }
}

/// etcd's own lock service. Its locks are those of a lease, so each task has one of its own.
pub(crate) struct LockApi {
    channel: Channel,
    lease: i64,
    name: String,
}

impl LockApi {
    pub(crate) async fn connect(address: &str) -> Result<Self, String> {
        let (channel, lease) = connect(address).await?;
        Ok(Self { channel, lease, name: String::new() })
    }
}

impl Client for LockApi {
    type Held = Vec<u8>;

    async fn join(&self, name: &str) -> Result<Self, String> {
        let lease = grant(&self.channel).await?;
        Ok(Self { channel: self.channel.clone(), lease, name: format!("theirs/{name}") })
    }

    async fn acquire(&mut self) -> Result<Vec<u8>, String> {
        let request = LockRequest { name: self.name.clone().into_bytes(), lease: self.lease };
        let locked: Locked = call(&self.channel, "/v3lockpb.Lock/Lock", request).await?;
        Ok(locked.key)
    }

    async fn release(&mut self, key: Vec<u8>) -> Result<(), String> {
        call::<_, Nothing>(&self.channel, "/v3lockpb.Lock/Unlock", Unlock { key }).await.map(drop)
    }
}
