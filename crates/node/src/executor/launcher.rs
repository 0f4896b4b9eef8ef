//! The launcher pod's side of a VM: its sockets, and the place where QEMU lives.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use disklet_core::names::PodUid;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Host;
use super::expose::{show_opened, show_place};
use crate::failure::{Failure, Result, on};
use crate::libvirt::QemuUser;

/// A socket in a directory that belongs to a tenant: no link is followed, and
/// nothing else is taken for one.
pub(crate) fn open_socket(host: Host<'_>, path: &Path) -> Result<File> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Failure::new(format!(
            "{} is no path of a socket",
            path.display()
        )));
    };
    let failed = |error: Errno| on(path, "opened", error.into());
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let directory = host
        .open(directory, OFlags::PATH | OFlags::DIRECTORY)
        .map_err(failed)?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let socket = rustix::fs::openat2(
        &directory,
        name,
        flags | OFlags::NOFOLLOW,
        Mode::empty(),
        beneath,
    );
    let socket = match socket {
        Ok(socket) => File::from(socket),
        Err(Errno::LOOP) => return Err(not_a_socket(path)),
        Err(error) => return Err(failed(error)),
    };
    let meta = socket
        .metadata()
        .map_err(|error| on(path, "looked at", error))?;
    match meta.file_type().is_socket() {
        true => Ok(socket),
        false => Err(not_a_socket(path)),
    }
}

fn not_a_socket(path: &Path) -> Failure {
    Failure::new(format!("{} is not a socket", path.display()))
        .help("somebody has changed the launcher's directory: delete the pod")
}

/// Shows it to QEMU, whatever happens to the launcher's directory afterwards.
pub(super) fn expose_socket(
    host: Host<'_>,
    from: &Path,
    to: &Path,
    user: Option<QemuUser>,
) -> Result<()> {
    let socket = open_socket(host, from)?;
    let meta = socket
        .metadata()
        .map_err(|error| on(from, "looked at", error))?;
    match show_place(&meta, to, user)? {
        None => Ok(()),
        Some(_place) => show_opened(&socket, to),
    }
}

/// Has a process live in the cgroups of another one, which must be of a pod.
pub(super) fn join(host: Host<'_>, process: u32, launcher: u32, pod: &PodUid) -> Result<()> {
    let file = format!("/proc/{launcher}/cgroup");
    let text = fs::read_to_string(&file).map_err(|error| {
        on(&file, "read", error)
            .help("the launcher is gone, or the agent does not run with hostPID")
    })?;
    let groups = groups_of(&text, pod);
    if !groups.iter().any(Group::limits_memory) {
        return Err(
            Failure::new(format!("the launcher is in no cgroup of pod {pod}"))
                .help("somebody else listens in the launcher's directory: delete the pod"),
        );
    }
    for group in groups {
        let directory = group.directory(&Path::new(host.0).join("sys/fs/cgroup"));
        let file = directory.join("cgroup.procs");
        fs::write(&file, process.to_string()).map_err(|error| on(&file, "written", error))?;
    }
    Ok(())
}

/// A cgroup in one of the hierarchies.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    /// What the hierarchy controls, as the kernel names it; nothing for the one
    /// that controls everything.
    controllers: String,
    /// Its path there.
    path: String,
}

impl Group {
    fn limits_memory(&self) -> bool {
        self.controllers.is_empty() || self.controllers.split(',').any(|name| name == "memory")
    }

    fn directory(&self, root: &Path) -> PathBuf {
        let hierarchy = match self.controllers.as_str() {
            "" if root.join("cgroup.controllers").exists() => root.to_owned(),
            "" => root.join("unified"),
            controllers => root.join(controllers.trim_start_matches("name=")),
        };
        hierarchy.join(self.path.trim_start_matches('/'))
    }
}

/// Those of a pod, from what the kernel says of a process in it. systemd does
/// not like dashes in names.
fn groups_of(text: &str, pod: &PodUid) -> Vec<Group> {
    let names = [format!("pod{pod}"), format!("pod{pod}").replace('-', "_")];
    let is_of_pod = |path: &str| {
        let mut parts = path.split('/');
        parts.any(|part| {
            names
                .iter()
                .any(|name| part.trim_end_matches(".slice").ends_with(name))
        })
    };
    let groups = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some(Group {
            controllers: fields.next()?.to_owned(),
            path: fields.next()?.to_owned(),
        })
    });
    // A path with ".." is seen from a namespace of its own.
    groups
        .filter(|group| is_of_pod(&group.path) && !group.path.split('/').any(|part| part == ".."))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    use super::*;

    fn pod() -> PodUid {
        PodUid::parse("0b6f8c1e-3c3e-4d3e-9a86-3f6b2f5f9c11").unwrap()
    }

    fn paths(text: &str) -> Vec<String> {
        let groups = groups_of(text, &pod());
        let paths = groups
            .iter()
            .map(|group| group.directory(Path::new("/nonexistent")));
        paths.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn version_one_has_a_hierarchy_for_each_controller() {
        let below = format!("/kubepods/burstable/pod{}/c1", pod());
        let text =
            format!("9:memory:{below}\n4:cpu,cpuacct:{below}\n1:name=systemd:{below}\n0::/\n");
        let expected = ["memory", "cpu,cpuacct", "systemd"];
        let expected = expected.map(|controller| format!("/nonexistent/{controller}{below}"));
        assert_eq!(paths(&text), expected);
    }

    #[test]
    fn version_two_has_one_and_systemd_writes_underscores() {
        let uid = pod().to_string().replace('-', "_");
        let path = format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-1.scope"
        );
        let groups = groups_of(&format!("0::{path}\n"), &pod());
        assert_eq!(groups.len(), 1);
        assert!(groups[0].limits_memory());
        assert_eq!(groups[0].path, path);
    }

    #[test]
    fn what_is_not_of_the_pod_is_left_alone() {
        let other =
            "9:memory:/kubepods/burstable/pod11111111-3c3e-4d3e-9a86-3f6b2f5f9c11/c1\n0::/\n";
        assert_eq!(groups_of(other, &pod()), []);
        let outside = format!("0::/../../pod{}/c1\n", pod());
        assert_eq!(groups_of(&outside, &pod()), []);
        assert_eq!(groups_of("", &pod()), []);
        assert_eq!(groups_of("x\n::\n", &pod()), []);
    }

    /// A directory that belongs to a tenant.
    struct Theirs(PathBuf);

    impl Theirs {
        fn new(name: &str) -> Self {
            let name = format!("disklet-sockets-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(path.join("launcher")).unwrap();
            Self(path)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join("launcher").join(name)
        }

        /// Listens at a socket, and says its name to who connects.
        fn listen(&self, name: &str) -> PathBuf {
            let path = self.path(name);
            let listener = UnixListener::bind(&path).unwrap();
            let name = name.to_owned();
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.write_all(name.as_bytes()).unwrap();
                }
            });
            path
        }
    }

    impl Drop for Theirs {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn who_listens(socket: &File) -> String {
        let mut stream =
            UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let mut name = String::new();
        stream.read_to_string(&mut name).unwrap();
        name
    }

    #[test]
    fn only_sockets_are_taken_for_sockets() {
        let theirs = Theirs::new("kinds");
        let elsewhere = theirs.0.join("elsewhere");
        let _other = UnixListener::bind(&elsewhere).unwrap();
        symlink(&elsewhere, theirs.path("link")).unwrap();
        symlink("../elsewhere", theirs.path("relative")).unwrap();
        symlink("nothing", theirs.path("dangling")).unwrap();
        symlink("loop", theirs.path("loop")).unwrap();
        symlink("/proc/self/root/run", theirs.path("magic")).unwrap();
        fs::write(theirs.path("file"), "").unwrap();
        fs::create_dir(theirs.path("directory")).unwrap();
        let mkfifo = Command::new("mkfifo").arg(theirs.path("pipe")).status();
        assert!(mkfifo.unwrap().success());
        let wrong = [
            "link",
            "relative",
            "dangling",
            "loop",
            "magic",
            "file",
            "directory",
            "pipe",
        ];
        for name in wrong {
            let failure = open_socket(Host::OURS, &theirs.path(name)).unwrap_err();
            let words = failure.to_string();
            assert!(
                words.contains(&format!("{name} is not a socket")),
                "{words}"
            );
        }
        let failure = open_socket(Host::OURS, &theirs.path("missing")).unwrap_err();
        assert!(failure.to_string().contains("cannot be opened"));
        let socket = theirs.listen("socket");
        let socket = open_socket(Host::OURS, &socket).unwrap();
        assert_eq!(who_listens(&socket), "socket");
    }

    /// What was looked at is what is connected to.
    #[test]
    fn a_socket_that_is_swapped_after_it_was_opened_changes_nothing() {
        let theirs = Theirs::new("swapped");
        let (first, second) = (theirs.listen("first"), theirs.listen("second"));
        let opened = open_socket(Host::OURS, &first).unwrap();
        fs::rename(&second, &first).unwrap();
        assert_eq!(who_listens(&opened), "first");
        let now = open_socket(Host::OURS, &first).unwrap();
        assert_eq!(who_listens(&now), "second");
        fs::remove_file(&first).unwrap();
        symlink("/run", &first).unwrap();
        assert_eq!(who_listens(&opened), "first");
        open_socket(Host::OURS, &first).unwrap_err();
    }

    /// The kubelet's directory is seen below another one: a link in it would lead
    /// out of that, if it were followed.
    #[test]
    fn a_machine_that_is_seen_elsewhere_has_the_same_rules() {
        let theirs = Theirs::new("host");
        theirs.listen("socket");
        symlink("/launcher/socket", theirs.path("link")).unwrap();
        let host = Host(theirs.0.to_str().unwrap());
        let socket = open_socket(host, Path::new("/launcher/socket")).unwrap();
        assert_eq!(who_listens(&socket), "socket");
        open_socket(host, Path::new("/launcher/link")).unwrap_err();
    }

    /// A process that does nothing, until it is dropped.
    struct Idle(std::process::Child);

    impl Idle {
        fn start() -> Self {
            let mut sleep = Command::new("sleep");
            Self(sleep.arg("600").spawn().unwrap())
        }
    }

    impl Drop for Idle {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// A host on which there is only the kernel's second version.
    fn second_version(scratch: &Path) -> PathBuf {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        let mount = mounts.find_map(|mut line| {
            let place = line.nth(1)?;
            (line.next() == Some("cgroup2")).then(|| PathBuf::from(place))
        });
        let mount = mount.expect("the kernel has a cgroup2 hierarchy, and it is mounted");
        fs::create_dir_all(scratch.join("sys/fs")).unwrap();
        std::os::unix::fs::symlink(&mount, scratch.join("sys/fs/cgroup")).unwrap();
        mount
    }

    #[test]
    #[ignore = "needs root and a cgroup2 hierarchy: script/test"]
    fn a_process_joins_a_launcher_in_the_one_hierarchy_of_version_two() {
        let scratch = std::env::temp_dir().join(format!("disklet-cgroup2-{}", std::process::id()));
        let pods = second_version(&scratch).join(format!("disklet-test-{}", std::process::id()));
        let group = pods.join(format!("pod{}", pod())).join("c1");
        fs::create_dir_all(&group).unwrap();
        let (launcher, qemu) = (Idle::start(), Idle::start());
        fs::write(group.join("cgroup.procs"), launcher.0.id().to_string()).unwrap();
        let root = scratch.to_str().unwrap();
        join(Host(root), qemu.0.id(), launcher.0.id(), &pod()).unwrap();
        let there = fs::read_to_string(group.join("cgroup.procs")).unwrap();
        assert!(there.lines().any(|it| it == qemu.0.id().to_string()));
        drop((launcher, qemu));
        for left in [&group, group.parent().unwrap(), &pods] {
            fs::remove_dir(left).unwrap();
        }
        fs::remove_dir_all(&scratch).unwrap();
    }
}
