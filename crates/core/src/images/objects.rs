//! Mappings that are objects of a cluster. Each is judged by itself: one that is
//! wrong takes nothing away from the others.

use std::collections::BTreeMap;

use super::ImageMapping;
use crate::diag::{Diagnostic, Diagnostics, Origin, Severity};
use crate::manifest::Input;

/// All of them that can be used, in the order in which they count.
#[derive(Debug, Clone, Default)]
pub struct MappingObjects(BTreeMap<String, ImageMapping>);

/// What is to be said of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// All of it counts.
    Accepted,
    /// It counts, but for these names, each with the object that maps it.
    Overlapped(Vec<(String, String)>),
    /// None of it counts.
    Refused(Vec<Diagnostic>),
}

impl MappingObjects {
    /// Takes an object as the API server has it, in the place of an earlier one of
    /// its name; says whether it can be used.
    pub fn take(&mut self, name: &str, text: String) -> Result<(), Vec<Diagnostic>> {
        self.0.remove(name);
        let mapping = read(text)?;
        self.0.insert(name.to_owned(), mapping);
        Ok(())
    }

    /// There is no such object any more.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// What they say together: of names that several map, the first object by
    /// name counts.
    #[must_use]
    pub fn together(&self) -> ImageMapping {
        let mut all = ImageMapping::default();
        for mapping in self.0.values() {
            all.then(mapping.clone());
        }
        all
    }

    /// Judges all objects of a cluster, each by its name and text.
    #[must_use]
    pub fn judge(objects: &BTreeMap<String, String>) -> BTreeMap<String, Verdict> {
        let mut mapped: BTreeMap<String, String> = BTreeMap::new();
        let judged = objects.iter().map(|(object, text)| {
            let verdict = match read(text.clone()) {
                Err(problems) => Verdict::Refused(problems),
                Ok(mapping) => taken(&mapping, object, &mut mapped),
            };
            (object.clone(), verdict)
        });
        judged.collect()
    }
}

/// Notes the names that an object maps, but for those that an earlier one does.
fn taken(mapping: &ImageMapping, object: &str, mapped: &mut BTreeMap<String, String>) -> Verdict {
    let mut others = Vec::new();
    for name in mapping.names.keys() {
        match mapped.get(name) {
            Some(other) => others.push((name.clone(), other.clone())),
            None => {
                mapped.insert(name.clone(), object.to_owned());
            }
        }
    }
    match others.is_empty() {
        true => Verdict::Accepted,
        false => Verdict::Overlapped(others),
    }
}

fn read(text: String) -> Result<ImageMapping, Vec<Diagnostic>> {
    let mut diags = Diagnostics::default();
    let mut mapping = ImageMapping::default();
    let input = Input {
        name: Origin::object(""),
        text,
    };
    mapping.read_object(&input, &mut diags);
    let problems: Vec<_> = diags
        .into_sorted()
        .into_iter()
        .filter(|told| told.severity == Severity::Error)
        .collect();
    match problems.is_empty() {
        true => Ok(mapping),
        false => Err(problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ImageName;

    fn object(translations: &str) -> String {
        format!(
            "{{\"kind\": \"VirtletImageMapping\", \"apiVersion\": \"virtlet.k8s/v1\", \"metadata\": {{}}, \
             \"status\": {{}}, \"spec\": {{\"translations\": [{translations}]}}}}"
        )
    }

    fn named(name: &str, host: &str) -> String {
        object(&format!(
            "{{\"name\": \"{name}\", \"url\": \"https://{host}/x\"}}"
        ))
    }

    fn found(mapping: &ImageMapping, name: &str) -> String {
        let address = mapping.find(&ImageName::parse(name).unwrap()).unwrap();
        address.url.to_string()
    }

    #[test]
    fn a_wrong_object_takes_nothing_from_others() {
        let mut objects = MappingObjects::default();
        objects.take("b", named("cirros", "b")).unwrap();
        let wrong = "{\"nme\": \"x\", \"url\": \"https://user:hunter2@h/x\"}";
        let told = objects.take("a", object(wrong)).unwrap_err();
        assert!(told.iter().any(|it| it.to_string().contains("nme")));
        assert!(!format!("{told:?}").contains("hunter2"));
        assert_eq!(found(&objects.together(), "cirros"), "https://b/x");
        // Mended, it comes first, by its name.
        objects.take("a", named("cirros", "a")).unwrap();
        assert_eq!(found(&objects.together(), "cirros"), "https://a/x");
        // What was right before does not count any more.
        objects.take("a", object("{}")).unwrap_err();
        assert_eq!(found(&objects.together(), "cirros"), "https://b/x");
        objects.remove("b");
        let cirros = ImageName::parse("cirros").unwrap();
        objects.together().find(&cirros).unwrap_err();
    }

    #[test]
    fn objects_come_before_files() {
        let mut objects = MappingObjects::default();
        objects.take("a", named("cirros", "object")).unwrap();
        let mut all = objects.together();
        let mut file = ImageMapping::default();
        let text = "translations: [{name: cirros, url: 'https://file/x'}, {name: other, url: 'https://file/y'}]";
        let input = Input {
            name: "map.yaml".into(),
            text: text.to_owned(),
        };
        file.read(&input, &mut Diagnostics::default());
        all.then(file);
        assert_eq!(found(&all, "cirros"), "https://object/x");
        assert_eq!(found(&all, "other"), "https://file/y");
    }

    #[test]
    fn an_object_names_no_file_of_a_node() {
        let mut objects = MappingObjects::default();
        let text = "{\"kind\": \"VirtletImageMapping\", \"spec\": {\"translations\": [], \"transports\": {\"t\": \
            {\"credentialsFile\": \"/etc/shadow\", \"tls\": {\"caFile\": \"/a\", \"certFile\": \"/b\", \"keyFile\": \"/c\"}}}}}";
        let told = objects.take("a", text.to_owned()).unwrap_err();
        let told: Vec<_> = told
            .iter()
            .filter(|it| it.message.contains("cannot name a file of the nodes"))
            .collect();
        assert_eq!(told.len(), 4, "{told:?}");
    }

    #[test]
    fn whose_names_do_not_count_is_told() {
        let objects = BTreeMap::from([
            ("a".to_owned(), named("cirros", "a")),
            ("b".to_owned(), named("cirros", "b")),
            ("c".to_owned(), object("{}")),
        ]);
        let judged = MappingObjects::judge(&objects);
        assert_eq!(judged["a"], Verdict::Accepted);
        let other = vec![("cirros".to_owned(), "a".to_owned())];
        assert_eq!(judged["b"], Verdict::Overlapped(other));
        assert!(matches!(judged["c"], Verdict::Refused(_)));
    }
}
