//! The container's environment, as a file for a shell to read.

use super::shell::quote;
use crate::text::{Secret, Text};

/// Where the environment goes; Virtlet's name for it.
pub(super) const ENVIRONMENT_FILE: &str = "/etc/cloud/environment";

/// The file's text: secret if a value is, unknown as long as a value is.
pub(super) fn file_text(variables: &[(String, Text)]) -> Text {
    let unknown = variables.iter().find_map(|(_, value)| match value {
        Text::Later(when) => Some(when),
        Text::Public(_) | Text::Secret(_) => None,
    });
    if let Some(when) = unknown {
        return Text::Later(when.clone());
    }
    let line = |(name, value): &(String, Text)| {
        format!("{name}={}\n", quote(value.known().unwrap_or_default()))
    };
    let text: String = variables.iter().map(line).collect();
    if variables
        .iter()
        .any(|(_, value)| matches!(value, Text::Secret(_)))
    {
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
    fn a_value_to_come_leaves_the_file_to_come() {
        let later = Text::Later("issued when the pod starts".to_owned());
        let variables = [
            variable("KEY", Text::Secret(Secret::new("hunter2"))),
            variable("TOKEN", later.clone()),
        ];
        assert_eq!(file_text(&variables), later);
    }
}
