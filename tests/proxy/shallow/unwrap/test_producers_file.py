"""The file of sequence numbers: what it survives, what it never overwrites, and what happens on a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from shoal.protocol.records.batch import encode_batch
from shoal.protocol.shallow.unwrap.sequences.slots import SLOT_SIZE
from shoal.proxy.cluster.state_files import set_aside
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.shallow.files.producers import ProducersFile
from shoal.scenarios.kafka.ports import free_port_block
from tests.support.rig import FakeBroker, until
from tests.support.shallow.batches import BATCHES, LATER, NONE, envelope, records
from tests.support.shallow.brokers import Script, TargetBroker
from tests.support.shallow.rig import Producer
from tests.support.shoal_process import ShoalProcess, running_shoal, write_toml
from tests.support.tiny_disk import tiny_disk

HEAD = 4096
BOOT = Path("/proc/sys/kernel/random/boot_id")
by_the_mirror = partial(encode_batch, producer_id=5, producer_epoch=2)


def wrote(file: ProducersFile, piece: bytes = b"x", at: int = 0) -> None:
    """What the map does with each piece."""
    file.slots[at : at + len(piece)] = piece
    file.write(at, piece)


def reopened(path: Path, boot: Path = BOOT, slots: int = 16) -> bytes:
    """What another process reads in the first byte of the slots."""
    file = ProducersFile("to", path, slots=slots, boot=boot)
    found = bytes(file.slots[:1])
    file.close()
    return found


def discarded(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.discarded-*"))


def test_two_processes_cannot_share_the_file(tmp_path: Path) -> None:
    first = ProducersFile("to", tmp_path / "file")
    with pytest.raises(OperatorError, match="in use by another process"):
        ProducersFile("to", tmp_path / "file")
    first.close()
    ProducersFile("to", tmp_path / "file").close()


def test_a_file_that_cannot_be_had_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "no directory").write_text("")
    ProducersFile("to", tmp_path / "no directory" / "file").close()
    assert "a restart of Shoal makes exactly-once mirrors abort their transactions" in caplog.text
    assert "choose another state-dir" in caplog.text


def test_a_file_is_good_for_the_boot_that_wrote_it_or_once_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boot, path = tmp_path / "boot", tmp_path / "file"
    boot.write_text("this boot\n")
    file = ProducersFile("to", path, slots=16, boot=boot)
    wrote(file)
    image = path.read_bytes()
    file.close()
    assert reopened(path, boot) == b"x"
    boot.write_text("another boot\n")
    assert reopened(path, boot) == b"x", "it was closed in order"
    assert not discarded(path)
    path.write_bytes(image)  # as the machine left it when it stopped
    assert reopened(path, boot) == b"\0"
    (kept,) = discarded(path)
    assert kept.read_bytes() == image
    assert f"discarded {path} (the machine has stopped since" in caplog.text
    path.write_bytes(image)
    assert reopened(path, tmp_path / "no proc") == b"\0"


def test_the_file_of_a_killed_process_is_good(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    path = tmp_path / "file"
    file = ProducersFile("to", path, slots=16)
    assert caplog.messages == [f"listener 'to': new: {path}"]
    wrote(file)
    image = path.read_bytes()
    file.close()
    path.write_bytes(image)
    assert reopened(path) == b"x"
    assert caplog.messages[1:] == [f"listener 'to': loaded {path}"]


@pytest.mark.parametrize("content", [b"rubbish", b"\0" * 9000, b"shoal", b"shoal producers one\n"])
def test_what_is_not_ours_is_never_written_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(OperatorError, match=f"{path} is not a file of the sequence numbers.*Move it away, or choose"):
        ProducersFile("to", path)
    assert path.read_bytes() == content
    assert not discarded(path)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda image: image[:-1], "it has ended before its 16 slots have"),
        (lambda image: image[:HEAD], "it has ended before its 16 slots have"),
        (lambda image: image.replace(b"slots 16", b"slots -1"), "its head is damaged"),
        (lambda image: image[:18] + bytes(len(image) - 18), "its head is damaged"),
        (lambda image: image.replace(b"producers 2", b"producers 3"), "it is of version 3, and this Shoal writes 2"),
    ],
)
def test_one_of_ours_that_is_damaged_is_kept_aside(
    tmp_path: Path, damage: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "file"
    file = ProducersFile("to", path, slots=16)
    wrote(file)
    file.close()
    image: bytes = damage(path.read_bytes())  # type: ignore[operator]
    path.write_bytes(image)
    assert reopened(path) == b"\0"
    (kept,) = discarded(path)
    assert kept.read_bytes() == image
    assert f"discarded {path} ({why}), kept as {kept.name}" in caplog.text


def test_a_file_of_the_first_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    head = b"shoal producers 1\nclosed in order\n".ljust(HEAD, b"\0")
    path.write_bytes(head + b"x" + bytes(16_384 * SLOT_SIZE - 1))
    assert reopened(path) == b"x"
    assert path.read_bytes().startswith(b"shoal producers 2\nslots 16384\n")


def test_a_file_grows_with_the_slots_and_never_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for slots, have in ((4, 4), (9, 9), (2, 9)):
        file = ProducersFile("to", path, slots=slots)
        assert len(file.slots) == have * SLOT_SIZE
        assert bytes(file.slots[:1]) == (b"\0" if slots == 4 else b"x")
        assert path.stat().st_size == HEAD + have * SLOT_SIZE
        wrote(file)
        file.close()


def test_few_files_are_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for number in range(5):
        path.write_text(str(number))
        set_aside(path)
    assert [one.read_text() for one in discarded(path)] == ["2", "3", "4"]


def test_the_map_of_another_cluster_is_kept_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "file"
    file = ProducersFile("to", path, slots=16)
    assert not file.of("one"), "its cluster was unknown"
    wrote(file)
    file.close()
    file = ProducersFile("to", path, slots=16)
    assert file.cluster == "one"
    assert not file.of("one")
    assert file.of("another")
    assert not any(file.slots)
    assert f"discarded {path} (of cluster one, and this is another)" in caplog.text
    wrote(file, b"y")
    file.close()
    assert reopened(path) == b"y"
    assert discarded(path)[0].read_bytes()[HEAD : HEAD + 1] == b"x"


# -- when it is released -----------------------------------------------------------------------------------------------


async def test_the_file_is_kept_until_the_last_connection_has_ended(tmp_path: Path) -> None:
    """Two processes: the second is started while an exchange of the first, which drains, is still unanswered."""
    gate, target, port = trio.Event(), TargetBroker(), free_port_block(6)
    target.scripts[0] = Script(gate=gate)
    broker = FakeBroker(target.answer)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        first, second = (shoal(tmp_path, name, broker, port) for name in ("first", "second"))
        async with running_shoal(first), await trio.open_tcp_stream("127.0.0.1", port) as stream:
            client = Producer(stream)
            await client.produce(by_the_mirror([seen.record for seen in envelope(*BATCHES)], base_sequence=0))
            await until(lambda: len(target.requests) == 1)
            os.kill(first.pid, signal.SIGTERM)
            await first.until_logged("draining")
            assert "a Shoal that still runs: stop it" in await second.refuse_to_start()
            gate.set()
            assert await client.answers() == {0: (NONE, 14)}
            await first.stop()
        async with running_shoal(second), await trio.open_tcp_stream("127.0.0.1", port) as stream:
            assert f"loaded {tmp_path / 'state' / 'to.producers'}" in second.output()
            client = Producer(stream)
            await client.produce(by_the_mirror([LATER], base_sequence=1))
            assert await client.answers() == {0: (NONE, 15)}
        assert target.log() == [*records(*BATCHES), LATER]
        nursery.cancel_scope.cancel()


def shoal(work: Path, name: str, broker: FakeBroker, port: int) -> ShoalProcess:
    listener = {"name": "to", "cluster": "c", "listen": f"127.0.0.1:{port}", "ports": f"{port + 1}-{port + 5}"}
    document = {
        "state-dir": str(work / "state"),
        "cluster": [{"name": "c", "bootstrap": str(broker.address)}],
        "listener": [{**listener, "mode": "unwrap"}],
        "limits": {"connect-timeout": 0.2},
    }
    config = write_toml(work / name / "shoal.toml", document)
    return ShoalProcess(["run", "-c", str(config)], work=work / name, ports=[port])


# -- a full disk -------------------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk:
        path = disk.path / "file"
        gave_up: list[bool] = []
        file = ProducersFile("to", path, gave_up=lambda: gave_up.append(True))  # 8 MiB
        wrote(file)
        assert gave_up == [True]
        (line,) = caplog.messages
        assert f"cannot write {path} (No space left on device): Shoal goes on without it" in line
        assert not path.stat().st_size, "what cannot be used takes no room"
        with pytest.raises(OperatorError, match="in use by another process"):
            ProducersFile("to", path)
        file.close()
        assert reopened(path) == b"\0", "nothing of the file that was given up counts"


def test_a_disk_that_fills_up_later_has_room_for_the_map(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk:
        file = ProducersFile("to", disk.path / "file", slots=1024)
        disk.fill()
        for at in range(0, 1024 * SLOT_SIZE, SLOT_SIZE):
            wrote(file, b"x", at)
        file.close()
        assert not caplog.messages
        assert reopened(disk.path / "file", slots=1024) == b"x"


def test_a_disk_that_loses_its_room_gives_the_file_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a copy-on-write file system: space cannot be reserved there."""
    monkeypatch.setattr("os.posix_fallocate", lambda fd, at, size: None)
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk:
        file = ProducersFile("to", disk.path / "file", slots=1024)
        wrote(file)
        disk.fill()
        for at in range(0, 1024 * SLOT_SIZE, SLOT_SIZE):
            wrote(file, b"x", at)
        file.close()
        (line,) = caplog.messages
        assert "No space left on device" in line
        disk.empty()
        assert reopened(disk.path / "file") == b"\0", "what was not written to the end is not believed"


def test_a_disk_that_cannot_take_room_ahead_gets_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(fd: int, at: int, size: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("os.posix_fallocate", refused)
    file = ProducersFile("to", tmp_path / "file", slots=1000)
    assert (tmp_path / "file").stat().st_blocks * 512 >= HEAD + 1000 * SLOT_SIZE
    file.close()


def test_a_file_that_somebody_cuts_off_kills_nobody(tmp_path: Path) -> None:
    """If it were memory-mapped, this would be a SIGBUS."""
    path = tmp_path / "file"
    file = ProducersFile("to", path, slots=1024)
    path.write_bytes(b"")
    wrote(file, b"x", 1000 * SLOT_SIZE)
    file.close()


def test_a_map_of_a_file_on_a_full_disk_is_a_signal(tmp_path: Path) -> None:
    """Why the file is not mapped."""
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk:
        with (disk.path / "file").open("w+b") as file:
            file.truncate(8 << 20)
        disk.fill()
        stores = "import mmap,sys; f=open(sys.argv[1],'r+b'); mmap.mmap(f.fileno(), 0)[4 << 20] = 1"
        done = subprocess.run([sys.executable, "-c", stores, str(disk.path / "file")], check=False)
        assert done.returncode == -signal.SIGBUS
