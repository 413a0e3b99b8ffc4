//! Fenced writes of values in Redis: check and write in one script.
//!
//! The value is a plain string under its own key, for every client to read. The highest fence seen is kept in a key beside,
//! [`fence_key`], which lives in the same slot of a cluster. It has no expiry: a value whose fence was forgotten accepts any.
//!
//! Data and fence are in one server, so what an asynchronous failover loses, it loses of both.
//!
//! ```no_run
//! use leaseward::{Guard, fenced};
//!
//! # async fn example(client: &redis::Client, guard: &Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let mut connection = client.get_multiplexed_async_connection().await?;
//! let config: Option<String> = fenced::redis::get(&mut connection, "config", guard.fence()).await?;
//! fenced::redis::set(&mut connection, "config", "v2", guard.fence()).await?;
//! fenced::redis::delete(&mut connection, "config", guard.fence()).await?;
//! # Ok(())
//! # }
//! ```

use redis::{
    FromRedisValue, RedisError, Script, ScriptInvocation, ToRedisArgs, aio::ConnectionLike,
};

use super::{FencedError, StaleFence};
use crate::{Fence, stores::redis::tag_beside};

/// Goes on if the fence is good, else answers with the one that is larger. Numbers in Lua are exact only up to 2⁵³, so decimals
/// are compared by length and then by their digits.
const CHECK: &str = r"
local given, seen = ARGV[1], redis.call('GET', KEYS[2])
if seen and (#given < #seen or (#given == #seen and given < seen)) then return {seen, false} end
redis.call('SET', KEYS[2], given)
";

/// Where the highest fence of a value is kept: `{key}:fence`, or with the tag that the key has already. In the same slot of
/// a cluster, whatever the key.
pub fn fence_key(key: &str) -> String {
    if !key.contains(['{', '}']) {
        return format!("{{{key}}}:fence");
    }
    let is_tagged =
        key.split_once('{').and_then(|(_, rest)| rest.find('}')).is_some_and(|at| at > 0);
    if is_tagged {
        format!("{key}:fence")
    } else {
        // Braces that are no tag, and would not be one inside of ours.
        format!("{{{}}}{key}:fence", tag_beside(key))
    }
}

/// Shows the fence to a value and reads it, unless its key has seen a larger one: before what the write depends on is used.
///
/// # Errors
/// [`FencedError::Stale`] if it has.
///
/// # Cancel safety
/// Dropped, the fence may or may not be recorded. Reading again with the same one is harmless.
pub async fn get<C: ConnectionLike, T: FromRedisValue>(
    connection: &mut C,
    key: &str,
    fence: Fence,
) -> Result<Option<T>, FencedError<RedisError>> {
    let script = Script::new(&format!("{CHECK} return {{false, redis.call('GET', KEYS[1])}}"));
    let mut call = script.key(key);
    call.key(fence_key(key)).arg(fence.get());
    let (larger, value): (Option<u64>, Option<T>) = call.invoke_async(connection).await?;
    refused(larger, fence).map(|()| value)
}

/// Sets a value, unless its key has seen a larger fence.
///
/// # Errors
/// [`FencedError::Stale`] if it has: nothing changed.
///
/// # Cancel safety
/// Dropped, the value may or may not be set. Setting it again with the same fence is harmless.
pub async fn set<C: ConnectionLike>(
    connection: &mut C,
    key: &str,
    value: impl ToRedisArgs,
    fence: Fence,
) -> Result<(), FencedError<RedisError>> {
    let script = Script::new(&format!("{CHECK} redis.call('SET', KEYS[1], ARGV[2]) return {{}}"));
    let mut call = script.key(key);
    call.key(fence_key(key)).arg(fence.get()).arg(value);
    answer(call, connection, fence).await
}

/// Deletes a value, unless its key has seen a larger fence. The fence is kept.
///
/// # Errors
/// [`FencedError::Stale`] if it has: nothing changed.
///
/// # Cancel safety
/// Dropped, the value may or may not be deleted. Deleting it again with the same fence is harmless.
pub async fn delete<C: ConnectionLike>(
    connection: &mut C,
    key: &str,
    fence: Fence,
) -> Result<(), FencedError<RedisError>> {
    let script = Script::new(&format!("{CHECK} redis.call('DEL', KEYS[1]) return {{}}"));
    let mut call = script.key(key);
    call.key(fence_key(key)).arg(fence.get());
    answer(call, connection, fence).await
}

async fn answer<C: ConnectionLike>(
    call: ScriptInvocation<'_>,
    connection: &mut C,
    given: Fence,
) -> Result<(), FencedError<RedisError>> {
    let larger: Vec<Option<u64>> = call.invoke_async(connection).await?;
    refused(larger.first().copied().flatten(), given)
}

fn refused(larger: Option<u64>, given: Fence) -> Result<(), FencedError<RedisError>> {
    match larger {
        None => Ok(()),
        Some(seen) => Err(StaleFence { given, seen: Fence::new(seen) }.into()),
    }
}

impl From<RedisError> for FencedError<RedisError> {
    fn from(error: RedisError) -> Self {
        Self::Driver(error)
    }
}
