//! Passwords and private keys in the user's own data.
//!
//! They come as plain text in a manifest, yet a plan that is printed or logged
//! must not repeat them.

use crate::text::{Data, Secret, Text};

const SECRET_KEYS: [&str; 19] = [
    "password",
    "passwd",
    "hashed_passwd",
    "plain_text_passwd",
    "admin_pass",
    "token",
    "registration_key",
    "private_key",
    "validation_key",
    "validation_cert",
    "private-cert",
    "private_cert",
    "activation-key",
    "activation_key",
    "auth_key",
    "api_key",
    "client_secret",
    "secret",
    "secret_key",
];

/// Makes every value that holds a password or a private key a secret one.
pub(super) fn conceal(entries: &mut [(String, Data)]) {
    for (key, value) in entries {
        match (key.as_str(), value) {
            (key, value) if SECRET_KEYS.contains(&key) => conceal_whole(value),
            ("chpasswd", value) => conceal_chpasswd(value),
            ("ssh_keys", Data::Map(keys)) => conceal_private_keys(keys),
            // Its interfaces are files with private keys in them.
            ("wireguard", value) => conceal_whole(value),
            (_, value) => conceal_within(value),
        }
    }
}

fn conceal_within(value: &mut Data) {
    match value {
        Data::Map(entries) => conceal(entries),
        Data::List(items) => items.iter_mut().for_each(conceal_within),
        Data::Null
        | Data::Bool(_)
        | Data::Int(_)
        | Data::Float(_)
        | Data::Text(_)
        | Data::Hidden(_) => {}
    }
}

/// `chpasswd` has its passwords under several names, some of them in a text
/// together with user names; only whether they expire is harmless.
fn conceal_chpasswd(value: &mut Data) {
    match value {
        Data::Map(entries) => entries
            .iter_mut()
            .filter(|(key, _)| key != "expire")
            .for_each(|(_, value)| conceal_whole(value)),
        value => conceal_whole(value),
    }
}

fn conceal_private_keys(keys: &mut [(String, Data)]) {
    keys.iter_mut()
        .filter(|(name, _)| name.ends_with("_private"))
        .for_each(|(_, value)| conceal_whole(value));
}

/// A password of digits reads as a number; cloud-init takes it as text anyway.
fn conceal_whole(value: &mut Data) {
    match value {
        Data::Null
        | Data::Bool(_)
        | Data::Hidden(_)
        | Data::Text(Text::Secret(_) | Text::Later(_)) => {}
        Data::Int(number) => *value = secret(number.to_string()),
        Data::Float(number) => *value = secret(as_python_prints(*number)),
        Data::Text(Text::Public(text)) => *value = secret(std::mem::take(text)),
        Data::List(items) => items.iter_mut().for_each(conceal_whole),
        Data::Map(entries) => entries
            .iter_mut()
            .for_each(|(_, value)| conceal_whole(value)),
    }
}

/// cloud-init makes a text of a number that stands for a password.
fn as_python_prints(number: f64) -> String {
    let text = format!("{number:?}").to_ascii_lowercase();
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

fn secret(text: String) -> Data {
    Data::Text(Text::Secret(Secret::new(text)))
}

/// Whether anything in `data` is secret.
pub(super) fn holds_secrets(data: &Data) -> bool {
    match data {
        Data::Text(text) => matches!(text, Text::Secret(_)),
        Data::Hidden(_) => true,
        Data::List(items) => items.iter().any(holds_secrets),
        Data::Map(entries) => entries.iter().any(|(_, value)| holds_secrets(value)),
        Data::Null | Data::Bool(_) | Data::Int(_) | Data::Float(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Reveal;

    fn shown(entries: Data) -> String {
        let Data::Map(mut entries) = entries else {
            panic!("the test's data is a mapping");
        };
        conceal(&mut entries);
        let data = Data::Map(entries);
        serde_json::to_string(&data.under(Reveal::Redact)).unwrap()
    }

    #[test]
    fn keys_of_other_modules_do_not_show() {
        let hidden = shown(Data::pairs([
            ("chef", Data::pairs([("validation_cert", Data::text("k"))])),
            ("wireguard", Data::pairs([("content", Data::text("k"))])),
        ]));
        let expected = concat!(
            r#"{"chef":{"validation_cert":"<redacted>"},"#,
            r#""wireguard":{"content":"<redacted>"}}"#
        );
        assert_eq!(hidden, expected);
    }

    #[test]
    fn passwords_of_users_do_not_show() {
        let user = Data::pairs([
            ("name", Data::text("admin")),
            ("lock_passwd", Data::Bool(false)),
            ("passwd", Data::text("$6$salt$hash")),
            ("hashed_passwd", Data::text("$6$salt$hash")),
            ("plain_text_passwd", Data::Int(123_456)),
        ]);
        let config = Data::pairs([
            ("users", Data::List(vec![user])),
            ("password", Data::text("hunter2")),
        ]);
        assert_eq!(
            shown(config),
            concat!(
                r#"{"users":[{"name":"admin","lock_passwd":false,"passwd":"<redacted>","#,
                r#""hashed_passwd":"<redacted>","plain_text_passwd":"<redacted>"}],"#,
                r#""password":"<redacted>"}"#
            )
        );
    }

    #[test]
    fn of_chpasswd_only_the_expiry_shows() {
        let user = Data::pairs([("name", Data::text("a")), ("password", Data::text("b"))]);
        let chpasswd = Data::pairs([
            ("expire", Data::Bool(false)),
            ("list", Data::text("root:hunter2\n")),
            ("users", Data::List(vec![user])),
        ]);
        assert_eq!(
            shown(Data::pairs([("chpasswd", chpasswd)])),
            concat!(
                r#"{"chpasswd":{"expire":false,"list":"<redacted>","#,
                r#""users":[{"name":"<redacted>","password":"<redacted>"}]}}"#
            )
        );
    }

    #[test]
    fn private_host_keys_do_not_show() {
        let keys = Data::pairs([
            ("rsa_private", Data::text("-----BEGIN")),
            ("rsa_public", Data::text("ssh-rsa AAAA")),
        ]);
        assert_eq!(
            shown(Data::pairs([("ssh_keys", keys)])),
            r#"{"ssh_keys":{"rsa_private":"<redacted>","rsa_public":"ssh-rsa AAAA"}}"#
        );
    }

    #[test]
    fn numbers_are_printed_as_python_does() {
        for (number, text) in [
            (1.5, "1.5"),
            (120_000.0, "120000.0"),
            (1e16, "1e+16"),
            (1.5e-7, "1.5e-07"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(as_python_prints(number), text);
        }
    }

    #[test]
    fn a_concealed_number_is_written_with_the_same_digits() {
        let mut entries = vec![("password".to_owned(), Data::Int(123_456))];
        conceal(&mut entries);
        let data = Data::Map(entries);
        assert!(holds_secrets(&data));
        let shown = serde_json::to_string(&data.under(Reveal::Show)).unwrap();
        assert_eq!(shown, r#"{"password":"123456"}"#);
    }
}
