"""Which version is this?"""

VERSION = "0.1.0"
