//! `tracewheel man`

use std::fs;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::{ManArgs, command};
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;

mod markdown;

/// Writes the man pages, or prints one of them, or prints all of the command line as Markdown.
pub(crate) fn run(args: &ManArgs, output: &Output) -> Result<Exit, Failure> {
    let mut root = command().disable_help_subcommand(true);
    root.build();
    if args.markdown {
        output.data(&markdown::page(&root))?;
        return Ok(Exit::Done);
    }
    let Some(folder) = &args.out else {
        output.data(&String::from_utf8_lossy(&page(&root).or_exit(Exit::Internal)?))?;
        return Ok(Exit::Done);
    };
    fs::create_dir_all(folder).or_exit_with(Exit::Output, || format!("cannot make {}", folder.display()))?;
    write(&root, folder)?;
    for command in root.get_subcommands() {
        write(command, folder)?;
    }
    let (pages, folder) = (root.get_subcommands().count() + 1, folder.display());
    output.note(&format!("{pages} pages are in {folder}; read one with `man -l {folder}/tracewheel.1`"));
    Ok(Exit::Done)
}

fn write(command: &Command, folder: &Path) -> Result<(), Failure> {
    let path = folder.join(Man::new(command.clone()).get_filename());
    let page = page(command).or_exit(Exit::Internal)?;
    fs::write(&path, page).or_exit_with(Exit::Output, || format!("cannot write {}", path.display()))
}

/// A page as roff. The examples keep their lines, which the generator would fill.
fn page(command: &Command) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).manual("tracewheel");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(examples) = command.get_after_help() {
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.to_string().lines().skip_while(|line| *line == "Examples:") {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        roff.control("fi", []);
        roff.to_writer(&mut page)?;
    }
    Ok(page)
}
