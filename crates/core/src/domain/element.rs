//! A small tree of XML elements, written with indentation.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

/// An element with attributes and either children or text.
#[derive(Debug)]
pub(super) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Children(Vec<Element>),
    Text(String),
}

/// An empty element.
pub(super) fn element(name: &'static str) -> Element {
    Element {
        name,
        attributes: Vec::new(),
        content: Content::Children(Vec::new()),
    }
}

/// An element with text in it.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers give literals and numbers alike"
)]
pub(super) fn text(name: &'static str, text: impl ToString) -> Element {
    Element {
        content: Content::Text(text.to_string()),
        ..element(name)
    }
}

impl Element {
    /// Adds an attribute.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers give literals and numbers alike"
    )]
    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// Adds an attribute if there is one.
    pub(super) fn with_some(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a child.
    pub(super) fn child(self, child: Element) -> Self {
        self.children([child])
    }

    /// Adds children.
    pub(super) fn children(mut self, more: impl IntoIterator<Item = Element>) -> Self {
        if let Content::Children(children) = &mut self.content {
            children.extend(more);
        }
        self
    }

    /// The same without all elements of a name.
    pub(super) fn without(mut self, name: &str) -> Self {
        if let Content::Children(children) = self.content {
            let kept = children.into_iter().filter(|child| child.name != name);
            self.content = Content::Children(kept.map(|child| child.without(name)).collect());
        }
        self
    }

    /// The document, two blanks a level, with a final newline.
    pub(super) fn render(&self) -> String {
        let mut writer = Writer::new_with_indent(Vec::with_capacity(8 << 10), b' ', 2);
        // Writing into memory does not fail; were it to, an empty document
        // would be refused by libvirt.
        if self.write(&mut writer).is_err() {
            return String::new();
        }
        let mut bytes = writer.into_inner();
        bytes.push(b'\n');
        String::from_utf8(bytes).unwrap_or_default()
    }

    fn write(&self, writer: &mut Writer<Vec<u8>>) -> std::io::Result<()> {
        let mut start = BytesStart::new(self.name);
        for (name, value) in &self.attributes {
            start.push_attribute((*name, value.as_str()));
        }
        match &self.content {
            Content::Children(children) if children.is_empty() => {
                writer.write_event(Event::Empty(start))
            }
            Content::Children(children) => {
                writer.write_event(Event::Start(start))?;
                for child in children {
                    child.write(writer)?;
                }
                writer.write_event(Event::End(BytesEnd::new(self.name)))
            }
            Content::Text(text) => {
                writer.write_event(Event::Start(start))?;
                writer.write_event(Event::Text(BytesText::new(text)))?;
                writer.write_event(Event::End(BytesEnd::new(self.name)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped() {
        let xml = element("a")
            .with("b", "<'\"&>")
            .child(text("c", "x<y"))
            .child(element("d"))
            .render();
        assert_eq!(
            xml,
            "<a b=\"&lt;&apos;&quot;&amp;&gt;\">\n  <c>x&lt;y</c>\n  <d/>\n</a>\n"
        );
    }
}
