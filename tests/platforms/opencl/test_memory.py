"""Device memory that is used again."""

from __future__ import annotations

import pytest

from tapml.errors import DeviceError
from tapml.kernels.device_memory import Memory, size_class


class Device:
    """Counts what is allocated, and has room for so much."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.live: list[int] = []

    def allocate(self, nbytes: int) -> int:
        if sum(self.live) + nbytes > self.room:
            raise DeviceError("no room")
        self.live.append(nbytes)
        return nbytes

    def memory(self, budget: int = 1 << 20) -> Memory[int]:
        return Memory(self.allocate, self.live.remove, budget)


@pytest.mark.parametrize("nbytes", [0, 1, 255, 256, 257, 4096, 5000, 1 << 20, (1 << 20) + 1, 123456789])
def test_size_classes_hold_what_they_are_for(nbytes: int) -> None:
    size = size_class(nbytes)
    assert nbytes <= size <= max(nbytes * 1.13, nbytes + 256) and size % 256 == 0
    assert size_class(size) == size


def test_a_buffer_that_was_given_back_is_used_again() -> None:
    device = Device()
    memory = device.memory()
    first = memory.take(1000)
    memory.give([first])
    assert memory.take(1001) is first and memory.take(1000) is not first and len(device.live) == 2


def test_the_least_recently_used_input_goes_first() -> None:
    device = Device()
    memory = device.memory(budget=3000)
    for key in "abc":
        memory.keep(key, memory.take(1024))
        memory.finish()
        memory.find("a")
    memory.finish()
    assert memory.find("b") is None and memory.find("a") is not None and memory.find("c") is not None
    assert sum(device.live) == 2048


def test_inputs_of_the_run_stay_beyond_the_budget() -> None:
    memory = Device().memory(budget=1000)
    for key in "ab":
        memory.keep(key, memory.take(1024))
    assert memory.find("a") is not None and memory.find("b") is not None
    memory.finish()
    assert memory.find("a") is None


def test_what_is_not_needed_makes_room() -> None:
    device = Device(room=4096)
    memory = device.memory()
    memory.keep("a", memory.take(2048))
    memory.finish()
    memory.give([memory.take(1024)])
    memory.take(4096)
    assert device.live == [4096]
    with pytest.raises(DeviceError, match="no room"):
        memory.take(1)


def test_closing_frees_everything() -> None:
    device = Device()
    memory = device.memory()
    memory.keep("a", memory.take(10))
    memory.give([memory.take(1 << 16)])
    memory.close()
    assert device.live == []
