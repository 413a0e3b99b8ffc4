//! How a connection is made: address, credentials, TLS.

use std::{fs, path::Path, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _,
    ProtocolVersion, RedisConnectionInfo, TlsCertificates, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};

use super::{
    config::{Address, Config, Credentials, Tls},
    error,
};
use crate::{Error, ErrorKind};

/// Makes connections.
pub(in crate::stores) struct Dialler {
    credentials: Credentials,
    db: i64,
    tls: Option<Loaded>,
    timeout: Duration,
    /// What CLIENT LIST shows.
    pub(in crate::stores) name: String,
}

/// Certificates, read once.
#[derive(Clone)]
struct Loaded {
    certificates: TlsCertificates,
    any_certificate: bool,
}

impl Dialler {
    /// Reads what files the configuration names.
    pub(in crate::stores) fn new(config: &Config, who: &str) -> Result<Self, Error> {
        Ok(Self {
            credentials: config.credentials.clone(),
            db: config.db,
            tls: config.tls.as_ref().map(load).transpose()?,
            timeout: config.timeout,
            name: client_name(who),
        })
    }

    /// The same, as somebody else: for Sentinels, which have users of their own and no databases.
    pub(in crate::stores) fn for_sentinels(&self, config: &Config) -> Self {
        Self {
            credentials: config.sentinel_credentials.clone(),
            db: 0,
            tls: self.tls.clone(),
            timeout: self.timeout,
            name: self.name.clone(),
        }
    }

    /// The same, for connections on which an answer may take that much longer.
    pub(in crate::stores) fn for_longer_answers(&self, by: Duration) -> Self {
        Self {
            credentials: self.credentials.clone(),
            db: self.db,
            tls: self.tls.clone(),
            timeout: self.timeout + by,
            name: self.name.clone(),
        }
    }

    pub(in crate::stores) async fn dial(
        &self,
        address: &Address,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, Error> {
        let failed = |error| {
            let at = address.to_string();
            error::of_database(&error, &at, self.db)
                .unwrap_or_else(|| error::of_connecting(&error, &at))
        };
        let client = self.client(address).map_err(failed)?;
        let config = config
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)
    }

    fn client(&self, address: &Address) -> Result<Client, redis::RedisError> {
        let addr = match (address, &self.tls) {
            (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Address::Tcp(host, port), None) => ConnectionAddr::Tcp(host.clone(), *port),
            (Address::Tcp(host, port), Some(tls)) => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: tls.any_certificate,
                tls_params: None,
            },
        };
        let info = addr
            .into_connection_info()?
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            .set_redis_settings(self.settings());
        match &self.tls {
            None => Client::open(info),
            Some(tls) => Client::build_with_tls(info, tls.certificates.clone()),
        }
    }

    fn settings(&self) -> RedisConnectionInfo {
        let mut settings = RedisConnectionInfo::default()
            .set_db(self.db)
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("leaseward", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.credentials.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.credentials.password {
            settings = settings.set_password(password);
        }
        settings
    }
}

fn load(tls: &Tls) -> Result<Loaded, Error> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, format!("`{}` cannot be read", path.display()))
                .caused_by(error)
        })
    };
    let client_tls = match &tls.cert_and_key {
        None => None,
        Some((cert, key)) => {
            Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
        }
    };
    let root_cert = tls.ca.as_deref().map(read).transpose()?;
    let certificates = TlsCertificates { client_tls, root_cert };
    Ok(Loaded { certificates, any_certificate: tls.any_certificate })
}

/// Redis allows no spaces in the name of a client.
fn client_name(who: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '-' };
    format!("leaseward:{}", who.chars().map(plain).collect::<String>())
}
