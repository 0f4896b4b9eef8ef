//! The documents of a cloud-init image, and their text.

use super::lists::WRITE_FILES;
use super::{CloudInitSpec, ImageType, meta_data, network, secrets, user_data};
use crate::text::{Data, Reveal, Text};

/// What goes into a VM's cloud-init image.
#[derive(Debug, Clone, PartialEq)]
pub struct CloudInit {
    /// The layout.
    pub image_type: ImageType,
    /// Who the guest is.
    pub meta_data: Data,
    /// What the guest does at boot.
    pub user_data: UserData,
    /// How the guest reaches the network; absent leaves it to the guest.
    pub network_config: Option<Data>,
}

/// What the guest does at boot.
#[derive(Debug, Clone, PartialEq)]
pub enum UserData {
    /// A `#cloud-config` mapping.
    Config(Data),
    /// A script, or whatever else the user gave in its place.
    Script(Text),
}

impl CloudInitSpec {
    /// The image's documents.
    #[must_use]
    pub fn build(&self) -> CloudInit {
        CloudInit {
            image_type: self.image_type,
            meta_data: meta_data::document(self),
            user_data: user_data::document(self),
            network_config: self
                .network
                .as_ref()
                .map(|network| network::document(network, self.image_type)),
        }
    }
}

impl CloudInit {
    /// The volume label by which guests find the image.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self.image_type {
            ImageType::NoCloud => "cidata",
            ImageType::ConfigDrive => "config-2",
        }
    }

    /// meta-data; JSON, since CirrOS reads nothing else.
    #[must_use]
    pub fn meta_data_text(&self, reveal: Reveal) -> String {
        json(&self.meta_data, reveal)
    }

    /// user-data.
    #[must_use]
    pub fn user_data_text(&self, reveal: Reveal) -> String {
        match &self.user_data {
            UserData::Config(config) => format!("#cloud-config\n{}", yaml(config, reveal)),
            UserData::Script(script) => script.render(reveal),
        }
    }

    /// network-config, if there is one.
    #[must_use]
    pub fn network_config_text(&self, reveal: Reveal) -> Option<String> {
        let config = self.network_config.as_ref()?;
        Some(match self.image_type {
            ImageType::NoCloud => yaml(config, reveal),
            ImageType::ConfigDrive => json(config, reveal),
        })
    }

    /// The image's files: paths in it, and contents.
    #[must_use]
    pub fn files(&self, reveal: Reveal) -> Vec<(&'static str, String)> {
        let [meta_data, user_data, network_config] = match self.image_type {
            ImageType::NoCloud => ["meta-data", "user-data", "network-config"],
            ImageType::ConfigDrive => [
                "openstack/latest/meta_data.json",
                "openstack/latest/user_data",
                "openstack/latest/network_data.json",
            ],
        };
        let mut files = vec![
            (meta_data, self.meta_data_text(reveal)),
            (user_data, self.user_data_text(reveal)),
        ];
        files.extend(
            self.network_config_text(reveal)
                .map(|text| (network_config, text)),
        );
        files
    }

    /// The same without files whose contents are not known: the guest has none
    /// rather than one that says when it would be known.
    #[must_use]
    pub fn as_far_as_known(&self) -> Self {
        let mut known = self.clone();
        if let UserData::Config(config) = &mut known.user_data
            && let Some(entries) = config.entries_mut()
        {
            for (key, value) in entries {
                if let (WRITE_FILES, Data::List(files)) = (key.as_str(), value) {
                    files.retain(is_known_file);
                }
            }
        }
        known
    }

    /// Whether anything in the image must not show.
    #[must_use]
    pub fn holds_secrets(&self) -> bool {
        let in_user_data = match &self.user_data {
            UserData::Config(config) => secrets::holds_secrets(config),
            UserData::Script(script) => matches!(script, Text::Secret(_)),
        };
        in_user_data || secrets::holds_secrets(&self.meta_data)
    }
}

fn is_known_file(file: &Data) -> bool {
    !matches!(file.get("content"), Some(Data::Text(Text::Later(_))))
}

/// [`Data`] has only text for keys and memory takes any amount of it, which
/// leaves the serializers nothing to fail at.
fn json(data: &Data, reveal: Reveal) -> String {
    let text = serde_json::to_string_pretty(&data.under(reveal)).unwrap_or_default();
    text + "\n"
}

/// An empty mapping is written as `{}`: of a `#cloud-config` without any cloud-init
/// complains in its log.
fn yaml(data: &Data, reveal: Reveal) -> String {
    serde_saphyr::to_string(&data.under(reveal)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::testing::spec;
    use super::super::{GuestFile, NetworkSpec, UserDataSpec};
    use super::*;
    use crate::guest::GuestPath;
    use crate::text::{Content, Secret};

    #[test]
    fn guests_find_either_image_by_its_label_and_paths() {
        let mut spec = spec();
        spec.network = Some(NetworkSpec {
            mac: "52:54:00:12:34:56".to_owned(),
        });
        let names = |image: &CloudInit| -> Vec<_> {
            image
                .files(Reveal::Redact)
                .into_iter()
                .map(|(name, _)| name)
                .collect()
        };
        let image = spec.build();
        assert_eq!(image.label(), "cidata");
        assert_eq!(names(&image), ["meta-data", "user-data", "network-config"]);

        spec.image_type = ImageType::ConfigDrive;
        let image = spec.build();
        assert_eq!(image.label(), "config-2");
        assert_eq!(
            names(&image),
            [
                "openstack/latest/meta_data.json",
                "openstack/latest/user_data",
                "openstack/latest/network_data.json",
            ]
        );
    }

    #[test]
    fn what_is_not_known_is_left_out_of_the_image() {
        let file = |path: &str, content| GuestFile {
            path: GuestPath::parse(path).unwrap(),
            mode: 0o644,
            content,
        };
        let mut spec = spec();
        spec.files = vec![
            file("/known", Content::Public(b"here".to_vec())),
            file(
                "/token",
                Content::Later("issued when the pod starts".to_owned()),
            ),
        ];
        let known = spec.build().as_far_as_known();
        let text = known.user_data_text(Reveal::Show);
        assert!(
            text.contains("/known") && !text.contains("/token"),
            "{text}"
        );
    }

    #[test]
    fn an_image_has_meta_data_and_user_data_even_when_empty() {
        let image = spec().build();
        assert_eq!(
            image.files(Reveal::Show),
            [
                (
                    "meta-data",
                    "{\n  \"instance-id\": \"6ff0c1d2\",\n  \"local-hostname\": \"my-vm\"\n}\n"
                        .to_owned()
                ),
                ("user-data", "#cloud-config\n{}\n".to_owned()),
            ]
        );
        assert!(!image.holds_secrets());
    }

    #[test]
    fn secrets_show_only_on_request() {
        let mut spec = spec();
        let secret = || Text::Secret(Secret::new("#!/bin/sh\necho hunter2\n"));
        spec.user_data = UserDataSpec::Script(secret());
        let image = spec.build();
        assert!(image.holds_secrets());
        assert_eq!(image.user_data_text(Reveal::Redact), "<redacted>");
        assert_eq!(
            image.user_data_text(Reveal::Show),
            "#!/bin/sh\necho hunter2\n"
        );

        spec.user_data = UserDataSpec::Config(vec![("password".to_owned(), Data::text("hunter2"))]);
        let image = spec.build();
        assert!(image.holds_secrets());
        assert_eq!(
            image.user_data_text(Reveal::Redact),
            "#cloud-config\npassword: <redacted>\n"
        );
        assert_eq!(
            image.user_data_text(Reveal::Show),
            "#cloud-config\npassword: hunter2\n"
        );
    }
}
