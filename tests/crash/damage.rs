//! A file of state is damaged while nobody runs: garbage, cut off, emptied, one bit flipped.
//!
//! The start succeeds all the same, everybody else's sandboxes work, what is damaged works as
//! before or says what is wrong with it, no value is silently another, and nothing is deleted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::scene::{Scene, wish};
use super::{Chance, Where, is_long, say};
use crate::support::{eventually, needs_root};
use crate::templates::small_image;

/// What happens to a file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Garbage,
    CutOff,
    Emptied,
    Flipped,
}

/// As much of a file as is damaged at most, in bytes: a disk is large.
const BEGINNING: u64 = 64 << 10;

const WHOLESALE: [Damage; 3] = [Damage::Garbage, Damage::CutOff, Damage::Emptied];

impl Damage {
    /// Each way, and the subtle one at several places.
    fn ways() -> Vec<Self> {
        let flips = if is_long() { 60 } else { 4 };
        WHOLESALE.into_iter().chain(std::iter::repeat_n(Self::Flipped, flips)).collect()
    }

    /// Damages the file where it lies. Of a large one, only the beginning is looked at.
    fn strike(self, path: &Path, chance: &mut Chance) -> String {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let length = file.metadata().unwrap().len();
        let mut place = 0;
        match self {
            Self::Garbage => {
                let mut garbage = vec![0; usize::try_from(length.min(BEGINNING)).unwrap()];
                garbage.fill_with(|| chance.next().to_le_bytes()[0]);
                file.write_all_at(&garbage, 0).unwrap();
            }
            Self::CutOff => file.set_len(length / 2).unwrap(),
            Self::Emptied => file.set_len(0).unwrap(),
            Self::Flipped => {
                let mut byte = [0];
                place = chance.below(length.min(BEGINNING));
                if file.read_at(&mut byte, place).unwrap() == 1 {
                    byte[0] ^= 1 << chance.below(8);
                    file.write_all_at(&byte, place).unwrap();
                }
            }
        }
        format!("{} {self:?} at {place}", path.display())
    }
}

#[test]
fn a_sandbox_whose_manifest_is_damaged_works_or_says_so() {
    sandbox_file("a_sandbox_whose_manifest_is_damaged_works_or_says_so", "manifest.json");
}

#[test]
fn a_sandbox_whose_record_is_damaged_works_or_says_so() {
    sandbox_file("a_sandbox_whose_record_is_damaged_works_or_says_so", "record.json");
}

#[test]
fn a_sandbox_whose_ending_is_damaged_does_not_run_and_is_not_lost() {
    let name = "a_sandbox_whose_ending_is_damaged_does_not_run_and_is_not_lost";
    if needs_root(name, "way to damage it from here") {
        return;
    }
    let (mut scene, mut chance) = (Scene::set(), Chance::of_this_run());
    for damage in Damage::ways() {
        let word = scene.word();
        let id = scene.daemon.create(&timed(&word, 1).to_string());
        eventually("it goes on", || scene.daemon.state(&id) == "stopped");
        let folder = scene.home().path().join("sandboxes").join(&id);
        let ended = names_in(&folder).into_iter().find(|name| name.starts_with("ended")).unwrap();
        let _where = damaged(&mut scene, &folder.join(ended), damage, &mut chance);
        let seen = scene.seen(&id).unwrap();
        assert!(["stopped", "error"].contains(&seen["state"].as_str().unwrap()), "{seen}");
        assert!(!seen["reason"].as_str().unwrap_or_default().is_empty(), "{seen}");
        assert!(folder.join("disk.ext4").exists(), "its disk is gone");
        scene.delete(&id);
    }
    scene.close();
}

#[test]
fn a_daemon_whose_files_are_damaged_starts_and_knows_all_sandboxes() {
    let name = "a_daemon_whose_files_are_damaged_starts_and_knows_all_sandboxes";
    if needs_root(name, "way to damage them from here") {
        return;
    }
    let (mut scene, mut chance) = (Scene::set(), Chance::of_this_run());
    let word = scene.word();
    let id = scene.make(&word);
    let before = scene.seen(&id).unwrap();
    for file in ["soma.db", "soma.db-wal", "soma.db-shm", "lock", "home-id", "api-key"] {
        let path = scene.home().path().join("daemon").join(file);
        for damage in Damage::ways() {
            let _where = damaged(&mut scene, &path, damage, &mut chance);
            scene.assert_usable(&id, &word);
            assert_same(&before, &scene.seen(&id).unwrap());
            assert_eq!(scene.found(&word).len(), 1);
        }
    }
    scene.delete(&id);
    scene.close();
}

/// Whatever bit of the index flips: nothing that it says is needed to start.
#[test]
fn whatever_bit_of_the_index_flips_the_daemon_starts_and_knows_all_sandboxes() {
    let name = "whatever_bit_of_the_index_flips";
    if needs_root(name, "way to flip it from here") {
        return;
    }
    let (mut scene, mut chance) = (Scene::set(), Chance::of_this_run());
    let word = scene.word();
    let id = scene.make(&word);
    let before = scene.seen(&id).unwrap();
    let path = scene.home().path().join("daemon/soma.db");
    assert!(scene.daemon.end().success());
    let length = fs::metadata(&path).unwrap().len();
    scene.daemon.restart();
    // The place at which it was first met, and others all over the file.
    let places: Vec<u64> = if is_long() {
        (0..length).step_by(64).collect()
    } else {
        // Their numbers begin at one.
        chance.points(length, 10).into_iter().map(|place| place - 1).collect()
    };
    let mut set_aside = 0;
    for place in places.into_iter().chain([44998]) {
        assert!(scene.daemon.end().success());
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let place = place.min(file.metadata().unwrap().len() - 1);
        let bit = chance.below(8);
        let _where = Where(format!("bit {bit} at {place}"));
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << bit)], place).unwrap();
        drop(file);
        scene.daemon.restart();
        scene.assert_usable(&id, &word);
        assert_same(&before, &scene.seen(&id).unwrap());
        assert_eq!(scene.found(&word).len(), 1);
        let daemon = scene.home().path().join("daemon");
        for aside in names_in(&daemon).iter().filter(|name| name.starts_with("soma.db.damaged")) {
            set_aside += 1;
            fs::remove_file(daemon.join(aside)).unwrap();
        }
    }
    say(&format!("{set_aside} files were set aside"));
    scene.witness_testifies();
    scene.delete(&id);
    scene.close();
}

#[test]
fn a_template_and_a_blank_that_are_damaged_work_or_say_so() {
    let name = "a_template_and_a_blank_that_are_damaged_work_or_say_so";
    if needs_root(name, "way to damage them from here") {
        return;
    }
    let (mut scene, mut chance) = (Scene::set(), Chance::of_this_run());
    let key = format!("Authorization: Bearer {}\r\n", scene.daemon.key());
    let path = "/v1/template/import?name=small";
    let answer = scene.daemon.send("POST", path, &key, &small_image());
    assert!(answer.status < 300, "{}", String::from_utf8_lossy(&answer.body));
    let home = scene.home().path().to_owned();
    let records = files_below(&home.join("templates"), 3);
    assert!(!records.is_empty(), "templates have no records");
    for file in &records {
        let original = fs::read(file).unwrap();
        for damage in Damage::ways() {
            let _where = damaged(&mut scene, file, damage, &mut chance);
            assert!(file.exists(), "it is gone");
            for template in [None, Some("small")] {
                make_or_hear_why(&mut scene, template);
            }
            fs::write(file, &original).unwrap();
        }
    }
    for damage in Damage::ways() {
        // One that is not there is made with the next body, which is prepared in a moment.
        let blanks = || files_below(&home.join("blank"), 1);
        eventually("no blank is made", || !blanks().is_empty());
        let blank = blanks().pop().unwrap();
        let _where = damaged(&mut scene, &blank, damage, &mut chance);
        make_or_hear_why(&mut scene, None);
        let _ = fs::remove_file(&blank);
        assert!(make_or_hear_why(&mut scene, None), "there is no other blank");
    }
    // What was mended works again.
    scene.daemon.kill();
    scene.home().kill_engine();
    scene.daemon.restart();
    for template in [None, Some("small")] {
        assert!(make_or_hear_why(&mut scene, template), "what is whole again does not work");
    }
    let answer = scene.daemon.ask("DELETE", "/v1/template/small", "");
    assert!(answer.status < 300, "{}", String::from_utf8_lossy(&answer.body));
    scene.close();
}

/// Damages a file of one sandbox after the other.
fn sandbox_file(name: &str, file: &str) {
    if needs_root(name, "way to damage it from here") {
        return;
    }
    let (mut scene, mut chance) = (Scene::set(), Chance::of_this_run());
    for damage in Damage::ways() {
        let word = scene.word();
        let id = scene.daemon.create(&timed(&word, 3000).to_string());
        // After this it has a record of its own.
        let path = format!("/v1/sandbox/{id}/timeout");
        assert_eq!(scene.daemon.ask("POST", &path, r#"{"timeout": 4000}"#).status, 200);
        let before = scene.seen(&id).unwrap();
        let folder = scene.home().path().join("sandboxes").join(&id);
        let entries = names_in(&folder);
        let place = damaged(&mut scene, &folder.join(file), damage, &mut chance);
        let after = scene.seen(&id);
        let after = after.unwrap_or_else(|| panic!("it is not listed any more: {}", place.0));
        if after["state"] == "running" {
            scene.assert_usable(&id, &word);
            assert_same(&before, &after);
        } else {
            assert_eq!(after["state"], "error", "{after}");
            assert!(!after["reason"].as_str().unwrap_or_default().is_empty(), "{after}");
        }
        let left = names_in(&folder);
        assert!(left.is_superset(&entries), "of {entries:?} only {left:?} is left");
        scene.delete(&id);
        assert!(!folder.exists(), "it was deleted and is there");
    }
    scene.close();
}

/// Kills daemon and engine, damages a file, starts them again, and looks whether others noticed.
fn damaged(scene: &mut Scene, path: &Path, damage: Damage, chance: &mut Chance) -> Where {
    scene.daemon.kill();
    scene.home().kill_engine();
    let place = if path.exists() { damage.strike(path, chance) } else { "nothing".to_owned() };
    let place = Where(place);
    scene.daemon.restart();
    scene.witness_testifies();
    place
}

/// Makes a sandbox which is whole, or hears why there can be none; whether it was made.
fn make_or_hear_why(scene: &mut Scene, template: Option<&str>) -> bool {
    let word = scene.word();
    let mut wish = wish(&word, None);
    if let Some(template) = template {
        wish["template_name"] = template.into();
    }
    let answer = scene.daemon.ask("POST", "/v1/sandbox", &wish.to_string());
    if answer.status != 201 {
        assert!(!answer.message().is_empty() && scene.found(&word).is_empty());
        return false;
    }
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    scene.assert_usable(&id, &word);
    if template.is_some() {
        let read = scene.daemon.execute(&id, "read line < /etc/marker; echo $line");
        assert_eq!(read, "from the image\n");
    }
    scene.delete(&id);
    true
}

fn timed(word: &str, seconds: u64) -> Value {
    let mut wish = wish(word, None);
    wish["timeout"] = seconds.into();
    wish["memory"] = 333.into();
    wish["name"] = word.into();
    wish
}

/// Checks that a sandbox is told as it was before.
#[track_caller]
fn assert_same(before: &Value, after: &Value) {
    for (field, value) in before.as_object().unwrap() {
        match field.as_str() {
            // When it began to run is known to the index alone, which may be gone.
            "state_change_time" => {}
            // So this is counted from when it was asked for, which is a moment earlier.
            "timeout_at" => {
                let [before, after] = [value, &after[field]].map(|at| at.as_i64().unwrap());
                assert!((before - after).abs() <= 2, "{field} is {after}, and was {before}");
            }
            _ => assert_eq!(&after[field], value, "{field} is another"),
        }
    }
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The files in a folder and so many levels below it, without what stands in a template's tree.
fn files_below(folder: &Path, levels: u32) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_file() {
            files.push(path);
        } else if levels > 1 && entry.file_name() != "tree" {
            files.extend(files_below(&path, levels - 1));
        }
    }
    files
}
