//! What carries bytes to a server: a socket, encrypted or not.

use std::{io, pin::Pin, sync::Arc};

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::stores::redis::config::Address;

/// A way to a server.
pub(in crate::stores::redis) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

pub(super) type Reader = Pin<Box<dyn AsyncRead + Send>>;
pub(super) type Writer = Pin<Box<dyn AsyncWrite + Send>>;

impl Stream {
    pub(super) fn split(self) -> (Reader, Writer) {
        match self {
            Self::Tcp(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::pin(reader), Box::pin(writer))
            }
            Self::Unix(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::pin(reader), Box::pin(writer))
            }
            Self::Tls(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                (Box::pin(reader), Box::pin(writer))
            }
        }
    }
}

/// Connects.
///
/// # Cancel safety
/// Cancel safe: nothing was sent but what TLS needs.
pub(in crate::stores::redis) async fn connect(
    address: &Address,
    tls: Option<&Arc<ClientConfig>>,
) -> io::Result<Stream> {
    let (host, port) = match address {
        Address::Unix(path) => return UnixStream::connect(path).await.map(Stream::Unix),
        Address::Tcp(host, port) => (host, *port),
    };
    let socket = TcpStream::connect((host.as_str(), port)).await?;
    // A request waits for nothing.
    socket.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(Stream::Tcp(socket)) };
    let name = ServerName::try_from(host.clone())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let stream = TlsConnector::from(tls.clone()).connect(name, socket).await?;
    Ok(Stream::Tls(Box::new(stream)))
}
