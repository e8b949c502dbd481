"""Damaged streams are the same for a seed, and what goes wrong is counted."""

from equipoise_lab.bench import fuzz_feed


def test_no_damaged_stream_ends_the_process_or_loses_a_row():
    result = fuzz_feed.fuzz(300, seed=20)
    assert result.samples["failed"] == []
    assert (result.metrics["cases"], result.metrics["died"], result.metrics["unaccounted"]) == (300, 0, 0)
    assert {"read", "broken"} <= set(result.samples["outcomes"])


def test_a_receiver_that_dies_and_rows_that_are_missing_are_counted(monkeypatch):
    outcomes = iter(
        [
            {"died": True, "exit": -11},
            {"given": 5, "dead_letters": 0, "broken": 0, "accepted": 7},
            {"given": 0, "dead_letters": 0, "broken": 0, "raised": "OSError"},
            {"hung": True},
            {"given": 0, "dead_letters": 0, "broken": 1, "bugs": 1, "accepted": 0},
        ]
    )
    monkeypatch.setattr(fuzz_feed._Receiver, "case", lambda *_: next(outcomes))
    result = fuzz_feed.fuzz(5, seed=1)
    assert (result.metrics["died"], result.metrics["unaccounted"]) == (1, 4)
    assert [case["case"] for case in result.samples["failed"]] == [f"1/{number}" for number in range(5)]
    assert all(case["bytes"] for case in result.samples["failed"])


def test_a_process_that_says_nothing_is_ended_and_replaced(monkeypatch):
    monkeypatch.setattr(fuzz_feed, "_LONGEST", 0.1)
    start = fuzz_feed.subprocess.Popen
    monkeypatch.setattr(fuzz_feed.subprocess, "Popen", lambda _, **options: start(["sleep", "600"], **options))
    receiver = fuzz_feed._Receiver()
    for _ in range(2):
        assert receiver.case("json", b"") == {"hung": True}
    receiver.close()


def test_a_stream_that_ends_with_any_of_its_messages_is_not_taken_for_a_loss():
    for name, stream in fuzz_feed.streams().items():
        if stream.format == "arrow":
            assert len(stream.ends) >= 6, name  # the beginning, a schema, three batches, and the end
            assert stream.ends[-1] == (len(stream.data), 72)
            for end, rows in stream.ends:
                outcome = {"given": rows, "dead_letters": 0, "broken": 0, "accepted": rows}
                assert fuzz_feed._fault(stream, stream.data[:end], outcome) == "", name
            assert fuzz_feed._fault(stream, stream.data[: end - 9], outcome | {"given": 48, "accepted": 48}) != "", name


def test_a_case_is_the_same_for_the_same_seed():
    data = bytes(range(256)) * 4
    assert [fuzz_feed.damaged(data, seed) for seed in range(30)] == [
        fuzz_feed.damaged(data, seed) for seed in range(30)
    ]
    assert len({fuzz_feed.damaged(data, seed) for seed in range(30)}) > 20
