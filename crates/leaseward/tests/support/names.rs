//! Names and tokens. Shared by the tests of the stores.

use std::sync::Arc;

use leaseward::{Name, Token};

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

pub(crate) fn token(random: u128) -> Token {
    Token::new(random << 96 | random, Arc::from(format!("host:{random}")))
}
