from orthosparse.lab import throttle


def test_a_log_gets_a_line_a_minute_and_the_first_after_one(monkeypatch):
    now, told = [0.0], []
    monkeypatch.setattr(throttle, "monotonic", lambda: now[0])
    tell = throttle.Throttle(told.append)
    for second in range(0, 200, 7):
        now[0] = float(second)
        tell("network", second / 200, f"step {second}")
    assert told == ["network: 32 %, step 63", "network: 63 %, step 126", "network: 94 %, step 189"]


def test_nothing_is_added_where_there_are_no_words():
    told = []
    throttle.Throttle(told.append, seconds=0)("network", 1.0, "")
    assert told == ["network: 100 %"]
