"""Markdown tables of what the programs measured.

`rounds` is a list with a dict for each round: program name -> {"alone": result, "busy": result or None}.  A program that
failed is missing from that round and the later ones; `failures` has the line that says why.
"""

import statistics

import measure

spread = measure.spread
SIGNATURE = ("batch_size", "image_size", "threads", "arch", "mode", "iters")


def unequal(result, wanted):
    """What a program measured instead of what it was asked for; "" if it did as asked."""
    return "; ".join(f"measured {key} {result[key]}, wanted {wanted[key]}" for key in SIGNATURE
                     if key in result and key in wanted and result[key] != wanted[key])


def answers(rounds, precision):
    """A line about the logits that some programs give of the same weights and images."""
    given = {name: pair["alone"]["answer"] for name, pair in rounds[0].items() if pair["alone"].get("answer")}
    if len(given) < 2:
        return []
    first, *others = given
    scale = max(map(abs, given[first]))
    if scale == 0:
        return [f"NOT COMPARED: the logits of {first} are all 0, which says nothing about the weights before them."]
    off = {n: max((abs(a - b) for a, b in zip(given[first], given[n])), key=lambda v: (v != v, v)) / scale for n in others}
    limit = 1e-3 if precision == "float32" else 5e-2
    wrong = [f"{n} by {v:.1e}" for n, v in off.items() if not v <= limit]
    if wrong:
        return [f"UNEQUAL: same weights and images, but logits differ from those of {first}: {', '.join(wrong)}."]
    return [f"Same weights and images: the logits of {', '.join(others)} are within {max(off.values()):.0e} of {first}'s."]


class Table:
    def __init__(self, o, programs, rounds, failures):
        self.o, self.programs, self.failures = o, programs, failures
        self.rounds = rounds
        self.done = [p for p in programs if p.name not in failures and not p.why_not]
        self.ours = [p.name for p in self.done if p.is_ours]
        self.peers = [p.name for p in self.done if not p.is_ours]
        speeds = [v for p in self.done for v in self.speed(p.name)]
        self.digits = 1 if speeds and max(speeds) >= 100 else 2

    def results(self, name, state="alone"):
        return [r[name][state] for r in self.rounds]

    def speed(self, name, state="alone"):
        return [r["images_per_s"]["median"] for r in self.results(name, state)]

    def fastest(self, name):
        """Most images/s of a step, in all rounds."""
        return max(r["images_per_s"]["max"] for r in self.results(name))

    def median(self, name, *keys):
        """Median over the rounds of a member, or None."""
        values = []
        for r in self.results(name):
            for key in keys:
                r = r.get(key) if r else None
            if r is not None:
                values.append(r)
        return statistics.median(values) if values else None

    def ratio(self, mine, theirs):
        return [a / b for a, b in zip(self.speed(mine), self.speed(theirs))]

    def equals(self, mine):
        """Peers that read the same images: shrunk ones beside shrunk ones."""
        return [n for n in self.peers if ("at 256" in n) == ("at 256" in mine)]

    def against_best(self, mine):
        """Ratio to the fastest such peer of each round."""
        return [a / max(r[n]["alone"]["images_per_s"]["median"] for n in self.equals(mine))
                for a, r in zip(self.speed(mine), self.rounds)]

    def kept(self, name):
        return [measure.mean_rate(b) / measure.mean_rate(a)
                for a, b in zip(self.results(name), self.results(name, "busy"))]

    def columns(self):
        """[(title, name -> text)]"""
        def number(keys, digits, scale=1.0):
            def text(name):
                value = self.median(name, *keys)
                return "" if value is None else f"{scale * value:.{digits}f}"

            return text

        mode = self.o.mode
        unit = "images/s"
        found = [(f"{unit} (lowest–highest round)", lambda n: spread(self.speed(n), self.digits))]
        if mode == "training":
            found.append(("step, ms", lambda n: f"{statistics.median(1e3 * self.batch / v for v in self.speed(n)):.0f}"))
        if mode == "inference":
            found.append(("fastest, ms", lambda n: f"{1e3 * self.batch / self.fastest(n):.1f}"))
            found += [(f"{q}, ms", number(("latency_ms", q), 1)) for q in ("p50", "p90", "p95", "p99", "max")]
        found.append(("peak memory, GB", number(("peak",), 2, 1e-9)))
        first = {"training": "first step done, s", "inference": "first answer, s", "data": "first batch, s"}[mode]
        found.append((first, number(("time_to_first_step_s",), 2)))
        if self.o.busy:
            found.append((f"beside {self.o.busy} busy", lambda n: spread([measure.mean_rate(r) for r in
                                                                         self.results(n, "busy")], self.digits)))
            found.append(("kept", lambda n: spread(self.kept(n), 2)))
        if self.ours and self.peers:
            head = self.ours[0]
            found.append((f"{head} is", lambda n: f"{statistics.median(self.ratio(head, n)):.2f} ×"
                          if n in self.equals(head) else ""))
        return found

    def rows(self):
        columns = self.columns()
        lines = ["| program | " + " | ".join(title for title, _ in columns) + " |", "|---|" + "--:|" * len(columns)]
        for p in self.programs:
            why = p.why_not or self.failures.get(p.name)
            if why:
                why = why.replace("|", "/")
                lines.append(f"| {p.name} | *{'not run' if p.why_not else 'failed'}: {why}* |" + " |" * (len(columns) - 1))
            else:
                label = p.name if p.is_ours else self.results(p.name)[0].get("program", p.name)
                lines.append(f"| {label} | " + " | ".join(text(p.name) for _, text in columns) + " |")
        return lines

    def notes(self):
        lines = []
        if self.peers:
            lines += [f"{name} against the fastest peer of each round: {spread(self.against_best(name), 2)} ×."
                      for name in self.ours if self.equals(name) and not name.startswith("Tandem train")]
            if self.o.mode == "inference":
                lines += [f"{name}'s fastest step against the fastest of all peers: "
                          f"{self.fastest(name) / max(self.fastest(n) for n in self.equals(name)):.2f} ×."
                          for name in self.ours if self.equals(name)]
        real = [f"Tandem train, {kind} images" for kind in ("real", "synthetic")]
        if set(real) <= set(self.ours):
            lines.append(f"Training on real images keeps {spread(self.ratio(*real), 3)} of synthetic training's images/s.")
        others = [(r[n]["alone"]["others"], n, i) for i, r in enumerate(self.rounds, 1) for n in r if n not in self.failures]
        worst, name, i = max(others)
        lines.append(f"Other processes took {100 * statistics.median(v for v, _, _ in others):.0f} % of the processors while "
                     f"these ran, {100 * worst:.0f} % at worst ({name}, round {i}).")
        if "Tandem" in self.ours:
            if self.peers:
                peak = max(r["peak"] for r in self.results("Tandem"))
                least = min(r["peak"] for n in self.peers for r in self.results(n))
                lines.append(f"Peak memory: {peak / least:.2f} × the smallest peer's.")
            if not self.o.slice:
                late = [r["time_to_first_step_s"] - 1e-3 * r["latency_ms"]["p50"] for r in self.results("Tandem")]
                lines.append(f"Start to first result, less one step's time: {spread(late, 2)} s.")
            for key, what in (("bound_images_per_s", "alone"),
                              ("chosen_bound_images_per_s", "alone, by the algorithms that the step uses")):
                bounds = [r.get(key) for r in self.results("Tandem")]
                if all(bounds):
                    part = [100 * v / b for v, b in zip(self.speed("Tandem"), bounds)]
                    lines.append(f"Convolutions and matrix products {what}: {spread(bounds, self.digits)} images/s; "
                                 f"Tandem reaches {spread(part, 0)} % of that.")
        return lines

    def text(self, title, precision, batch):
        self.batch = batch
        o = self.o
        head = f"{title}, {o.threads} threads, {len(self.rounds)} rounds"
        if o.mode == "data":
            head += f" of {o.seconds:g} s"
        else:
            head += f" of {o.iters_of(batch)} steps after {o.warmup_of(batch)} to warm up"
        if o.slice:
            head += f", in slices of {o.slice:g} s"
        lines = [f"{head}; {measure.cpu()}; load before {o.load:.2f}", ""]
        if not self.done:
            return "\n".join(lines + [f"- {p.name}: {p.why_not or self.failures[p.name]}" for p in self.programs])
        lines += self.rows() + [""] + self.notes()
        lines += answers([{p.name: r[p.name] for p in self.done} for r in self.rounds], precision)
        return "\n".join(lines).rstrip()
