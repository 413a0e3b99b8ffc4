//! Fenced writes on real databases and servers: who was paused past its deadline changes nothing.

mod documents;
mod help;
mod hold;
mod http;
mod postgres;
mod redis;
mod sqlite;
mod sqlx;
mod transfer;
