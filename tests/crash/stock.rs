//! What is nobody's goes, and what came back is taken in, while everybody works: on request.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use super::scene::Scene;
use crate::support::{eventually, needs_root};

#[test]
fn what_is_nobodys_is_removed_by_its_label_on_request() {
    if needs_root("what_is_nobodys_is_removed_by_its_label", "way to forge it") {
        return;
    }
    let mut scene = Scene::set();
    let mut orphan = sys_linux::command::command("sleep").arg("1000").spawn().unwrap();
    // Nothing about it is ours but the label.
    let mut stranger = sys_linux::command::command("sleep").arg("1000").spawn().unwrap();
    scene.forge_orphan(orphan.id());
    let folder = scene.home().path().join("prepared/nobodys");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("disk.ext4"), "left").unwrap();
    let answer = scene.daemon.ask("POST", "/v1/reconcile", "");
    assert_eq!(answer.status, 200, "{}", answer.json());
    // If it were left alone this would take as long as it sleeps, and the test be killed.
    assert_eq!(orphan.wait().unwrap().signal(), Some(9));
    eventually("a folder of nobody's is left", || !folder.exists());
    scene.assert_no_group();
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was killed");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    scene.witness_testifies();
    scene.close();
}

#[test]
fn a_folder_that_came_back_is_taken_in_on_request() {
    if needs_root("a_folder_that_came_back_is_taken_in", "way to its folder") {
        return;
    }
    let mut scene = Scene::set();
    let word = scene.word();
    let id = scene.make(&word);
    let place = scene.home().path().join("sandboxes").join(&id);
    let away = scene.home().path().join("away");
    let stop = scene.daemon.ask("POST", &format!("/v1/sandbox/{id}/stop"), "");
    assert_eq!(stop.status, 200, "{}", stop.json());
    scene.daemon.kill();
    scene.home().kill_engine();
    fs::rename(&place, &away).unwrap();
    scene.daemon.restart();
    assert_eq!(scene.seen(&id).unwrap()["state"], "error");
    fs::rename(&away, &place).unwrap();
    assert_eq!(scene.daemon.ask("POST", "/v1/reconcile", "").status, 200);
    eventually("it is not taken in", || scene.daemon.state(&id) == "stopped");
    let start = scene.daemon.ask("POST", &format!("/v1/sandbox/{id}/start"), "");
    assert_eq!(start.status, 200, "{}", start.json());
    scene.assert_usable(&id, &word);
    scene.delete(&id);
    scene.witness_testifies();
    scene.close();
}
