//! What is said about the commands themselves: help, completions, manual pages.

use std::fmt::Write as _;

use super::works;
use crate::snapshots::compare;
use crate::support::Home;

/// Every command that is shown.
fn commands(home: &Home) -> Vec<String> {
    let help = works(home, &["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next().map(ToOwned::to_owned)).collect()
}

#[test]
fn the_help_of_every_command_is_as_it_was() {
    let home = Home::new();
    let mut helps = works(&home, &["--help"]);
    for command in commands(&home).iter().filter(|command| *command != "help") {
        let help = works(&home, &[command, "--help"]);
        assert!(help.contains("Usage: soma "), "{help}");
        let _ = write!(helps, "\n=== soma {command}\n\n{help}");
    }
    compare("help.txt", &helps);
}

#[test]
fn every_command_for_people_has_examples() {
    let home = Home::new();
    for command in commands(&home) {
        if ["help", "engine", "doctor", "config"].contains(&command.as_str()) {
            continue;
        }
        let help = works(&home, &[&command, "--help"]);
        assert!(help.contains("\nExamples:\n  "), "{command}: {help}");
    }
}

#[test]
fn shells_can_complete_every_command() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let words = works(&home, &["completions", shell]);
        for command in commands(&home) {
            assert!(words.contains(&command), "{shell} does not know {command}");
        }
    }
    assert!(home.daemons().is_empty(), "a daemon was started for it");
}

#[test]
fn every_command_has_a_manual_page() {
    let home = Home::new();
    assert!(works(&home, &["man"]).contains(".TH soma 1"));
    let folder = tempfile::tempdir().unwrap();
    works(&home, &["man", folder.path().to_str().unwrap()]);
    for command in commands(&home).iter().filter(|command| *command != "help") {
        let page = std::fs::read_to_string(folder.path().join(format!("soma-{command}.1")));
        let page = page.unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(page.contains(&format!(".TH soma-{command} 1")), "{page}");
    }
}
