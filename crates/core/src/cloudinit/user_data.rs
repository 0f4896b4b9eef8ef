//! user-data: what the guest does at boot.
//!
//! On the first boot of an instance cloud-init writes files, then mounts, and
//! runs commands last; from then on it runs what is in its per-boot directory.
//! The scripts that link and mount disks run among the commands, before the
//! user's, and put themselves into that directory: links in `/dev` do not
//! outlive a boot, and not every mount can stand in `/etc/fstab`.

use super::environment::{ENVIRONMENT_FILE, file_text};
use super::image::UserData;
use super::lists::{MOUNTS, Place, RUNCMD, WRITE_FILES, add};
use super::scripts::{
    KEEP_SCRIPT, LINK_SCRIPT, MOUNT_SCRIPT, embedded, keep_script, link_script, mount_script,
};
use super::{CloudInitSpec, GuestFile, MOUNT_SCRIPT_TOKEN, Mount, UserDataSpec, disks, secrets};
use crate::text::{Data, Text};

const PER_BOOT_DIRECTORY: &str = "/var/lib/cloud/scripts/per-boot/";

/// The document of `spec`.
pub(super) fn document(spec: &CloudInitSpec) -> UserData {
    match &spec.user_data {
        UserDataSpec::Config(config) => UserData::Config(with_ours(config.clone(), spec)),
        UserDataSpec::Script(script) => UserData::Script(script.map(|script| {
            script.replace(MOUNT_SCRIPT_TOKEN, &embedded(&spec.links, &spec.mounts))
        })),
    }
}

fn with_ours(mut config: Vec<(String, Data)>, spec: &CloudInitSpec) -> Data {
    secrets::conceal(&mut config);
    disks::settle_users(&mut config, &spec.links);
    add(
        &mut config,
        MOUNTS,
        disks::entries(&spec.mounts),
        Place::After,
    );
    add(&mut config, WRITE_FILES, files(spec), Place::After);
    add(&mut config, RUNCMD, commands(spec), Place::Before);
    Data::Map(config)
}

/// Directories in memory, on usual systems.
const VOLATILE: [&str; 3] = ["/run/", "/var/run/", "/dev/"];

/// Files that the next boot would lose, such as a service account's token.
fn volatile(spec: &CloudInitSpec) -> Vec<&str> {
    let paths = spec.files.iter().map(|file| file.path.as_str());
    paths
        .filter(|path| VOLATILE.iter().any(|directory| path.starts_with(directory)))
        .collect()
}

fn files(spec: &CloudInitSpec) -> Vec<Data> {
    let mut files: Vec<Data> = spec
        .files
        .iter()
        .map(|file| encoded_file(file, &spec.mounts))
        .collect();
    let volatile = volatile(spec);
    if !volatile.is_empty() {
        files.push(text_file(KEEP_SCRIPT, 0o755, keep_script(&volatile).into()));
    }
    if !spec.links.is_empty() {
        files.push(text_file(
            LINK_SCRIPT,
            0o755,
            link_script(&spec.links).into(),
        ));
    }
    if !spec.mounts.is_empty() {
        files.push(text_file(
            MOUNT_SCRIPT,
            0o755,
            mount_script(&spec.mounts).into(),
        ));
    }
    if !spec.environment.is_empty() {
        let text = file_text(&spec.environment);
        // Everybody may read it, as with Virtlet, unless there is a secret in it.
        let mode = if matches!(text, Text::Public(_)) {
            0o644
        } else {
            0o600
        };
        files.push(text_file(ENVIRONMENT_FILE, mode, text));
    }
    files
}

fn encoded_file(file: &GuestFile, mounts: &[Mount]) -> Data {
    let mut fields = vec![
        ("path", Data::text(file.path.as_str())),
        ("permissions", permissions(file.mode)),
        ("encoding", Data::text("b64")),
        ("content", Data::Text(file.content.to_base64())),
    ];
    // Files are written before disks are mounted: on a disk it would be
    // hidden by the mount. Deferred ones come after.
    if mounts.iter().any(|mount| file.path.is_below(&mount.path)) {
        fields.push(("defer", Data::Bool(true)));
    }
    Data::pairs(fields)
}

fn text_file(path: &str, mode: u32, content: Text) -> Data {
    Data::pairs([
        ("path", Data::text(path)),
        ("permissions", permissions(mode)),
        ("content", Data::Text(content)),
    ])
}

fn permissions(mode: u32) -> Data {
    Data::text(format!("{:04o}", mode & 0o7777))
}

fn commands(spec: &CloudInitSpec) -> Vec<Data> {
    let mut scripts = Vec::new();
    if !volatile(spec).is_empty() {
        scripts.push(KEEP_SCRIPT);
    }
    if !spec.links.is_empty() {
        scripts.push(LINK_SCRIPT);
    }
    if !spec.mounts.is_empty() {
        scripts.push(MOUNT_SCRIPT);
    }
    if scripts.is_empty() {
        return Vec::new();
    }
    let mut commands: Vec<Data> = scripts
        .iter()
        .map(|script| Data::texts([*script]))
        .collect();
    let install = [["ln", "-sf"].as_slice(), &scripts, &[PER_BOOT_DIRECTORY]].concat();
    commands.push(Data::texts(install));
    commands
}

#[cfg(test)]
mod tests {
    use super::super::testing::{link, mount, spec};
    use super::*;
    use crate::guest::GuestPath;
    use crate::text::{Content, Reveal, Secret};

    fn config(spec: &CloudInitSpec) -> Data {
        match document(spec) {
            UserData::Config(config) => config,
            UserData::Script(_) => panic!("the test has no script"),
        }
    }

    fn users(key: &str, value: Data) -> UserDataSpec {
        UserDataSpec::Config(vec![(key.to_owned(), value)])
    }

    fn file(path: &str, mode: u32, content: Content) -> GuestFile {
        GuestFile {
            path: GuestPath::parse(path).unwrap(),
            mode,
            content,
        }
    }

    /// What `write_files` has under `key`, file by file.
    fn written(config: &Data, key: &str) -> Vec<String> {
        let Some(Data::List(files)) = config.get("write_files") else {
            return Vec::new();
        };
        let text = |file: &Data| match file.get(key) {
            Some(Data::Text(text)) => text.render(Reveal::Redact),
            _ => String::new(),
        };
        files.iter().map(text).collect()
    }

    #[test]
    fn the_users_commands_run_after_ours() {
        let mut spec = spec();
        spec.user_data = users("runcmd", Data::texts(["touch /data/here"]));
        assert_eq!(
            config(&spec).get("runcmd"),
            Some(&Data::texts(["touch /data/here"]))
        );

        spec.links = vec![link("/dev/testpvc")];
        spec.mounts = vec![mount("/data")];
        let install = [
            "ln",
            "-sf",
            "/etc/cloud/symlink-devs.sh",
            "/etc/cloud/mount-volumes.sh",
            "/var/lib/cloud/scripts/per-boot/",
        ];
        assert_eq!(
            config(&spec).get("runcmd"),
            Some(&Data::List(vec![
                Data::texts(["/etc/cloud/symlink-devs.sh"]),
                Data::texts(["/etc/cloud/mount-volumes.sh"]),
                Data::texts(install),
                Data::text("touch /data/here"),
            ]))
        );
    }

    #[test]
    fn the_users_mounts_and_files_come_first() {
        let mut spec = spec();
        let tmpfs = Data::texts(["tmpfs", "/scratch", "tmpfs"]);
        let motd = Data::pairs([("path", Data::text("/etc/motd"))]);
        spec.user_data = UserDataSpec::Config(vec![
            ("mounts".to_owned(), Data::List(vec![tmpfs.clone()])),
            ("write_files".to_owned(), Data::List(vec![motd])),
            ("packages".to_owned(), Data::texts(["vim"])),
        ]);
        spec.mounts = vec![mount("/data")];
        let config = config(&spec);
        let [ours] = disks::entries(&spec.mounts).try_into().unwrap();
        assert_eq!(config.get("mounts"), Some(&Data::List(vec![tmpfs, ours])));
        assert_eq!(
            written(&config, "path"),
            ["/etc/motd", "/etc/cloud/mount-volumes.sh"]
        );
        assert_eq!(config.get("packages"), Some(&Data::texts(["vim"])));
    }

    #[test]
    fn files_scripts_and_environment_are_written_in_order() {
        let mut spec = spec();
        spec.files = vec![
            file("/etc/b", 0o100_640, Content::public("hi\n")),
            file("/etc/a", 0o4, Content::Secret(Secret::new("hunter2"))),
            file(
                "/etc/token",
                0o600,
                Content::Later("issued at start".to_owned()),
            ),
        ];
        spec.links = vec![link("/dev/testpvc")];
        spec.mounts = vec![mount("/data")];
        spec.environment = vec![("A".to_owned(), "b c".into())];
        let config = config(&spec);
        assert_eq!(
            written(&config, "path"),
            [
                "/etc/b",
                "/etc/a",
                "/etc/token",
                "/etc/cloud/symlink-devs.sh",
                "/etc/cloud/mount-volumes.sh",
                "/etc/cloud/environment",
            ]
        );
        assert_eq!(
            written(&config, "permissions"),
            ["0640", "0004", "0600", "0755", "0755", "0644"]
        );
        assert_eq!(
            written(&config, "encoding"),
            ["b64", "b64", "b64", "", "", ""]
        );
        let contents = written(&config, "content");
        assert_eq!(contents[..3], ["aGkK", "<redacted>", "<issued at start>"]);
        assert_eq!(contents[5], "A='b c'\n");
        assert!(secrets::holds_secrets(&config));
    }

    #[test]
    fn files_on_a_mounted_disk_are_written_after_the_mount() {
        let mut spec = spec();
        spec.mounts = vec![mount("/data")];
        spec.files = vec![
            file("/data/conf/a", 0o644, Content::public("a")),
            file("/database/b", 0o644, Content::public("b")),
        ];
        let config = config(&spec);
        let Some(Data::List(files)) = config.get("write_files") else {
            panic!("no files")
        };
        assert_eq!(files[0].get("defer"), Some(&Data::Bool(true)));
        assert_eq!(files[1].get("defer"), None);
    }

    #[test]
    fn files_in_memory_are_kept_over_boots() {
        let mut spec = spec();
        let token = "/var/run/secrets/token";
        spec.files = vec![file(token, 0o600, Content::public("t"))];
        let config = config(&spec);
        assert_eq!(
            written(&config, "path"),
            [token, "/etc/cloud/keep-files.sh"]
        );
        assert!(written(&config, "content")[1].ends_with(
            "\nkeep_file /var/run/secrets/token /var/lib/disklet/files/var/run/secrets/token\n"
        ));
        let per_boot = ["ln", "-sf", KEEP_SCRIPT, PER_BOOT_DIRECTORY];
        assert_eq!(
            config.get("runcmd"),
            Some(&Data::List(vec![
                Data::texts([KEEP_SCRIPT]),
                Data::texts(per_boot)
            ]))
        );
    }

    #[test]
    fn scripts_are_readable_in_the_document() {
        let mut spec = spec();
        spec.links = vec![link("/dev/testpvc")];
        let text = spec.build().user_data_text(Reveal::Redact);
        let script = "  content: |\n    #!/bin/sh\n    # Links the disks of this virtual machine";
        assert!(text.contains(script), "{text}");
    }

    #[test]
    fn a_script_takes_the_place_of_the_configuration() {
        let mut spec = spec();
        spec.mounts = vec![mount("/data")];
        spec.user_data = UserDataSpec::Script(
            "#!/bin/sh\n@virtlet-mount-script@\necho @virtlet-mount-script@\n".into(),
        );
        let body = embedded(&[], &spec.mounts);
        assert_eq!(
            document(&spec),
            UserData::Script(format!("#!/bin/sh\n{body}\necho {body}\n").into())
        );
    }

    #[test]
    fn a_secret_script_stays_secret() {
        let mut spec = spec();
        spec.user_data =
            UserDataSpec::Script(Text::Secret(Secret::new("x @virtlet-mount-script@")));
        assert_eq!(
            document(&spec),
            UserData::Script(Text::Secret(Secret::new("x :")))
        );
    }
}
