//! `sudo` in real sandboxes: what people do with it, who may not, and who tries anyway.
//!
//! What happens in a terminal is in `sudo/terminal.py`, what an attacker sends in
//! `sudo/hostile.py`; both run inside and print what did not hold.

use std::process::Output;
use std::time::Duration;

use guest_proto::GuestClient;
use guest_proto::client::{Event, StartOptions};

use crate::support::{Home, Kept};

/// Runs a script of Bash as the usual user of a fresh sandbox.
fn bash(options: &[&str], script: &str) -> Output {
    let home = Home::new();
    let usual = ["--timeout", "60s", "--lang", "bash", script];
    let words: Vec<&str> = options.iter().copied().chain(usual).collect();
    let output = home.run(&words);
    home.assert_nothing_left();
    output
}

#[track_caller]
fn assert_prints(script: &str, expected: &str) {
    let output = bash(&[], script);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((&*stdout, &*stderr), (expected, ""), "{script}");
}

/// What a script of Python prints that checks things inside: nothing but that it is done.
#[track_caller]
fn assert_holds(script: &str) {
    let home = Home::new();
    let output = home.run(&["--timeout", "150s", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{output:?}");
    home.assert_nothing_left();
}

#[test]
fn the_user_becomes_root_and_others_without_a_password() {
    assert_prints(
        "id -u; sudo id -u; sudo -u www-data id -un; sudo -g tty id -gn; sudo -u '#1234' id -u
         sudo sudo id -u; sudo -u user sudo id -u; sudo -n true && sudo -v && sudo -k && echo fine",
        "1000\n0\nwww-data\ntty\n1234\n0\n0\nfine\n",
    );
}

#[test]
fn root_changes_the_system_and_its_programs_are_all_there() {
    assert_prints(
        "sudo touch /usr/local/made /etc/made && stat -c %U /usr/local/made /etc/made
         sudo sh -c 'cp /usr/bin/env /usr/bin/env2 && rm /usr/bin/env' && /usr/bin/env2 echo moved
         test -x /usr/bin/python3 && stat -c '%a %U' /usr/bin && readlink /usr/bin/sudo
         touch /usr/local/mine 2>/dev/null || echo refused",
        "root\nroot\nmoved\n755 root\n/run/soma/guest\nrefused\n",
    );
}

#[test]
fn the_code_and_the_signal_of_the_program_are_passed_on() {
    assert_prints(
        "sudo sh -c 'exit 7'; echo $?; sudo true; echo $?
         (sudo sh -c 'kill -TERM $$'; echo $?) 2>/dev/null
         (sudo sh -c 'kill -KILL $$'; echo $?) 2>/dev/null",
        "7\n0\n143\n137\n",
    );
}

#[test]
fn what_cannot_be_run_is_named() {
    let output = bash(
        &[],
        "cd /tmp; sudo nothere; echo $?; touch file; sudo ./file; echo $?
         sudo -u nobodyatall id; echo $?; sudo -D /nowhere id; echo $?; sudo --nope id; echo $?",
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n1\n1\n1\n1\n");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("sudo: ")).collect();
    let expected = [
        "sudo: nothere: command not found",
        "sudo: unable to execute ./file: Permission denied",
        "sudo: unknown user nobodyatall",
        "sudo: unable to change directory to /nowhere: No such file or directory",
        "sudo: unrecognized option '--nope'",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn the_program_is_where_the_caller_is_with_the_new_users_environment() {
    assert_prints(
        "cd /tmp; export SECRET=x LANG=C.UTF-8 https_proxy=p; umask 077
         sudo pwd; sudo -D /srv pwd; sudo -i pwd; sudo sh -c umask
         sudo sh -c 'echo $HOME $USER $SUDO_USER $SUDO_UID $LANG $https_proxy [$SECRET]'
         sudo -E sh -c 'echo $HOME $SECRET'; sudo --preserve-env=SECRET A=b sh -c 'echo $SECRET $A'
         sudo -s echo '$HOME' 'a  b'; sudo -u user -i echo '$HOME'
         printf 'echo script $1\n' > script; chmod +x script; sudo ./script word",
        "/tmp\n/srv\n/root\n0077\n/root root user 1000 C.UTF-8 p []\n/home/user x\nx b\n\
         /root a  b\n/home/user\nscript word\n",
    );
}

#[test]
fn ten_megabytes_pass_through_a_pipe_both_ways() {
    assert_prints(
        "head -c 10000000 /dev/urandom > all; sudo cat < all | sudo tee copy | cmp - all && echo same
         sudo cmp copy all && stat -c '%U %s' copy; echo in | sudo -b cat | cat; sudo <&- id -u",
        "same\nroot 10000000\nin\n0\n",
    );
}

#[test]
fn signals_reach_the_program() {
    assert_prints(
        // With job control, as a shell makes jobs of the background ignore Ctrl-C without it.
        "exec 2>/dev/null; set -m; for name in INT TERM HUP USR1 USR2 QUIT; do
           sudo bash -c \"trap 'echo got $name; exit 9' $name; echo begun; while :; do sleep 0.02; done\" > out &
           until grep -q begun out 2>/dev/null; do sleep 0.01; done
           kill -$name $!; wait $!; echo $?; grep got out; rm out
         done",
        "9\ngot INT\n9\ngot TERM\n9\ngot HUP\n9\ngot USR1\n9\ngot USR2\n9\ngot QUIT\n",
    );
}

#[test]
fn a_sandbox_made_without_it_refuses_everybody() {
    for user in ["user", "root"] {
        let output = bash(&["--no-sudo", "--user", user], "sudo id; echo $?; sudo -l; echo $?");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n1\n", "{user}");
        let refusal = "sudo: this sandbox does not allow it (it was made without sudo)\n";
        assert_eq!(String::from_utf8_lossy(&output.stderr), refusal.repeat(2), "{user}");
    }
}

#[test]
fn who_is_not_in_the_group_is_refused() {
    let output =
        bash(&["--user", "www-data", "--workdir", "/"], "sudo id; echo $?; sudo -v; echo $?");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n1\n");
    let refusal =
        "sudo: www-data is not in the sudoers file: it is not in the group `sudo`\n".repeat(2);
    assert_eq!(String::from_utf8_lossy(&output.stderr), refusal);
}

#[test]
fn the_group_is_looked_up_at_every_call() {
    let output = bash(
        &[],
        "sudo sed -i 's/^sudo:x:27:user/sudo:x:27:/' /etc/group; sudo id -u; echo $?
         sudo -g sudo id",
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{output:?}");
}

#[test]
fn a_hundred_at_once_all_end_well() {
    assert_prints(
        "for n in $(seq 100); do sudo sh -c \"exit $n\" & pids[$n]=$!; done
         for n in $(seq 100); do wait ${pids[$n]}; [ $? = $n ] || echo $n failed; done; echo done",
        "done\n",
    );
}

#[test]
fn it_works_in_a_terminal_as_people_know_it() {
    assert_holds(include_str!("sudo/terminal.py"));
}

#[test]
fn what_no_sudo_would_send_harms_nobody() {
    assert_holds(include_str!("sudo/hostile.py"));
}

#[tokio::test]
async fn what_sudo_started_ends_with_the_command_that_called_it() {
    let home = Home::new();
    let Kept { provider, id, guest } = home.sandbox().await;
    let tree = "sudo -b sleep 7001; sudo sh -c 'setsid sleep 7002 & sleep 7003 & sudo sleep 7004' &
                (setsid nohup sudo sleep 7005 >/dev/null 2>&1 &); sudo sleep 7006";
    let slow = StartOptions { timeout: Some(Duration::from_secs(3)), ..script(tree) };
    let count = "ps -eo args | grep -c '^sleep 700[1-6]'";
    let mut most = 0;
    let mut ended = Box::pin(run(&guest, slow));
    loop {
        tokio::select! {
            _ = &mut ended => break,
            seen = run(&guest, script(count)) => most = most.max(seen.trim().parse().unwrap_or(0)),
        }
    }
    drop(ended);
    assert_eq!(most, 6, "not all of it ran");
    assert_eq!(run(&guest, script(count)).await.trim(), "0", "some outlived the command");

    // What a command left behind by itself lives on, and can still call `sudo`.
    let daemon = "setsid sh -c 'sleep 1; sudo id -u > /tmp/left' >/dev/null 2>&1 & echo gone";
    assert_eq!(run(&guest, script(daemon)).await, "gone\n");
    let read = "until [ -s /tmp/left ]; do sleep 0.05; done; cat /tmp/left";
    let read = StartOptions { timeout: Some(Duration::from_secs(20)), ..script(read) };
    assert_eq!(run(&guest, read).await, "0\n");

    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

fn script(text: &str) -> StartOptions {
    StartOptions {
        cmd: "bash".to_owned(),
        args: vec!["-c".to_owned(), text.to_owned()],
        ..StartOptions::default()
    }
}

/// What a command prints, until it ends or its time is over.
async fn run(guest: &GuestClient, options: StartOptions) -> String {
    let mut running = guest.start(options).await.unwrap();
    let mut output = Vec::new();
    while let Ok(Some(event)) = running.next().await {
        if let Event::Stdout(bytes) = event {
            output.extend_from_slice(&bytes);
        }
    }
    String::from_utf8(output).unwrap()
}
