//! By which names people call what must not show.
//!
//! A password that stands in a manifest is there for everybody who has the
//! manifest. A plan is printed and logged elsewhere, so it does not repeat it.

use crate::text::Data;

/// Parts of names of passwords and keys, however words are put together.
const WITHIN: [&str; 10] = [
    "accesskey",
    "apikey",
    "authkey",
    "credential",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "token",
];

/// Words that are too short to be looked for within others.
const WORDS: [&str; 6] = ["auth", "authorization", "cookie", "pass", "pw", "pwd"];

/// Whether a value of this name is likely to be a password, a key or a token.
/// That some are hidden that need not be does no harm.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<_> = name
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let together = words.concat();
    let is_key = words.last() == Some(&"key") && !together.contains("pub");
    is_key
        || WITHIN.iter().any(|part| together.contains(part))
        || words.iter().any(|word| WORDS.contains(word))
}

/// Whether an address in it has a password before its host.
pub(crate) fn has_login(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or(rest);
        let login = authority.rsplit_once('@').map(|(login, _)| login);
        login.is_some_and(|login| login.contains(':'))
    })
}

/// Hides what looks like a password among the literals of a container: values
/// beside such a name, arguments that have or follow one, addresses with a login.
pub(crate) fn conceal_literals(fields: &mut Data) {
    match fields {
        Data::Map(entries) => {
            conceal_value(entries);
            for (key, value) in entries {
                match (key.as_str(), value) {
                    ("args" | "command", Data::List(items)) => conceal_arguments(items),
                    (_, value) => conceal_literals(value),
                }
            }
        }
        Data::List(items) => items.iter_mut().for_each(conceal_literals),
        Data::Text(_)
        | Data::Null
        | Data::Bool(_)
        | Data::Int(_)
        | Data::Float(_)
        | Data::Hidden(_) => {}
    }
}

/// `{name, value}`: a variable, or a header of a probe.
fn conceal_value(entries: &mut [(String, Data)]) {
    let named = entries.iter().any(|(key, value)| match value {
        Data::Text(name) if key == "name" => name.known().is_some_and(names_a_secret),
        _ => false,
    });
    for (_, value) in entries.iter_mut().filter(|(key, _)| key == "value") {
        let login = literal(value).is_some_and(has_login);
        if named || login {
            hide(value);
        }
    }
}

/// `--password=…`, `--password …`, `PASSWORD=…`, `Authorization: …`.
fn conceal_arguments(items: &mut [Data]) {
    let mut follows = false;
    for item in items {
        let Some(text) = literal(item) else {
            follows = false;
            continue;
        };
        let (name, is_whole) = match text.split_once(['=', ':']) {
            Some((name, _)) => (name, false),
            None => (text, true),
        };
        let is_flag = text.starts_with('-');
        let secret = names_a_secret(name);
        let hidden = (follows && !is_flag) || (secret && !is_whole) || has_login(text);
        follows = is_flag && is_whole && secret;
        if hidden {
            hide(item);
        }
    }
}

fn literal(value: &Data) -> Option<&str> {
    match value {
        Data::Text(text) => text.known(),
        _ => None,
    }
}

fn hide(value: &mut Data) {
    *value = std::mem::replace(value, Data::Null).hidden();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Reveal;

    #[test]
    fn passwords_are_known_by_their_names() {
        for secret in [
            "PASSWORD",
            "DB_PASSWORD_FILE",
            "--adminPassword",
            "api-key",
            "apiKey",
            "CEPH_KEY",
            "X-Auth-Token",
            "Authorization",
            "AWS_SECRET_ACCESS_KEY",
            "PGPASSWD",
            "db.pass",
        ] {
            assert!(names_a_secret(secret), "{secret}");
        }
        for open in [
            "SIZE",
            "KEYBOARD",
            "SSH_PUBLIC_KEY",
            "POOL",
            "PASSIVE",
            "AUTHOR",
            "",
        ] {
            assert!(!names_a_secret(open), "{open}");
        }
    }

    #[test]
    fn logins_stand_before_hosts() {
        assert!(has_login("https://me:hunter2@host/x"));
        assert!(has_login("from https://a, postgres://me:hunter2@db:5432/x"));
        assert!(!has_login("https://me@host:80/x:y@z"));
        assert!(!has_login("me:hunter2@host"));
    }

    fn shown(mut fields: Data) -> String {
        conceal_literals(&mut fields);
        serde_json::to_string(&fields.under(Reveal::Redact)).unwrap()
    }

    fn variable(name: &str, value: &str) -> Data {
        Data::pairs([("name", Data::text(name)), ("value", Data::text(value))])
    }

    #[test]
    fn values_of_variables_and_headers_do_not_show() {
        let fields = Data::pairs([
            (
                "env",
                Data::List(vec![
                    variable("PASSWORD", "hunter2"),
                    variable("DB", "postgres://me:hunter2@db"),
                    variable("SIZE", "10Gi"),
                ]),
            ),
            (
                "livenessProbe",
                Data::pairs([(
                    "httpGet",
                    Data::pairs([(
                        "httpHeaders",
                        Data::List(vec![variable("Authorization", "Bearer hunter2")]),
                    )]),
                )]),
            ),
        ]);
        let text = shown(fields);
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(text.matches("<redacted>").count(), 3);
        assert!(text.contains(r#"{"name":"SIZE","value":"10Gi"}"#), "{text}");
    }

    #[test]
    fn arguments_do_not_show_that_have_a_password_or_follow_its_name() {
        let arguments = [
            "--password=hunter2",
            "--token",
            "hunter2",
            "--secret",
            "--size=10Gi",
            "PASSWORD=hunter2",
            "-H",
            "Authorization: Bearer hunter2",
            "https://me:hunter2@host",
            "password",
            "open",
        ];
        assert_eq!(
            shown(Data::pairs([("args", Data::texts(arguments))])),
            concat!(
                r#"{"args":["<redacted>","--token","<redacted>","--secret","--size=10Gi","#,
                r#""<redacted>","-H","<redacted>","<redacted>","password","open"]}"#
            )
        );
    }
}
