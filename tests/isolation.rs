//! What a sandbox can see and do: real sandboxes, looked at from inside.
//!
//! The whole of what must be survived has its own suite later; these are the walls that stand
//! from the first day.

use std::io::{BufRead as _, BufReader};

use crate::support::{Home, is_root};

/// What a Python program prints that runs in a fresh sandbox.
fn inside(user: &str, code: &str) -> String {
    let home = Home::new();
    let output = home.run(&["--user", user, code]);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    home.assert_nothing_left();
    stdout.into_owned()
}

/// Finds what of a list of checks did not hold: each prints its name when it fails.
fn nothing_fails(user: &str, code: &str) {
    assert_eq!(inside(user, code), "", "as {user}");
}

const TRY: &str = "
import os, ctypes, errno, socket, glob
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    libc.syscall.restype = ctypes.c_long
    return -ctypes.get_errno() if libc.syscall(number, *arguments) < 0 else 0
def refused(name, act):
    try:
        act()
        print(name, 'was not refused')
    except OSError:
        pass
";

#[test]
fn only_its_own_processes_are_there() {
    let list = inside("user", "import os; print([p for p in os.listdir('/proc') if p.isdigit()])");
    let count = list.matches('\'').count() / 2;
    assert!(count <= 6, "{list}");
    let first = inside("user", "print(open('/proc/1/comm').read())");
    assert_eq!(first.trim(), "guest");
}

#[test]
fn nothing_of_the_hosts_homes_keys_and_sockets_is_in_sight() {
    nothing_fails(
        "root",
        "
import os
for path in ['/root/.ssh', '/root/.cargo', '/home/user/.ssh', '/etc/ssh', '/etc/ssl/private',
             '/var/run/docker.sock', '/run/docker.sock', '/run/systemd', '/run/dbus', '/boot',
             '/etc/shadow-', '/etc/sudoers', '/var/lib/soma', '/var/log/syslog']:
    if os.path.exists(path): print(path)
if os.listdir('/home') != ['user']: print('/home', os.listdir('/home'))
if open('/etc/shadow').read().count('$'): print('password hashes')
if os.listdir('/sys') not in ([], ['fs']): print('/sys')
if os.path.exists('/sys/fs') and os.listdir('/sys/fs') != ['cgroup']: print('/sys/fs')
names = {line.split()[-1] for line in open('/proc/net/unix') if '@' in line}
if names != {'@soma-guest', '@soma-sudo', '@soma-whose'}: print('abstract sockets', names)
",
    );
}

#[test]
fn the_environment_of_whoever_ran_it_stays_outside() {
    let home = Home::new();
    let mut soma = home.soma(["run", "import os; print(dict(os.environ))"]);
    let output = soma.env("CANARY", "sings").output().unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    assert!(
        words.contains("HOME") && !words.contains("CANARY") && !words.contains("SOMA"),
        "{words}"
    );
    // Neither does the engine, which was started by it, hand it on to anybody.
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        if line.starts_with(b"soma-") {
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            assert!(!environment.windows(6).any(|word| word == b"CANARY"), "{process:?}");
        }
    }
    home.assert_nothing_left();
}

#[test]
fn ids_inside_are_never_the_hosts() {
    let home = Home::new();
    // A time that no other test sleeps for, or its process would be taken for this one's.
    let seconds = format!("60.{}", std::process::id());
    let command = format!("echo up; exec sleep {seconds}");
    let mut child = home.start(&["--user", "root", "--", "sh", "-c", &command]);
    // However long that takes: nothing is known of the machine's pace.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    let wanted = format!("sleep\0{seconds}\0");
    let ids = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
        let ours = all.filter(|process| {
            std::fs::read(process.join("cmdline")).is_ok_and(|line| line == wanted.as_bytes())
        });
        let status =
            ours.filter_map(|process| std::fs::read_to_string(process.join("status")).ok());
        let id = |status: String| {
            let ids = status.lines().find_map(|line| line.strip_prefix("Uid:\t"))?;
            ids.split('\t').next()?.parse::<u32>().ok()
        };
        status.filter_map(id).collect::<Vec<u32>>()
    };
    crate::support::eventually("sleep does not run", || !ids().is_empty());
    let ids = ids();
    assert!(ids.iter().all(|id| *id >= 0x7000_0000), "{ids:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    home.assert_nothing_left();
}

#[test]
fn its_root_has_few_capabilities_and_its_user_none() {
    let code = "print([l.split()[1] for l in open('/proc/self/status') if l[:6] in ('CapPrm','CapEff','CapBnd','CapAmb','NoNewP','Seccom')])";
    assert_eq!(
        inside("user", code).trim(),
        "['0000000000000000', '0000000000000000', '00000000000404fb', '0000000000000000', '1', '2', '6']"
    );
    assert_eq!(
        inside("root", code).trim(),
        "['00000000000404fb', '00000000000404fb', '00000000000404fb', '0000000000000000', '1', '2', '6']"
    );
}

#[test]
fn dangerous_calls_are_refused_to_its_root() {
    let code = format!(
        "{TRY}
calls = dict(bpf=321, perf_event_open=298, userfaultfd=323, io_uring_setup=425, kexec_load=246,
  init_module=175, mount=165, umount2=166, pivot_root=155, unshare=272, setns=308, ptrace=101,
  process_vm_readv=310, add_key=248, request_key=249, keyctl=250, open_by_handle_at=304,
  name_to_handle_at=303, reboot=169, swapon=167, settimeofday=164, clock_settime=227, syslog=103,
  acct=163, quotactl=179, fsopen=430, open_tree=428, move_mount=429, clone3=435, pidfd_getfd=438,
  iopl=172, ioperm=173, modify_ldt=154, lookup_dcookie=212, memfd_secret=447, fanotify_init=300)
for name, number in calls.items():
    answer = call(number, 0, 0, 0, 0, 0, 0)
    if -answer not in (errno.ENOSYS, errno.EPERM): print(name, answer)
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    if call(56, flag | 17, 0, 0, 0, 0) != -errno.EPERM: print('clone with', hex(flag))
for family in (17, 38, 40, 29, 30, 44):
    refused('socket family %d' % family, lambda: socket.socket(family, socket.SOCK_RAW))
refused('netfilter', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12))
refused('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
"
    );
    nothing_fails("root", &code);
}

#[test]
fn the_kernels_settings_and_devices_are_out_of_reach() {
    let code = format!(
        "{TRY}
for path in ['/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/vm/drop_caches',
             '/proc/sys/user/max_user_namespaces', '/proc/sys/net/ipv4/ip_forward']:
    refused(path, lambda: open(path, 'w'))
for path in ['/proc/kcore', '/proc/keys', '/proc/timer_list']:
    if os.path.exists(path) and open(path, 'rb').read(1): print(path, 'tells something')
if open('/proc/sys/user/max_user_namespaces').read().strip() != '0': print('namespaces allowed')
refused('mknod', lambda: os.mknod('/tmp/mem', 0o020666, os.makedev(1, 1)))
names = set(os.listdir('/dev'))
wanted = set('null zero full random urandom tty ptmx pts shm fd stdin stdout stderr'.split())
if names != wanted: print('/dev', names ^ wanted)
refused('writing to /dev', lambda: open('/dev/new', 'w'))
refused('the guest', lambda: open('/run/soma/guest', 'r+b'))
refused('unmount', lambda: None if libc.umount2(b'/proc/sys', 2) == 0 else (_ for _ in ()).throw(OSError()))
"
    );
    nothing_fails("root", &code);
}

#[test]
fn the_guest_cannot_be_reached_from_inside() {
    let code = format!(
        "{TRY}
def talk():
    s = socket.socket(socket.AF_UNIX); s.settimeout(5)
    s.connect('\\0soma-guest'); s.sendall(b'GET /health HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n')
    if s.recv(100): return
    raise OSError('closed')
refused('the guest', talk)
for name in ('mem', 'environ', 'maps'):
    refused('/proc/1/' + name, lambda: open('/proc/1/' + name, 'rb').read(1))
refused('kill', lambda: os.kill(1, 9))
"
    );
    nothing_fails("user", &code);
}

#[test]
fn its_root_cannot_reach_into_process_1_and_the_spawner() {
    let code = format!(
        "{TRY}
for pid in (1, 2):
    if open('/proc/%d/comm' % pid).read().strip() != 'guest': print(pid, 'is somebody else')
    for name in ('mem', 'maps', 'environ', 'exe', 'root', 'syscall'):
        path = '/proc/%d/%s' % (pid, name)
        refused(path, lambda: os.readlink(path) if name in ('exe', 'root') else open(path, 'rb').read(1))
    refused('writing memory', lambda: open('/proc/%d/mem' % pid, 'r+b'))
"
    );
    nothing_fails("root", &code);
}

#[test]
fn what_tcp_holds_is_limited_too() {
    if crate::support::needs_root("what_tcp_holds_is_limited_too", "limit of memory") {
        return;
    }
    let home = Home::new();
    let code = "
import socket
server = socket.create_server(('127.0.0.1', 0), backlog=1000)
held, total = [], 0
for _ in range(300):
    near = socket.create_connection(server.getsockname()); near.setblocking(False)
    held += [near, server.accept()[0]]
    try:
        while True: total += near.send(b'x' * 65536)
    except (BlockingIOError, MemoryError, OSError): pass
print(total >> 20)";
    let output = home.run(&["--memory", "128m", code]);
    let held: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0);
    // Without a limit this holds more than a gigabyte. Being killed for it is fine as well.
    assert!(held < 256, "{held} MiB in the buffers of a sandbox of 128 MiB");
    home.assert_nothing_left();
}

#[test]
fn the_network_is_loopback_and_loopback_works() {
    let code = format!(
        "{TRY}
names = [name for _, name in socket.if_nameindex()]
if names != ['lo']: print(names)
server = socket.create_server(('127.0.0.1', 80))
near = socket.create_connection(('127.0.0.1', 80)); near.sendall(b'x')
if server.accept()[0].recv(1) != b'x': print('loopback')
def speak(address):
    # What is connected to is the egress program, which closes without a word of the world's.
    near = socket.create_connection((address, 25), timeout=3)
    if near.recv(1) == b'': raise OSError
for address in ('1.1.1.1', '10.0.0.1', '169.254.169.254'):
    refused(address, lambda: speak(address))
"
    );
    nothing_fails("root", &code);
}

#[test]
fn its_root_may_change_usr_and_the_host_does_not_notice() {
    let canary = format!("/usr/share/soma-canary-{}", std::process::id());
    let code = format!(
        "import os, shutil
open('{canary}', 'w').write('mine'); os.chown('{canary}', 1234, 1234)
shutil.rmtree('/usr/share/doc', ignore_errors=True)
open('/etc/passwd', 'a').write('eve:x:1:1::/:/bin/sh\\n')
print(open('{canary}').read(), os.stat('{canary}').st_uid, os.path.exists('/usr/share/doc'))"
    );
    // Where the host's files belong to nobody inside, not all folders of theirs can be removed.
    let stays = if is_root() { "False" } else { "True" };
    assert_eq!(inside("root", &code), format!("mine 1234 {stays}\n"));
    assert!(!std::path::Path::new(&canary).exists());
    assert!(std::path::Path::new("/usr/share/doc").exists());
    assert!(!std::fs::read_to_string("/etc/passwd").unwrap().contains("eve:x:1:1"));
}
