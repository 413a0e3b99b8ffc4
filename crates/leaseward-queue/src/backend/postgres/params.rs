//! Arguments with their types, so that a statement can be sent without being prepared.

use leaseward::Error;
use tokio_postgres::{
    Row,
    types::{FromSql, ToSql, Type},
};

/// One value with its type.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

pub(super) fn int8(value: &i64) -> Param<'_> {
    (value, Type::INT8)
}

pub(super) fn int4(value: &i32) -> Param<'_> {
    (value, Type::INT4)
}

pub(super) fn int8s<T: ToSql + Sync>(value: &T) -> Param<'_> {
    (value, Type::INT8_ARRAY)
}

pub(super) fn texts<T: ToSql + Sync>(value: &T) -> Param<'_> {
    (value, Type::TEXT_ARRAY)
}

pub(super) fn text<'a>(value: &'a &'a str) -> Param<'a> {
    (value, Type::TEXT)
}

pub(super) fn flag(value: &bool) -> Param<'_> {
    (value, Type::BOOL)
}

/// A column of an answer.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Error> {
    row.try_get(at).map_err(|error| super::look::unexpected().caused_by(error.to_string()))
}

/// The only row of an answer.
pub(super) fn only(rows: &[Row]) -> Result<&Row, Error> {
    rows.first().ok_or_else(super::look::unexpected)
}
