//! Durations as people write and read them.

use std::time::Duration;

use leaseward::{TTL_MAX, TTL_MIN};

/// The longest wait or hold that is taken for meant, as in the library: a year. More is a slip of the keyboard.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Reads a duration such as `30s`, `1m 30s` or `250ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text.trim_start().starts_with('-') {
        return Err("a duration cannot be negative\nhint: write it as `30s` or `1m 30s`".into());
    }
    if text.trim().bytes().all(|byte| byte.is_ascii_digit()) && !text.trim().is_empty() {
        return Err(format!(
            "a duration needs a unit\nhint: `{0}s` for seconds, `{0}ms` for milliseconds",
            text.trim()
        ));
    }
    let parsed = humantime::parse_duration(text).map_err(|error| {
        format!("{error}\nhint: write a duration as `250ms`, `30s`, `1m 30s` or `2h`")
    })?;
    if parsed > LONGEST {
        return Err("longer than a year\nhint: leave the option out to have no limit".into());
    }
    Ok(parsed)
}

/// Reads a TTL: a duration within the range every lease must keep.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let parsed = duration(text)?;
    if !(TTL_MIN..=TTL_MAX).contains(&parsed) {
        return Err(format!(
            "a lease lasts between {} and {}\nhint: it is renewed while the work runs; a crash blocks the name for this long",
            shown(TTL_MIN),
            shown(TTL_MAX)
        ));
    }
    Ok(parsed)
}

/// A duration for people: two units at most, no noise behind the seconds.
pub(crate) fn shown(duration: Duration) -> String {
    let ms = duration.as_millis();
    let (seconds, tenths) = (duration.as_secs(), duration.subsec_millis() / 100);
    match seconds {
        0 => format!("{ms}ms"),
        1..10 if tenths > 0 => format!("{seconds}.{tenths}s"),
        1..60 => format!("{seconds}s"),
        60..3600 if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 if (seconds / 60).is_multiple_of(60) => format!("{}h", seconds / 3600),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A duration for people that may be far below a second: two digits, or all that stand before the point.
pub(crate) fn fine(duration: Duration) -> String {
    let us = duration.as_micros();
    match us {
        0..1_000 => format!("{us}µs"),
        1_000..10_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        _ => shown(duration),
    }
}

/// Microseconds, as programs read them.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds, as programs read them.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, ms) in [("30s", 30_000), ("250ms", 250), ("1m 30s", 90_000), ("2h", 7_200_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_with_a_hint() {
        for bad in ["", "-5s", "30", "soon", "5 parsecs", "2y"] {
            let error = duration(bad).expect_err(bad);
            assert!(error.contains("hint: "), "{bad}: {error}");
        }
        for bad in ["99ms", "25h", "0s"] {
            assert!(ttl(bad).is_err(), "{bad}");
        }
        assert!(ttl("100ms").is_ok() && ttl("24h").is_ok());
    }

    #[test]
    fn shows_what_is_short() {
        let table = [
            (0, "0µs"),
            (12, "12µs"),
            (999, "999µs"),
            (1_250, "1.2ms"),
            (9_999, "9.9ms"),
            (48_000, "48ms"),
            (1_500_000, "1.5s"),
        ];
        for (us, text) in table {
            assert_eq!(fine(Duration::from_micros(us)), text);
        }
    }

    #[test]
    fn shows_what_matters() {
        let table = [
            (250, "250ms"),
            (1_500, "1.5s"),
            (1_010, "1s"),
            (1_990, "1.9s"),
            (9_000, "9s"),
            (12_345, "12s"),
            (60_000, "1m"),
            (90_000, "1m30s"),
            (7_200_000, "2h"),
            (3_720_000, "1h02m"),
            (90_000_000, "1d01h"),
        ];
        for (ms, text) in table {
            assert_eq!(shown(Duration::from_millis(ms)), text);
        }
    }
}
