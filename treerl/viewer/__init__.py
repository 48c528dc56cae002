"""A tree as a page: one HTML file that a browser opens offline.

The Python side only gathers records and puts them, escaped, into the page; what is drawn, and how,
the page decides (``assets/``). Model text reaches the page as JSON and the document as text nodes:
it is never markup, and never script.
"""

from treerl.viewer.document import page_html
from treerl.viewer.records import node_advantages, tree_record
from treerl.viewer.source import TREES, PageTrees, gather
from treerl.viewer.writing import default_path, write_page

__all__ = [
    "TREES",
    "PageTrees",
    "default_path",
    "gather",
    "node_advantages",
    "page_html",
    "tree_record",
    "write_page",
]
