//! What is typed after `sudo`.
//!
//! One table of options is read for short and long ones alike. Options that only matter with
//! passwords are taken and do nothing, because there are none; those that this `sudo` cannot
//! honour are refused, so that nobody relies on them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// What the caller wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Help,
    Version,
    /// To forget a password: there is none.
    Forget,
    /// Whether the caller may use `sudo`, without a word.
    Validate,
    /// What the caller may do.
    List,
    Run(Options),
}

/// How to run what is to be run.
#[derive(Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option that is given or not")]
pub(super) struct Options {
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    /// Keep the groups of the caller.
    pub(super) keep_groups: bool,
    /// Keep all variables.
    pub(super) keep_all: bool,
    /// Keep these variables.
    pub(super) keep: Vec<OsString>,
    /// Set `HOME` also where all variables are kept.
    pub(super) set_home: bool,
    /// A login shell, which begins in the new user's home.
    pub(super) login: bool,
    /// The caller's own shell.
    pub(super) shell: bool,
    pub(super) background: bool,
    pub(super) folder: Option<OsString>,
    /// `NAME=value`, for the program alone.
    pub(super) variables: Vec<OsString>,
    /// The program and its arguments; may be empty where a shell is asked for.
    pub(super) command: Vec<OsString>,
}

/// What was typed makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misuse {
    /// What is wrong; nothing when just everything is missing.
    pub(super) message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// It is about passwords or timestamps.
    Nothing,
    User,
    Group,
    KeepGroups,
    KeepVariables,
    SetHome,
    Login,
    Shell,
    Background,
    Folder,
    Forget,
    Validate,
    List,
    Help,
    Version,
    Unsupported,
}

/// Each option: its letter, its name, whether it has a value, what it means.
const OPTIONS: &[(u8, &str, bool, Meaning)] = &[
    (b'A', "askpass", false, Meaning::Nothing),
    (b'B', "bell", false, Meaning::Nothing),
    (b'C', "close-from", true, Meaning::Nothing),
    (b'D', "chdir", true, Meaning::Folder),
    (b'E', "preserve-env", false, Meaning::KeepVariables),
    (b'H', "set-home", false, Meaning::SetHome),
    (b'K', "remove-timestamp", false, Meaning::Forget),
    (b'N', "no-update", false, Meaning::Nothing),
    (b'P', "preserve-groups", false, Meaning::KeepGroups),
    (b'R', "chroot", true, Meaning::Unsupported),
    (b'S', "stdin", false, Meaning::Nothing),
    (b'T', "command-timeout", true, Meaning::Unsupported),
    (b'U', "other-user", true, Meaning::Unsupported),
    (b'V', "version", false, Meaning::Version),
    (b'b', "background", false, Meaning::Background),
    (b'e', "edit", false, Meaning::Unsupported),
    (b'g', "group", true, Meaning::Group),
    (b'h', "help", false, Meaning::Help),
    (b'i', "login", false, Meaning::Login),
    (b'k', "reset-timestamp", false, Meaning::Forget),
    (b'l', "list", false, Meaning::List),
    (b'n', "non-interactive", false, Meaning::Nothing),
    (b'p', "prompt", true, Meaning::Nothing),
    (b'r', "role", true, Meaning::Unsupported),
    (b's', "shell", false, Meaning::Shell),
    (b't', "type", true, Meaning::Unsupported),
    (b'u', "user", true, Meaning::User),
    (b'v', "validate", false, Meaning::Validate),
];

/// Reads what was typed, the name of the program not included.
pub(super) fn parse(typed: Vec<OsString>) -> Result<Asked, Misuse> {
    let mut reading = Reading::default();
    let mut typed = typed.into_iter();
    while let Some(word) = typed.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            break;
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            reading.long(long, &mut typed)?;
        } else if let Some(letters @ [_, ..]) = bytes.strip_prefix(b"-") {
            reading.short(letters, &mut typed)?;
        } else if bytes.iter().position(|byte| *byte == b'=').is_some_and(|at| at > 0) {
            reading.options.variables.push(word);
        } else {
            reading.options.command.push(word);
            break;
        }
    }
    reading.options.command.extend(typed);
    reading.conclude()
}

#[derive(Debug, Default)]
struct Reading {
    options: Options,
    /// What is asked for instead of running something; the first one counts.
    instead: Option<Asked>,
    forget: bool,
}

impl Reading {
    fn long(
        &mut self,
        word: &[u8],
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), Misuse> {
        let (name, value) = match word.iter().position(|byte| *byte == b'=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (word, None),
        };
        let shown = String::from_utf8_lossy(name).into_owned();
        let known = OPTIONS.iter().find(|option| option.1.as_bytes() == name);
        let &(_, _, takes_value, meaning) =
            known.ok_or_else(|| misuse(format!("unrecognized option '--{shown}'")))?;
        let value = value.map(|value| OsString::from_vec(value.to_vec()));
        match (takes_value, value) {
            (false, None) => self.apply(meaning, None, &shown),
            (false, Some(names)) if meaning == Meaning::KeepVariables => {
                let names = names.as_bytes().split(|byte| *byte == b',');
                let names = names.filter(|name| !name.is_empty());
                self.options.keep.extend(names.map(|name| OsString::from_vec(name.to_vec())));
                Ok(())
            }
            (false, Some(_)) => {
                Err(misuse(format!("option '--{shown}' doesn't allow an argument")))
            }
            (true, value) => {
                let value = value.or_else(|| rest.next());
                let missing = || misuse(format!("option '--{shown}' requires an argument"));
                self.apply(meaning, Some(value.ok_or_else(missing)?), &shown)
            }
        }
    }

    fn short(
        &mut self,
        letters: &[u8],
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), Misuse> {
        for (index, letter) in letters.iter().enumerate() {
            let shown = char::from(*letter).to_string();
            let known = OPTIONS.iter().find(|option| option.0 == *letter);
            let &(_, name, takes_value, meaning) =
                known.ok_or_else(|| misuse(format!("invalid option -- '{shown}'")))?;
            if !takes_value {
                self.apply(meaning, None, name)?;
                continue;
            }
            // The rest of the word, or the next one.
            let value = match &letters[index + 1..] {
                [] => rest.next(),
                value => Some(OsString::from_vec(value.to_vec())),
            };
            let missing = || misuse(format!("option requires an argument -- '{shown}'"));
            return self.apply(meaning, Some(value.ok_or_else(missing)?), name);
        }
        Ok(())
    }

    fn apply(
        &mut self,
        meaning: Meaning,
        value: Option<OsString>,
        name: &str,
    ) -> Result<(), Misuse> {
        let options = &mut self.options;
        let text = |value: Option<OsString>| value.map(|text| text.to_string_lossy().into_owned());
        match meaning {
            Meaning::Nothing => {}
            Meaning::User => options.user = text(value),
            Meaning::Group => options.group = text(value),
            Meaning::KeepGroups => options.keep_groups = true,
            Meaning::KeepVariables => options.keep_all = true,
            Meaning::SetHome => options.set_home = true,
            Meaning::Login => options.login = true,
            Meaning::Shell => options.shell = true,
            Meaning::Background => options.background = true,
            Meaning::Folder => options.folder = value,
            Meaning::Forget => self.forget = true,
            Meaning::Validate => self.instead = self.instead.take().or(Some(Asked::Validate)),
            Meaning::List => self.instead = self.instead.take().or(Some(Asked::List)),
            Meaning::Help => self.instead = self.instead.take().or(Some(Asked::Help)),
            Meaning::Version => self.instead = self.instead.take().or(Some(Asked::Version)),
            Meaning::Unsupported => {
                return Err(misuse(format!("the sudo of a sandbox has no option '--{name}'")));
            }
        }
        Ok(())
    }

    fn conclude(self) -> Result<Asked, Misuse> {
        let options = self.options;
        if let Some(instead) = self.instead {
            return Ok(instead);
        }
        if options.login && options.shell {
            return Err(misuse("you may not specify both the -i and -s options".to_owned()));
        }
        if !options.command.is_empty() || options.login || options.shell {
            return Ok(Asked::Run(options));
        }
        if self.forget { Ok(Asked::Forget) } else { Err(Misuse { message: None }) }
    }
}

fn misuse(message: String) -> Misuse {
    Misuse { message: Some(message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(words: &[&str]) -> Result<Asked, Misuse> {
        parse(words.iter().map(OsString::from).collect())
    }

    #[track_caller]
    fn run(words: &[&str]) -> Options {
        match read(words) {
            Ok(Asked::Run(options)) => options,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[track_caller]
    fn refusal(words: &[&str]) -> String {
        read(words).unwrap_err().message.unwrap_or_default()
    }

    fn strings(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_command_begins_with_the_first_word_that_is_no_option() {
        let options = run(&["-n", "ls", "-u", "root", "--", "A=b"]);
        assert_eq!(options.command, strings(&["ls", "-u", "root", "--", "A=b"]));
        assert_eq!(options.user, None);
    }

    #[test]
    fn a_user_is_given_in_four_ways() {
        for words in [
            &["-u", "ann", "id"][..],
            &["-uann", "id"],
            &["--user", "ann", "id"],
            &["--user=ann", "id"],
            &["-nEuann", "id"],
        ] {
            let options = run(words);
            assert_eq!(options.user.as_deref(), Some("ann"), "{words:?}");
            assert_eq!(options.command, strings(&["id"]), "{words:?}");
        }
    }

    #[test]
    fn variables_stand_before_the_command_and_two_dashes_end_them() {
        let options = run(&["A=1", "-E", "B=2=3", "env", "C=4"]);
        assert_eq!(options.variables, strings(&["A=1", "B=2=3"]));
        assert_eq!(options.command, strings(&["env", "C=4"]));
        assert!(options.keep_all);
        assert_eq!(run(&["--", "A=1"]).command, strings(&["A=1"]));
        assert_eq!(run(&["=x"]).command, strings(&["=x"]));
    }

    #[test]
    fn some_or_all_variables_are_kept() {
        let options = run(&["--preserve-env=A,,B", "--preserve-env=C", "env"]);
        assert_eq!(options.keep, strings(&["A", "B", "C"]));
        assert!(!options.keep_all);
        assert!(run(&["--preserve-env", "env"]).keep_all);
    }

    #[test]
    fn a_shell_needs_no_command() {
        assert!(run(&["-i"]).login);
        assert!(run(&["-s"]).shell);
        let options = run(&["-iu", "ann", "echo", "hi"]);
        assert_eq!((options.login, options.user.as_deref()), (true, Some("ann")));
        assert_eq!(options.command, strings(&["echo", "hi"]));
        assert!(refusal(&["-i", "-s"]).contains("both"));
    }

    #[test]
    fn what_is_about_passwords_is_taken_and_does_nothing() {
        let options = run(&["-A", "-S", "-n", "-B", "-N", "-k", "-p", "say: ", "-C", "5", "id"]);
        assert_eq!(options, Options { command: strings(&["id"]), ..Options::default() });
    }

    #[test]
    fn some_options_stand_alone() {
        assert_eq!(read(&["-k"]), Ok(Asked::Forget));
        assert_eq!(read(&["-K"]), Ok(Asked::Forget));
        assert_eq!(read(&["-v"]), Ok(Asked::Validate));
        assert_eq!(read(&["-l"]), Ok(Asked::List));
        assert_eq!(read(&["-V"]), Ok(Asked::Version));
        assert_eq!(read(&["-h"]), Ok(Asked::Help));
        assert_eq!(read(&["--help", "id"]), Ok(Asked::Help));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(read(&[]), Err(Misuse { message: None }));
        assert_eq!(read(&["-n"]), Err(Misuse { message: None }));
        assert_eq!(refusal(&["-x", "id"]), "invalid option -- 'x'");
        assert_eq!(refusal(&["--nope", "id"]), "unrecognized option '--nope'");
        assert_eq!(refusal(&["-u"]), "option requires an argument -- 'u'");
        assert_eq!(refusal(&["--user"]), "option '--user' requires an argument");
        assert_eq!(refusal(&["--login=x"]), "option '--login' doesn't allow an argument");
        assert!(refusal(&["-e", "file"]).contains("--edit"));
        assert!(refusal(&["-R", "/x", "id"]).contains("--chroot"));
    }

    proptest! {
        #[test]
        fn nothing_that_is_typed_breaks_the_reader(words in proptest::collection::vec(".{0,8}", 0..6)) {
            let _ = parse(words.into_iter().map(OsString::from).collect());
        }
    }
}
