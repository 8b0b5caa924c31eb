"""Which version of pytest-nsys is this, and where is its documentation?

The version is that of the next release, with ``.dev0`` until the commit of the release itself.
"""

VERSION = "0.1.0.dev0"

DOCUMENTATION = "https://pytest-nsys.github.io/pytest-nsys/"
"""The address of the pages of ``docs/``, which an installed package lacks. As ``project.urls`` has it."""


def make_page_url(page: str) -> str:
    """Return the address of a page of ``docs/``, which is named without its ending."""
    return f"{DOCUMENTATION}{page}/"
