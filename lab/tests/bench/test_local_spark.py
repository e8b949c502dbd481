"""Sessions that are kept from one use to the next."""

import pytest

from equipoise_lab.bench import local_spark as module
from equipoise_lab.bench.local_spark import kept_sessions, local_spark


class Session:
    def __init__(self, master):
        self.master, self.stopped = master, False

    def stop(self):
        self.stopped = True


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    monkeypatch.setattr(module, "require_java", lambda: None)
    monkeypatch.setattr(module, "_started", Session)


def used(slots, **options):
    with local_spark(slots, **options) as session:
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


def test_a_kept_session_with_more_slots_serves_those_who_do_not_mind():
    with kept_sessions():
        large = used(4)
        assert used(2, or_more=True) is large
        assert used(4) is large  # it is still known for what it is
        assert used(8, or_more=True) is not large
        assert large.stopped
        assert used(2, executors=True, or_more=True).master == "local-cluster[2,1,1024]"


def test_a_session_whose_use_failed_is_not_kept():
    with kept_sessions():
        with pytest.raises(ZeroDivisionError), local_spark(2) as failed:
            raise ZeroDivisionError
        assert failed.stopped
        assert used(2) is not failed
