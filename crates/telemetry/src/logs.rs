//! Logs to standard error: text for a person at a terminal, JSON lines for everybody else.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::{Layer, fmt};

use crate::traces::{self, Telemetry};
use crate::{Format, Options, TelemetryError};

/// What a filter may take; more is a mistake.
const LONGEST_LEVEL: usize = 4 << 10;

/// Starts logging for this process, and tracing where a collector is named.
///
/// Keep what it returns for as long as something may be told: letting go of it sends what is
/// left.
pub fn start(options: &Options) -> Result<Telemetry, TelemetryError> {
    let is_terminal = io::stderr().is_terminal();
    // Set and not empty, as no-color.org has it.
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = is_terminal && !is_plain;
    let (subscriber, telemetry) = build(options, io::stderr, is_terminal, colours)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| TelemetryError::Started)?;
    Ok(telemetry)
}

/// What [`start`] makes global.
fn build<W>(
    options: &Options,
    writer: W,
    is_terminal: bool,
    colours: bool,
) -> Result<(impl Subscriber + Send + Sync + for<'a> LookupSpan<'a>, Telemetry), TelemetryError>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let filter = filter(&options.level)?;
    let (spans, telemetry) = traces::layer(options.otlp_endpoint.as_deref())?;
    let is_text = match options.format {
        Format::Auto => is_terminal,
        Format::Text => true,
        Format::Json => false,
    };
    let lines = lines(writer, is_text, colours).with_filter(filter);
    Ok((Registry::default().with(lines).with(spans), telemetry))
}

fn lines<S, W>(writer: W, is_text: bool, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    // A line that cannot be written is lost. Telling standard error that standard error is gone
    // would end the process.
    let lines = fmt::layer().with_writer(writer).with_ansi(colours).log_internal_errors(false);
    if is_text { lines.boxed() } else { lines.json().flatten_event(true).boxed() }
}

/// Reads a level or directives.
fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    let refused = || TelemetryError::Level {
        level: level.chars().filter(|c| !c.is_control()).take(80).collect(),
    };
    if level.len() > LONGEST_LEVEL {
        return Err(refused());
    }
    // Commas within the brackets of a span part fields, so those are left to the filter.
    let names_spans =
        level.contains('[') && level.matches('[').count() == level.matches(']').count();
    let directives: Vec<&str> = level.split(',').map(str::trim).collect();
    if !names_spans && !directives.iter().all(|directive| is_sound(directive)) {
        return Err(refused());
    }
    let builder = EnvFilter::builder().with_regex(false);
    builder.parse(directives.join(",")).map_err(|_| refused())
}

/// Whether it is a level, or one behind the name of a target. A word that is no level would be
/// taken for a target all of whose lines are wanted, and it is a misspelled level.
fn is_sound(directive: &str) -> bool {
    let level = match directive.split_once('=') {
        Some((target, level)) if !target.is_empty() => level,
        Some(_) => return false,
        None => directive,
    };
    // Nothing at all would mean `error`.
    !level.is_empty() && level.parse::<LevelFilter>().is_ok()
}

#[cfg(test)]
mod tests;
