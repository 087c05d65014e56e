"""A page as a tree of elements, for tests of its structure."""

from html.parser import HTMLParser

EMPTY = {"meta", "link", "input", "wbr", "br", "path", "use", "circle", "rect"}


class Element:
    """An element with its attributes, its own text and its children."""

    def __init__(self, tag, attributes):
        self.tag, self.attributes = tag, dict(attributes)
        self.children, self.text = [], ""

    def __getitem__(self, name):
        return self.attributes.get(name)

    def all(self, *tags):
        """All elements below this one with one of the tags, in the order of the page."""
        found = [self] if self.tag in tags else []
        return found + [e for child in self.children for e in child.all(*tags)]

    def words(self):
        """All text below this element."""
        return self.text + "".join(child.words() for child in self.children)


class Tree(HTMLParser):
    """Builds the tree; an element that is not closed, or closed twice, is an error."""

    def __init__(self, text):
        super().__init__()
        self.root = Element("page", {})
        self.open = [self.root]
        self.feed(text)
        assert [element.tag for element in self.open] == ["page"]

    def handle_starttag(self, tag, attributes):
        element = Element(tag, attributes)
        self.open[-1].children.append(element)
        if tag not in EMPTY:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.open[-1].children.append(Element(tag, attributes))

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop().tag == tag

    def handle_data(self, data):
        self.open[-1].text += data


def read(path):
    """The tree of a file."""
    return Tree(path.read_text()).root
