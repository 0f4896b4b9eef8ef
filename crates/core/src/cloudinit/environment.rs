//! The container's environment, as a file for a shell to read.

use super::shell::quote;
use crate::text::{Reveal, Secret, Text};

/// Where the environment goes; Virtlet's name for it.
pub(super) const ENVIRONMENT_FILE: &str = "/etc/cloud/environment";

/// The file's text, which is secret if a value is. A value to come has a line
/// that shells pass over: the others are known all the same.
pub(super) fn file_text(variables: &[(String, Text)]) -> Text {
    let line = |(name, value): &(String, Text)| match value {
        Text::Later(_) => format!("# {name}={}\n", value.render(Reveal::Redact)),
        Text::Public(_) | Text::Secret(_) => {
            format!("{name}={}\n", quote(value.known().unwrap_or_default()))
        }
    };
    let text: String = variables.iter().map(line).collect();
    let is_secret = |(_, value): &(String, Text)| matches!(value, Text::Secret(_));
    if variables.iter().any(is_secret) {
        Text::Secret(Secret::new(text))
    } else {
        Text::Public(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shell::testing::sh;
    use super::*;

    fn variable(name: &str, value: Text) -> (String, Text) {
        (name.to_owned(), value)
    }

    #[test]
    fn values_are_quoted_where_a_shell_needs_it() {
        let variables = [
            variable("PLAIN", "a/b:c,d=1".into()),
            variable("EMPTY", "".into()),
            variable("SPACED", "it's $HOME".into()),
        ];
        let text = file_text(&variables);
        assert_eq!(
            text,
            Text::from("PLAIN=a/b:c,d=1\nEMPTY=''\nSPACED='it'\\''s $HOME'\n")
        );
        let read = format!("{}printf %s \"$SPACED\"", text.known().unwrap());
        assert_eq!(sh(&read), "it's $HOME");
    }

    #[test]
    fn one_secret_value_makes_the_file_secret() {
        let variables = [
            variable("OPEN", "a".into()),
            variable("KEY", Text::Secret(Secret::new("hunter2"))),
        ];
        assert_eq!(
            file_text(&variables),
            Text::Secret(Secret::new("OPEN=a\nKEY=hunter2\n"))
        );
    }

    #[test]
    fn a_value_to_come_hides_nothing_but_itself() {
        let later = || variable("IP", Text::Later("known when the pod runs".to_owned()));
        let text = file_text(&[
            variable("A", "1".into()),
            later(),
            variable("B", "2".into()),
        ]);
        assert_eq!(
            text,
            Text::from("A=1\n# IP=<known when the pod runs>\nB=2\n")
        );
        let read = format!("{}printf %s \"$A${{IP-none}}$B\"", text.known().unwrap());
        assert_eq!(sh(&read), "1none2");

        let secret = variable("KEY", Text::Secret(Secret::new("hunter2")));
        assert_eq!(
            file_text(&[secret, later()]),
            Text::Secret(Secret::new("KEY=hunter2\n# IP=<known when the pod runs>\n"))
        );
    }
}
