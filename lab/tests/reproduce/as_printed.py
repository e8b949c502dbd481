"""For each table and figure, rows as the paper has them: its printed numbers, or where there are none its shape."""

from itertools import product

import numpy as np

W = (5, 10, 50, 100)


def pkg_table_2():
    printed = {
        ("WP", "PKG"): (3.7e-8, 1.3e-7, 2.7e-2, 3.7e-2),
        ("WP", "Off-Greedy"): (3.7e-8, 4.1e-8, 7.4e-2, 8.3e-2),
        ("WP", "On-Greedy"): (3.6e-7, 6.4e-3, 7.4e-2, 8.3e-2),
        ("WP", "PoTC"): (7.3e-7, 7.8e-3, 7.4e-2, 8.3e-2),
        ("WP", "KG"): (6.4e-2, 7.8e-2, 9.2e-2, 9.2e-2),
        ("TW", "PKG"): (3.4e-10, 1.4e-9, 2.3e-9, 3.4e-3),
        ("TW", "Off-Greedy"): (3.4e-10, 6e-10, 6.7e-3, 1.7e-2),
        ("TW", "On-Greedy"): (7.2e-9, 7.9e-8, 1.0e-2, 1.7e-2),
        ("TW", "PoTC"): (1.9e-5, 4.3e-6, 1.2e-2, 1.7e-2),
        ("TW", "KG"): (3.5e-2, 3.2e-2, 2.0e-2, 2.8e-2),
    }
    return [
        {"data": data, "workers": w, "method": method, "imbalance": value, "at the end": value}
        for (data, method), values in printed.items()
        for w, value in zip(W, values, strict=True)
    ]


def pkg_figure_4():
    values = {"H": 0.08, "G": 1e-7, "L5": 3e-7, "L10": 4e-7, "L15": 5e-7, "L20": 6e-7}
    return [
        {"data": data, "workers": w, "technique": t, "imbalance": value, "messages": 1_000_000}
        for data, w, (t, value) in product(("WP", "TW"), W, values.items())
    ]


def pkg_figure_5():
    rows = []
    for data, w, technique in product(("TW", "WP", "CT"), W, ("H", "G", "L5", "L5P1")):
        many = {"TW": 75, "WP": 21, "CT": 60}[data] < w
        value = 0.08 if technique == "H" else 2e-2 if many else 1e-6
        rows += [
            {"data": data, "workers": w, "technique": technique, "part": part, "imbalance": value, "average": value}
            for part in (0.1, 0.4, 0.7, 1.0)
        ]
    return rows


def pkg_figure_6():
    rows = [
        {"exponent": z, "data": "ZF", "sources": s, "disagreement": 50 - 30 * z, "jaccard": 0.5, "imbalance": 1e-6}
        for z, s in product((0.1, 0.4, 0.8, 1.2), (1, 5, 10))
    ]
    wiki = {"exponent": None, "data": "WP", "sources": 5, "disagreement": 36.0, "jaccard": 0.47, "imbalance": 1e-6}
    return [*rows, wiki]


def pkg_figure_7():
    over = {5: 1.3, 10: 1.2, 50: 0.9, 100: 0.8}
    return [
        {
            "keys": k,
            "exponent": z,
            "workers": w,
            "hottest": 0.4 / w if z < over[w] else 2.5 / w,
            "imbalance": 1e-6 if z < over[w] else 0.05,
        }
        for k, z, w in product((1000, 10_000), np.arange(1, 21) / 10, W)
    ]


def pkg_figure_8():
    return [
        {"data": "LJ", "split": split, "workers": w, "sources": s, "imbalance": 1e-8 * w * s}
        for split, w, s in product(("uniform", "skewed"), W, (5, 10, 15, 20))
    ]


def pkg_figure_9():
    enough = {5: 4, 40: 9, 50: 30, 100: 30}
    return [
        {"workers": w, "choices": d, "imbalance": 1e-7 if d >= enough[w] else 0.05}
        for w, d in product(enough, (2, 3, 4, 9, 20, 30, 40))
        if d <= w
    ]


def pkg_table_3():
    delays = {"PKG": (3.81, 6.24, 11.01), "SG": (3.66, 6.11, 10.82), "KG": (3.65, 9.82, 19.35)}
    periods = {"PKG": (6.93, 6.79, 6.47), "SG": (7.01, 6.75, 6.58)}
    rows = [
        {"method": m, "setting": f"D = {d} ms", "period": None, "latency": value}
        for m, values in delays.items()
        for d, value in zip((0.1, 0.5, 1), values, strict=True)
    ]
    return rows + [
        {"method": m, "setting": f"T = {t} s", "period": t, "latency": value}
        for m, values in periods.items()
        for t, value in zip((10, 30, 60), values, strict=True)
    ]


def pkg_figure_10():
    counters = {"PKG": 3.6e6, "SG": 7.2e6, "KG": 2.9e6}
    speeds = {"PKG": (1500, 945), "SG": (1500, 945), "KG": (1400, 560)}
    rows = [
        {"part": "a", "method": m, "delay": d, "period": None, "throughput": v, "counters": counters[m], "held": 0}
        for m, values in speeds.items()
        for d, v in zip((0.1, 1), values, strict=True)
    ]
    for part, t, m in product("bc", (10, 30, 60), speeds):
        speed = {"PKG": 900 + 5 * t, "SG": 700 + 5 * t, "KG": 1010 if part == "b" else 436}[m]
        held = {"PKG": 70, "SG": 100, "KG": 0}[m]
        rows.append({"part": part, "method": m, "delay": 0.4, "period": t, "throughput": speed, "held": held})
    return rows


def pkg_figure_10_spark():
    speeds = {"PKG": (1500, 945), "SG": (1500, 945), "KG": (1400, 560)}
    return [
        {"method": m, "delay": d, "throughput": v}
        for m, values in speeds.items()
        for d, v in zip((0.1, 1), values, strict=True)
    ]


def dkg_table_1():
    printed = {5: (24.47, 5), 10: (13.16, 8), 20: (7.24, 14), 50: (3.41, 30), 100: (2.0, 51)}
    return [
        {"machines": m, "threshold": t, "most": n, "widest as printed": n, "widest as coded": n}
        for m, (t, n) in printed.items()
    ]


TABLE_3 = {
    "SG": (0.0001, 2.4491, 9511),
    "KG": (20.3202, 1.0, 1344),
    "PKG": (12.3513, 1.1647, 2739),
    "DKG": (4.0972, 1.2414, 4529),
    "DKG, ours": (3.0, 1.25, 5000),
}


def _dkg(method, speed, deviation, cost):
    return {
        "method": method,
        "throughput": speed,
        "latency": 5_000_000 / speed,
        "deviation": deviation,
        "cost": cost,
    }


def dkg_table_3():
    return [_dkg(m, speed, deviation, cost) for m, (deviation, cost, speed) in TABLE_3.items()]


def dkg_figure_9():
    rows = []
    for data in ("election", "ticker", "clickstream", "pageviews", "by-lang"):
        speeds = {"SG": 9000, "KG": 1500, "PKG": 4000, "DKG": 4100, "DKG, ours": 4200}
        if data == "clickstream":
            speeds |= {"KG": 4000.0, "PKG": 3980, "DKG": 3980, "DKG, ours": 4000}
        rows += [{"data": data, **_dkg(m, v, 1, {"SG": 9, "KG": 1}.get(m, 1.2))} for m, v in speeds.items()]
    return rows


def dkg_figures_10_11():
    hashed = (9000, 8800, 8500, 8000, 4000, 3500, 3000, 2500, 2000, 1500, 1200)
    two = (9200, 9150, 9100, 8500, 7000, 6000, 5000, 4000, 3500, 3000, 2500)
    gains = (0.95, 0.95, 0.95, 1.08, 1.5, 1.5, 1.5, 1.5, 1.93, 1.93, 1.93)
    rows = []
    for i, skew in enumerate(range(0, 101, 10)):
        speeds = {"SG": 9500, "KG": hashed[i], "PKG": two[i], "DKG": gains[i] * two[i], "DKG, ours": 8900}
        deviations = {"SG": 0.01, "KG": skew / 3, "PKG": skew / 6, "DKG": skew / 20, "DKG, ours": skew / 20}
        costs = {"SG": 10, "KG": 1, "PKG": 1.9, "DKG": 9 if skew == 100 else 1.95, "DKG, ours": 1.95}
        rows += [{"skew": skew, **_dkg(m, speeds[m], deviations[m], costs[m])} for m in speeds]
    return rows


def dkg_figure_12():
    rows = []
    for workers in (10, 50, 100):
        for m, (deviation, cost, speed) in TABLE_3.items():
            slower = 1 - workers / 1000 if m == "DKG" else 1
            grown = cost * workers / 10 if m == "SG" else cost
            rows.append({"workers": workers, **_dkg(m, speed * slower, deviation * 10 / workers, grown)})
    return rows


def dkg_figure_13():
    return [{"spouts": s, **row} for s in (5, 10, 15, 20) for row in dkg_table_3()]


GEDIK = ("uniform", "consistent", "scan", "redist", "readj")


def gedik_figure_3():
    balance = {"uniform": 1.55, "consistent": 1.75, "scan": 1.32, "redist": 1.32, "readj": 1.2, "readj, repaired": 1.2}
    migration = {"uniform": 8.5, "consistent": 0.9, "scan": 1.23, "redist": 1.23, "readj": 1.34, "readj, repaired": 1.1}
    return [
        {
            "method": m,
            "resources": letters,
            "imbalance": balance[m],
            "migration": migration[m],
            "computation": ({"consistent": 90}.get(m, 32) if letters == "LQL" else balance[m]),
        }
        for letters, m in product(("CCL", "LCL", "LLL", "LQL"), balance)
    ]


def gedik_figure_4():
    rows = []
    for letters, skews in (("LCL", (0.1, 0.5, 0.9, 1.0)), ("LLL", (0.1, 0.5, 0.9, 1.0)), ("LQL", (0.25, 0.5))):
        for skew, m in product(skews, GEDIK):
            high = {"uniform": 1.55, "consistent": 1.8, "scan": 1.3, "redist": 1.3, "readj": 1.2}[m]
            low = {"uniform": 0.84, "consistent": 0.9, "scan": 0.86, "redist": 0.86, "readj": 0.86}[m]
            early = letters == "LQL" or (letters == "LLL" and skew >= 0.9) or skew == 1.0
            moved = {"uniform": 8.6, "consistent": 0.9, "scan": 1.0, "redist": 1.0, "readj": 1.0}[m]
            late = {"scan": 1.8, "redist": 1.5, "readj": 1.6}.get(m, moved)
            rows.append(
                {
                    "resources": letters,
                    "skew": skew,
                    "method": m,
                    "imbalance": high if early or (m == "consistent" and skew >= 0.9) else low,
                    "migration": late if skew > 0.8 else moved,
                }
            )
    return rows


def gedik_figure_5():
    rows = []
    for letters, sigma, m in product(("LCL", "LQL"), (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0), GEDIK):
        factor = {"scan": 1.1, "redist": 1.1, "readj": 1.05 if sigma > 0.01 else 1.3}.get(m, 2)
        steep = 1 if letters == "LCL" else 0.2
        rows.append(
            {
                "resources": letters,
                "sigma": sigma,
                "method": m,
                "imbalance": factor * (1 + steep * sigma),
                "migration": {"uniform": 8.5, "consistent": 0.9}.get(m)
                or (1 + 0.01 / sigma) * {"scan": 1.4, "readj": 1.2, "redist": 1.1}[m],
            }
        )
    return rows


def gedik_figure_6():
    rows = []
    for n, m in product(range(2, 33), GEDIK):
        balance = {"uniform": 1.5, "consistent": 1.6 + n / 60, "scan": 1.25, "redist": 1.25, "readj": 1.15}[m]
        if m == "readj" and n > 20:
            balance = 1.4
        moved = {
            "uniform": 22 * n / 32,
            "consistent": 0.9,
            "redist": 1.15,
            "scan": 1.15 + n / 16,
            "readj": 1.15 + n / 24,
        }
        rows.append({"method": m, "channels": n, "imbalance": balance, "migration": moved[m]})
    return rows


def gedik_figure_7():
    utilities = ("A", "APM", "APLM", "ATM", "ATLM")
    rows = []
    for letters, u in product(("LCL", "LLL", "LQL"), utilities):
        hard = letters == "LQL"
        readj = {"A": 3.0, "APM": 1.2, "APLM": 1.3, "ATM": 1.5, "ATLM": 1.6}[u]
        redist = {"A": 2.0, "APM": 1.0, "APLM": 1.33, "ATM": 0.62, "ATLM": 0.63}[u]
        worse = {"APM": 1.0, "APLM": 1.0}.get(u, 3.0 if hard else 1.2)
        rows.append(
            {
                "method": "readj",
                "resources": letters,
                "utility": u,
                "migration": readj,
                "imbalance": 1.0 + (u != "APM") * hard,
            }
        )
        rows.append({"method": "redist", "resources": letters, "utility": u, "migration": redist, "imbalance": worse})
    return rows


def gedik_figure_8():
    rows = []
    for i, d in enumerate((10_000, 100_000, 1_000_000)):
        for m in GEDIK:
            balance = {"uniform": 1.6, "consistent": 1.9, "scan": 1.33, "redist": 1.33, "readj": 1.3}[m] - 0.05 * i
            moved = {"uniform": 6.5 + 0.4 * i, "consistent": 0.8, "scan": 2.2, "redist": 1.8, "readj": 2.0}[m]
            if m in {"scan", "redist", "readj"}:
                moved -= 0.25 * i
            rows.append({"method": m, "domain": d, "imbalance": balance, "migration": moved})
    return rows


def gedik_figure_9():
    mapped = {0.01: 500, 0.1: 50, 1.0: 2}
    return [
        {
            "resources": letters,
            "sigma": s,
            "mapped": mapped[s],
            "counted": (50_000 if letters == "LQL" else 2500) * 0.1 / s,
        }
        for letters, s in product(("LCL", "LLL", "LQL"), mapped)
    ]


def gedik_figure_10():
    return [
        {"resources": letters, "skew": z, "mapped": 50 * z**4, "counted": 2700 - 300 * z}
        for letters, z in product(("LCL", "LLL"), (0.1, 0.3, 0.5, 0.7, 0.9, 1.0))
    ]


def gedik_figure_11():
    return [{"resources": "LCL", "channels": n, "mapped": 4 * n, "counted": 250 * n} for n in (2, 4, 8, 16, 32)]


def gedik_figure_12():
    seconds = {"consistent": (1, 1, 1), "scan": (20, 10, 5), "redist": (550, 20, 5), "readj": (10_000, 45, 5)}
    return [
        {"method": m, "sigma": s, "seconds": value / 1000}
        for m, values in seconds.items()
        for s, value in zip((0.008, 0.1, 1.0), values, strict=True)
    ]


def gedik_figure_13():
    rows = []
    for n in (4, 8, 16, 32):
        base = n / 1000
        seconds = {"consistent": base, "scan": 2 * base, "redist": 3 * base * n / 8, "readj": 4 * base * n / 8}
        rows += [{"method": m, "channels": n, "seconds": value} for m, value in seconds.items()]
    return rows


def gedik_figure_14():
    rises = {"consistent": 1.0, "scan": 1.1, "redist": 2.0, "readj": 3.0}
    return [
        {"method": m, "skew": z, "seconds": 0.01 * (rise if z > 0.8 else 1)}
        for z, (m, rise) in product((0.2, 0.5, 0.8, 1.0), rises.items())
    ]


def dr_figure_2():
    rows = []
    for n in (4, 8, 16, 32, 64):
        values = {
            "Hash": 1 + n / 30,
            "Readj": 1 + n / 35,
            "Redist": 1 + n / 36,
            "Scan": 1 + n / 36,
            "Mixed": 1 + n / 100,
        }
        values |= {f"KIP, scale {scale}": 1.15 - scale / 50 for scale in (1, 2, 3, 4)}
        values |= {f"KIP, ours, scale {scale}": 1.1 - scale / 50 for scale in (1, 2, 3, 4)}
        rows += [
            {"law": law, "partitions": n, "method": m, "imbalance": value, "bound": 1.0}
            for law in ("shifted", "Zipf")
            for m, value in values.items()
        ]
    return rows


def dr_figure_3():
    balance = {"Hash": 2.0, "Scan": 1.66, "Readj": 1.59, "KIP": 1.18, "KIP, ours": 1.15}
    moved = {"Hash": 0.0, "Scan": 0.02, "Readj": 0.16, "KIP": 0.04, "KIP, ours": 0.03}
    return [
        {
            "stream": "LFM recorded",
            "method": m,
            "batch": batch,
            "imbalance": balance[m] if batch else 2.0,
            "migration": (0.5 if m != "Hash" else 0.0) if batch == 1 else moved[m],
        }
        for batch, m in product(range(5), balance)
    ]


def dr_figure_5():
    return [
        {"partitions": n, "method": m, "time": time, "imbalance": 2.0}
        for m, times in {
            "hash": (5, 4, 3.5, 3.2, 3),
            "DR": (3, 2, 1.5, 1.6, 1.8),
            "DR, ours": (3, 2, 1.5, 1.6, 1.8),
        }.items()
        for n, time in zip((20, 40, 80, 120, 160), times, strict=True)
    ]


def dr_samplers():
    return [
        {
            "exponent": z,
            "stream": stream,
            "sampler": name,
            "error": 0.01 if name == "DR" else 0.4 / z**3,
            "bytes": 1e6 if name == "Lossy Counting" else 1e5,
        }
        for z, stream, name in product((1.0, 2.0, 3.0), ("steady", "drifting"), ("SpaceSaving", "Lossy Counting", "DR"))
    ]


def prompt_figure_10():
    sizes = {
        "Prompt": 1,
        "Prompt, ours": 1,
        "Time-based": 2,
        "Shuffle": 1,
        "Hashing": 1000,
        "PK-2": 300,
        "PK-5": 200,
        "cAM": 400,
    }
    cards = {
        "Prompt": 3,
        "Prompt, ours": 1,
        "Time-based": 90,
        "Shuffle": 100,
        "Hashing": 5,
        "PK-2": 40,
        "PK-5": 50,
        "cAM": 30,
    }
    return [
        {"data": data, "technique": t, "BSI": sizes[t], "BCI": cards[t]}
        for data, t in product(("Tweets", "TPC-H"), sizes)
    ]


def prompt_figure_14():
    shares = {"Prompt": 3, "Prompt, ours": 3, "post-sort": 8}
    return [
        {"exponent": z, "interval": t, "what": what, "seconds": share * t / 100, "share": share}
        for z, t, (what, share) in product((0.5, 1.0), (1, 2, 3), shares.items())
    ]


def _methods(**given):
    """Rows of hash, DR and ours, of values by method."""
    return [
        {"method": method, **{name: value[i] if isinstance(value, tuple) else value for name, value in given.items()}}
        for i, method in enumerate(("hash", "DR", "DR, ours"))
    ]


OVER_EXPONENTS = {1.0: (105, 100, 100), 1.5: (170, 100, 100), 2.0: (400, 390, 390)}


def dr_figure_4():
    return [
        row
        for z, seconds in OVER_EXPONENTS.items()
        for row in _methods(law="Zipf", exponent=z, imbalance=(2 * z, 1.2 * z, 1.1 * z), seconds=seconds)
    ]


def dr_figure_6():
    return [
        row
        for n, (z, seconds) in product((14, 28), OVER_EXPONENTS.items())
        for row in _methods(parallelism=n, law="Zipf", exponent=z, seconds=seconds)
    ]


def dr_figures_7_8():
    minutes = {1: (10, 8, 8), 4: (30, 14, 14), 7: (69.1, 24.9, 24.9)}
    return [
        row
        for number, seconds in minutes.items()
        for row in _methods(hosts="recorded", round=number, seconds=seconds, imbalance=(3.5, 1.2, 1.1), bound=1.0)
    ]


def dr_figure_8_entities():
    return [
        row
        for n in (36, 72, 108)
        for row in _methods(
            articles="recorded", partitions=n, seconds=(600, 100, 100), imbalance=(7.0, 1.1, 1.1), bound=1.0
        )
    ]


def prompt_figure_11():
    rates = {"prompt": 40, "prompt as printed": 40, "time-based": 10, "hash": 15, "pk5": 19, "cam": 19}
    cases = [("over the interval", f"{s} s", s, 1.0) for s in (1, 2, 3)]
    cases += [("over the skew", f"z = {z}", 3, z) for z in (0.1, 1.0, 2.0)]
    return [
        {"part": part, "case": case, "interval": s, "exponent": z, "technique": m, "rate": rate * s}
        for (part, case, s, z), (m, rate) in product(cases, rates.items())
    ]


def prompt_figure_12():
    tasks = {"rate and keys": ((8, 24, 8), (8, 24, 8)), "rate alone": ((8, 24, 8), (8, 10, 8))}
    tasks["keys alone"] = tuple(reversed(tasks["rate alone"]))
    return [
        {
            "part": part,
            "batch": i,
            "rests": False,
            "rate": (1, 3, 1)[i],
            "load": 0.9,
            "ends": 0.9,
            "map tasks": maps[i],
            "reduce tasks": reduces[i],
        }
        for part, (maps, reduces) in tasks.items()
        for i in range(3)
    ]


def prompt_figure_13():
    taken = {"time-based": (1.0, 1.0, 2.0), "prompt as printed": (0.3, 1.5, 2.2), "prompt": (0.3, 1.5, 2.2)}
    return [
        {"batch": i, "technique": m, "spread": spread, "mean": mean, "longest": longest}
        for i, (m, (spread, mean, longest)) in product(range(3), taken.items())
    ]


def pkg_table_3_spark():
    delays = {"PKG": (3.81, 6.24, 11.01), "SG": (3.66, 6.11, 10.82), "KG": (3.65, 9.82, 19.0)}
    counters = {"PKG": (30, 33, 36), "SG": (60, 66, 72), "KG": (22, 25, 29)}
    speeds = {"PKG": (900, 1000, 1100), "SG": (800, 900, 1000), "KG": (1000, 1000, 1000)}
    rows = [
        {"setting": f"D = {d} ms", "period": 10, "method": m, "latency": value, "throughput": 1, "counters": 50}
        for m, values in delays.items()
        for d, value in zip((0.1, 0.5, 1), values, strict=True)
    ]
    return rows + [
        {
            "setting": f"T = {t} s",
            "period": t,
            "method": m,
            "latency": 6.9,
            "throughput": speeds[m][i],
            "counters": counters[m][i],
        }
        for m in speeds
        for i, t in enumerate((10, 30, 60))
    ]
