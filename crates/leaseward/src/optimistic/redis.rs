//! Values in Redis: compare and swap in one script.
//!
//! A value is kept in a hash under its key: `data`, and `version`. The first version is the server's clock in microseconds,
//! so that a value that was deleted and made again is never taken for the old one.
//!
//! ```no_run
//! use leaseward::optimistic::{Retry, redis::{create, load, save, update}};
//!
//! # async fn example(client: &redis::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let mut connection = client.get_multiplexed_async_connection().await?;
//! create(&mut connection, "seats", "40").await?;
//!
//! let Some(mut seats) = load::<_, u32>(&mut connection, "seats").await? else { return Ok(()) };
//! *seats.value_mut() -= 1;
//! save(&mut connection, "seats", &seats).await?; // a conflict, if somebody else was faster
//!
//! // Or again and again, until nobody was.
//! update(&mut connection, "seats", &Retry::new(), |seats: u32| Ok(seats - 1)).await?;
//! # Ok(())
//! # }
//! ```

use std::ops::ControlFlow;

use redis::{FromRedisValue, RedisError, Script, ToRedisArgs, aio::ConnectionLike};

use super::{
    Conflict, Failure, GaveUp, Retry, SaveError, Version, Versioned,
    rounds::{Ambiguity, Ended},
    run::Tries,
};

/// Answers the new version, or what is in the way.
const CREATE: &str = r"
local current = redis.call('HGET', KEYS[1], 'version')
if current then return {false, current} end
local now = redis.call('TIME')
local version = now[1] .. string.format('%06d', now[2])
redis.call('HSET', KEYS[1], 'version', version, 'data', ARGV[1])
return {version, false}
";

/// Versions stay below 2⁵³, where Redis counts exactly and Lua would too.
const SAVE: &str = r"
local current = redis.call('HGET', KEYS[1], 'version')
if current ~= ARGV[1] then return {false, current} end
redis.call('HSET', KEYS[1], 'data', ARGV[2])
return {redis.call('HINCRBY', KEYS[1], 'version', 1), false}
";

const DELETE: &str = r"
local current = redis.call('HGET', KEYS[1], 'version')
if current ~= ARGV[1] then return {false, current} end
redis.call('DEL', KEYS[1])
return {ARGV[1], false}
";

/// Reads a value and its version; nothing if there is none.
///
/// # Errors
/// What Redis says.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn load<C: ConnectionLike, T: FromRedisValue>(
    connection: &mut C,
    key: &str,
) -> Result<Option<Versioned<T>>, RedisError> {
    let mut ask = redis::cmd("HMGET");
    let found: (Option<u64>, Option<T>) =
        ask.arg(key).arg("version").arg("data").query_async(connection).await?;
    Ok(match found {
        (Some(version), Some(value)) => Some(Versioned::new(value, Version::new(version))),
        _ => None,
    })
}

/// Makes a value that is not there yet; answers its version.
///
/// # Errors
/// [`Conflict::Changed`] if it is there already: nothing changed.
///
/// # Cancel safety
/// Dropped, it may or may not be there. Load it.
pub async fn create<C: ConnectionLike>(
    connection: &mut C,
    key: &str,
    value: impl ToRedisArgs,
) -> Result<Version, SaveError<RedisError>> {
    swap(connection, Script::new(CREATE).key(key).arg(value)).await
}

/// Saves a value if it still has the version it was read with; answers the new one.
///
/// # Errors
/// [`SaveError::Conflict`] if it has another version, or is gone: nothing changed. After another error it may have been
/// saved: load it.
///
/// # Cancel safety
/// Dropped, it may or may not be saved. Load it again.
pub async fn save<C: ConnectionLike, T: ToRedisArgs>(
    connection: &mut C,
    key: &str,
    read: &Versioned<T>,
) -> Result<Version, SaveError<RedisError>> {
    let script = Script::new(SAVE);
    swap(connection, script.key(key).arg(read.version().get()).arg(read.value())).await
}

/// Deletes a value if it still has the version it was read with.
///
/// # Errors
/// As [`save`].
///
/// # Cancel safety
/// Dropped, it may or may not be deleted. Load it again.
pub async fn delete<C: ConnectionLike, T>(
    connection: &mut C,
    key: &str,
    read: &Versioned<T>,
) -> Result<(), SaveError<RedisError>> {
    let script = Script::new(DELETE);
    swap(connection, script.key(key).arg(read.version().get())).await.map(drop)
}

/// Reads, computes and saves, again after each conflict; answers with what was saved. A lock that the [`Retry`] escalates to
/// only makes rivals queue: the version decides.
///
/// # Errors
/// [`GaveUp`] with the last failure: [`Conflict::Gone`] if there is no value, what `compute` says, or what Redis says. After
/// a lost connection the value may have been saved ([`Why::Ambiguous`](super::Why)).
///
/// # Cancel safety
/// Dropped, the value may or may not be saved.
pub async fn update<C, T>(
    connection: &mut C,
    key: &str,
    retry: &Retry,
    mut compute: impl FnMut(T) -> Result<T, Failure>,
) -> Result<Versioned<T>, GaveUp>
where
    C: ConnectionLike,
    T: FromRedisValue + ToRedisArgs,
{
    let mut tries = Tries::new(retry, Ambiguity::Ends);
    loop {
        tries.next().await?;
        let outcome = attempt(connection, key, &mut compute).await;
        if let ControlFlow::Break(settled) = tries.settle(outcome).await {
            return settled;
        }
    }
}

async fn attempt<C, T>(
    connection: &mut C,
    key: &str,
    compute: &mut impl FnMut(T) -> Result<T, Failure>,
) -> Result<Versioned<T>, Ended>
where
    C: ConnectionLike,
    T: FromRedisValue + ToRedisArgs,
{
    let Some(read) = load::<C, T>(connection, key).await? else {
        return Err(Conflict::Gone.into());
    };
    let version = read.version();
    let mut new = Versioned::new(compute(read.into_value())?, version);
    let saved = save(connection, key, &new).await.map_err(|error| match error {
        SaveError::Conflict(conflict) => Ended::from(conflict),
        SaveError::Driver(error) if error.is_io_error() || error.is_connection_dropped() => {
            Ended::Ambiguous(error.into())
        }
        SaveError::Driver(error) => Ended::from(error),
    })?;
    new.saved_as(saved);
    Ok(new)
}

async fn swap<C: ConnectionLike>(
    connection: &mut C,
    call: &redis::ScriptInvocation<'_>,
) -> Result<Version, SaveError<RedisError>> {
    match call.invoke_async(connection).await? {
        (Some(saved), _) => Ok(Version::new(saved)),
        (None, Some(current)) => Err(Conflict::Changed { current: Version::new(current) }.into()),
        (None, None) => Err(Conflict::Gone.into()),
    }
}

impl From<RedisError> for SaveError<RedisError> {
    fn from(error: RedisError) -> Self {
        Self::Driver(error)
    }
}
