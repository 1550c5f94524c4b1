//! Out of the sandbox, or into its guest.

use serde_json::json;

use super::Arena;
use crate::support::is_root;

/// Numbers of calls from here on are younger than the oldest kernel that Soma runs on.
const FIRST_OF_LINUX_5_2: u64 = 424;

/// An attack as both users of a sandbox.
#[track_caller]
fn attack(code: &str) {
    let arena = Arena::new();
    for user in ["root", "user"] {
        arena.attack(user, code);
    }
    arena.close();
}

#[test]
pub(super) fn e1_a_crash_handler_of_the_host_is_set() {
    let before = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    attack(
        "
refused('core_pattern', lambda: open('/proc/sys/kernel/core_pattern', 'w').write('|/tmp/x'))
child = os.fork()
if child == 0: os.kill(os.getpid(), signal.SIGSEGV)
os.waitpid(child, 0)
",
    );
    assert_eq!(std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), before);
}

#[test]
pub(super) fn e2_settings_of_the_kernel_are_written() {
    attack(
        "
tried = 0
for top in ('/proc/sys', '/proc/sysrq-trigger', '/proc/irq', '/proc/bus', '/proc/fs', '/sys'):
    names = [top] if os.path.isfile(top) else [
        os.path.join(folder, name) for folder, _, files in os.walk(top) for name in files]
    for name in names:
        tried += 1
        try: os.close(os.open(name, os.O_WRONLY | os.O_NONBLOCK)); print(name, 'was opened')
        except OSError: pass
if tried < 100: print('only', tried, 'were tried')
",
    );
}

#[test]
pub(super) fn e4_the_hosts_helpers_of_cgroups_and_devices_are_replaced() {
    attack(
        "
refused('uevent_helper', lambda: open('/sys/kernel/uevent_helper', 'w'))
for folder, folders, files in os.walk('/sys/fs/cgroup'):
    for name in ('release_agent', 'notify_on_release', 'cgroup.procs', 'tasks', 'devices.allow'):
        path = os.path.join(folder, name)
        if os.path.exists(path): refused(path, lambda: open(path, 'w').write('1'))
    refused('a cgroup in ' + folder, lambda: os.mkdir(folder + '/mine'))
CLONE_NEWUSER, CLONE_NEWCGROUP = 0x10000000, 0x2000000
if call(272, CLONE_NEWUSER | CLONE_NEWCGROUP) >= 0: print('a user namespace within')
",
    );
}

#[test]
pub(super) fn e5_cgroups_and_other_file_systems_are_mounted() {
    attack(
        "
for kind in (b'cgroup', b'cgroup2', b'proc', b'sysfs', b'tmpfs', b'devtmpfs', b'overlay', b'bpf',
             b'debugfs', b'securityfs', b'fuse', b'mqueue', b'ext4'):
    os.makedirs('/tmp/place', exist_ok=True)
    if libc.mount(b'none', b'/tmp/place', kind, 0, None) == 0: print(kind, 'was mounted')
    elif ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): print(kind, ctypes.get_errno())
if call(430, b'tmpfs', 0) >= 0: print('fsopen')
if call(428, -100, b'/', 1) >= 0: print('open_tree')
MS_REMOUNT, MS_BIND = 32, 4096
if libc.mount(b'none', b'/proc/sys', None, MS_REMOUNT | MS_BIND, None) == 0: print('remounted')
if libc.umount2(b'/proc/sys', 2) == 0: print('unmounted')
",
    );
}

#[test]
pub(super) fn e7_device_files_are_made() {
    attack(
        "
for kind, major, minor in ((0o020000, 1, 1), (0o020000, 1, 3), (0o060000, 254, 0),
                           (0o060000, 8, 0), (0o020000, 10, 232), (0o020000, 10, 229)):
    for folder in ('/tmp', '/dev/shm', '/workspace'):
        refused('mknod', lambda: os.mknod(folder + '/device', kind | 0o666,
                                          os.makedev(major, minor)), errno.EPERM, errno.EACCES)
",
    );
}

#[test]
pub(super) fn e8_devices_of_the_host_are_opened() {
    attack(
        "
names = set(os.listdir('/dev'))
usual = set('null zero full random urandom tty ptmx pts shm fd stdin stdout stderr'.split())
if names != usual: print(names ^ usual)
for name in ('mem', 'kmem', 'port', 'kmsg', 'sda', 'vda', 'kvm', 'fuse', 'net/tun', 'loop0',
             'loop-control', 'mapper/control', 'vhost-net', 'userfaultfd', 'snapshot', 'console'):
    refused(name, lambda: os.open('/dev/' + name, os.O_RDONLY), errno.ENOENT)
",
    );
}

#[test]
pub(super) fn e10_process_1_and_the_spawner_are_traced() {
    attack(
        "
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
buffer = ctypes.create_string_buffer(8)
vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
for pid in (1, 2):
    for request in (PTRACE_ATTACH, PTRACE_SEIZE):
        if call(101, request, pid, 0, 0) >= 0: print('ptrace', pid)
    if call(310, pid, vector, 1, vector, 1, 0) >= 0: print('process_vm_readv', pid)
    if call(311, pid, vector, 1, vector, 1, 0) >= 0: print('process_vm_writev', pid)
    descriptor = call(434, pid, 0)
    if descriptor >= 0 and call(438, descriptor, 0, 0) >= 0: print('pidfd_getfd', pid)
    if descriptor >= 0 and call(440, descriptor, vector, 1, 4, 0) >= 0: print('process_madvise')
",
    );
}

#[test]
pub(super) fn e11_the_guests_program_and_memory_are_overwritten() {
    let arena = Arena::new();
    // The program is executed from outside meanwhile, as often as the neighbour asks.
    for user in ["root", "user"] {
        arena.attack(
            user,
            "
end = time.time() + 1
while time.time() < end:
    for pid in (1, 2):
        for name in ('root', 'cwd', 'exe', 'fd', 'mem', 'maps', 'environ', 'map_files'):
            path = '/proc/%d/%s' % (pid, name)
            def reach():
                if name in ('mem', 'maps', 'environ'): return open(path, 'rb').read(1)
                if name == 'exe': return open(path, 'rb').read(1)
                # How many there are may be known to its root; what they are may not.
                if name == 'fd': return [os.open(path + '/%d' % n, os.O_RDONLY) for n in range(3)]
                return os.listdir(path)
            refused(path, reach)
    refused('the program', lambda: open('/run/soma/guest', 'r+b'))
    refused('its folder', lambda: open('/run/soma/new', 'w'))
    refused('its name', lambda: os.rename('/run/soma/guest', '/run/soma/old'))
    refused('its folder', lambda: os.rename('/run/soma', '/run/other'))
    refused('our own exe', lambda: open('/proc/self/exe', 'r+b') if os.getuid() else
            open('/run/soma/guest', 'ab'))
",
        );
    }
    assert_eq!(arena.daemon.execute(&arena.attacker, "echo alive"), "alive\n");
    arena.close();
}

#[test]
pub(super) fn e16_keys_of_the_host_are_read() {
    attack(
        "
for number, arguments in ((250, (0, -3, 0)), (250, (11, -3, 0, 0)), (248, (b'user', b'k', b'v', 1, -3)),
                          (249, (b'user', b'k', None, -3))):
    answer = call(number, *arguments)
    if -answer not in (errno.ENOSYS, errno.EPERM): print(number, answer)
for name in ('/proc/keys', '/proc/key-users'):
    if os.path.exists(name) and len(open(name).read().splitlines()) > 2: print(name)
",
    );
}

#[test]
pub(super) fn e17_dangerous_system_calls_are_made() {
    attack(
        "
calls = dict(bpf=321, perf_event_open=298, userfaultfd=323, io_uring_setup=425,
  io_uring_enter=426, io_uring_register=427, kexec_load=246, kexec_file_load=320, init_module=175,
  finit_module=313, delete_module=176, lookup_dcookie=212, acct=163, swapon=167, swapoff=168,
  quotactl=179, quotactl_fd=443, reboot=169, syslog=103, settimeofday=164, clock_settime=227,
  adjtimex=159, clock_adjtime=305, nfsservctl=180, vhangup=153, open_by_handle_at=304,
  name_to_handle_at=303, fanotify_init=300, memfd_secret=447, move_pages=279, modify_ldt=154,
  iopl=172, ioperm=173, sethostname=170, setdomainname=171, mount_setattr=442, setns=308,
  unshare=272, pivot_root=155, move_mount=429, fsmount=432, fspick=433, clone3=435,
  process_madvise=440, landlock_create_ruleset=444, cachestat=451, map_shadow_stack=453,
  lsm_list_modules=461, uselib=134, ustat=136, sysfs=139, _sysctl=156, create_module=174)
for name, number in calls.items():
    answer = call(number, 0, 0, 0, 0, 0, 0)
    if -answer not in (errno.ENOSYS, errno.EPERM): print(name, answer)
for flag in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    child = call(56, flag | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0: os._exit(0)
    if child >= 0 and flag != 0x80: print('clone with', hex(flag))
for request in (26, 35, 43, 59, 62, 67, 71, 1000):
    if call(157, request, 1, 0, 0, 0) != -errno.EINVAL: print('prctl', request)
for persona in (0x0400000, 0x0200000, 0x1000000, 0x4000000):
    if call(135, persona) >= 0: print('personality', hex(persona))
",
    );
}

#[test]
pub(super) fn e17_other_doors_of_the_kernel_are_used() {
    attack(
        "
import mmap
# In machine code: getpid by the 32 bit door, and by the numbers of x32.
doors = {'int 0x80': b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3',
         'x32': b'\\xb8\\x27\\0\\0\\x40\\x0f\\x05\\xc3'}
for name, code in doors.items():
    child = os.fork()
    if child == 0:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        answer = ctypes.CFUNCTYPE(ctypes.c_long)(address)()
        os._exit(7)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in (signal.SIGSYS, signal.SIGSEGV):
        print(name, 'ended with', status)
",
    );
}

#[test]
pub(super) fn e17_the_calls_that_pass_are_those_of_the_list() {
    let list = include_str!("../../crates/provider-native/seccomp/x86_64.json");
    let list: serde_json::Value = serde_json::from_str(list).unwrap();
    let mut wanted: Vec<&str> = list["allow"]["filter"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["syscall"].as_str().unwrap())
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    assert!(wanted.len() <= 260, "{} are allowed", wanted.len());

    let arena = Arena::new();
    let done = arena.python("user", include_str!("probe.py"));
    let found: serde_json::Value =
        serde_json::from_str(done["stdout"].as_str().unwrap().lines().next().unwrap()).unwrap();
    let numbers: serde_json::Value = serde_json::from_str(include_str!("calls.json")).unwrap();
    let number = |name: &str| numbers[name].as_u64().unwrap_or_else(|| panic!("{name}: no number"));
    let mut wanted: Vec<u64> = wanted.iter().map(|name| number(name)).collect();
    wanted.sort_unstable();
    let found: Vec<u64> = found.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    let strangers: Vec<_> = found.iter().filter(|number| !wanted.contains(number)).collect();
    assert!(strangers.is_empty(), "calls pass that are not on the list: {strangers:?}");
    // A kernel that does not know a call answers as the list does.
    let late = |number: &u64| *number >= FIRST_OF_LINUX_5_2;
    let refused: Vec<_> = wanted.iter().filter(|n| !found.contains(n) && !late(n)).collect();
    assert!(refused.is_empty(), "calls of the list do not pass: {refused:?}");
    arena.close();
}

#[test]
pub(super) fn e19_sockets_of_unusual_families_are_opened() {
    attack(
        "
for family in list(range(3, 10)) + list(range(11, 16)) + list(range(17, 47)):
    for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
        refused('family %d' % family, lambda: socket.socket(family, kind, 0))
for protocol in range(1, 23):
    refused('netlink %d' % protocol, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol))
for family in (socket.AF_INET, socket.AF_INET6):
    for protocol in (1, 6, 17, 58, 255):
        refused('raw %d' % protocol, lambda: socket.socket(family, socket.SOCK_RAW, protocol))
",
    );
}

#[test]
pub(super) fn e20_letters_are_typed_into_the_terminal_of_whoever_watches() {
    let arena = Arena::new();
    for user in ["root", "user"] {
        arena.attack(
            user,
            "
import pty, termios
child, terminal = pty.fork()
if child == 0:
    for request in (termios.TIOCSTI, 0x541C):
        for word in (request, request | (1 << 32)):
            if call(16, 0, ctypes.c_ulong(word), b'x') >= 0: os._exit(9)
    os._exit(0)
status = os.waitpid(child, 0)[1]
if status: print('typed', status)
",
        );
    }
    arena.close();
}

#[test]
pub(super) fn e22_processes_of_others_get_signals() {
    let arena = Arena::new();
    let child = sys_linux::command::command("sleep").arg("60").spawn();
    let mut child = child.unwrap();
    arena.attack(
        "root",
        "
own = {int(name) for name in os.listdir('/proc') if name.isdigit()}
alive = []
for pid in range(1, 1 << 18):
    try: os.kill(pid, 0); alive.append(pid)
    except ProcessLookupError: pass
    except PermissionError: alive.append(pid)
strangers = [pid for pid in alive if pid not in own and not os.path.exists('/proc/%d' % pid)
             and pid < os.getpid()]
if strangers: print('strangers', strangers)
# Whoever comes to the end of this has not ended process 1.
try: os.kill(1, 9)
except OSError: pass
",
    );
    assert!(child.try_wait().unwrap().is_none(), "a process of the host was ended");
    child.kill().unwrap();
    child.wait().unwrap();
    arena.close();
}

#[test]
pub(super) fn e23_memory_and_queues_are_shared_with_a_neighbour() {
    let arena = Arena::new();
    let other = arena.daemon.create("{}");
    arena.attack(
        "user",
        "
for key in (0x5050, 0x5051):
    if call(29, key, 4096, 0o1000 | 0o666) < 0: print('shmget')
open('/dev/shm/canary', 'w').write('mine')
",
    );
    let seen = arena.daemon.execute(
        &other,
        "ls /dev/shm; python3 -c \"import ctypes; l = ctypes.CDLL(None); print(l.shmget(0x5050, 0, 0))\"",
    );
    assert_eq!(seen, "-1\n");
    assert_eq!(arena.daemon.ask("DELETE", &format!("/v1/sandbox/{other}"), "").status, 204);
    arena.close();
}

#[test]
fn e25_the_guest_is_killed_stopped_and_its_socket_squatted() {
    the_guest_is_attacked(
        "signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGINT, signal.SIGTERM",
    );
}

pub(super) fn the_guest_is_attacked(signals: &str) {
    let arena = Arena::new();
    for user in ["user", "root"] {
        let code = format!("SIGNALS = ({signals})\n{GUEST}");
        arena.attack(user, &code);
        assert_eq!(arena.daemon.execute(&arena.attacker, "echo alive"), "alive\n");
    }
    arena.close();
}

const GUEST: &str = "
for pid in (1,):
    for number in SIGNALS:
        try: os.kill(pid, number)
        except OSError: pass
for name in ('\\0soma-guest', '\\0soma-sudo', '\\0soma-whose'):
    kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM)
    def taken(kind):
        try: socket.socket(socket.AF_UNIX, kind).bind(name); return False
        except OSError as problem: return problem.errno == errno.EADDRINUSE
    # Names are counted for each kind of socket: that of the guest is taken in its own kind.
    if not any(taken(kind) for kind in kinds): print(name, 'is free')
# Whose a connection is, nobody inside is told.
asking = socket.socket(socket.AF_UNIX)
try:
    asking.connect('\\0soma-whose')
    asking.sendall(bytes([6] + 12 * [0]))
    if asking.recv(1): print('the guest answered')
except OSError: pass
# A server of its own at the usual address of E2B's agent is nobody's guest.
socket.create_server(('127.0.0.1', 49983)).close()
def talk():
    s = socket.socket(socket.AF_UNIX); s.settimeout(5)
    s.connect('\\0soma-guest'); s.sendall(b'GET /health HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n')
    if not s.recv(100): raise OSError('closed')
refused('talking to the guest', talk)
";

#[test]
pub(super) fn e25_the_limits_and_the_pace_of_process_1_are_taken_from_it() {
    let arena = Arena::new();
    for user in ["user", "root"] {
        arena.attack(
            user,
            "
import resource
for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
    refused('limit %d' % kind, lambda: resource.prlimit(1, kind, (1, 1)), errno.EPERM)
# Each of these may slow it down, and no more.
for act in (lambda: os.sched_setaffinity(1, {0}), lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
            lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
            lambda: open('/proc/1/oom_score_adj', 'w').write('1000')):
    try: act()
    except OSError: pass
",
        );
        assert_eq!(arena.daemon.execute(&arena.attacker, "echo alive"), "alive\n");
    }
    arena.close();
}

#[test]
pub(super) fn e25_everything_that_can_be_killed_is_killed() {
    let arena = Arena::new();
    // What is answered to it depends on who dies first.
    let kill = json!({"command": "kill -9 -1", "user": "root", "timeout": 10});
    arena.ask("POST", "process/execute", &kill);
    // Either commands still run, or the state says what happened within two seconds.
    let begun = std::time::Instant::now();
    loop {
        let state = arena.daemon.state(&arena.attacker);
        let again = arena.ask("POST", "process/execute", &json!({"command": "echo alive"}));
        if again.status == 200 && again.json()["stdout"] == "alive\n" || state == "error" {
            break;
        }
        assert!(begun.elapsed().as_secs() < 20, "{state}: {}", again.json());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    arena.close();
}

#[test]
pub(super) fn e32_something_of_the_host_is_in_sight() {
    let arena = Arena::new();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let home = arena.daemon.home.path().display().to_string();
    for user in ["root", "user"] {
        arena.attack(
            user,
            &format!(
                "
host, home = {name:?}.strip(), {home:?}
if open('/proc/sys/kernel/hostname').read().strip() == host: print('the name of the host')
text = open('/proc/self/mountinfo').read() + open('/proc/mounts').read()
if home in text: print('the home', text)
for line in open('/proc/self/mountinfo'):
    fields = line.split()
    kind = fields[fields.index('-') + 1]
    known = ('overlay', 'tmpfs', 'proc', 'devpts', 'cgroup', 'cgroup2')
    # Who cannot make device files is lent some of the host's, and nothing else of that folder.
    lent = {borrowed} and kind == 'devtmpfs' and fields[3] in (
        '/null', '/zero', '/full', '/random', '/urandom', '/tty')
    if kind not in known and not lent: print('mount', line)
if [name for _, name in socket.if_nameindex()] != ['lo']: print('interfaces')
for path in ('/sys/class', '/sys/devices', '/sys/kernel', '/sys/firmware', '/proc/kcore.real',
             '/var/run/docker.sock', '/run/containerd', '/run/dbus', '/etc/ssh', '/boot/grub',
             '/var/run/secrets', '/root/.ssh', '/var/lib/soma', '/.dockerenv'):
    if os.path.exists(path): print(path)
for path in ('/proc/kcore', '/proc/kallsyms', '/proc/timer_list', '/proc/keys', '/proc/cmdline',
             '/proc/partitions', '/proc/diskstats', '/proc/sched_debug'):
    if os.path.exists(path) and os.path.isfile(path) and open(path, 'rb').read(1): print(path)
refused('the kernel log', lambda: open('/dev/kmsg'))
if os.path.exists('/proc/kmsg'): refused('the kernel log', lambda: os.open('/proc/kmsg', os.O_RDONLY | os.O_NONBLOCK))
if call(103, 3, 0, 0) >= 0: print('syslog')
for number in os.listdir('/proc/self/fd'):
    # The folder that is being read is among them, and gone by now.
    try: link = os.readlink('/proc/self/fd/' + number)
    except OSError: continue
    if int(number) > 2: print('descriptor', number, link)
for key in os.environ:
    if key.startswith('SOMA_') or key in ('CARGO_HOME', 'SUDO_USER', 'SSH_CONNECTION'): print(key)
sockets = {{line.split()[-1] for line in open('/proc/net/unix') if '@' in line}}
if sockets - {{'@soma-guest', '@soma-sudo', '@soma-whose'}}: print('sockets', sockets)
",
                borrowed = if is_root() { "False" } else { "True" },
            ),
        );
    }
    arena.close();
}
