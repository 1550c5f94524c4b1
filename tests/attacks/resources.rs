//! More than its share.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Arena;
use super::files::memory_of_daemon;
use crate::support::{is_root, needs_root};

/// Limits that are reached soon.
pub(super) fn small() -> Value {
    json!({"memory": 256, "pids": 64, "disk": 128, "vcpu": 1})
}

#[test]
fn r2_memory_is_eaten_in_every_way() {
    if needs_root("r2_memory_is_eaten_in_every_way", "limit of memory") {
        return;
    }
    let arena = Arena::with(&small());
    for (name, code) in [
        ("anonymous", "held = [bytearray(1 << 20) for _ in range(1000)]"),
        (
            "shared",
            "f = open('/dev/shm/large', 'wb')\nfor _ in range(1000): f.write(bytes(1 << 20))",
        ),
        ("memfd", "fd = os.memfd_create('x')\nfor _ in range(1000): os.write(fd, bytes(1 << 20))"),
        (
            "pipes",
            "held = []
for _ in range(2000):
    try:
        near, far = os.pipe(); fcntl.fcntl(far, 1031, 1 << 20); os.set_blocking(far, False)
        os.write(far, bytes(1 << 20)); held.append((near, far))
    except OSError: break",
        ),
        (
            "sockets",
            "held = []
for _ in range(300):
    pair = socket.socketpair(); held.append(pair)
    for side in pair:
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20); side.setblocking(False)
        try:
            while True: side.send(bytes(65536))
        except OSError: pass",
        ),
        (
            "the page cache",
            "with open('/workspace/large', 'wb') as f:
    try:
        for _ in range(100): f.write(bytes(1 << 20))
    except OSError: pass
for _ in range(3): open('/workspace/large', 'rb').read(1 << 26)",
        ),
    ] {
        let done = arena.python("user", code);
        // It failed, was killed or got away with what it may have; the sandbox is there.
        let alive =
            arena.execute(&json!({"command": "rm -f /dev/shm/* /workspace/large; echo alive"}));
        assert_eq!(alive["stdout"], "alive\n", "after {name}: {done} {alive}");
        assert_eq!(arena.daemon.state(&arena.attacker), "running", "after {name}");
    }
    arena.close();
}

#[test]
fn r2_huge_pages_of_the_host_are_taken() {
    let arena = Arena::new();
    // They count for nobody's memory. Whether the host has any is not asked: none are given out.
    for user in ["root", "user"] {
        arena.attack(
            user,
            "
libc.mmap.restype = ctypes.c_void_p
def mapped(flags):
    place = libc.mmap(None, ctypes.c_size_t(2 << 20), 3, flags, -1, ctypes.c_long(0))
    return None if place in (None, ctypes.c_void_p(-1).value) else place
PRIVATE_ANONYMOUS, HUGE = 0x22, 0x40000
if mapped(PRIVATE_ANONYMOUS) is None: print('no memory at all')
for flags in (HUGE, HUGE | 21 << 26, HUGE | 30 << 26):
    if mapped(PRIVATE_ANONYMOUS | flags) is not None: print('mapped', hex(flags))
    if ctypes.get_errno() != errno.ENOMEM: print('mapped', hex(flags), ctypes.get_errno())
for flags in (4, 4 | 21 << 26):
    answer = call(319, b'x', flags)
    if answer != -errno.ENOMEM: print('memfd_create', answer)
if call(29, 0, 2 << 20, 0o4000 | 0o1000 | 0o600) != -errno.ENOMEM: print('shmget')
",
        );
    }
    arena.close();
}

#[test]
fn r4_the_disk_is_filled_with_bytes_and_with_empty_files() {
    if needs_root("r4_the_disk_is_filled", "limit of the disk") {
        return;
    }
    let arena = Arena::with(&small());
    arena.attack(
        "root",
        "
def fill(act):
    try:
        while True: act()
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT): print(problem)
for folder in ('/workspace', '/tmp', '/var/log', '/usr/share'):
    f = open(folder + '/large', 'wb', buffering=0)
    fill(lambda: f.write(bytes(1 << 20)))
for folder in ('/workspace', '/tmp', '/var/log', '/usr/share'): os.remove(folder + '/large')
numbers = iter(range(10 ** 7))
os.mkdir('/workspace/many')
fill(lambda: os.close(os.open('/workspace/many/%d' % next(numbers), os.O_CREAT)))
",
    );
    let alive = arena
        .execute(&json!({"command": "rm -rf /workspace/many; echo alive > /tmp/x; cat /tmp/x"}));
    assert_eq!(alive["stdout"], "alive\n");
    arena.close();
}

#[test]
fn r5_descriptors_are_used_up_inside_and_in_the_daemon() {
    let arena = Arena::new();
    arena.attack(
        "user",
        "
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
try:
    while len(held) < 2000000: held.append(os.open('/dev/null', os.O_RDONLY))
    print('no end of descriptors')
except OSError as problem:
    if problem.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM): print(problem)
for each in held: os.close(each)
",
    );
    // Clients that open connections and say nothing, or half a head.
    let most = if std::env::var_os("SOMA_LONG").is_some() { 20_000 } else { 1500 };
    let mut held = Vec::new();
    for number in 0..most {
        let Ok(mut stream) = std::net::TcpStream::connect(&arena.daemon.address) else { break };
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /v1/sandboxes HTTP/1.1\r\nHost: local");
        }
        held.push(stream);
    }
    assert!(!held.is_empty());
    drop(held);
    crate::support::eventually("the daemon does not recover", || {
        arena.daemon.ask("GET", "/v1/sandboxes", "").status == 200
    });
    arena.close();
}

#[test]
fn r7_zombies_and_orphans_while_exit_codes_are_counted() {
    let arena = Arena::new();
    let storm = "python3 -c \"
import os
for _ in range(20000):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(5)
        os._exit(3)
    try: os.waitpid(-1, os.WNOHANG)
    except OSError: pass\" >/dev/null 2>&1 & echo started";
    assert_eq!(arena.execute(&json!({"command": storm, "timeout": 20}))["stdout"], "started\n");
    let rounds = if std::env::var_os("SOMA_LONG").is_some() { 10_000 } else { 100 };
    for round in 0..rounds {
        let wanted = (round * 37) % 256;
        let done = arena.execute(&json!({"command": format!("exit {wanted}")}));
        assert_eq!(done["exit_code"], wanted, "{done}");
    }
    let left =
        arena.execute(&json!({"command": "pkill python3; sleep 1; ps -eo stat | grep -c Z"}));
    let count: u32 = left["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(count < 10, "{count} zombies are left");
    arena.close();
}

#[test]
fn r8_processors_are_spun_and_priorities_raised() {
    let arena = Arena::with(&json!({"vcpu": 0.5}));
    arena.attack(
        "root",
        "
for policy in (1, 2, 6):
    refused('policy %d' % policy, lambda: os.sched_setscheduler(0, policy, os.sched_param(10)))
refused('nice', lambda: os.nice(-20))
refused('its priority', lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))
",
    );
    if is_root() {
        let code = "
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        while True: pass
    children.append(child)
time.sleep(2)
for child in children: os.kill(child, 9); os.waitpid(child, 0)
used = os.times()
total = used.children_user + used.children_system
if total > 2 * 0.5 + 0.7: print('used', total, 'seconds in two')
";
        arena.attack("user", code);
    }
    arena.close();
}

#[test]
fn r10_what_is_left_running_when_time_is_over() {
    let arena = Arena::new();
    for command in [
        "sleep 50",
        "cat <<end | sleep 50\ntext\nend",
        "sleep 50 & sleep 50",
        "exec 0<&-; sleep 50",
        "trap '' TERM INT HUP; while :; do sleep 50; done",
        "setsid sleep 50; sleep 50",
        "(setsid sh -c 'trap \"\" TERM; sleep 50' &) ; sleep 50",
        "nohup sleep 50 & wait",
        "sh -c 'kill -STOP $$'; sleep 50",
    ] {
        let begun = Instant::now();
        let done = arena.ask("POST", "process/execute", &json!({"command": command, "timeout": 1}));
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(6), "{command}: {took:?}");
        assert!(took > Duration::from_millis(900), "{command}: {took:?} {}", done.json());
        let left = arena.execute(&json!({"command": "ps -eo args | grep -c '[s]leep 50'"}));
        assert_eq!(left["stdout"], "0\n", "{command}");
    }
    arena.close();
}

#[test]
fn r11_many_commands_and_many_lines_at_once() {
    let arena = Arena::new();
    let most = if std::env::var_os("SOMA_LONG").is_some() { 400 } else { 40 };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..most / 8 {
                        let answer =
                            arena.ask("POST", "process/execute", &json!({"command": "echo x"}));
                        let fine = answer.status == 429 || answer.json()["stdout"] == "x\n";
                        assert!(fine, "{}", answer.json());
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    });
    let lines = arena.execute(&json!({"command": "seq 200000 | tail -n 200000", "timeout": 30}));
    assert!(lines["stdout"].as_str().unwrap().ends_with("200000\n"), "the tail is lost");
    arena.close();
}

#[test]
fn r13_output_floods_the_daemon() {
    let arena = Arena::new();
    let before = memory_of_daemon(&arena);
    let is_long = std::env::var_os("SOMA_LONG").is_some();
    let (bytes, seconds) = if is_long { ("10G", 800) } else { ("1G", 55) };
    let done = arena.execute(&json!({
        "command": format!("head -c {bytes} /dev/zero | tr '\\0' x; echo the-last-line"),
        "timeout": seconds,
    }));
    assert!(done["stdout"].as_str().unwrap().ends_with("the-last-line\n"), "the tail is lost");
    let grown = memory_of_daemon(&arena).saturating_sub(before);
    assert!(grown < 64 << 10, "the daemon grew by {grown} KiB");
    arena.close();
}

#[test]
fn r14_objects_of_the_kernel_are_used_up() {
    let arena = Arena::new();
    arena.attack(
        "user",
        "
held, made = [], {}
def fill(name, act, most=200000):
    count = 0
    try:
        while count < most: held.append(act()); count += 1
    except (OSError, MemoryError): pass
    made[name] = count
fill('inotify', lambda: libc.inotify_init() if (n := libc.inotify_init()) >= 0 else (_ for _ in ()).throw(OSError()), 5000)
for each in [h for h in held if isinstance(h, int)]: os.close(each)
held.clear()
fill('timers', lambda: call(222, 0, None, ctypes.byref(ctypes.c_int())) == 0 or (_ for _ in ()).throw(OSError()), 300000)
if made['timers'] >= 300000: print('no end of timers')
fill('message queues', lambda: call(68, 0, 0o666) >= 0 or (_ for _ in ()).throw(OSError()), 100000)
if made['message queues'] >= 100000: print('no end of queues')
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
fill('signals', lambda: call(129, os.getpid(), signal.SIGRTMIN, (ctypes.c_char * 128)(*([0] * 8 + [255] * 4))) == 0 or (_ for _ in ()).throw(OSError()), 400000)
if made['signals'] >= 400000: print('no end of signals')
",
    );
    // The neighbour still has all of it.
    let other = arena.neighbour.as_ref().unwrap().id.clone();
    let seen = arena.daemon.execute(
        &other,
        "python3 -c \"import ctypes; l = ctypes.CDLL(None); print(l.inotify_init() >= 0, l.msgget(0, 0o666) >= 0)\"",
    );
    assert_eq!(seen, "True True\n");
    arena.close();
}

#[test]
fn r14_watches_are_used_up_and_a_neighbour_has_his() {
    let arena = Arena::new();
    arena.attack(
        "user",
        "
os.makedirs('/tmp/w', exist_ok=True)
held = []
for _ in range(2000):
    fd = libc.inotify_init()
    if fd < 0: break
    held.append(fd)
if len(held) >= 2000: print('no end of instances')
",
    );
    let other = arena.neighbour.as_ref().unwrap().id.clone();
    assert_eq!(
        arena.daemon.execute(
            &other,
            "python3 -c \"import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)\""
        ),
        "True\n"
    );
    arena.close();
}
