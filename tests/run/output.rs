//! Output that is large, odd, or wanted by nobody.

use std::fs;
use std::io::{BufRead, BufReader, Read};

use super::{code, stderr, stdout};
use crate::support::Home;

/// What `soma run` may hold in memory whatever passes through it.
const MOST_MEMORY: u64 = 64 << 20;

#[test]
fn binary_output_arrives_byte_for_byte() {
    let home = Home::new();
    let text = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4096)";
    let output = home.run(&[text]);
    let expected: Vec<u8> = (0..=255).cycle().take(256 * 4096).collect();
    assert!(output.stdout == expected, "{} bytes", output.stdout.len());
    assert_eq!(code(&output), 0);
    let output = home.run(&["--", "printf", r"\377\376\0\200"]);
    assert_eq!(output.stdout, b"\xff\xfe\x00\x80");
    home.assert_nothing_left();
}

#[test]
fn a_gigabyte_of_output_passes_in_flat_memory() {
    let home = Home::new();
    let mut child = home.start(&["--", "head", "-c", "1073741824", "/dev/zero"]);
    let status = format!("/proc/{}/status", child.id());
    let mut output = child.stdout.take().unwrap();
    let (mut buffer, mut total, mut most) = (vec![0; 1 << 20], 0_u64, 0);
    loop {
        let length = output.read(&mut buffer).unwrap();
        if length == 0 {
            break;
        }
        assert!(buffer[..length].iter().all(|byte| *byte == 0));
        // Now and then, because the program is gone after the last byte.
        if (total >> 26) != ((total + length as u64) >> 26) {
            most = most.max(high_water(&status).unwrap_or(0));
        }
        total += length as u64;
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(total, 1 << 30);
    assert!((1..MOST_MEMORY).contains(&most), "{most} bytes");
    home.assert_nothing_left();
}

/// The most memory that a process ever had.
fn high_water(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let home = Home::new();
    let mut child = home.start(&["--", "yes"]);
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output)), (141, ""));
    home.assert_nothing_left();
}

#[test]
fn output_that_cannot_be_written_is_said() {
    let home = Home::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = home.soma(["run", "--", "yes"]).stdout(full).output().unwrap();
    assert_eq!(code(&output), 125, "{output:?}");
    super::assert_one_message(&output);
    assert!(stderr(&output).contains("No space left"), "{output:?}");
    home.assert_nothing_left();
}

#[test]
fn a_command_that_writes_to_both_outputs_at_once_loses_nothing() {
    let home = Home::new();
    let script = "for n in $(seq 2000); do echo out $n; echo err $n >&2; done";
    let output = home.run(&["--", "sh", "-c", script]);
    assert_eq!(stdout(&output).lines().count(), 2000);
    assert_eq!(stderr(&output).lines().count(), 2000);
    home.assert_nothing_left();
}
