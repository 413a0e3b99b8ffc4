//! The script that carries out batches, in one piece.

use std::sync::LazyLock;

/// The script and the hash by which a server knows it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
}

/// Without comments and indentation: every new connection sends it.
pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    const SOURCE: &str = concat!(
        include_str!("lua/head.lua"),
        include_str!("lua/room.lua"),
        include_str!("lua/slow.lua"),
        include_str!("lua/operations.lua"),
        include_str!("lua/tail.lua"),
    );
    let lines = SOURCE.lines().map(str::trim);
    let text: String = lines
        .filter(|line| !line.is_empty() && !line.starts_with("--"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let hash = redis::Script::new(&text).get_hash().to_owned();
    Script { text, hash }
});
