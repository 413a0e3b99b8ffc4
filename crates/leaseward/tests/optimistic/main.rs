//! Optimistic concurrency on real databases and servers: nobody overwrites what they have not read.

mod ambiguous;
mod documents;
mod escalation;
mod help;
mod postgres;
mod redis;
mod sqlite;
mod sqlx;
