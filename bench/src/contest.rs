//! A table in which contenders take turns.
//!
//! Each round calls every contender once, with a pause before each call: the machine's mood is
//! shared out, and nobody profits from a hot loop that no user has.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use crate::output;
use crate::samples::{Samples, milliseconds};

/// What holds for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The built program.
    pub(crate) soma: PathBuf,
    /// How often each contender is called.
    pub(crate) rounds: usize,
    /// The tables that are wanted, by name; none is all of them.
    pub(crate) tables: Vec<String>,
    /// What lies between two calls.
    pub(crate) pause: Duration,
}

type Call<'a> = Box<dyn FnMut() -> anyhow::Result<Duration> + 'a>;

/// One table: the peer first, then everybody who is measured against it.
pub(crate) struct Contest<'a> {
    title: &'a str,
    contenders: Vec<Contender<'a>>,
}

struct Contender<'a> {
    name: String,
    call: Call<'a>,
    bounds: Vec<Bound>,
    allowance: Option<Allowance>,
    most: Option<Duration>,
    samples: Samples,
    absent: Option<String>,
}

/// What was promised: the median is at most so many times that of another row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// The row it is measured against, from 0.
    pub(crate) peer: usize,
    /// The factor that may not be exceeded.
    pub(crate) most: f64,
}

/// What was promised where a factor says nothing: the median is at most so much above that of
/// another row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// The row it is measured against, from 0.
    pub(crate) peer: usize,
    /// What may be on top.
    pub(crate) most: Duration,
}

impl<'a> Contest<'a> {
    pub(crate) fn new(title: &'a str) -> Self {
        Self { title, contenders: Vec::new() }
    }

    /// Adds a row; answers with its number. The call gives the time that counts.
    pub(crate) fn row(
        &mut self,
        name: &str,
        bounds: &[Bound],
        call: impl FnMut() -> anyhow::Result<Duration> + 'a,
    ) -> usize {
        self.push(name, bounds.to_vec(), Box::new(call), None)
    }

    /// Adds a row that may take a little longer than another.
    pub(crate) fn row_above(
        &mut self,
        name: &str,
        allowance: Allowance,
        call: impl FnMut() -> anyhow::Result<Duration> + 'a,
    ) -> usize {
        let row = self.row(name, &[], call);
        self.contenders[row].allowance = Some(allowance);
        row
    }

    /// Adds a row that may take so long, whatever others take.
    pub(crate) fn row_within(
        &mut self,
        name: &str,
        most: Duration,
        call: impl FnMut() -> anyhow::Result<Duration> + 'a,
    ) -> usize {
        let row = self.row(name, &[], call);
        self.contenders[row].most = Some(most);
        row
    }

    /// Adds a promise to a row.
    pub(crate) fn bound(&mut self, row: usize, bound: Bound) {
        self.contenders[row].bounds.push(bound);
    }

    /// Adds a row that cannot be measured here, with the reason.
    pub(crate) fn absent(&mut self, name: &str, reason: String) -> usize {
        self.push(name, Vec::new(), Box::new(|| Ok(Duration::ZERO)), Some(reason))
    }

    fn push(
        &mut self,
        name: &str,
        bounds: Vec<Bound>,
        call: Call<'a>,
        absent: Option<String>,
    ) -> usize {
        let samples = Samples::default();
        let (name, allowance, most) = (name.to_owned(), None, None);
        self.contenders.push(Contender { name, call, bounds, allowance, most, samples, absent });
        self.contenders.len() - 1
    }

    /// Measures and prints. A contender that fails once is out, with its error as the reason.
    pub(crate) fn run(mut self, settings: &Settings) {
        // The first call of each pays for cold caches and does not count.
        for round in 0..=settings.rounds {
            for contender in self.contenders.iter_mut().filter(|each| each.absent.is_none()) {
                sleep(settings.pause);
                match (contender.call)() {
                    Ok(took) if round > 0 => contender.samples.add(took),
                    Ok(_) => {}
                    Err(error) => contender.absent = Some(format!("{error:#}")),
                }
            }
        }
        self.print();
    }

    fn print(&self) {
        output::line(&format!("\n{}", self.title));
        output::line(&cells("", "p50", "p90", "p99", "ratio of p50"));
        for contender in &self.contenders {
            if let Some(reason) = &contender.absent {
                output::line(&format!("  {:<44} not measured: {reason}", contender.name));
                continue;
            }
            let [p50, p90, p99] =
                [50, 90, 99].map(|percent| milliseconds(contender.samples.percentile(percent)));
            output::line(&cells(&contender.name, &p50, &p90, &p99, &self.verdict(contender)));
        }
    }

    fn verdict(&self, contender: &Contender<'_>) -> String {
        let judge = |bound: &Bound| {
            let peer = &self.contenders[bound.peer];
            if peer.samples.is_empty() {
                return format!("{} was not measured", peer.name);
            }
            let ratio =
                contender.samples.median().as_secs_f64() / peer.samples.median().as_secs_f64();
            let word = if ratio <= bound.most { "kept" } else { "MISSED" };
            let (ratio, most) = (factor(ratio), factor(bound.most));
            format!("{ratio} {}, wanted at most {most}: {word}", peer.name)
        };
        let allow = |allowance: &Allowance| {
            let peer = &self.contenders[allowance.peer];
            if peer.samples.is_empty() {
                return format!("{} was not measured", peer.name);
            }
            let above = contender.samples.median().saturating_sub(peer.samples.median());
            let word = if above <= allowance.most { "kept" } else { "MISSED" };
            let (above, most) = (milliseconds(above), milliseconds(allowance.most));
            format!("{above} above {}, wanted at most {most}: {word}", peer.name)
        };
        let within = |most: &Duration| {
            let word = if contender.samples.median() <= *most { "kept" } else { "MISSED" };
            format!("wanted at most {}: {word}", milliseconds(*most))
        };
        let allowed = contender.allowance.iter().map(allow);
        let within = contender.most.iter().map(within);
        let all = contender.bounds.iter().map(judge).chain(allowed).chain(within);
        all.collect::<Vec<_>>().join("; ")
    }
}

/// A factor as people say it: `1.4 times`, or `1/52` where it is small.
fn factor(ratio: f64) -> String {
    if ratio >= 0.2 { format!("{ratio:.2} times") } else { format!("1/{:.0}", 1.0 / ratio) }
}

fn cells(name: &str, p50: &str, p90: &str, p99: &str, verdict: &str) -> String {
    format!("  {name:<44} {p50:>9} {p90:>9} {p99:>9}   {verdict}").trim_end().to_owned()
}
