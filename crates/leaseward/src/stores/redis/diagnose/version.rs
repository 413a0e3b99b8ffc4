//! Which server it is, and what of its newer commands it has.

use super::{
    super::probe::{self, Probe},
    finding,
};
use crate::store::{Finding, Severity};

pub(in crate::stores) fn of(probe: &Probe) -> Finding {
    let shown = |command: &str| match command {
        "function|load" => "functions".to_owned(),
        "spublish" => "sharded channels".to_owned(),
        command => command.to_uppercase(),
    };
    let named = |has: bool| {
        let commands = probe::MAY_LACK.iter().filter(|command| probe.has(command) == Some(has));
        let names: Vec<_> = commands.map(|command| shown(command)).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    let meaning = match probe.has("wait") {
        None => "it does not say which commands it has".to_owned(),
        Some(_) => {
            format!("of what servers may lack it has {}, and lacks {}", named(true), named(false))
        }
    };
    finding(
        Severity::Note,
        format!("it is {}", probe.version),
        &meaning,
        "nothing: of these only WAIT is used, by `?replicas=N`",
    )
}
