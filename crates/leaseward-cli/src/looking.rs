//! Where a command looks: what does not take or push anything makes no store either. A mistyped path would otherwise be told
//! from a store in which nothing is held by nothing at all.

use crate::{address::Address, failure::Failure, printer::Printer};

/// What a command needs of a store that may not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It makes one.
    Made,
    /// The same, and one that is away is waited for: a service that starts before its store comes up with it.
    Service,
    /// It looks, or changes what is there: none is an error, unless it is the default one, which is empty until it is made.
    Found,
    /// It follows what happens: the default one is waited for.
    Awaited,
}

#[cfg(feature = "sqlite")]
impl Need {
    /// Whether the command makes a store that is not there.
    pub(crate) fn makes(self) -> bool {
        matches!(self, Self::Made | Self::Service)
    }
}

/// A store to be opened, which may be an empty one in the place of the default.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) url: String,
    #[cfg(feature = "sqlite")]
    _empty: Option<embedded::Empty>,
}

#[cfg(not(feature = "sqlite"))]
impl Looked {
    pub(crate) async fn at(store: &Address, _: Need, _: Printer) -> Result<Self, Failure> {
        Ok(Self { url: store.reveal().to_owned() })
    }
}

#[cfg(feature = "sqlite")]
mod embedded {
    use std::{
        fs, io,
        path::PathBuf,
        time::{Duration, SystemTime, UNIX_EPOCH},
    };

    use leaseward::{store::StoreUrl, stores::sqlite::default_path};

    use super::{Address, Failure, Looked, Need, Printer};

    /// How often it is looked whether the default store was made.
    const GLANCE: Duration = Duration::from_millis(250);

    impl Looked {
        /// # Cancel safety
        /// Cancel safe.
        pub(crate) async fn at(
            store: &Address,
            need: Need,
            printer: Printer,
        ) -> Result<Self, Failure> {
            let url = store.reveal().to_owned();
            // What cannot be read is told when it is opened.
            let embedded = StoreUrl::parse(&url).ok().filter(|parsed| parsed.scheme == "sqlite");
            let Some(parsed) = embedded.filter(|_| !need.makes()) else {
                return Ok(Self { url, _empty: None });
            };
            if parsed.path().is_empty() && !default_path()?.exists() {
                let shown = default_path()?.display().to_string();
                if need == Need::Found {
                    printer.say(&format!("sqlite:{shown} is new: there is nothing in it yet"));
                    let empty = Empty::new().map_err(|error| {
                        Failure::system("cannot make a temporary folder", &error)
                    })?;
                    let url = format!("sqlite:{}", empty.0.join("leases.db").display());
                    return Ok(Self { url, _empty: Some(empty) });
                }
                printer.say(&format!("sqlite:{shown} is new: waiting until something is in it"));
                while !default_path()?.exists() {
                    tokio::time::sleep(GLANCE).await;
                }
            }
            let url = match parsed.setting("mode") {
                Some(_) => url,
                None if url.contains('?') => format!("{url}&mode=rw"),
                None => format!("{url}?mode=rw"),
            };
            Ok(Self { url, _empty: None })
        }
    }

    /// A folder for an empty store, which goes with it.
    #[derive(Debug)]
    pub(super) struct Empty(PathBuf);

    impl Empty {
        fn new() -> io::Result<Self> {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            let name = format!("leaseward-empty-{}-{now}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            // Not if somebody else has made it.
            fs::create_dir(&folder)?;
            Ok(Self(folder))
        }
    }

    impl Drop for Empty {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
