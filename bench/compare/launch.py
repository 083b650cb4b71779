"""Runs the `shoal` package of a directory as `python -m shoal` does: launch.py DIRECTORY ARGUMENT...

An editable install, as in .venv, adds an importer that finds this tree's modules where the directory has none: the
result is a mixture of two versions. The importer is removed.
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    _, tree, *arguments = sys.argv
    sys.meta_path = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
    sys.path.insert(0, tree)
    import shoal

    if list(shoal.__path__) != [str(Path(tree) / "shoal")]:
        sys.exit(f"error: {shoal.__path__} is imported, not {tree}/shoal")
    sys.argv = ["shoal", *arguments]
    runpy.run_module("shoal", run_name="__main__", alter_sys=True)
