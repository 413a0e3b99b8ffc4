//! Which database, as whom, and what a name is there.

use super::{
    super::config::Config,
    key::{self, Slot},
};
use crate::{Error, ErrorKind, Name, store::StoreUrl};

/// What only lease rows have.
const NOT_HERE: &[&str] = &["lanes", "listen"];

/// How names become keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// By their hash in a namespace.
    Hashed { namespace: String },
    /// They are numbers: for locks that other programs take by number.
    Raw,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) keys: Keys,
}

impl Settings {
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self, Error> {
        let mut rest = url.clone();
        if let Some((key, _)) =
            url.settings.iter().find(|(key, _)| NOT_HERE.contains(&key.as_str()))
        {
            let message = format!("the `{}` store has no setting `{key}`", url.scheme);
            return Err(Error::new(ErrorKind::InvalidInput, message).hint(
                "all its locks are those of one session; lease rows (`postgres://`) have it",
            ));
        }
        rest.settings.retain(|(key, _)| key != "namespace" && key != "keys");
        let config = Config::from_url(&rest)?;
        Ok(Self { config, keys: keys(url)? })
    }

    /// Where it is, without secrets.
    pub(super) fn location(&self) -> String {
        let plain = self.config.location().replacen("postgres://", "postgres+advisory://", 1);
        let join = if plain.contains('?') { '&' } else { '?' };
        match &self.keys {
            Keys::Hashed { namespace } if namespace == key::NAMESPACE => plain,
            Keys::Hashed { namespace } => format!("{plain}{join}namespace={namespace}"),
            Keys::Raw => format!("{plain}{join}keys=raw"),
        }
    }

    /// The lock that stands for a name.
    pub(super) fn slot(&self, name: &Name) -> Result<Slot, Error> {
        match &self.keys {
            Keys::Hashed { namespace } => Ok(Slot::One(key::hash(namespace, name))),
            Keys::Raw => name.parse(),
        }
    }
}

fn keys(url: &StoreUrl) -> Result<Keys, Error> {
    let invalid = |message: &str| Error::new(ErrorKind::InvalidInput, message.to_owned());
    match (url.setting("keys"), url.setting("namespace")) {
        (Some("raw"), None) => Ok(Keys::Raw),
        (Some("raw"), Some(_)) => {
            Err(invalid("numbers are in no namespace").hint("either `keys=raw` or `namespace=…`"))
        }
        (None | Some("hashed"), namespace) => {
            let namespace = namespace.unwrap_or(key::NAMESPACE);
            key::check_namespace(namespace)?;
            Ok(Keys::Hashed { namespace: namespace.to_owned() })
        }
        (Some(_), _) => Err(invalid("`keys` is `hashed` (the default) or `raw`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::written;

    fn settings(url: &str) -> Result<Settings, Error> {
        Settings::from_url(&StoreUrl::parse(url)?)
    }

    #[test]
    fn reads_what_people_write() {
        let name = Name::new("42").expect("good");
        let plain = settings("postgres+advisory://u:secret@h/d").expect("good");
        assert_eq!(plain.location(), "postgres+advisory://h:5432/d");
        assert_eq!(plain.slot(&name).expect("any name"), Slot::One(key::hash("leaseward", "42")));
        let other =
            settings("postgres+advisory://u@h/d?namespace=billing&schema=l2").expect("good");
        assert_eq!(other.location(), "postgres+advisory://h:5432/d?schema=l2&namespace=billing");
        assert_eq!(other.slot(&name).expect("any name"), Slot::One(key::hash("billing", "42")));
        let raw = settings("postgres+advisory://u@h/d?keys=raw").expect("good");
        assert_eq!(raw.slot(&name).expect("a number"), Slot::One(42));
        raw.slot(&Name::new("orders").expect("good")).expect_err("no number");
        assert!(!format!("{plain:?}").contains("secret"));
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for bad in [
            "postgres+advisory://u@h/d?lanes=2",
            "postgres+advisory://u@h/d?listen=no",
            "postgres+advisory://u@h/d?keys=some",
            "postgres+advisory://u@h/d?keys=raw&namespace=a",
            "postgres+advisory://u@h/d?namespace=a:b",
        ] {
            assert_eq!(settings(bad).expect_err(bad).kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn nothing_that_can_be_written_panics_or_shows_a_password() {
        written::assert_read_well(super::super::SCHEME.names, |url| {
            let settings = Settings::from_url(url)?;
            Ok(format!("{settings:?} {}", settings.location()))
        });
    }
}
