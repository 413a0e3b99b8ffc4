//! Certificates, good and bad, made by the `openssl` program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{process::require, redis::TlsFiles};

/// Its own, because the machine's may add anything.
const CONFIG: &str = "\
[req]
distinguished_name = name
x509_extensions = authority
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[ca]
default_ca = own
[own]
database = index
new_certs_dir = .
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = supplied
";

const LONG_AGO: &str = "20200101000000Z";
const STILL_LONG_AGO: &str = "20200201000000Z";
const FAR_AWAY: &str = "20491231235959Z";

/// A certificate that is to be made.
struct Wanted {
    name: &'static str,
    hosts: &'static str,
    usage: &'static str,
    until: &'static str,
}

const HERE: &str = "DNS:localhost, IP:127.0.0.1";

// A server's is also for clients, because replicas and `redis-cli` show the same.
const WANTED: [Wanted; 4] = [
    Wanted { name: "server", hosts: HERE, usage: "serverAuth, clientAuth", until: FAR_AWAY },
    Wanted { name: "client", hosts: "DNS:client", usage: "clientAuth", until: FAR_AWAY },
    Wanted { name: "expired", hosts: HERE, usage: "serverAuth, clientAuth", until: STILL_LONG_AGO },
    Wanted {
        name: "elsewhere",
        hosts: "DNS:elsewhere.invalid",
        usage: "serverAuth, clientAuth",
        until: FAR_AWAY,
    },
];

/// An authority and what it has signed, in a folder that ends with this value.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

/// Makes an authority and its certificates; takes some tens of milliseconds.
///
/// # Panics
/// With how to install it if there is no `openssl`.
#[must_use]
pub fn certificates() -> Certificates {
    require("openssl", "openssl");
    let folder = tempfile::Builder::new().prefix("tls-").tempdir().expect("a folder");
    let at = folder.path();
    write(at, "config", CONFIG);
    write(at, "index", "");
    for authority in ["ca", "other-ca"] {
        let files = format!("-keyout {authority}.key -out {authority}.pem -subj /CN={authority}");
        openssl(at, &format!("req -x509 {NEW_KEY} -days 3650 {files}"));
    }
    WANTED.iter().for_each(|wanted| sign(at, wanted));
    Certificates { folder }
}

const NEW_KEY: &str = "-config config -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

fn sign(at: &Path, wanted: &Wanted) {
    let Wanted { name, hosts, usage, until } = wanted;
    write(
        at,
        "extensions",
        &format!(
            "basicConstraints = CA:FALSE\nsubjectAltName = {hosts}\nextendedKeyUsage = {usage}\n"
        ),
    );
    openssl(at, &format!("req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
    let files = format!("-in {name}.csr -out {name}.pem -extfile extensions");
    let dates = format!("-startdate {LONG_AGO} -enddate {until}");
    let signer = "-cert ca.pem -keyfile ca.key";
    openssl(at, &format!("ca -batch -notext -config config {signer} {dates} {files}"));
}

fn write(at: &Path, name: &str, text: &str) {
    fs::write(at.join(name), text).expect("a file can be written");
}

fn openssl(at: &Path, args: &str) {
    let mut command = Command::new("openssl");
    let output = command.current_dir(at).args(args.split(' ')).stdin(Stdio::null()).output();
    let output = output.expect("openssl can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {args}: {said}");
}

impl Certificates {
    fn files(&self, name: &str) -> TlsFiles {
        let path = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        TlsFiles { ca: self.ca(), cert: path("pem"), key: path("key"), ask_clients: false }
    }

    /// The authority that has signed all.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// An authority that has signed nothing.
    #[must_use]
    pub fn other_ca(&self) -> PathBuf {
        self.folder.path().join("other-ca.pem")
    }

    /// For a server at 127.0.0.1 or localhost.
    #[must_use]
    pub fn server(&self) -> TlsFiles {
        self.files("server")
    }

    /// For a client.
    #[must_use]
    pub fn client(&self) -> TlsFiles {
        self.files("client")
    }

    /// As the server's, but its time is over.
    #[must_use]
    pub fn expired(&self) -> TlsFiles {
        self.files("expired")
    }

    /// For a server of another name.
    #[must_use]
    pub fn wrong_host(&self) -> TlsFiles {
        self.files("elsewhere")
    }
}
