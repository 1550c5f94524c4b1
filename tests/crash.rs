//! Nothing is ever lost: whoever dies, whenever they die, whatever fails.
//!
//! The daemon, the engine, a launcher or a supervisor dies at the N-th system call of an
//! operation (`deaths`), the N-th write of state fails (`faults`), a file of state is damaged
//! (`damage`), or all of them are killed at random under load (`soak`). Then whoever died is
//! started again as it would be, and what was promised is looked at from outside.
//!
//! `tracer` finds the N-th system call of the very program that is shipped, `operations` is the
//! table of what is interrupted and what has to hold afterwards, `scene` a daemon with a witness: a
//! sandbox that has nothing to do with it and must not notice.
//!
//! Which N is chosen by `SOMA_SEED`; with `SOMA_LONG` every one is.

mod copies;
mod damage;
mod deaths;
mod faults;
mod operations;
mod orphans;
mod scene;
mod soak;
mod stock;
mod system_call;
mod tracer;
mod witness;

use std::io::Write as _;

pub(crate) use witness::follow;

use crate::support::{is_root, skip};

/// The choice of points when nobody chooses another.
const USUAL_SEED: u64 = 7;

/// Whether the tests that take their time run.
fn is_long() -> bool {
    std::env::var_os("SOMA_LONG").is_some()
}

/// Whether a test that traces must be left out, which it says.
fn cannot_trace(name: &str) -> bool {
    if !cfg!(target_arch = "x86_64") {
        skip(name, "system calls are traced on x86_64 alone");
        return true;
    }
    if !is_root() {
        skip(name, "an ordinary user may not trace programs that hide their memory");
    }
    !is_root()
}

/// Says something where it is seen also when the test passes.
fn say(words: &str) {
    let _ = std::io::stderr().write_all(format!("{words}\n").as_bytes());
}

/// Numbers that look random and are the same for the same seed.
struct Chance {
    state: u64,
}

impl Chance {
    /// The one that the environment asks for.
    fn of_this_run() -> Self {
        let wished = std::env::var("SOMA_SEED").ok().and_then(|text| text.parse().ok());
        let seed = wished.unwrap_or(USUAL_SEED);
        say(&format!("SOMA_SEED={seed}"));
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// So many numbers from 1 to this one, spread over all of it; all of them when there are fewer
    /// or time does not matter.
    fn points(&mut self, last: u64, count: u64) -> Vec<u64> {
        if is_long() || last <= count {
            return (1..=last).collect();
        }
        let begin = |index: u64| index * last / count;
        let choose = |index| {
            let (from, to) = (begin(index), begin(index + 1));
            from + 1 + self.below(to - from)
        };
        (0..count).map(choose).collect()
    }
}

/// Says where a test was when it failed.
struct Where(String);

impl Drop for Where {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&format!("it failed at: {}", self.0));
        }
    }
}
