"""Placeholder."""

if not __name__.startswith("treerl."):
    raise ImportError(
        "this folder is the package treerl.prm; import it as `import treerl.prm` "
        "(the root of the checkout is on sys.path: run Python from elsewhere, or with -P)"
    )
