"""Advantages: from tree arrays to numbers. Filled by a later issue."""

if not __name__.startswith("treerl."):
    raise ImportError(
        "this folder is the package treerl.advantage; import it as `import treerl.advantage` "
        "(the root of the checkout is on sys.path: run Python from elsewhere, or with -P)"
    )

__all__: list[str] = []
