//! The way to a server, and what is known of our end of it.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream, lookup_host},
};
use tokio_postgres::config::Host;

/// Silence on an idle connection after which the kernel asks whether the other side is there.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 2;

/// The kernel counts these times in whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// Carries bytes both ways.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A connection of either kind.
pub(super) struct Stream(Box<dyn Duplex>);

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Our end of a connection, as a server sees it that is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NearEnd {
    Port(u16),
    /// A unix socket: it has no name.
    Unix,
}

/// All addresses of a host, in the order in which they are to be tried.
pub(super) async fn addresses(host: &Host, port: u16) -> io::Result<Vec<Address>> {
    match host {
        Host::Tcp(name) => {
            Ok(lookup_host((name.as_str(), port)).await?.map(Address::Tcp).collect())
        }
        Host::Unix(folder) => Ok(vec![Address::Unix(folder.join(format!(".s.PGSQL.{port}")))]),
    }
}

impl Address {
    /// Connects. A side that has vanished is noticed after about `timeout`.
    pub(super) async fn connect(&self, timeout: Duration) -> io::Result<(Stream, NearEnd)> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                notice_silence(&stream, timeout.max(SECOND))?;
                let near = NearEnd::Port(stream.local_addr()?.port());
                Ok((Stream(Box::new(stream)), near))
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                Ok((Stream(Box::new(stream)), NearEnd::Unix))
            }
        }
    }
}

fn notice_silence(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, timeout)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    #[cfg(target_os = "linux")]
    {
        let ms = u32::try_from(timeout.as_millis() * 2).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, ms)?;
    }
    Ok(())
}
