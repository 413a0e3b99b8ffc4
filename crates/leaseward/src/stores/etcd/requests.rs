//! Pieces of transactions.

use super::proto::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, PutRequest, RangeRequest, Request,
    RequestOp, SortOrder, SortTarget, Target, TxnRequest,
};

/// The end of the keys that begin so: the first key after all of them.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Nothing comes after: etcd's word for *to the end*.
    vec![0]
}

/// All keys that begin so, the oldest first.
pub(super) fn oldest_first(prefix: &[u8]) -> RangeRequest {
    RangeRequest {
        key: prefix.to_vec(),
        range_end: end_of(prefix),
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        ..RangeRequest::default()
    }
}

/// The oldest few of them.
pub(super) fn first_of(prefix: &[u8], limit: i64) -> RangeRequest {
    RangeRequest { limit, ..oldest_first(prefix) }
}

/// The youngest few of them.
pub(super) fn last_of(prefix: &[u8], limit: i64) -> RangeRequest {
    RangeRequest { limit, sort_order: SortOrder::Descend.into(), ..oldest_first(prefix) }
}

/// The youngest of the keys that begin so and are older than this.
pub(super) fn just_before(prefix: &[u8], create: i64) -> RangeRequest {
    RangeRequest { max_create_revision: create - 1, ..last_of(prefix, 1) }
}

/// How many keys begin so.
pub(super) fn count(prefix: &[u8]) -> RangeRequest {
    RangeRequest {
        key: prefix.to_vec(),
        range_end: end_of(prefix),
        count_only: true,
        ..RangeRequest::default()
    }
}

/// One key.
pub(super) fn one(key: &[u8]) -> RangeRequest {
    RangeRequest { key: key.to_vec(), ..RangeRequest::default() }
}

/// As the member that is asked knows it, which may be less than what the cluster has agreed on.
pub(super) fn local(request: RangeRequest) -> RangeRequest {
    RangeRequest { serializable: true, ..request }
}

pub(super) fn range(request: RangeRequest) -> RequestOp {
    Request::Range(request).into()
}

pub(super) fn put(key: &[u8], value: Vec<u8>, lease: i64) -> RequestOp {
    Request::Put(PutRequest { key: key.to_vec(), value, lease, ignore_lease: false }).into()
}

/// A new value under the lease it has.
pub(super) fn change(key: &[u8], value: Vec<u8>) -> RequestOp {
    Request::Put(PutRequest { key: key.to_vec(), value, lease: 0, ignore_lease: true }).into()
}

pub(super) fn delete(key: &[u8]) -> RequestOp {
    Request::DeleteRange(DeleteRangeRequest { key: key.to_vec(), range_end: Vec::new() }).into()
}

pub(super) fn nested(txn: TxnRequest) -> RequestOp {
    Request::Txn(txn).into()
}

fn compare(key: &[u8], target: CompareTarget, result: CompareResult, with: Target) -> Compare {
    Compare {
        result: result.into(),
        target: target.into(),
        key: key.to_vec(),
        target_union: Some(with),
        range_end: Vec::new(),
    }
}

pub(super) fn is_absent(key: &[u8]) -> Compare {
    compare(key, CompareTarget::Create, CompareResult::Equal, Target::Create(0))
}

pub(super) fn is_there(key: &[u8]) -> Compare {
    compare(key, CompareTarget::Create, CompareResult::Greater, Target::Create(0))
}

/// It was made at this revision, and not again since.
pub(super) fn is_made_at(key: &[u8], revision: i64) -> Compare {
    compare(key, CompareTarget::Create, CompareResult::Equal, Target::Create(revision))
}

/// No key begins so: a comparison over a range holds if it holds for every key in it.
pub(super) fn none_begins(prefix: &[u8]) -> Compare {
    Compare { range_end: end_of(prefix), ..is_absent(prefix) }
}

pub(super) fn is_unchanged(key: &[u8], revision: i64) -> Compare {
    compare(key, CompareTarget::Mod, CompareResult::Equal, Target::Mod(revision))
}

pub(super) fn is_leased(key: &[u8], lease: i64) -> Compare {
    compare(key, CompareTarget::Lease, CompareResult::Equal, Target::Lease(lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_behind_everything_that_begins_so() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(&[b'a', 0xff]), b"b");
        assert_eq!(end_of(&[0xff, 0xff]), [0]);
    }
}
