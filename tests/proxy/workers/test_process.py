from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from shoal.proxy.net.turns import TurnTable
from shoal.proxy.workers.process import Program

if TYPE_CHECKING:
    from pathlib import Path

_WORKER = "import _signal\ndef main(given): return print(_signal.getsignal(_signal.SIGHUP) == _signal.SIG_IGN)"


def test_a_worker_ignores_hang_ups_before_it_loads_its_modules(tmp_path: Path) -> None:
    """One for all processes is a reload, by the supervisor; here the modules are others."""
    package = tmp_path / "shoal" / "proxy" / "cli" / "serving"
    package.mkdir(parents=True)
    (package / "worker.py").write_text(_WORKER)
    table = TurnTable.create(1)
    argv = Program(table).command(1, 0, 0)
    table.close()
    done = subprocess.run([*argv[:-1], json.dumps([str(tmp_path)])], stdout=subprocess.PIPE, check=True, text=True)
    assert done.stdout == "True\n"
