"""Which version is this? That of the next release, with ``.dev0`` until the commit of the release itself."""

VERSION = "0.1.0.dev0"
