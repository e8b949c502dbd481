"""Sessions that are kept from one use to the next."""

import pytest

from equipoise.bench import local_spark as module
from equipoise.bench.local_spark import kept_sessions, local_spark


class Session:
    def __init__(self, master):
        self.master, self.stopped = master, False

    def stop(self):
        self.stopped = True


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    monkeypatch.setattr(module, "require_java", lambda: None)
    monkeypatch.setattr(module, "_started", Session)


def used(slots):
    with local_spark(slots) as session:
        assert not session.stopped
    return session


def test_a_session_is_stopped_after_its_use():
    assert used(2).stopped


def test_kept_a_session_serves_again_until_other_slots_are_wanted():
    with kept_sessions():
        first = used(2)
        assert used(2) is first
        assert not first.stopped
        second = used(4)
        assert first.stopped
        assert second.master == "local[4]"
        assert used(2) is not first
        assert second.stopped
        last = used(2)
    assert last.stopped
    assert used(2).stopped


def test_a_session_whose_use_failed_is_not_kept():
    with kept_sessions():
        with pytest.raises(ZeroDivisionError), local_spark(2) as failed:
            raise ZeroDivisionError
        assert failed.stopped
        assert used(2) is not failed
