import pytest

from anabranch.engines.checkpoint.checkpoint import FENCE, Fence
from anabranch.errors import StateError


@pytest.fixture(autouse=True)
def _made(storage):
    storage.make("")


def test_the_run_that_took_the_fence_last_passes_and_the_others_do_not(storage):
    first, second = Fence.take(storage), Fence.take(storage)
    second.check()
    with pytest.raises(StateError, match="another run took over") as caught:
        first.check()
    assert first.token in caught.value.expected
    assert second.token in caught.value.got


def test_tokens_count_runs_and_are_never_the_same(storage):
    tokens = [Fence.take(storage).token for _ in range(3)]
    assert [token.split("-")[0] for token in tokens] == ["1", "2", "3"]
    storage.remove(FENCE)
    assert Fence.take(storage).token not in tokens


@pytest.mark.parametrize("damage", [b"", b"{", b'{"crc": "00000000", "content": {"token": "1-a"}}'])
def test_a_lost_fence_stops_its_owner_but_not_the_next_run(storage, damage):
    owner = Fence.take(storage)
    storage.write(FENCE, damage)
    with pytest.raises(StateError, match="no readable fence"):
        owner.check()
    Fence.take(storage).check()
