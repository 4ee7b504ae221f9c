#!/usr/bin/env python3
"""Recompute every printed figure of the table from the result document.

usage: recompute.py DOCUMENT.json TABLE.txt

Reads the document (raw histograms, per-rank figures, edges, barriers) and the
table that was printed from it, computes each cell again with the formulas of
docs/result-schema.md, and lists the cells that differ. It shares no code with
the program. Exit: 0 all equal, 1 something differs, 2 usage.
"""
import json
import re
import sys
import unicodedata

NONE = "–"
problems = []
checked = 0


def check(what, printed, computed):
    global checked
    checked += 1
    if printed != computed:
        problems.append(f"{what}: printed {printed!r}, recomputed {computed!r}")


# Formats -------------------------------------------------------------------

def count(n):
    return f"{n:,}"


def digits3(num, den):
    """num/den with three significant digits, rounded half up; None from 1,000 on."""
    for decimals in (2, 1, 0):
        q = (2 * num * 10**decimals + den) // (2 * den)
        if q < 1000:
            return f"{q // 10**decimals}.{q % 10**decimals:0{decimals}d}" if decimals else str(q)
    return None


def duration(ns):
    if ns is None:
        return NONE
    if ns < 0:
        return "-" + duration(-ns)
    if ns < 1000:
        return f"{ns} ns"
    for unit, name in ((10**3, "µs"), (10**6, "ms"), (10**9, "s")):
        text = digits3(ns, unit)
        if text is not None:
            return f"{text} {name}"
    return count((2 * ns + 10**9) // (2 * 10**9)) + " s"


def size(n):
    if n < 1024:
        return f"{n} B"
    for power, name in ((1, "KiB"), (2, "MiB"), (3, "GiB"), (4, "TiB"), (5, "PiB")):
        unit = 1024**power
        if n < 1000 * unit or name == "PiB":
            text = digits3(n, unit)
            return f"{text if text is not None else (2 * n + unit) // (2 * unit)} {name}"


def plural(n, one, many):
    return f"1 {one}" if n == 1 else f"{count(n)} {many}"


def median(values):
    values = sorted(values)
    n = len(values)
    if n % 2:
        return values[n // 2]
    a, b = values[n // 2 - 1], values[n // 2]
    return a + (b - a) // 2


# The table's text ------------------------------------------------------------

def cells(line):
    """(text, first column, column after the last) of cells two spaces apart."""
    at, columns = [], 0
    for c in line:
        at.append(columns)
        columns += 0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
    at.append(columns)
    return [(m.group(), at[m.start()], at[m.end()]) for m in re.finditer(r"\S+(?: \S+)*", line)]


LEFT = ("phase", "step", "slowest", "slowest rank → peer")


def parse(text):
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = text.split("\n")
    blank = lines.index("")
    header = " · ".join(lines[:blank])
    rest = lines[blank + 1:]
    rows = []
    if rest and rest[0].startswith(("phase", "step")):
        heads = cells(rest[0])
        end = rest.index("")
        for line in rest[1:end]:
            row = {}
            for word, first, last in cells(line):
                for head, hfirst, hlast in heads:
                    if first == hfirst if head in LEFT else last == hlast:
                        row[head] = word
            if len(row) != len(cells(line)):
                problems.append(f"row {line!r}: a cell stands under no column")
            rows.append(row)
        rest = rest[end + 1:]
        names = [h for h, _, _ in heads]
    else:
        names = []
    labelled, label = [], None
    for line in rest:
        if not line.strip():
            continue
        if line[:13].strip():
            label = line[:13].strip()
            labelled.append([label, [line[13:]]])
        elif line[13:].startswith("fix: "):
            labelled.append(["fix", [line[13:]]])
        else:
            labelled[-1][1].append(line[13:])
    return header, names, rows, labelled


# Figures from the raw parts of the document -----------------------------------

def quantile(hist, permille, low, high):
    n = sum(c for _, c in hist)
    if n == 0 or n * (1000 - permille) < 1000:
        return None
    want = max(1, -(-n * permille // 1000))
    seen = 0
    for upper, c in hist:
        seen += c
        if seen >= want:
            return min(max(upper, low), high)
    return high


def edge_key(e):
    none = -1
    return (e["from"], none if e["to"] is None else e["to"], 0 if e["conn"] is None else e["conn"])


def slowest(step, hosts, with_hosts):
    ranks = [r for r in step["per_rank"] if r["count"]]
    if not ranks:
        return None
    high = max(r["max_ns"] for r in ranks)
    e = min((r["max_edge"] for r in ranks if r["max_ns"] == high), key=edge_key)

    def name(r):
        return f"{r} ({hosts[r]})" if with_hosts else str(r)
    if e["to"] is None:
        return name(e["from"])
    if step["side"] == "target":
        return f"{name(e['to'])} ← {name(e['from'])}"
    return f"{name(e['from'])} → {name(e['to'])}"


def step_figures(doc, phase, step):
    ranks = step["per_rank"]
    measured = [r for r in ranks if r["count"]]
    n = sum(r["count"] for r in ranks)
    where = f"{phase['phase']}: {step['step']}"
    check(f"{where}: values in the histogram", sum(c for _, c in step["hist"]), n)
    check(f"{where}: failures by rank", sum(r["failed"] for r in ranks), sum(step["failures"].values()))
    low = min((r["min_ns"] for r in measured), default=None)
    high = max((r["max_ns"] for r in measured), default=None)
    wall = None
    if measured and step["side"] != "target":
        walls = [r["step_wall_ns"][step["step"]] for r in doc["rounds"]
                 if r["phase"] == phase["phase"] and step["step"] in r["step_wall_ns"]]
        wall = step["wall_ns"] if doc["rounds_left_out"] else sum(walls)
        if phase["slots"] == 1:
            span = max(r["last_end_ns"] for r in measured) - min(r["first_begin_ns"] for r in measured)
            check(f"{where}: wall from the ranks' stamps", wall, span)
    q = {name: quantile(step["hist"], p, low, high) if measured else None
         for name, p in (("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999))}
    for key, name in (("p50_ns", "p50"), ("p90_ns", "p90"), ("p99_ns", "p99"), ("p999_ns", "p99.9")):
        check(f"{where}: key {key}", step[key], q[name])
    total = sum(r["sum_ns"] for r in measured) if measured else None
    for key, value in (("count", n), ("sum_ns", total), ("wall_ns", wall), ("min_ns", low), ("max_ns", high)):
        check(f"{where}: key {key}", step[key], value)
    return {"count": count(n), "failed": count(sum(step["failures"].values())), "wall": duration(wall),
            "sum": duration(total), "max": duration(high), **{k: duration(v) for k, v in q.items()}}


def phase_wall(doc, phase):
    if doc["gossip"] and phase["phase"] in ("gather", "seal"):
        return doc["gossip"][phase["phase"] + "_ns"]
    walls = [r["wall_ns"] for r in doc["rounds"] if r["phase"] == phase["phase"] and r["wall_ns"] is not None]
    return sum(walls) if walls and not doc["rounds_left_out"] else phase["wall_ns"]


def check_rows(doc, names, rows):
    hosts = {r["rank"]: r["host"] for r in doc["ranks"]}
    left = list(rows)
    for phase in doc["phases"]:
        if not phase["steps"]:
            if phase["wall_ns"] is None:
                continue
            row = left.pop(0) if left else {}
            column = "phase" if "phase" in names else "step"
            check(f"row of phase {phase['phase']}", row, {column: phase["phase"], "wall": duration(phase_wall(doc, phase))})
            continue
        for i, step in enumerate(phase["steps"]):
            row = left.pop(0) if left else {}
            where = f"{phase['phase']}: {step['step']}"
            check(f"{where}: phase", row.get("phase"), phase["phase"] if i == 0 and "phase" in names else None)
            printed = row.get("step", "")
            if step["side"] == "target":
                check(f"{where}: marked as the target's", printed.endswith((" (target)", " (t)")), True)
                printed = printed.rpartition(" (")[0]
            check(f"{where}: step", printed, step["step"])
            figures = step_figures(doc, phase, step)
            for name in names:
                if name in figures:
                    check(f"{where}: {name}", row.get(name), figures[name])
                elif name.startswith("slowest"):
                    check(f"{where}: {name}", row.get(name), slowest(step, hosts, name != "slowest"))
    check("rows that belong to no step", left, [])


# Header and the lines below ----------------------------------------------------

def check_header(doc, header):
    ranks, procs = len(doc["ranks"]), len({r["proc"] for r in doc["ranks"]})
    check("size", doc["size"], ranks)
    want = [plural(ranks, "rank", "ranks"), plural(len({r["host"] for r in doc["ranks"]}), "host", "hosts")]
    if ranks > procs:
        want.append(f"virtual ranks: {count(ranks // procs)} per process")
    want.append(doc["topology"]["name"])
    if doc["topology"]["stages"] > 1:
        want.append(plural(doc["topology"]["stages"], "stage", "stages"))
    edges = doc["edges"]
    if doc["edge_list"]:
        check("edges", edges, len(doc["edge_list"]) + doc["edge_list_left_out"])
    total = edges * doc["connections_per_edge"]
    want.append(f"{plural(edges, 'edge', 'edges')} × {count(doc['connections_per_edge'])} = {plural(total, 'connection', 'connections')}")
    if doc["rounds_asked"] == 0:
        want.append(plural(doc["rounds_run"], "round", "rounds"))
    elif doc["rounds_asked"] > 1:
        want.append(plural(doc["rounds_asked"], "round", "rounds"))
    want += [doc["transport"], doc["connect"]]
    if doc["poll"]:
        want.append("poll " + doc["poll"])
    want.append("run " + doc["run_id"])
    check("header", header.split(" · "), want)


def clock_bound(doc):
    return max([c["bound_ns"] for c in doc["clock"]] + [p["bound_ns"] or 0 for p in doc["phases"]], default=0)


def barrier_items(doc):
    bound = clock_bound(doc)
    items = [count(len(doc["barriers"]) + doc["barriers_left_out"])]

    def over(ns):
        return f"< {duration(bound)}" if ns < bound else duration(ns)
    for name, key, a, b in (("last in → last out", "barrier_ns", "last_in_ns", "last_out_ns"),
                            ("release skew", "release_skew_ns", "first_release_ns", "last_release_ns")):
        values = [x[b] - x[a] for x in doc["barriers"] if x[a] is not None and x[b] is not None]
        if not any(values):
            continue
        middle, all_of = median(values), doc["barrier_stats"][key]
        if doc["barriers_left_out"]:
            middle = nearest_rank(all_of["hist"], (all_of["count"] + 1) // 2, all_of["min_ns"], all_of["max_ns"])
        else:
            check(f"barrier_stats: {key}", [all_of[k] for k in ("count", "sum_ns", "min_ns", "max_ns")],
                  [len(values), sum(values), min(values), max(values)])
        check(f"barrier_stats: {key}: values in the histogram", sum(c for _, c in all_of["hist"]), all_of["count"])
        if max(values) < bound:
            items.append(f"{name} < {duration(bound)}")
        else:
            items.append(f"{name} median {over(middle)}, max {duration(max(values))}")
    return items


def slope(points, key):
    all_of = []
    for i, p in enumerate(points):
        for q in points[i + 1:]:
            more, rounds = q[key]["sum"] - p[key]["sum"], q["round"] - p["round"]
            n = abs(more) * 1000 // rounds
            all_of.append(-n if more < 0 else n)
    return sorted(all_of)[(len(all_of) - 1) // 2]


def growth_items(doc):
    points = doc["round_resources"]
    if points:
        last = points[-1]
        points = [p for p in points if p["round"] >= last["round"] // 4 and p["procs"] == last["procs"]]
    if len(points) < 16 or points[-1]["round"] - points[0]["round"] < 100:
        check("growth", doc["growth"], None)
        return []
    want = {"from_round": points[0]["round"], "to_round": points[-1]["round"], "points": len(points)}
    for key in ("fds", "goroutines", "rss_bytes", "heap_bytes"):
        want[key + "_per_1000_rounds"] = slope(points, key)
    check("growth", doc["growth"], want)

    def change(n, text):
        return ("-" if n < 0 else "+" if n else "") + text(abs(n))
    return [f"all processes per 1,000 rounds, from round {count(points[0]['round'] + 1)} on: {change(want['fds_per_1000_rounds'], count)} fds",
            change(want["goroutines_per_1000_rounds"], count) + " goroutines",
            "heap " + change(want["heap_bytes_per_1000_rounds"], size),
            "resident " + change(want["rss_bytes_per_1000_rounds"], size)]


JUDGED_EQUAL = ("fds", "connections", "listeners", "ids", "qps", "cqs", "mrs")
JUDGED_NOT_MORE = ("process_fds", "goroutines", "kernel_ids", "kernel_qps", "kernel_cqs", "kernel_mrs")


def leaks(r):
    def both(k):
        return None not in (r["before"][k], r["after"][k])
    return any(both(k) and r["before"][k] != r["after"][k] for k in JUDGED_EQUAL) or any(
        both(k) and r["after"][k] > r["before"][k] for k in JUDGED_NOT_MORE)


def resource_items(doc):
    judged = [r for r in doc["resources"] if r["before"] and r["after"]]
    leaking = [r for r in judged if leaks(r)]
    items = []
    if leaking:
        items.append(f"not back to the baseline: {count(len(leaking))} of {plural(len(judged), 'process', 'processes')}")
    elif judged:
        items.append("back to the baseline: " + plural(len(judged), "process", "processes"))
    peaks = [r["peak"] for r in doc["resources"] if r["peak"]]
    if peaks:
        text = f"peak per process {plural(max(p['fds'] for p in peaks), 'fd', 'fds')}"
        ids, qps = max(p["ids"] or 0 for p in peaks), max(p["qps"] or 0 for p in peaks)
        if ids:
            text += f", {plural(ids, 'id', 'ids')}, {plural(qps, 'QP', 'QPs')}"
        rss = max(p["rss_bytes"] or 0 for p in peaks)
        items.append(f"{text}, {size(rss)}" if rss else text)
    for key, name in (("listen_drops", "listen drops"), ("syn_retries", "SYN retries")):
        known = [r["after"][key] - r["before"][key] for r in judged if None not in (r["after"][key], r["before"][key])]
        if known:
            items.append(f"{name} {count(sum(known))}")
    return items


def connection_items(doc):
    c = dict(doc["connections"])
    # The raw parts must give the same, where the job has them all.
    if not doc["exit"]["partial"]:
        if doc["edge_list"] and not doc["edge_list_left_out"]:
            for key in ("planned", "established"):
                check(f"connections {key} by edge", sum(e[key] for e in doc["edge_list"]), c[key])
            connect = sum(p["broken"] for p in doc["phases"] if p["phase"] == "connect")
            check("connections broken in connect by edge", sum(e["broken"] for e in doc["edge_list"]), connect)
        if doc["target_sums"]:
            check("connections established by target", sum(t["established"] for t in doc["target_sums"]), c["established"])
        for phase in doc["phases"]:
            for step in phase["steps"]:
                if phase["phase"] == "connect" and step["step"] == "full connect":
                    c["established"] = sum(r["count"] for r in step["per_rank"])
                if phase["phase"] == "connect" and step["step"] == "accept":
                    c["accepted"] = sum(r["count"] for r in step["per_rank"])
    check("connections broken by phase", sum(p["broken"] for p in doc["phases"]), c["broken"])
    keys = ["planned", "started", "established", "accepted", "dead", "failed"] + ["broken"] * (c["broken"] > 0)
    return [f"{count(c[k])} {k}" for k in keys]


def exit_text(doc):
    e, p = doc["exit"], doc["progress"]
    text = str(e["code"])
    if e["code"] == 0 and not e["partial"]:
        text += " clean"
    elif e["partial"] and p:
        text += f" partial, stopped in {p['phase']}"
        if p["total"]:
            text += f" at {count(p['done'])}/{count(p['total'])}"
    elif e["partial"]:
        text += " partial"
    elif e["cause"]:
        text += " " + e["cause"]
    return text + (": " + e["text"] if e["text"] else "")


def check_cause(doc, cause):
    """The figure that a cause line names must be in the phase's own figures."""
    kind, who = cause["kind"], f"cause {cause['kind']} of rank {cause['rank']}"
    key = {"straggler": "late_ns", "stall": "gap_ns", "starved": "gap_ns"}.get(kind)
    for phase in doc["phases"]:
        if phase["phase"] != cause["phase"]:
            continue
        if key:
            values = [r[key] for r in phase["ranks"] if r["rank"] == cause["rank"]]
            check(f"{who}: {key}", [cause["value_ns"]], values)
        if kind == "uneven":
            lates = [r["late_ns"] for r in phase["ranks"] if r["late_ns"] is not None]
            check(f"{who}: spread of late_ns", cause["value_ns"], max(lates) - min(lates))
        if kind in ("fds", "ports") and cause["value_ns"] is None:
            check(f"{who}: failures", cause["count"], sum(s["failures"].get("no " + kind, 0) for s in phase["steps"]))
    if kind == "stopped":
        stops = [p for p in doc["pauses"] if p["phase"] == cause["phase"] and p["host"] == cause["host"]
                 and cause["proc"] in (None, p["proc"]) and p["wait_ns"] is not None and 2 * (p["wait_ns"] + p["run_ns"]) <= p["gap_ns"]]
        check(f"{who}: stopped", cause["value_ns"] in [p["gap_ns"] for p in stops], True)
        if cause["proc"] is None:
            procs = {r["proc"] for r in doc["ranks"] if r["host"] == cause["host"]}
            check(f"{who}: processes of the host", {p["proc"] for p in stops}, procs)
            check(f"{who}: count", cause["count"], sum(r["host"] == cause["host"] for r in doc["ranks"]))
    if kind == "ports" and cause["value_ns"] is not None:
        check(f"{who}: sockets in TIME_WAIT", cause["count"] in [h["time_wait"] for h in doc["round_resources"]]
              + [r["before"]["time_wait"] for r in doc["resources"] if r["before"]], True)
    if kind == "drops":
        held = [r for r in doc["resources"] if r["proc"] == cause["proc"]][0]
        seen = [held[m]["listen_drops"] for m in ("peak", "after") if held[m] and held[m]["listen_drops"] is not None]
        check(f"{who}: listen_drops", cause["count"], max(seen) - held["before"]["listen_drops"])
    if kind in ("slow_target", "slow_initiator"):
        end = "to" if kind == "slow_target" else "from"
        if kind == "slow_initiator" and doc["edge_list_left_out"] and doc["edges"] == doc["size"] * (doc["size"] - 1):
            full = [s for p in doc["phases"] if p["phase"] == "connect" for s in p["steps"] if s["step"] == "full connect"][0]
            own = [r for r in full["per_rank"] if r["rank"] == cause["rank"]][0]
            mean = own["sum_ns"] // own["count"]
        elif kind == "slow_target" and doc["target_sums"]:
            own = [t for t in doc["target_sums"] if t["rank"] == cause["rank"]][0]
            mean = own["full_connect_sum_ns"] // own["established"]
        else:
            edges = doc["edge_list"][:10000] if doc["edge_list_left_out"] else doc["edge_list"]
            edges = [e for e in edges if e[end] == cause["rank"] and e["established"]]
            mean = sum(e["full_connect_sum_ns"] for e in edges) // sum(e["established"] for e in edges)
        check(f"{who}: mean full connect", cause["value_ns"], mean)
    if cause["value_ns"] is not None and kind != "uneven":  # which may be below the clock bound
        check(f"{who}: text", duration(cause["value_ns"]) in cause["evidence"], True)


def check_lines(doc, labelled):
    want = []
    for phase in doc["phases"]:
        for step in phase["steps"]:
            if step["failures"]:
                parts = [f"{k} {count(v)}" for k, v in sorted(step["failures"].items())]
                parts[0] = f"{step['step']}: {parts[0]}"
                want.append(["failures", " · ".join(parts)])
    want.append(["connections", " · ".join(connection_items(doc))])
    if doc["barriers"]:
        want.append(["barriers", " · ".join(barrier_items(doc))])
    if doc["clock"]:
        bound = clock_bound(doc)
        want.append(["clocks", f"agree within {duration(bound)}" if bound else "one clock"])
    if resource_items(doc):
        want.append(["resources", " · ".join(resource_items(doc))])
    if growth_items(doc):
        want.append(["growth", " · ".join(growth_items(doc))])
    for cause in doc["causes"]:
        check_cause(doc, cause)
        want.append(["cause", cause["evidence"]])
        if cause["fix"]:
            want.append(["fix", "fix: " + cause["fix"]])
    want += [["warning", w] for w in doc["warnings"]]
    want.append(["exit", exit_text(doc)])

    def words(text):
        return " ".join(w for w in re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text).split() if w != "·")
    # Narrow lines break between items and within long ones: the dots are not compared.
    printed = [[k, " ".join(v)] for k, v in labelled]
    for i in range(max(len(printed), len(want))):
        p = printed[i] if i < len(printed) else ["nothing", ""]
        w = want[i] if i < len(want) else ["nothing", ""]
        check(f"line {w[0]}", [p[0], words(p[1])], [w[0], words(w[1])])


def main():
    if len(sys.argv) != 3:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as f:
        doc = json.load(f)
    with open(sys.argv[2], encoding="utf-8") as f:
        header, names, rows, labelled = parse(f.read())
    check_header(doc, header)
    check_rows(doc, names, rows)
    check_lines(doc, labelled)
    for p in problems:
        print(p)
    print(f"{checked} figures recomputed, {len(problems)} differ")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
