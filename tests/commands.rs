//! Every command of `soma` from outside: the real program, a real daemon, real sandboxes.
//!
//! What a sandbox's life looks like is in `life`, what can be got wrong in `refusals`, commands in
//! a sandbox in `exec`, files in `copy`, what happened in `events`, a whole session in `session`, the daemon behind it in
//! `daemon`, and what is said about
//! the commands themselves in `pages`. Ids and times differ from run to run and are replaced
//! ([`plain`]).

mod copy;
mod daemon;
mod events;
mod exec;
mod life;
mod pages;
mod refusals;
mod roundtrip;
mod session;

use std::process::Output;

use crate::support::Home;

/// What `soma` with these words did.
fn soma(home: &Home, words: &[&str]) -> Output {
    home.soma(words).output().unwrap()
}

/// What `soma` with these words writes, which has to work and say nothing else.
#[track_caller]
fn works(home: &Home, words: &[&str]) -> String {
    let output = soma(home, words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
    assert_eq!(text(&output.stderr), "", "{words:?}");
    text(&output.stdout)
}

/// What `soma` with these words says when it refuses with this code, and nothing else.
#[track_caller]
fn refused(home: &Home, code: i32, words: &[&str]) -> String {
    let output = soma(home, words);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
    assert_eq!(text(&output.stdout), "", "{words:?}");
    text(&output.stderr)
}

/// A new sandbox's id.
#[track_caller]
fn new(home: &Home, words: &[&str]) -> String {
    let words: Vec<&str> = ["new"].iter().chain(words).copied().collect();
    let id = works(home, &words).trim_end().to_owned();
    assert_eq!(id.len(), 24, "{id}");
    id
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The same words with ids and times replaced, by words of the same width where columns are.
fn plain(words: &str) -> String {
    let words = words.lines().map(|line| line.split_inclusive(' ').map(plain_word).collect());
    words.collect::<Vec<String>>().join("\n")
}

fn plain_word(word: &str) -> String {
    let bare = word.trim_end_matches([' ', ',', '`']).trim_start_matches('`');
    let all = |f: fn(char) -> bool| !bare.is_empty() && bare.chars().all(f);
    let is_code = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_id = matches!(bare.len(), 12 | 24) && all(is_code) && bare.contains(char::is_numeric);
    let is_moment = bare.len() == 24 && bare.ends_with('Z') && bare.contains('T');
    let is_time = bare.len() < 5
        && bare.ends_with(['s', 'm', 'h'])
        && bare[..bare.len() - 1].parse::<u32>().is_ok();
    if is_id {
        word.replace(bare, &"I".repeat(bare.len()))
    } else if is_moment {
        word.replace(bare, "[moment]")
    } else if is_time {
        word.replace(bare, &"T".repeat(bare.len()))
    } else {
        word.to_owned()
    }
}
