//! Machines whose kernel, container or folder of devices lacks something.

use std::path::Path;

use super::Machine;

/// Errors and numbers of `x86_64`.
const EPERM: i32 = 1;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const EPROTONOSUPPORT: i32 = 93;
const SOCKET: u32 = 41;
const AF_NETLINK: u32 = 16;
const CLONE: u32 = 56;
const MOUNT: u32 = 165;
const SECCOMP: u32 = 317;
const MOUNT_SETATTR: u32 = 442;
const LANDLOCK: u32 = 444;
const CLONE_NEWUSER: u32 = 0x1000_0000;

#[test]
fn a_machine_without_user_namespaces_is_told_the_setting_and_its_cure() {
    let seen = Machine::new()
        .unshare(&["--user", "--map-root-user"])
        .with("echo 0 > /proc/sys/user/max_user_namespaces")
        .examine();
    let cure = "sysctl -w user.max_user_namespaces=15000";
    seen.assert("user-namespaces", "missing", "user.max_user_namespaces is 0", Some(cure));
    assert_eq!(seen.finding("user-namespaces")["fix"]["safe"], true);
    assert_eq!(seen.finding("user-namespaces")["required"], true);
    seen.assert_cannot_run(&["user-namespaces"]);
}

#[test]
fn another_kind_of_namespace_that_is_forbidden_is_named() {
    let seen = Machine::new()
        .unshare(&["--user", "--map-root-user"])
        .with("echo 0 > /proc/sys/user/max_net_namespaces")
        .examine();
    let cure = "sysctl -w user.max_net_namespaces=15000";
    seen.assert("user-namespaces", "missing", "user.max_net_namespaces is 0", Some(cure));
}

#[test]
fn a_profile_that_refuses_user_namespaces_is_told_from_a_setting() {
    let seen = Machine::new().refusing(CLONE, EPERM, CLONE_NEWUSER).examine();
    let reason = "a container's list of system calls";
    seen.assert("user-namespaces", "missing", reason, None);
    seen.assert("id-mapped-mounts", "missing", "could not make a user namespace", None);
    seen.assert_cannot_run(&["user-namespaces", "subordinate-ids"]);
}

#[test]
fn a_machine_without_overlays_is_told_to_load_them() {
    // Mounting is all that is refused, with the word for an unknown file system.
    let seen = Machine::new().for_user().refusing(MOUNT, ENODEV, 0).examine();
    seen.assert("overlay", "missing", "has not loaded it", Some("modprobe overlay"));
    assert_eq!(seen.finding("overlay")["fix"]["safe"], true);
    seen.assert_cannot_run(&["overlay"]);
}

#[test]
fn a_user_whose_home_lies_on_an_overlay_is_told_to_move_it() {
    // What an overlay changes cannot lie on an overlay, which a container's files are.
    let machine = Machine::new()
        .with("mount -t tmpfs none $D/empty; cd $D/empty; mkdir upper work; chown 54321 upper")
        .with("mount -t overlay -o lowerdir=$D/homes,upperdir=upper,workdir=work none $D/homes")
        .for_user();
    let seen = machine.examine();
    let reason = "what is changed cannot lie on the home's file system, overlay";
    seen.assert("overlay", "missing", reason, Some("export SOMA_HOME="));
    seen.assert_cannot_run(&["overlay"]);
    // With a volume for the home, it is that which counts.
    let seen = machine
        .with("mkdir $D/homes/soma; mount -t tmpfs none $D/homes/soma; chown 54321 $D/homes/soma")
        .examine();
    seen.assert("overlay", "works", "in a user namespace", None);
    assert_eq!(seen.code, 0);
}

#[test]
fn a_machine_that_cannot_map_the_ids_of_mounts_says_which_folder_and_why() {
    let seen = Machine::new().refusing(MOUNT_SETATTR, EINVAL, 0).examine();
    let reason = "could not map the ids of `/usr`: invalid argument: the file system";
    seen.assert("id-mapped-mounts", "missing", reason, None);
    seen.assert_cannot_run(&["id-mapped-mounts"]);
}

#[test]
fn a_home_on_a_file_system_that_cannot_map_ids_is_told_to_move() {
    // Proc can never be mapped, and is always there.
    let seen = Machine::new().variable("SOMA_HOME", "/proc/soma").examine();
    let fix = Some("export SOMA_HOME=");
    seen.assert("id-mapped-mounts", "missing", "the file system proc cannot do that", fix);
}

#[test]
fn a_machine_without_filters_of_system_calls_cannot_run_sandboxes() {
    let seen = Machine::new().refusing(SECCOMP, EINVAL, 0).examine();
    seen.assert("seccomp", "missing", "could not put a filter of system calls on", None);
    seen.assert_cannot_run(&["seccomp"]);
}

#[test]
fn a_kernel_without_landlock_loses_an_extra_wall_only() {
    let built = Machine::new().refusing(LANDLOCK, ENOSYS, 0).examine();
    built.assert("landlock", "missing", "built without it", None);
    assert_eq!(built.code, 0);
    let booted = Machine::new().refusing(LANDLOCK, EOPNOTSUPP, 0).examine();
    booted.assert("landlock", "missing", "booted without it", Some("lsm=landlock"));
    assert_eq!(booted.finding("landlock")["fix"]["safe"], false);
}

#[test]
fn a_kernel_without_packet_filter_rules_is_told_to_load_them() {
    let seen = Machine::new().refusing(SOCKET, EPROTONOSUPPORT, AF_NETLINK).examine();
    let reason = "could not make packet filter rules: protocol not supported";
    seen.assert("nftables", "missing", reason, Some("modprobe --all nf_tables"));
    assert_eq!(seen.finding("nftables")["fix"]["safe"], true);
    assert_eq!(seen.code, 0);
}

/// A `/dev` with the harmless devices and nothing else.
const BARE_DEVICES: &str = "\
    mkdir -p $D/dev; mount -t tmpfs none $D/dev
    cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty $D/dev
    mount --move $D/dev /dev";

#[test]
fn a_machine_without_device_files_is_told_how_to_make_them() {
    let machine = Machine::new().with(BARE_DEVICES);
    let seen = machine.examine();
    for (name, device, module) in
        [("fuse", "fuse", "fuse"), ("kvm", "kvm", "kvm"), ("loop-devices", "loop-control", "loop")]
    {
        let has = Path::new("/sys/class/misc").join(device).exists();
        let made = format!("mknod -m 600 /dev/{device} c 10 ");
        let fix = if has { made } else { format!("modprobe {module}") };
        seen.assert(name, "missing", &format!("`/dev/{device}`"), Some(&fix));
        assert_eq!(seen.finding(name)["fix"]["safe"], !has);
    }
    seen.assert_cannot_run(&["loop-devices"]);
    // The cure that is shown cures.
    let command = seen.finding("fuse")["fix"]["command"].as_str().unwrap();
    if command.starts_with("mknod") {
        let cured = machine.with(command).examine();
        cured.assert("fuse", "works", "mounted with it", None);
    }
}

#[test]
fn a_machine_without_cgroups_is_told_to_mount_them() {
    let seen = Machine::new().with("umount --recursive /sys/fs/cgroup").examine();
    let fix = Some("mount -t cgroup2 none /sys/fs/cgroup");
    seen.assert("cgroups", "missing", "no cgroups are mounted", fix);
    seen.assert("favordynmods", "missing", "no cgroups", None);
    seen.assert_runs_with_less_of("cgroups");
}

#[test]
fn cgroups_that_cannot_be_written_are_told_from_none() {
    let seen = Machine::new()
        .with(
            "grep ' - cgroup' /proc/self/mountinfo | cut -d' ' -f5 | while read place; do
                mount -o remount,bind,ro $place; done",
        )
        .examine();
    let fix = Some("mount -o remount,rw /sys/fs/cgroup");
    seen.assert("cgroups", "missing", "read-only file system", fix);
    seen.assert_runs_with_less_of("cgroups");
}

#[test]
fn version_two_alone_is_judged_by_its_controllers() {
    let machine = Machine::new()
        .with("umount --recursive /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup");
    let controllers = machine.run("cat /sys/fs/cgroup/cgroup.controllers").stdout;
    let controllers = String::from_utf8(controllers).unwrap();
    let seen = machine.examine();
    if ["memory", "cpu", "pids"].iter().all(|name| controllers.contains(name)) {
        seen.assert("cgroups", "works", "version 2 with memory, cpu, pids", None);
    } else {
        let fix = Some("mount -t cgroup2");
        seen.assert("cgroups", "missing", "version 2 on `/sys/fs/cgroup` has no ", fix);
    }
}

#[test]
fn the_inside_of_a_container_is_known_by_its_namespaces() {
    let seen = Machine::new().unshare(&["--pid", "--fork", "--mount-proc", "--cgroup"]).examine();
    let finding = seen.finding("container");
    assert_eq!(finding["state"], "limited", "{finding:#}");
    let says = finding["says"].as_str().unwrap();
    assert!(says.contains("its own pid namespace, its own cgroup namespace"), "{says}");
    assert!(!says.contains("of the host's ids"), "{says}");
}

#[test]
fn a_mark_of_docker_names_the_kind_of_container_and_how_to_start_it() {
    // The marks may be there already, and the root folder is not ours to write to.
    let seen = Machine::new()
        .unshare(&["--pid", "--fork", "--mount-proc"])
        .with("mount -t tmpfs none /run; touch /run/.containerenv")
        .examine();
    let finding = seen.finding("container");
    let command = finding["fix"]["command"].as_str().unwrap();
    let kind = if Path::new("/.dockerenv").exists() { "docker" } else { "podman" };
    assert!(command.starts_with(&format!("{kind} run --privileged")), "{finding:#}");
}

#[test]
fn a_root_without_the_power_to_mount_cannot_run_sandboxes() {
    let seen = Machine::new().without_capability("sys_admin").examine();
    seen.assert("overlay", "missing", "could not make the namespaces: operation not", None);
    seen.assert_cannot_run(&["overlay", "id-mapped-mounts"]);
}

#[test]
fn a_root_that_has_a_single_id_cannot_give_any_to_sandboxes() {
    let seen = Machine::new().unshare(&["--user", "--map-root-user"]).examine();
    seen.assert("subordinate-ids", "missing", "root here does not have all ids", None);
    let says = seen.finding("container")["says"].as_str().unwrap();
    assert!(says.contains("its own user namespace, 1 of the host's ids"), "{says}");
    seen.assert_cannot_run(&["subordinate-ids"]);
}
