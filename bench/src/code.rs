//! Kernels, beside what people have otherwise: `jupyter_client` with `ipykernel`, and the
//! interpreter itself.
//!
//! Start at [`print`]. [`jupyter`] is the peer, [`place`] a sandbox with cells in it.
//! `scripts/get-interpreters` makes the environments that are needed; `SOMA_INTERPRETERS` says
//! where they are.

mod jupyter;
mod place;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use sys_linux::command::command;

use crate::contest::{Bound, Contest, Settings};
use crate::{output, time};
use jupyter::Jupyter;
use place::Place;

/// What a cell may take in a context that is warm.
const MOST_FOR_A_CELL: Duration = Duration::from_millis(4);

/// Contexts whose memory is looked at, and what that may be beside one's.
const CONTEXTS: usize = 10;
const MOST_FOR_CONTEXTS: f64 = 3.0;

/// Megabytes that a cell writes, and how many of them should pass in a second.
const OUTPUT: usize = 1000;
const LEAST_OUTPUT: f64 = 200.0;

/// What the guest may have more after that, in KiB: less than a thirtieth of what passed.
const MOST_GROWTH: u64 = 32 << 10;

/// Every context is at rest then: what it shares with others was shared.
const REST: Duration = Duration::from_secs(2);

const CELL: &str = "1 + 1";
const WITH_PANDAS: &str = "import pandas; 1 + 1";

/// Measures and prints all of it.
pub(crate) fn print(settings: &Settings) {
    let plain = Place::plain(settings);
    let science = interpreter("science").and_then(|python| Place::with(settings, &python));
    warm(settings, &plain);
    cold(settings, &plain, &science);
    second(settings, &science);
    memory("plain Python", CELL, &plain);
    memory("IPython and pandas", WITH_PANDAS, &science);
    gigabyte(&plain);
}

/// How long something takes.
fn timed(act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    act()?;
    Ok(begin.elapsed())
}

/// An interpreter that the scripts made.
fn interpreter(name: &str) -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os("SOMA_INTERPRETERS").context("SOMA_INTERPRETERS is not set")?;
    let python = PathBuf::from(folder).join(name).join("bin/python");
    ensure!(python.exists(), "`scripts/get-interpreters` could not make `{name}`");
    Ok(python)
}

/// A cell in a context that is warm, over HTTP on a connection that stays open.
fn warm(settings: &Settings, plain: &anyhow::Result<Place>) {
    let mut jupyter = interpreter("jupyter").and_then(|python| Jupyter::start(&python));
    let opened = plain.as_ref().map_err(|error| format!("{error:#}"));
    let opened = opened.and_then(|place| {
        let context = place.context().map_err(|error| format!("{error:#}"))?;
        Ok((place, context))
    });
    let mut contest = Contest::new("`1 + 1` in a warm context of Python");
    let name = "jupyter_client and ipykernel";
    let peer = match &mut jupyter {
        Ok(jupyter) => contest.row(name, &[], || jupyter.cell()),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    let name = "soma, through the API";
    match &opened {
        Ok((place, warm)) => {
            let row =
                contest.row_within(name, MOST_FOR_A_CELL, || timed(|| place.cell(warm, CELL)));
            contest.bound(row, Bound { peer, most: 0.5 });
        }
        Err(reason) => drop(contest.absent(name, reason.clone())),
    }
    contest.run(settings);
}

/// The first value of a context where nothing of Python runs yet.
fn cold(settings: &Settings, plain: &anyhow::Result<Place>, science: &anyhow::Result<Place>) {
    let imports = interpreter("science");
    let mut contest = Contest::new("The first value of a cold context");
    let pass = contest
        .row("python3 -c pass", &[], || time(command("/usr/bin/python3").args(["-c", "pass"])));
    row(&mut contest, "soma, plain Python", plain, Bound { peer: pass, most: 3.0 });
    let name = "python3 -c 'import IPython'";
    let import = match &imports {
        Ok(python) => {
            contest.row(name, &[], move || time(command(python).args(["-c", "import IPython"])))
        }
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    row(&mut contest, "soma, with IPython", science, Bound { peer: import, most: 1.3 });
    contest.run(settings);
}

fn row<'a>(contest: &mut Contest<'a>, name: &str, place: &'a anyhow::Result<Place>, bound: Bound) {
    match place {
        Ok(place) => contest.row(name, &[bound], || {
            place.chill()?;
            timed(|| place.cell("", CELL))
        }),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
}

/// A context more, where another has the same imports.
fn second(settings: &Settings, science: &anyhow::Result<Place>) {
    let imports = interpreter("science");
    let ready = science.as_ref().map_err(|error| format!("{error:#}")).and_then(|place| {
        let first = place.chill().and_then(|()| place.cell("", WITH_PANDAS));
        first.map_err(|error| format!("{error:#}"))?;
        std::thread::sleep(REST);
        Ok(place)
    });
    let mut contest = Contest::new("A second context with IPython and pandas imported");
    let name = "python3 -c 'import IPython, pandas'";
    let peer = match &imports {
        Ok(python) => {
            let script = ["-c", "import IPython, pandas"];
            contest.row(name, &[], move || time(command(python).args(script)))
        }
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    let name = "soma, made and its first value";
    match &ready {
        Ok(place) => contest.row(name, &[Bound { peer, most: 0.1 }], || {
            let begin = Instant::now();
            let second = place.context()?;
            place.cell(&second, WITH_PANDAS)?;
            let took = begin.elapsed();
            place.delete_context(&second)?;
            Ok(took)
        }),
        Err(reason) => contest.absent(name, reason.clone()),
    };
    contest.run(settings);
}

/// What ten contexts have in memory beside what one has, as shares (PSS).
fn memory(what: &str, code: &str, place: &anyhow::Result<Place>) {
    let weigh = |place: &Place| -> anyhow::Result<(u64, u64)> {
        place.connect_again()?;
        place.chill()?;
        let mut contexts = vec![place.context()?];
        place.cell(&contexts[0], code)?;
        std::thread::sleep(REST);
        let one = place.memory_of_python()?;
        for _ in 1..CONTEXTS {
            let context = place.context()?;
            place.cell(&context, code)?;
            contexts.push(context);
        }
        std::thread::sleep(REST);
        let ten = place.memory_of_python()?;
        contexts.iter().try_for_each(|context| place.delete_context(context))?;
        Ok((one, ten))
    };
    output::line(&format!("\nMemory of contexts with {what}, as their shares (PSS)"));
    match place
        .as_ref()
        .map_err(|error| format!("{error:#}"))
        .and_then(|place| weigh(place).map_err(|error| format!("{error:#}")))
    {
        Ok((one, ten)) => {
            let ratio = as_number(ten) / as_number(one);
            let word = if ratio <= MOST_FOR_CONTEXTS { "kept" } else { "MISSED" };
            output::line(&format!(
                "  one {one} KiB, {CONTEXTS} {ten} KiB: {ratio:.2} times, wanted at most \
                 {MOST_FOR_CONTEXTS:.0}: {word}"
            ));
        }
        Err(reason) => output::line(&format!("  not measured: {reason}")),
    }
}

/// A gigabyte that a cell writes and somebody reads, and what the guest has then.
fn gigabyte(place: &anyhow::Result<Place>) {
    output::line(&format!("\n{OUTPUT} MB of output of one cell, read as it comes"));
    let pass = |place: &Place| -> anyhow::Result<(f64, u64, u64)> {
        place.connect_again()?;
        let context = place.context()?;
        place.cell(&context, CELL)?;
        let before = place.memory_of_guest()?;
        let took = place.write(&context, OUTPUT)?;
        let after = place.memory_of_guest()?;
        let megabytes = f64::from(u32::try_from(OUTPUT).unwrap_or(u32::MAX));
        Ok((megabytes / took.as_secs_f64(), before, after))
    };
    match place
        .as_ref()
        .map_err(|error| format!("{error:#}"))
        .and_then(|place| pass(place).map_err(|error| format!("{error:#}")))
    {
        Ok((speed, before, after)) => {
            let word = if speed >= LEAST_OUTPUT { "kept" } else { "MISSED" };
            output::line(&format!("  {speed:.0} MB/s, wanted at least {LEAST_OUTPUT:.0}: {word}"));
            let word = if after <= before + MOST_GROWTH { "kept" } else { "MISSED" };
            output::line(&format!(
                "  the guest had {before} KiB at the most before and {after} KiB after, wanted \
                 at most {MOST_GROWTH} KiB more: {word}"
            ));
        }
        Err(reason) => output::line(&format!("  not measured: {reason}")),
    }
}

fn as_number(kibibytes: u64) -> f64 {
    f64::from(u32::try_from(kibibytes).unwrap_or(u32::MAX))
}
