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
//! fenced::redis::set(&mut connection, "config", "v2", guard.fence()).await?;
//! fenced::redis::delete(&mut connection, "config", guard.fence()).await?;
//! # Ok(())
//! # }
//! ```

use redis::{RedisError, Script, ScriptInvocation, ToRedisArgs, aio::ConnectionLike};

use super::{FencedError, StaleFence};
use crate::Fence;

/// Answers nothing if the fence is good, else the one that is larger. Numbers in Lua are exact only up to 2⁵³, so decimals
/// are compared by length and then by their digits.
const CHECK: &str = r"
local given, seen = ARGV[1], redis.call('GET', KEYS[2])
if seen and (#given < #seen or (#given == #seen and given < seen)) then return seen end
redis.call('SET', KEYS[2], given)
";

/// Where the highest fence of a value is kept: in the same slot of a cluster.
pub fn fence_key(key: &str) -> String {
    // A key with a hash tag has it in front of ours too. One with braces that are none gets none from us either.
    let is_tagged = key.contains('{');
    if is_tagged { format!("{key}:fence") } else { format!("{{{key}}}:fence") }
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
    let script = Script::new(&format!("{CHECK} redis.call('SET', KEYS[1], ARGV[2])"));
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
    let script = Script::new(&format!("{CHECK} redis.call('DEL', KEYS[1])"));
    let mut call = script.key(key);
    call.key(fence_key(key)).arg(fence.get());
    answer(call, connection, fence).await
}

async fn answer<C: ConnectionLike>(
    call: ScriptInvocation<'_>,
    connection: &mut C,
    given: Fence,
) -> Result<(), FencedError<RedisError>> {
    let larger: Option<u64> = call.invoke_async(connection).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_is_kept_in_the_slot_of_its_value() {
        assert_eq!(fence_key("config"), "{config}:fence");
        assert_eq!(fence_key("{app}config"), "{app}config:fence");
    }
}
