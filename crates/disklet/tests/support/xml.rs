//! XML as libvirt writes it, read into a tree. No namespaces, no DTD.

use std::collections::BTreeSet;

/// An element. Text beside children does not count.
#[derive(Debug, Default, Clone)]
pub(crate) struct Element {
    pub(crate) name: String,
    attributes: Vec<(String, String)>,
    pub(crate) children: Vec<Element>,
    text: String,
}

impl Element {
    /// Reads one document.
    pub(crate) fn parse(text: &str) -> Self {
        let mut open = vec![Self::default()];
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('<') {
            open.last_mut().unwrap().text.push_str(before);
            let (tag, after) = after.split_once('>').unwrap();
            rest = after;
            if tag.starts_with(['?', '!']) {
                continue;
            }
            if let Some(name) = tag.strip_prefix('/') {
                let done = open.pop().unwrap();
                assert_eq!(name.trim(), done.name);
                open.last_mut().unwrap().children.push(done);
                continue;
            }
            let (tag, is_empty) = match tag.strip_suffix('/') {
                Some(tag) => (tag, true),
                None => (tag, false),
            };
            let element = Self::start(tag);
            if is_empty {
                open.last_mut().unwrap().children.push(element);
            } else {
                open.push(element);
            }
        }
        assert_eq!(open.len(), 1, "an element is not closed");
        let mut roots = open.remove(0).children;
        assert_eq!(roots.len(), 1, "a document has one root");
        roots.remove(0)
    }

    fn start(tag: &str) -> Self {
        let (name, mut rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
        let mut attributes = Vec::new();
        while let Some((key, after)) = rest.split_once('=') {
            let quote = after.chars().next().unwrap();
            let (value, after) = after[1..].split_once(quote).unwrap();
            attributes.push((key.trim().to_owned(), unescaped(value)));
            rest = after;
        }
        Self {
            name: name.to_owned(),
            attributes,
            ..Self::default()
        }
    }

    /// The value of an attribute.
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The first child of a name.
    pub(crate) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The element's text.
    pub(crate) fn text(&self) -> String {
        unescaped(self.text.trim())
    }

    /// Everything it says, one statement a line, such as
    /// `disk/source/slices/slice@offset=1048576`.
    pub(crate) fn statements(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        self.state("", &mut all);
        all
    }

    fn state(&self, above: &str, all: &mut BTreeSet<String>) {
        let path = format!("{above}{}", self.name);
        all.insert(path.clone());
        for (key, value) in &self.attributes {
            all.insert(format!("{path}@{key}={value}"));
        }
        if self.children.is_empty() && !self.text().is_empty() {
            all.insert(format!("{path}={}", self.text()));
        }
        for (index, child) in self.children.iter().enumerate() {
            // Of several with one name the order counts.
            let earlier = &self.children[..index];
            let number = earlier.iter().filter(|c| c.name == child.name).count();
            let number = if number > 0 {
                format!("[{number}]")
            } else {
                String::new()
            };
            child.state(&format!("{path}/{number}"), all);
        }
    }
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

#[test]
fn documents_are_read_as_trees() {
    let read =
        Element::parse("<?xml version='1.0'?>\n<a b=\"x&amp;y\">\n <c d='1'/><c>t</c>\n</a>\n");
    assert_eq!(read.attribute("b"), Some("x&y"));
    assert_eq!(
        read.statements().into_iter().collect::<Vec<_>>(),
        ["a", "a/[1]c", "a/[1]c=t", "a/c", "a/c@d=1", "a@b=x&y"]
    );
}
