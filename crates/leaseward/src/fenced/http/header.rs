//! The header that carries a fence.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName};

use crate::Fence;

/// `Leaseward-Fence`: the fence of whoever sends the request, a decimal number.
pub const FENCE: HeaderName = HeaderName::from_static("leaseward-fence");

/// `Leaseward-Fence-Seen`: in a refusal, the highest fence that the resource has seen.
pub const FENCE_SEEN: HeaderName = HeaderName::from_static("leaseward-fence-seen");

/// What a request says about its fence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Nonsense,
    Fence(Fence),
}

pub(super) fn read(headers: &HeaderMap, lead_max: Duration) -> Said {
    let mut values = headers.get_all(FENCE).iter();
    let (Some(value), more) = (values.next(), values.next()) else { return Said::Nothing };
    // Only digits: what Rust also takes for a number, a plus sign, other programs may not.
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|text| text.parse().ok()) {
        Some(number) if more.is_none() && number <= latest(lead_max) => {
            Said::Fence(Fence::new(number))
        }
        _ => Said::Nonsense,
    }
}

/// The largest fence that can be meant: fences are microseconds since the epoch.
fn latest(lead_max: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.saturating_add(lead_max).as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn said(values: &[&str]) -> Said {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(FENCE, HeaderValue::from_str(value).expect("text"));
        }
        read(&headers, Duration::from_secs(60))
    }

    #[test]
    fn takes_one_number_and_nothing_else() {
        assert_eq!(said(&["17"]), Said::Fence(Fence::new(17)));
        assert_eq!(said(&[]), Said::Nothing);
        for nonsense in ["", "+17", "-1", "1e3", " 17", "0x11", "99999999999999999999", "17,18"] {
            assert_eq!(said(&[nonsense]), Said::Nonsense, "`{nonsense}`");
        }
        assert_eq!(said(&["17", "17"]), Said::Nonsense);
    }

    #[test]
    fn takes_nothing_far_ahead_of_the_clock() {
        let now = latest(Duration::ZERO);
        assert!(matches!(said(&[&(now + 30_000_000).to_string()]), Said::Fence(_)));
        assert_eq!(said(&[&(now + 90_000_000).to_string()]), Said::Nonsense);
        assert_eq!(said(&[&u64::MAX.to_string()]), Said::Nonsense);
    }
}
