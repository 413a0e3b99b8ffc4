//! `leaseward completions`: tab completion for shells.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{args::Cli, exit::Exit, failure::Failure, printer::Printer};

/// Print the completion script of a shell
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

const AFTER: &str = "\
Examples:
    leaseward completions bash > ~/.local/share/bash-completion/completions/leaseward
    leaseward completions zsh > \"${fpath[1]}/_leaseward\"
    leaseward completions fish > ~/.config/fish/completions/leaseward.fish";

/// Carries it out.
pub(crate) fn run(args: &CompletionsArgs, printer: Printer) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leaseward", &mut script);
    printer.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
