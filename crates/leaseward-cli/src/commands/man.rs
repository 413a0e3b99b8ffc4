//! `leaseward man`: the manual.

use std::{fs, path::PathBuf};

use clap::{Args, CommandFactory};
use clap_mangen::Man;

use crate::{args::Cli, exit::Exit, failure::Failure, printer::Printer};

/// Print the manual page, or write those of all commands to a folder
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct ManArgs {
    /// Write `leaseward.1` and one page for each command to this folder
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
    leaseward man | man -l -
    leaseward man --dir ~/.local/share/man/man1";

/// Carries it out.
pub(crate) fn run(args: &ManArgs, printer: Printer) -> Result<Exit, Failure> {
    let command = Cli::command();
    let Some(folder) = &args.dir else {
        let mut page = Vec::new();
        let drawn = Man::new(command).render(&mut page);
        drawn.map_err(|error| Failure::system("cannot draw the page", &error))?;
        printer.line(String::from_utf8_lossy(&page).trim_end())?;
        return Ok(Exit::Done);
    };
    fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder)).map_err(
        |error| Failure::system(&format!("cannot write to `{}`", folder.display()), &error),
    )?;
    Ok(Exit::Done)
}
