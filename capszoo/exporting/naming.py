"""Names of models in bundles and on servers."""

import re


def checked_name(name):
    """`name`, if folders and addresses of a server can bear it. Errors: `ValueError`."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ValueError(
            "name must be letters, digits, '_', '-' and '.', a letter or digit first; a folder's may be replaced "
            f"by --name. Received: {name!r}"
        )
    return name
