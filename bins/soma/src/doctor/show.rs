//! How findings look: one line for each thing, and more only where something is lacking.

use doctor::{Finding, Report, State};

use crate::output::one_line;

/// The whole report.
pub(super) fn report(report: &Report) -> String {
    let width = widest(report.findings.iter());
    let mut lines = Vec::new();
    for finding in &report.findings {
        lines.push(line(finding, width));
        if finding.state != State::Works {
            // Below the words of the line above.
            let margin = " ".repeat(MARK_WIDTH + width + 4);
            lines.push(format!("{margin}without: {}", one_line(&finding.without)));
            if let Some(fix) = &finding.fix {
                lines.push(format!("{margin}fix:     {}", one_line(&fix.command)));
            }
        }
    }
    with_verdict(lines, report)
}

/// What is another way than before, and what it comes to.
pub(super) fn changes(before: &Report, after: &Report) -> String {
    let was = |finding: &Finding| before.findings.iter().find(|other| other.name == finding.name);
    let changed: Vec<&Finding> = after
        .findings
        .iter()
        .filter(|finding| was(finding).is_some_and(|other| other.state != finding.state))
        .collect();
    let width = widest(changed.iter().copied());
    let title = if changed.is_empty() { "nothing changed" } else { "changed:" };
    let mut lines = vec![String::new(), title.to_owned()];
    lines.extend(changed.iter().map(|finding| line(finding, width)));
    with_verdict(lines, after)
}

fn widest<'all>(findings: impl Iterator<Item = &'all Finding>) -> usize {
    findings.map(|finding| finding.name.len()).max().unwrap_or(0)
}

fn with_verdict(mut lines: Vec<String>, report: &Report) -> String {
    lines.extend([String::new(), one_line(&report.verdict.says), String::new()]);
    lines.join("\n")
}

const MARK_WIDTH: usize = 4;

/// Words and not colours, so that they are also there in a log and for everybody's eyes.
fn mark(state: State) -> &'static str {
    match state {
        State::Works => "ok",
        State::Limited => "part",
        State::Missing => "no",
        State::Unknown => "?",
    }
}

fn line(finding: &Finding, width: usize) -> String {
    let (mark, name) = (mark(finding.state), finding.name);
    format!("{mark:<MARK_WIDTH$}  {name:<width$}  {}", one_line(&finding.says))
}
