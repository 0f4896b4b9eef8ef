//! Structural schemas: what the API server knows of a field.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// A structural OpenAPI schema, with the parts that we use.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Schema {
    /// For people: what `kubectl explain` shows.
    pub description: &'static str,
    /// The type; absent if a value may be of several.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// How a text is to be read, such as `date-time`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<&'static str>,
    /// The words of a closed set.
    #[serde(rename = "enum", skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<&'static str>,
    /// Nothing is taken away that is not described.
    #[serde(
        rename = "x-kubernetes-preserve-unknown-fields",
        skip_serializing_if = "is_false"
    )]
    pub keeps_unknown: bool,
    /// Fields that must be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<&'static str>,
    /// The fields of an object, in the order of the documents.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_map")]
    pub properties: Vec<(&'static str, Schema)>,
    /// The values of an object whose keys are anybody's.
    #[serde(
        rename = "additionalProperties",
        skip_serializing_if = "Option::is_none"
    )]
    pub values: Option<Box<Schema>>,
    /// The items of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Box<Schema>>,
    /// `map`: who applies a list owns its own items, told apart by keys.
    #[serde(
        rename = "x-kubernetes-list-type",
        skip_serializing_if = "Option::is_none"
    )]
    pub list_type: Option<&'static str>,
    /// The keys of such a list.
    #[serde(
        rename = "x-kubernetes-list-map-keys",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub list_keys: Vec<&'static str>,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A mapping.
    Object,
    /// A list.
    Array,
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
}

impl Schema {
    /// A text.
    pub(super) fn text(description: &'static str) -> Self {
        Self::of(Kind::String, description)
    }

    /// A word of a closed set.
    pub(super) fn word<const N: usize>(
        words: [&'static str; N],
        description: &'static str,
    ) -> Self {
        let words = words.to_vec();
        Self {
            words,
            ..Self::text(description)
        }
    }

    /// A whole number.
    pub(super) fn number(description: &'static str) -> Self {
        Self::of(Kind::Integer, description)
    }

    /// True or false.
    pub(super) fn flag(description: &'static str) -> Self {
        Self::of(Kind::Boolean, description)
    }

    /// A number, or a text such as `10Gi`.
    ///
    /// Kubernetes has `x-kubernetes-int-or-string` for it. With that anywhere in a
    /// definition, however, API servers (1.20 at least) cannot build a model of it
    /// and take every list for one value: who applies a condition would remove
    /// those of others.
    pub(super) fn number_or_text(description: &'static str) -> Self {
        Self::any(description)
    }

    /// An object of ours. The API server would drop unknown fields without a
    /// word; so it keeps them, and they are refused when the object is read.
    pub(super) fn object(description: &'static str) -> Self {
        Self {
            keeps_unknown: true,
            ..Self::of(Kind::Object, description)
        }
    }

    /// An object that only we write: nothing unknown can be in it.
    pub(super) fn closed(description: &'static str) -> Self {
        Self::of(Kind::Object, description)
    }

    /// A value with a short form, which is no object, and a long one, which is.
    /// A structural schema has no words for that but "anything".
    pub(super) fn short_or_long(description: &'static str) -> Self {
        Self::any(description)
    }

    /// An object whose keys are anybody's.
    pub(super) fn map(of: Schema, description: &'static str) -> Self {
        Self {
            values: Some(Box::new(of)),
            ..Self::of(Kind::Object, description)
        }
    }

    /// A list.
    pub(super) fn list(of: Schema, description: &'static str) -> Self {
        Self {
            items: Some(Box::new(of)),
            ..Self::of(Kind::Array, description)
        }
    }

    /// A list whose items are told apart by a key.
    pub(super) fn list_by(key: &'static str, of: Schema, description: &'static str) -> Self {
        Self {
            list_type: Some("map"),
            list_keys: vec![key],
            ..Self::list(of, description)
        }
    }

    /// Adds a field.
    pub(super) fn field(mut self, name: &'static str, schema: Schema) -> Self {
        self.properties.push((name, schema));
        self
    }

    /// Adds a field that is spelled in two ways: as the first documents have it,
    /// and as Kubernetes has it.
    pub(super) fn field_or(
        self,
        name: &'static str,
        other: &'static str,
        schema: Schema,
        description_of_other: &'static str,
    ) -> Self {
        let second = Schema {
            description: description_of_other,
            ..schema.clone()
        };
        self.field(name, schema).field(other, second)
    }

    /// Says which fields must be there.
    pub(super) fn require<const N: usize>(mut self, names: [&'static str; N]) -> Self {
        self.required = names.to_vec();
        self
    }

    /// Says how a text is to be read.
    pub(super) fn format(mut self, format: &'static str) -> Self {
        self.format = Some(format);
        self
    }

    /// Without the fields of values that may be no object: an API server (1.20 at
    /// least) that knows some takes such a value for an object, and then cannot
    /// apply anything to a VM that has the short form.
    pub(super) fn for_api_servers(mut self) -> Self {
        if self.kind.is_none() {
            self.properties.clear();
            self.required.clear();
        }
        for (_, field) in &mut self.properties {
            *field = std::mem::take(field).for_api_servers();
        }
        let inner = |schema: Option<Box<Self>>| schema.map(|it| Box::new(it.for_api_servers()));
        self.items = inner(self.items);
        self.values = inner(self.values);
        self
    }

    fn any(description: &'static str) -> Self {
        Self {
            description,
            keeps_unknown: true,
            ..Self::default()
        }
    }

    fn of(kind: Kind, description: &'static str) -> Self {
        Self {
            description,
            kind: Some(kind),
            ..Self::default()
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn as_map<S: Serializer>(
    fields: &[(&'static str, Schema)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(fields.len()))?;
    for (name, schema) in fields {
        map.serialize_entry(name, schema)?;
    }
    map.end()
}
