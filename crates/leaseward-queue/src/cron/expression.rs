//! Cron expressions: five fields, in UTC, to the minute.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use leaseward::{Error, ErrorKind};

/// How far into the future a time is looked for: four years and a day, so that the 29th of February is found. Twice that,
/// because a century may have none.
const DAYS_MAX: i64 = 8 * 366;

const MINUTE: Duration = Duration::from_secs(60);
const DAY_MINUTES: i64 = 24 * 60;

/// When: `minute hour day-of-month month day-of-week`, in UTC.
///
/// Each is `*`, a number, a range `1-5`, a list `1,15`, or any of them with a step `*/5`; months and days of the week may be
/// written as `jan` and `mon`, Sunday is 0 and 7. As in every cron, if both days are restricted either of them will do. Also
/// `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
///
/// ```
/// use leaseward_queue::Cron;
///
/// let cron: Cron = "*/15 8-17 * * mon-fri".parse()?;
/// assert!("61 * * * *".parse::<Cron>().is_err());
/// # drop(cron);
/// # Ok::<(), leaseward_queue::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day may be named by either of its two fields.
    either_day: bool,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl FromStr for Cron {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let expanded = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other => other,
        };
        let fields: Vec<&str> = expanded.split_ascii_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(invalid(
                text,
                "it has five fields: minute, hour, day of month, month, day of week",
            ));
        };
        let field = |field: &str, low, high, names: &[&str], first| {
            bits(field, low, high, names, first)
                .ok_or_else(|| invalid(text, &format!("`{field}` is not {low} to {high}")))
        };
        let mut weekday_bits = field(weekdays, 0, 7, &WEEKDAYS, 0)?;
        if weekday_bits & 1 << 7 != 0 {
            weekday_bits |= 1;
        }
        Ok(Self {
            text: text.trim().to_owned(),
            minutes: field(minutes, 0, 59, &[], 0)?,
            hours: field(hours, 0, 23, &[], 0)?,
            days: field(days, 1, 31, &[], 0)?,
            months: field(months, 1, 12, &MONTHS, 1)?,
            weekdays: weekday_bits,
            either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        })
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn invalid(text: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("`{text}` is no cron expression: {why}"))
        .hint("such as `*/15 8-17 * * mon-fri`; times are UTC")
}

/// One field as a set of numbers.
fn bits(field: &str, low: u32, high: u32, names: &[&str], first: u32) -> Option<u64> {
    let number = |text: &str| {
        let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let number = match named {
            Some(at) => u32::try_from(at).ok()? + first,
            None => text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))?,
        };
        (low..=high).contains(&number).then_some(number)
    };
    let mut set = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((from, to)) => (number(from)?, number(to)?),
            // A single number with a step goes on to the end.
            None => (number(range)?, if part.contains('/') { high } else { number(range)? }),
        };
        if from > to {
            return None;
        }
        (from..=to).step_by(step).for_each(|number| set |= 1 << number);
    }
    Some(set)
}

/// Year, month and day of a day since the epoch (the algorithm is Howard Hinnant's `civil_from_days`).
fn civil(day: i64) -> (i64, u32, u32) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, u32::try_from(month).unwrap_or(1), u32::try_from(day).unwrap_or(1))
}

impl Cron {
    fn has_day(&self, day: i64) -> bool {
        let (_, month, of_month) = civil(day);
        // The epoch was a Thursday.
        let weekday = (day + 4).rem_euclid(7);
        let by_month = self.days & 1 << of_month != 0;
        let by_week = self.weekdays & 1 << weekday != 0;
        let fits = if self.either_day { by_month || by_week } else { by_month && by_week };
        fits && self.months & 1 << month != 0
    }

    fn has_minute(&self, minute: i64) -> bool {
        self.hours & 1 << (minute / 60) != 0 && self.minutes & 1 << (minute % 60) != 0
    }

    /// The first time after this one; `None` if there is none within eight years.
    pub fn next(&self, after: SystemTime) -> Option<SystemTime> {
        let first = minutes(after) + 1;
        let first_day = first.div_euclid(DAY_MINUTES);
        (first_day..first_day + DAYS_MAX).filter(|day| self.has_day(*day)).find_map(|day| {
            let from = (first - day * DAY_MINUTES).max(0);
            (from..DAY_MINUTES)
                .find(|minute| self.has_minute(*minute))
                .map(|minute| time(day * DAY_MINUTES + minute))
        })
    }

    /// The last time after the one and not after the other.
    pub(super) fn latest(&self, after: SystemTime, until: SystemTime) -> Option<SystemTime> {
        let (low, high) = (minutes(after) + 1, minutes(until));
        if low > high {
            return None;
        }
        let (low_day, high_day) = (low.div_euclid(DAY_MINUTES), high.div_euclid(DAY_MINUTES));
        // Of years without a scheduler only the last matter.
        let low_day = low_day.max(high_day - DAYS_MAX);
        (low_day..=high_day).rev().filter(|day| self.has_day(*day)).find_map(|day| {
            let from = (low - day * DAY_MINUTES).max(0);
            let to = (high - day * DAY_MINUTES).min(DAY_MINUTES - 1);
            (from..=to)
                .rev()
                .find(|minute| self.has_minute(*minute))
                .map(|minute| time(day * DAY_MINUTES + minute))
        })
    }
}

/// Whole minutes since the epoch.
fn minutes(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs() / MINUTE.as_secs()).unwrap_or(i64::MAX)
}

fn time(minutes: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(minutes.max(0).cast_unsigned() * MINUTE.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time in UTC.
    fn at(year: i64, month: u32, day: u32, hour: i64, minute: i64) -> SystemTime {
        let days = (0..80_000).find(|days| civil(*days) == (year, month, day)).expect("a day");
        time(days * DAY_MINUTES + hour * 60 + minute)
    }

    fn next(text: &str, after: SystemTime) -> SystemTime {
        text.parse::<Cron>().expect(text).next(after).expect("there is one")
    }

    #[test]
    fn finds_the_next_time() {
        let sunday = at(2026, 11, 15, 17, 55);
        for (text, expected) in [
            ("* * * * *", at(2026, 11, 15, 17, 56)),
            ("*/15 8-17 * * mon-fri", at(2026, 11, 16, 8, 0)),
            ("5/20 18 * * *", at(2026, 11, 15, 18, 5)),
            ("0 0 1,15 * *", at(2026, 12, 1, 0, 0)),
            ("0 0 29 2 *", at(2028, 2, 29, 0, 0)),
            ("0 12 13 * fri", at(2026, 11, 20, 12, 0)),
            ("0 0 * * 7", at(2026, 11, 22, 0, 0)),
            ("@hourly", at(2026, 11, 15, 18, 0)),
            ("@yearly", at(2027, 1, 1, 0, 0)),
            ("30 6 * Jan SUN", at(2027, 1, 3, 6, 30)),
        ] {
            assert_eq!(next(text, sunday), expected, "{text}");
        }
        assert_eq!("0 0 30 2 *".parse::<Cron>().expect("fields are fine").next(sunday), None);
    }

    #[test]
    fn finds_the_latest_of_those_missed() {
        let cron: Cron = "0 * * * *".parse().expect("good");
        let (from, to) = (at(2026, 11, 14, 3, 0), at(2026, 11, 15, 17, 55));
        assert_eq!(cron.latest(from, to), Some(at(2026, 11, 15, 17, 0)));
        assert_eq!(cron.latest(at(2026, 11, 15, 17, 0), to), None, "that one was pushed");
        assert_eq!(
            cron.latest(at(2026, 11, 15, 16, 59), at(2026, 11, 15, 17, 0)),
            Some(at(2026, 11, 15, 17, 0))
        );
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for bad in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "5-1 * * * *",
            "a * * * *",
            "+1 * * * *",
        ] {
            assert!(bad.parse::<Cron>().is_err(), "{bad}");
        }
    }
}
