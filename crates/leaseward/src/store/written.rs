//! URLs as people may write them, for the tests of those who read them.

use proptest::prelude::*;

use super::StoreUrl;
use crate::Error;

/// The password in them.
const SECRET: &str = "hunter2";

/// Settings of all stores, and values that few of them take.
const KEYS: &str = "(prefix|timeout|db|drift|max_ttl|skew|retry|replicas|replica_timeout|amnesia|lanes|schema|host|keys|\
                    namespace|listen|ca|sslmode|handover|target_session_attrs|password|x)";

fn part(text: &'static str) -> impl Strategy<Value = String> {
    proptest::string::string_regex(text).expect("BUG: no expression")
}

/// A URL whose credentials have a password, encoded or not, where it belongs or not.
fn with_password(schemes: &'static [&'static str]) -> impl Strategy<Value = String> {
    let special = "[@:/?#&=%,\\[\\] x1]{0,3}";
    let password =
        (part(special), part(special), any::<bool>()).prop_map(|(before, after, plain)| {
            let encode = |text: String| match plain {
                true => text,
                false => text.bytes().map(|byte| format!("%{byte:02X}")).collect(),
            };
            (encode(before), encode(after))
        });
    let slashes = prop_oneof![6 => Just("//"), 1 => Just(""), 1 => Just("/"), 1 => Just("///")];
    let settings = prop_oneof![
        4 => Just(""),
        1 => Just("?timeout=1s"),
        1 => Just("?sentinel_password=hunter2"),
        1 => Just("?password=hunter2"),
        1 => Just("?listen=postgres%3A%2F%2Fu%3Ahunter2%40h"),
        1 => Just("?listen=postgres:u:hunter2@h"),
        1 => Just("?listen=hunter2"),
    ];
    let begin = (prop::sample::select(schemes), slashes, part("(u|u%40|)"));
    let end = (part("(h|127.0.0.1:1|a,b:7|\\[::1\\]|)"), part("(|/|/2|/locks|/d)"), settings);
    (begin, password, any::<bool>(), end).prop_map(
        |((scheme, slashes, user), (before, after), has_host, (hosts, path, settings))| {
            match has_host {
                true => format!(
                    "{scheme}:{slashes}{user}:{before}{SECRET}{after}@{hosts}{path}{settings}"
                ),
                // The host was forgotten, with all that is behind it.
                false => format!("{scheme}:{slashes}{user}:{SECRET}{after}"),
            }
        },
    )
}

/// Anything behind a scheme.
fn anything(schemes: &'static [&'static str]) -> impl Strategy<Value = String> {
    let settings = prop::collection::vec(
        (part(KEYS), part("[0-9a-z%.,:/-]{0,12}|[0-9]{1,25}(ms|s|m|%)")),
        0..3,
    );
    let rest =
        prop_oneof![part("(//)?[ -~é\\x00]{0,24}"), part("//[a-c,:0-9]{0,8}(/[0-9a-z]{0,3})?")];
    (prop::sample::select(schemes), rest, settings).prop_map(|(scheme, rest, settings)| {
        let settings: Vec<String> =
            settings.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("{scheme}:{rest}?{}", settings.join("&"))
    })
}

/// Nothing that is written there makes a reader panic, and nothing that it shows has the password. `read` answers with all
/// that may be shown of what was read.
pub(crate) fn assert_read_well(
    schemes: &'static [&'static str],
    read: impl Fn(&StoreUrl) -> Result<String, Error>,
) {
    let mut runner = proptest::test_runner::TestRunner::default();
    let urls = prop_oneof![with_password(schemes), anything(schemes)];
    let outcome = runner.run(&urls, |url| {
        let shown = match StoreUrl::parse(&url).and_then(|parsed| read(&parsed)) {
            Ok(shown) => shown,
            Err(error) => format!("{error} {error:?} {:?}", error.hint_text()),
        };
        prop_assert!(!shown.contains(SECRET), "{url}: {shown}");
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
