//! Files and folders into a sandbox and out of it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;

use super::{new, refused, text, works};
use crate::support::Home;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// `soma cp` in this folder, with these words.
#[track_caller]
fn cp(home: &Home, folder: &Path, words: &[&str]) {
    let output = home.soma(["cp"].iter().chain(words)).current_dir(folder).output().unwrap();
    let said = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said:?}");
    // No bar on a pipe, and nothing else either.
    assert_eq!(said, (String::new(), String::new()), "{words:?}");
}

#[track_caller]
fn inside(home: &Home, script: &str) -> String {
    works(home, &["exec", "work", "--", "sh", "-c", script])
}

#[test]
fn a_file_goes_in_and_comes_back_with_its_mode() {
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    new(&home, &["--name", "work"]);
    write(&here.path().join("program"), "#!/bin/sh\necho ran\n", 0o755);
    cp(&home, here.path(), &["program", "work:"]);
    assert_eq!(inside(&home, "./program"), "ran\n");
    cp(&home, here.path(), &["program", "work:/tmp/other"]);
    assert_eq!(inside(&home, "stat -c %a /tmp/other"), "755\n");
    cp(&home, here.path(), &["program", "work:new/folder/"]);
    assert_eq!(inside(&home, "ls new/folder"), "program\n");
    cp(&home, here.path(), &["work:/tmp/other", "."]);
    assert_eq!(mode(&here.path().join("other")), 0o755);
    cp(&home, here.path(), &["work:program", "back"]);
    assert_eq!(fs::read(here.path().join("back")).unwrap(), b"#!/bin/sh\necho ran\n");
    assert_eq!(mode(&here.path().join("back")), 0o755);
    let said = refused(&home, 1, &["cp", "work:/nothing", "."]);
    assert_eq!(said, "soma: there is no `/nothing` in the sandbox\n");
    let said = refused(&home, 1, &["cp", "/nothing-here", "work:"]);
    assert!(said.contains("`/nothing-here` cannot be read"), "{said}");
    let said = refused(&home, 1, &["cp", "work:/dev/null", "/tmp/nothing-special"]);
    assert!(said.contains("neither a file nor a folder"), "{said}");
    works(&home, &["rm", "work"]);
    home.assert_nothing_left();
}

#[test]
fn a_folder_goes_in_and_comes_back_the_same() {
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    new(&home, &["--name", "work"]);
    let source = here.path().join("src");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::create_dir(source.join("empty")).unwrap();
    write(&source.join("run.sh"), "run", 0o755);
    write(&source.join("deep/er/file"), "text", 0o644);
    write(&source.join("private"), "mine", 0o600);
    write(&source.join("odd\nname"), "odd", 0o644);
    symlink("deep/er/file", source.join("link")).unwrap();
    symlink("/etc/passwd", source.join("outside")).unwrap();
    symlink("nowhere", source.join("dangling")).unwrap();
    cp(&home, here.path(), &["src", "work:/workspace"]);
    let listed = inside(
        &home,
        "cd /workspace/src && stat -c '%a %F %N' run.sh private link outside dangling deep/er empty",
    );
    for expected in [
        "755 regular file",
        "600 regular file",
        "'link' -> 'deep/er/file'",
        "'outside' -> '/etc/passwd'",
        "'dangling' -> 'nowhere'",
    ] {
        assert!(listed.contains(expected), "{expected}: {listed}");
    }
    cp(&home, here.path(), &["work:/workspace/src", "back"]);
    let back = here.path().join("back");
    assert_eq!(fs::read(back.join("deep/er/file")).unwrap(), b"text");
    assert_eq!(fs::read(back.join("odd\nname")).unwrap(), b"odd");
    assert_eq!((mode(&back.join("run.sh")), mode(&back.join("private"))), (0o755, 0o600));
    assert!(back.join("empty").is_dir());
    for (name, text) in
        [("link", "deep/er/file"), ("outside", "/etc/passwd"), ("dangling", "nowhere")]
    {
        assert_eq!(fs::read_link(back.join(name)).unwrap(), Path::new(text));
    }
    // A second time, over what is there.
    cp(&home, here.path(), &["work:/workspace/src/.", "back"]);
    works(&home, &["rm", "work"]);
    home.assert_nothing_left();
}

#[test]
fn a_single_file_passes_through_pipes() {
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    new(&home, &["--name", "work"]);
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(here.path().join("large"), &large).unwrap();
    let input = fs::File::open(here.path().join("large")).unwrap();
    let output = home.soma(["cp", "-", "work:large"]).stdin(input).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = home.soma(["cp", "work:large", "-"]).output().unwrap();
    assert!(output.stdout == large, "it came back another way");
    assert_eq!(text(&output.stderr), "");
    let said = refused(&home, 1, &["cp", "work:/etc", "-"]);
    assert!(said.contains("neither a file") || said.contains("folder"), "{said}");
    let output = home.soma(["cp", "-", "work:/tmp"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    works(&home, &["rm", "work"]);
}

#[test]
fn a_sandbox_writes_nowhere_but_where_it_was_told() {
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    new(&home, &["--name", "work"]);
    let precious = here.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "kept").unwrap();
    // The first copy leaves a link that leads out; the second brings files to that name.
    let leading = precious.display();
    inside(&home, &format!("mkdir -p evil && ln -sfn '{leading}' evil/folder"));
    cp(&home, here.path(), &["work:evil", "got"]);
    assert!(fs::symlink_metadata(here.path().join("got/folder")).unwrap().is_symlink());
    inside(&home, "rm evil/folder && mkdir evil/folder && echo taken > evil/folder/file");
    let output = home.soma(["cp", "work:evil/.", "got"]).current_dir(here.path()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("it is there and no folder"), "{said}");
    assert_eq!(fs::read(precious.join("file")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(&precious).unwrap().count(), 1);
    works(&home, &["rm", "work"]);
}

#[test]
fn a_folder_that_becomes_a_link_while_it_is_copied_leads_nowhere() {
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    new(&home, &["--name", "work"]);
    inside(&home, "mkdir -p src/a && for n in $(seq 50); do echo $n > src/a/$n; done");
    let script = "while :; do mv src/a src/b; ln -s /etc src/a; rm src/a; mv src/b src/a; done";
    let mut flipping = home.soma(["exec", "work", "--", "sh", "-c", script]).spawn().unwrap();
    for round in 0..5 {
        let name = format!("got{round}");
        // Whether it works or not: what is written is below its destination.
        let _ = home.soma(["cp", "work:src", &name]).current_dir(here.path()).output().unwrap();
    }
    flipping.kill().unwrap();
    flipping.wait().unwrap();
    for entry in fs::read_dir(here.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("got"), "{name}");
    }
    works(&home, &["rm", "work"]);
    home.assert_nothing_left();
}
