//! `VirtletImageMapping`: where images come from, by their names.

use super::Column;
use super::schema::Schema;
use super::status::condition;

pub(super) fn schema() -> Schema {
    Schema::closed(
        "Maps names of images to addresses. Only those in Disklet's own namespace count.",
    )
    .require(["spec"])
    .field("apiVersion", Schema::text("virtlet.k8s/v1."))
    .field("kind", Schema::text("VirtletImageMapping."))
    .field("spec", spec())
    .field("status", status())
}

pub(super) fn columns() -> Vec<Column> {
    let of_accepted = "Whether its names count";
    vec![
        Column::text(
            "Accepted",
            0,
            ".status.conditions[?(@.type==\"Accepted\")].status",
            of_accepted,
        ),
        Column::age(),
        Column::text(
            "Message",
            1,
            ".status.conditions[?(@.type==\"Accepted\")].message",
            "Why they do or do not",
        ),
    ]
}

fn spec() -> Schema {
    Schema::object("The mapping.")
        .require(["translations"])
        .field(
            "prefix",
            Schema::text("All names of the mapping begin with this and a slash."),
        )
        .field(
            "translations",
            Schema::list(translation(), "What names stand for. Whole names win over regular expressions."),
        )
        .field(
            "transports",
            Schema::map(
                transport(),
                "Ways to fetch files, by names that translations use; the one with an empty name is that of the others.",
            ),
        )
}

fn translation() -> Schema {
    Schema::object("What a name, or all that a regular expression matches, stands for.")
        .require(["url"])
        .field("name", Schema::text("A whole name, without the prefix."))
        .field(
            "regexp",
            Schema::text("Instead of a name. It need not match the whole name: use ^ and $."),
        )
        .field(
            "url",
            Schema::text("The address, by https unless it begins with http://; $1 is the first group of the regular expression."),
        )
        .field(
            "digest",
            Schema::text("sha256: and the digest that the file must have."),
        )
        .field("transport", Schema::text("The name of a transport."))
}

fn transport() -> Schema {
    Schema::object("A way to fetch files.")
        .field(
            "timeout",
            Schema::number(
                "Milliseconds that one request may take, answer and all; no limit if absent.",
            ),
        )
        .field(
            "connectTimeout",
            Schema::number("Milliseconds until there is a connection."),
        )
        .field(
            "stallTimeout",
            Schema::number("Milliseconds in which nothing comes."),
        )
        .field(
            "maxRedirects",
            Schema::number("How many redirects are followed, at most 20."),
        )
        .field(
            "proxy",
            Schema::text("The proxy's address, instead of that of the agents' environment."),
        )
        .field("tls", tls())
}

fn tls() -> Schema {
    Schema::object("Whom to trust, and who we are.")
        .field(
            "certificates",
            Schema::list(
                Schema::object("A certificate: with a key it is ours, without it an authority's.")
                    .require(["cert"])
                    .field("cert", Schema::text("The certificate, in PEM."))
                    .field("key", Schema::text("Its key, in PEM.")),
                "Certificates.",
            ),
        )
        .field(
            "insecure",
            Schema::flag("Whoever answers is believed to be the server."),
        )
}

fn status() -> Schema {
    Schema::closed("Whether the mapping counts.").field(
        "conditions",
        Schema::list_by(
            "type",
            condition(),
            "Accepted: its names count; if not, the message says why.",
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value, json};

    use super::*;
    use crate::diag::{Diagnostic, Diagnostics};
    use crate::images::ImageMapping;
    use crate::manifest::Input;

    /// What the reader has against a spec.
    fn problems(spec: &Value) -> Vec<Diagnostic> {
        let object = json!({"kind": "VirtletImageMapping", "spec": spec});
        let input = Input {
            name: "map.json".into(),
            text: object.to_string(),
        };
        let mut diags = Diagnostics::default();
        ImageMapping::default().read_object(&input, &mut diags);
        diags.into_sorted()
    }

    /// The fields that the reader names when it finds an unknown one.
    fn known(spec: &Value) -> BTreeSet<String> {
        let told = problems(spec);
        let unknown = told.iter().find(|it| it.message.starts_with("unknown"));
        let allowed = unknown.unwrap().allowed.clone().unwrap();
        allowed.split(", ").map(str::to_owned).collect()
    }

    fn described(schema: &Schema) -> BTreeSet<String> {
        let names = schema.properties.iter().map(|(name, _)| *name);
        names.map(str::to_owned).collect()
    }

    #[test]
    fn the_reader_knows_the_fields_of_the_schema() {
        let odd = json!({"no-such-field": 1});
        assert_eq!(described(&spec()), known(&odd));
        let rule = json!({"translations": [odd]});
        assert_eq!(described(&translation()), known(&rule));
        // What names files of nodes is refused of objects.
        let of_nodes = ["credentialsFile", "caFile", "certFile", "keyFile"];
        for (schema, place) in [
            (transport(), json!({"": odd})),
            (tls(), json!({"": {"tls": odd}})),
        ] {
            let mut known = known(&json!({"translations": [], "transports": place}));
            known.retain(|name| !of_nodes.contains(&name.as_str()));
            assert_eq!(described(&schema), known);
        }
    }

    /// A mapping with everything in it fits both.
    #[test]
    fn what_the_schema_describes_is_taken() {
        let certificate = json!({"cert": "-----BEGIN CERTIFICATE-----"});
        let spec = json!({
            "prefix": "mirror",
            "translations": [
                {"name": "a", "url": "host.example/a", "digest": format!("sha256:{}", "a".repeat(64))},
                {"regexp": "b(.*)", "url": "host.example/$1", "transport": "slow"},
            ],
            "transports": {"slow": {
                "timeout": 1000, "connectTimeout": 1000, "stallTimeout": 1000, "maxRedirects": 3,
                "proxy": "http://proxy.example:3128",
                "tls": {"certificates": [certificate], "insecure": false},
            }},
        });
        assert_eq!(problems(&spec), []);
    }

    #[test]
    fn the_schema_is_structural() {
        fn check(schema: &Value, at: &str) {
            let none = Map::new();
            let fields = schema["properties"].as_object().unwrap_or(&none);
            assert!(schema["type"].is_string(), "{at}: {schema}");
            assert!(
                fields.is_empty() || schema["additionalProperties"].is_null(),
                "{at}"
            );
            for (name, field) in fields {
                check(field, &format!("{at}.{name}"));
            }
            for inner in ["items", "additionalProperties"] {
                if schema[inner].is_object() {
                    check(&schema[inner], &format!("{at}.{inner}"));
                }
            }
        }
        check(&serde_json::to_value(schema()).unwrap(), "");
    }
}
