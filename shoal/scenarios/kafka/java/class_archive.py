"""Class archives: parsed and verified classes that short-lived Java programs map instead of loading them from jars.

A broker and MirrorMaker 2 need a third less CPU to start. The archive of a version has all classes of its jars, in
`build/kafka/<version>/classes/lib/classes.jsa` (180 MB), made once for a Java runtime.

python -m shoal.scenarios.kafka.java.class_archive [VERSION ...]
"""

import hashlib
import subprocess
import sys
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import trio

from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.process import together

from .jars import DEFAULT_VERSION, jars, made_once, run_step

_HEAP = "1g"  # 24,000 classes need some 600 MB


def archive_option(lib: Path) -> tuple[str, ...]:
    """The option that maps the archive of the jars in `lib`; none without an archive."""
    archive = _home(lib) / "lib" / "classes.jsa"
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off") if archive.is_file() else ()


async def make_archive(version: str) -> Path:
    """The directory of the archive of `version`. Raises SetupError like `jars()`."""
    lib = await jars(version)
    java = await trio.run_process(("java", "-version"), capture_stderr=True)
    fingerprint = hashlib.sha256(version.encode() + java.stderr).hexdigest()
    return await made_once(_home(lib), fingerprint, partial(_dump, version, lib))


def _home(lib: Path) -> Path:
    return lib.parent / "classes"


async def _dump(version: str, lib: Path, into: Path) -> None:
    print(f"archiving the classes of Kafka {version} ...", file=sys.stderr, flush=True)
    names = _write_names(into, {*await _runtime_classes(), *_classes(lib)})
    await run_step(
        *("java", "-Xshare:dump", f"-Xmx{_HEAP}", "-XX:+UseSerialGC", f"-XX:SharedClassListFile={names}"),
        *(f"-XX:SharedArchiveFile={into / 'classes.jsa'}", "-cp", f"{lib}/*"),
        what=f"class archive of Kafka {version}",
    )
    names.unlink()


async def _runtime_classes() -> list[str]:
    """Classes of the Java runtime that most programs need: its default list."""
    settings = await trio.run_process(
        ("java", "-XshowSettings:properties", "-version"), capture_stdout=True, stderr=subprocess.STDOUT
    )
    (home,) = (line.split("=")[1].strip() for line in settings.stdout.decode().splitlines() if "java.home =" in line)
    lines = (Path(home) / "lib" / "classlist").read_text().splitlines()
    return [line for line in lines if not line.startswith(("#", "@"))]


def _write_names(into: Path, classes: set[str]) -> Path:
    into.mkdir()
    names = into / "names"
    names.write_text("".join(f"{name}\n" for name in sorted(classes)))
    return names


def _classes(lib: Path) -> list[str]:
    names = (name for jar in lib.glob("*.jar") for name in ZipFile(jar).namelist())
    return [
        name.removesuffix(".class")
        for name in names
        if name.endswith(".class") and not name.startswith("META-INF/") and not name.endswith("-info.class")
    ]


async def _main(versions: list[str]) -> None:
    await together(*(partial(make_archive, version) for version in versions))


if __name__ == "__main__":
    try:
        trio.run(_main, sys.argv[1:] or [DEFAULT_VERSION])
    except SetupError as error:
        sys.exit(f"error: {error}")
