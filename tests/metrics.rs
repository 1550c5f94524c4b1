//! What a real sandbox uses, as its guest measures it, and what listens in it.

use domain::{Bytes, Limits, MilliCpus, SandboxId, SandboxSpec};
use guest_proto::GuestClient;
use guest_proto::client::{Event, Metrics, PortsEvent, Reach, Running, Source, StartOptions};

use crate::support::{Home, Operated};

const MEBIBYTE: u64 = 1 << 20;

/// A sandbox of its own, and the way in.
struct Sandbox {
    home: Home,
    provider: Operated,
    id: SandboxId,
    guest: GuestClient,
}

impl Sandbox {
    async fn new() -> Self {
        Self::with_processors(500).await
    }

    async fn with_processors(millis: u32) -> Self {
        let home = Home::new();
        let provider = home.provider();
        let id = provider_native::random_id().unwrap();
        let limits = Limits {
            memory: Bytes::mebibytes(700),
            cpus: MilliCpus(millis),
            pids: 123,
            ..Limits::default()
        };
        let spec = SandboxSpec { limits, allow_unenforced: true, ..SandboxSpec::default() };
        provider.create(&id, &spec).await.unwrap();
        let guest = provider.guest(&id);
        Self { home, provider, id, guest }
    }

    /// Starts a Python program and waits until it has printed something.
    async fn python(&self, code: &str) -> (Running, String) {
        let options = StartOptions {
            cmd: "python3".to_owned(),
            args: vec!["-c".to_owned(), code.to_owned()],
            stdin: true,
            ..StartOptions::default()
        };
        let mut running = self.guest.start(options).await.unwrap();
        loop {
            match running.next().await.unwrap().unwrap() {
                Event::Started { .. } => {}
                Event::Stdout(words) => {
                    return (running, String::from_utf8(words.to_vec()).unwrap());
                }
                other => panic!("{other:?}"),
            }
        }
    }

    async fn measure(&self) -> Metrics {
        self.guest.metrics().await.unwrap()
    }

    async fn end(self) {
        self.provider.destroy(&self.id).await.unwrap();
        drop((self.guest, self.provider));
        self.home.assert_nothing_left();
    }
}

fn host_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

fn grown(before: u64, after: u64) -> u64 {
    after.saturating_sub(before) / MEBIBYTE
}

#[tokio::test]
async fn metrics_are_the_sandboxs_own_and_tell_what_it_does() {
    if crate::support::needs_root(
        "metrics_are_the_sandboxs_own_and_tell_what_it_does",
        "cgroup of its own",
    ) {
        return;
    }
    let sandbox = Sandbox::new().await;
    let first = sandbox.measure().await;
    let (cpu, memory) = (first.cpu.clone().unwrap(), first.memory.clone().unwrap());
    let processes = first.processes.clone().unwrap();
    let sources = [cpu.source, memory.source, processes.source];
    assert_eq!(sources, [Source::Cgroup; 3], "{first:?}");
    assert_eq!((first.mem_total, memory.limit), (700 * MEBIBYTE, 700 * MEBIBYTE));
    assert_ne!(first.mem_total, host_memory());
    assert_eq!((first.cpu_count, cpu.limit_millis), (1, 500));
    assert_eq!(processes.limit, Some(123));
    assert!(processes.count < 20, "{processes:?}");
    assert!(first.mem_used < 100 * MEBIBYTE && memory.oom_kills == Some(0), "{memory:?}");
    assert!(first.uptime_seconds.unwrap() < 600.0);

    // Memory that a program holds.
    let (holder, _) = sandbox
        .python("import sys; x = b'x' * (200 << 20); print(1, flush=True); sys.stdin.read()")
        .await;
    let holding = sandbox.measure().await;
    let more = grown(first.mem_used, holding.mem_used);
    assert!((195..260).contains(&more), "{more} MiB more");
    assert!(grown(first.mem_cache, holding.mem_cache) < 60, "{holding:?}");
    assert!(holding.memory.unwrap().peak.unwrap() >= 200 * MEBIBYTE);

    // Files are on the disk, and in memory only as a cache.
    let (writer, _) = sandbox
        .python(
            "import os, sys
f = open('/workspace/file', 'wb')
for _ in range(100): f.write(os.urandom(1 << 20))
f.flush(); os.fsync(f.fileno())
print(1, flush=True); sys.stdin.read()",
        )
        .await;
    let written = sandbox.measure().await;
    let (cached, used) =
        (grown(holding.mem_cache, written.mem_cache), grown(holding.mem_used, written.mem_used));
    assert!(cached >= 90 && used < 50, "{cached} MiB cached, {used} MiB used");
    let disk = grown(first.disk_used, written.disk_used);
    assert!((100..140).contains(&disk), "{disk} MiB on disk");
    let inodes = |metrics: &Metrics| metrics.disk.clone().unwrap().inodes_used;
    assert!(inodes(&written) > inodes(&first));
    assert!(written.disk_total < 11 << 30, "{}", written.disk_total);

    // What goes over loopback.
    let (speaker, _) = sandbox
        .python(
            "import socket, sys, threading
server = socket.create_server(('127.0.0.1', 0))
near = socket.create_connection(server.getsockname())
far = server.accept()[0]
threading.Thread(target=lambda: near.sendall(b'x' * (20 << 20))).start()
left = 20 << 20
while left: left -= len(far.recv(1 << 16))
print(1, flush=True); sys.stdin.read()",
        )
        .await;
    let talked = sandbox.measure().await;
    let sent = |metrics: &Metrics| {
        let interfaces = metrics.network.as_ref().unwrap();
        assert_eq!(interfaces.len(), 1);
        assert_eq!(interfaces[0].name, "lo");
        (interfaces[0].sent_bytes, interfaces[0].sent_packets)
    };
    let (before, after) = (sent(&written), sent(&talked));
    let megabytes = grown(before.0, after.0);
    assert!((20..30).contains(&megabytes), "{megabytes} MiB over loopback");
    assert!(after.1 > before.1);

    // Fifty processes.
    let (crowd, _) = sandbox
        .python(
            "import subprocess, sys
crowd = [subprocess.Popen(['sleep', '60']) for _ in range(50)]
print(1, flush=True); sys.stdin.read()",
        )
        .await;
    let crowded = sandbox.measure().await;
    let count = crowded.processes.unwrap().count - talked.processes.unwrap().count;
    assert!((50..60).contains(&count), "{count} more");
    drop((holder, writer, speaker, crowd));
    sandbox.end().await;
}

#[tokio::test]
async fn processor_time_is_counted_against_what_is_allowed() {
    if crate::support::needs_root(
        "processor_time_is_counted_against_what_is_allowed",
        "cgroup of its own",
    ) {
        return;
    }
    // So little of a processor that also a busy machine has it: what is more is held back.
    let sandbox = Sandbox::with_processors(50).await;
    let before = sandbox.measure().await;
    let code = "
import sys, time
while time.process_time() < 0.25: pass
print(1, flush=True); sys.stdin.read()";
    let (burner, _) = sandbox.python(code).await;
    let after = sandbox.measure().await;
    let (cpu, earlier) = (after.cpu.unwrap(), before.cpu.unwrap());
    let used = cpu.used_micros - earlier.used_micros;
    assert!((240_000..1_000_000).contains(&used), "{used} µs");
    assert!(cpu.throttled_periods > earlier.throttled_periods);
    assert!(cpu.throttled_micros > earlier.throttled_micros);
    assert!(after.cpu_used_pct > 20.0, "{} %", after.cpu_used_pct);
    let idle = sandbox.measure().await;
    assert!(idle.cpu.unwrap().used_micros - cpu.used_micros < 240_000);
    drop(burner);
    sandbox.end().await;
}

#[tokio::test]
async fn out_of_memory_kills_are_counted() {
    if crate::support::needs_root("out_of_memory_kills_are_counted", "cgroup of its own") {
        return;
    }
    let sandbox = Sandbox::new().await;
    let code = "
import subprocess
subprocess.run(['python3', '-c', 'x = b\"x\" * (2000 << 20)'])
print(1, flush=True)";
    drop(sandbox.python(code).await);
    let memory = sandbox.measure().await.memory.unwrap();
    assert!(memory.oom_kills.unwrap() >= 1, "{memory:?}");
    assert!(memory.peak.unwrap() >= 650 * MEBIBYTE, "{memory:?}");
    sandbox.end().await;
}

#[tokio::test]
async fn the_cgroups_inside_are_its_own_and_cannot_be_written() {
    if crate::support::needs_root(
        "the_cgroups_inside_are_its_own_and_cannot_be_written",
        "cgroup of its own",
    ) {
        return;
    }
    let sandbox = Sandbox::new().await;
    // Where Java, Go and Node look for their limits: both versions.
    let code = "
import os, sys
def found(*names):
    for name in names:
        if os.path.exists(name): return open(name).read().strip()
group = dict(line.strip().split(':')[1:] for line in open('/proc/self/cgroup'))
here = group.get('memory', group.get('', '/'))
memory = found('/sys/fs/cgroup/memory%s/memory.limit_in_bytes' % here, '/sys/fs/cgroup%s/memory.max' % here)
mounts = [line.split() for line in open('/proc/self/mountinfo') if ' - cgroup' in line]
wrong = [m for m in mounts if m[3] != '/' or not m[5].startswith('ro,') or 'soma' in ' '.join(m)]
writable = []
for folder, _, files in os.walk('/sys'):
    writable += [f for f in files if os.access(os.path.join(folder, f), os.W_OK)]
    if folder.count('/') > 5 and folder.rsplit('/', 1)[1] not in ('guest', 'workload', 'reserve'): writable.append(folder)
print(memory, len(mounts) > 0, wrong, writable, flush=True)";
    for user in ["root", "user"] {
        let options = StartOptions {
            cmd: "python3".to_owned(),
            args: vec!["-c".to_owned(), code.to_owned()],
            user: Some(user.to_owned()),
            ..StartOptions::default()
        };
        let mut running = sandbox.guest.start(options).await.unwrap();
        let mut words = String::new();
        while let Some(event) = running.next().await.unwrap() {
            if let Event::Stdout(bytes) | Event::Stderr(bytes) = event {
                words.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
        assert_eq!(words.trim(), "734003200 True [] []", "as {user}");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn a_port_of_the_sandboxs_user_is_told_with_its_process() {
    let sandbox = Sandbox::new().await;
    let mut ports = sandbox.guest.ports().await.unwrap();
    // Nothing of the host's listens here.
    assert_eq!(ports.next().await.unwrap(), PortsEvent::Snapshot(Vec::new()));
    let (server, pid) = sandbox
        .python(
            "import os, socket, sys
server = socket.create_server(('0.0.0.0', 8080))
print(os.getpid(), flush=True); sys.stdin.read()",
        )
        .await;
    let PortsEvent::Changes { opened, closed } = ports.next().await.unwrap() else { panic!() };
    assert_eq!((opened.len(), closed.len()), (1, 0));
    let port = &opened[0];
    assert_eq!((port.port, port.reach, port.uid), (8080, Reach::All, 1000));
    let holder = port.holder.as_ref().unwrap();
    assert_eq!((holder.pid.to_string().as_str(), holder.name.as_str()), (pid.trim(), "python3"));
    // Process 1 stays out of everybody's reach also after it looked at a process of another.
    let code = "
try: open('/proc/1/mem', 'rb'); print('open')
except OSError: print('shut')";
    let options = StartOptions {
        cmd: "python3".to_owned(),
        args: vec!["-c".to_owned(), code.to_owned()],
        user: Some("root".to_owned()),
        ..StartOptions::default()
    };
    let mut running = sandbox.guest.start(options).await.unwrap();
    let mut words = Vec::new();
    while let Some(event) = running.next().await.unwrap() {
        if let Event::Stdout(bytes) = event {
            words.extend_from_slice(&bytes);
        }
    }
    assert_eq!(words, b"shut\n");
    drop((server, ports));
    sandbox.end().await;
}
