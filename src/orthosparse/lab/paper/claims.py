"""Does the paper hold? Its claims one by one, each answered by our numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from orthosparse.lab.paper._chapters import Chapter
from orthosparse.lab.paper._layout import number_text, text_table
from orthosparse.lab.paper._study import INITS, METHODS, SEEDS
from orthosparse.lab.paper._tables import Cell, Table, column_of, part_of
from orthosparse.lab.paper.ranks import ranked, standing
from orthosparse.lab.paper.statistics import AI, Difference, Number, is_clear, paired
from orthosparse.lab.rendering.text import markdown_table, markdown_text

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds in part", "does not hold", "not decided yet"
_AHEAD = 10.0  # points by which a network that trains is above one at chance
_NEAR = 3.0  # points within which a sparse network follows the dense one: in the paper they are 1.5 and 2.3 apart
_MINUTES = 60.0  # seconds that AI adds at least, where the claim about networks holds
_ROUNDED = 0.005  # how far from one a mean singular value is that counts as one
_TIMES = 100.0  # times as long as EOI that AI takes at least for one matrix, in the paper's words
_FAILED = 80.0  # percent below which a ResNet on CIFAR-10 has failed
# Items whose tables have the paper's test accuracies.
_COMPARED = ("deep_networks", "contemporary", "contemporary_5", "activations", "angles")
_Chapters = Mapping[str, Chapter]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and our answer to it.

    Attributes:
        statement: what the paper says.
        rule: when it counts as held.
        verdicts: HOLDS, PARTLY, FAILS or OPEN, for each network or measure that the rule is applied to.
        answer: our numbers in sentences.
        tables: the numbers behind them.
    """

    title: str
    statement: str
    rule: str
    verdicts: Sequence[str]
    answer: str
    tables: Sequence[Table] = ()

    @property
    def verdict(self) -> str:
        """The verdict of all parts if they agree; else in part, if any part holds."""
        found = set(self.verdicts) or {OPEN}
        if len(found) == 1:
            return found.pop()
        return PARTLY if {HOLDS, PARTLY} & found else FAILS

    @property
    def counts(self) -> str:
        """How many parts have which verdict."""
        order = (HOLDS, PARTLY, FAILS, OPEN)
        return ", ".join(
            f"{verdict}: {found} of {len(self.verdicts)}"
            for verdict in order
            if (found := self.verdicts.count(verdict))
        )


def claims_of(chapters: Sequence[Chapter]) -> list[Claim]:
    """Return every claim with its answer."""
    named = {chapter.name: chapter for chapter in chapters}
    return [answer(named) for answer in _ANSWERS]


def markdown(chapters: Sequence[Chapter]) -> str:
    """Return a summary, how many cells agree with the paper's, and a section for each claim."""
    claims = claims_of(chapters)
    parts = ["| claim | our answer | networks or measures |", "|---|---|---|"]
    parts += [f"| {markdown_text(claim.title)} | **{claim.verdict}** | {claim.counts} |" for claim in claims] + [""]
    parts += [agreement(chapters), ""]
    for claim in claims:
        parts += [f"## {markdown_text(claim.title)}", "", f"*The paper:* {markdown_text(claim.statement)}", ""]
        parts += [f"*Ours:* **{claim.verdict}.** {markdown_text(claim.answer)}".rstrip(), ""]
        parts += [f"*Rule:* {markdown_text(claim.rule)}", ""]
        for table in claim.tables:
            parts += [f"**{markdown_text(table.title)}**", "", markdown_table(text_table(table)), ""]
    return "\n".join(parts)


def agreement(chapters: Sequence[Chapter]) -> str:
    """Say how many test accuracies differ from the paper's by more than two standard errors."""
    differences = {}  # by their rows: the dense networks stand in several tables
    for table in (table for chapter in chapters if chapter.name in _COMPARED for table in chapter.rendered.tables):
        for cell in (cell for cells in table.cells for cell in cells):
            if cell.difference is not None and cell.error is not None:
                names = frozenset((row["key"], row["seed"]) for row in cell.rows)
                differences[names] = Difference(cell.difference, cell.error)
    clear = sum(map(is_clear, differences.values()))
    return (
        f"{len(differences)} test accuracies can be compared with the paper's; {clear} of them differ by more than two "
        "standard errors."
    )


def _deep(chapters: _Chapters) -> Claim:
    table = chapters["deep_networks"].rendered.tables[0]
    found = {column.key: column_of(table, column.key) for column in table.columns}
    said, verdicts = [], []
    for column in table.columns:
        base, eoi, dense = (found[column.key][key] for key in ("erk/base", "erk/eoi", "dense/orthogonal"))
        if base.ours is None or eoi.ours is None or dense.ours is None:
            said.append(f"{column.label}: not measured.")
            verdicts.append(OPEN)
            continue
        shown = {"EOI": eoi, "dense": dense, "base": base}
        said.append(f"{column.label}: {', '.join(_percent(name, cell) for name, cell in shown.items())}.")
        whole = eoi.whole and dense.whole
        trains = eoi.ours[0] > base.ours[0] + _AHEAD and (not whole or eoi.ours[0] > dense.ours[0] - _NEAR)
        verdicts.append((HOLDS if whole else PARTLY) if trains else FAILS)
    return Claim(
        "1000 layers train",
        "Networks of 1000 layers without shortcuts or normalisation train from an exactly orthogonal sparse start "
        "about as well as from a dense one. The same masks on dense orthogonal weights (base) stay at chance.",
        f"EOI ends more than {_AHEAD:g} points above base and less than {_NEAR:g} below dense; in part where it is "
        "above base and one of the three trained for fewer epochs than the paper's.",
        verdicts,
        " ".join(said),
        chapters["deep_networks"].rendered.tables,
    )


def _ranks(chapters: _Chapters) -> Claim:
    ranks, accuracies = chapters["ranks"].rendered.tables[0], chapters["contemporary"].rendered.tables[0]
    said, verdicts, measured = [], [], []
    for column in ranks.columns:
        cells = column_of(ranks, column.key)
        means = {init: cell.ours[0] for init, cell in cells.items() if cell.ours is not None}
        if len(means) < len(INITS):
            continue
        first = min(means, key=lambda init: means[init]) == "eoi"
        verdicts.append(HOLDS if first and cells["eoi"].whole else PARTLY if first else FAILS)
        listed = ", ".join(f"{INITS[init]} {mean:.2f}" for init, mean in means.items())
        said.append(f"{column.label}: mean rank {listed} ({cells['eoi'].note}).")
        said += _pairs(column_of(accuracies, column.key))
        measured.append(column.key)
    missing = len(ranks.columns) - len(verdicts)
    said += [f"{missing} of {len(ranks.columns)} networks are not measured."] if missing else []
    return Claim(
        "EOI is first in rank on contemporary networks",
        "Over the density distributions, EOI has the best mean rank on most of the contemporary networks at density "
        "0.1.",
        "EOI has the smallest mean rank, by however little.",
        verdicts + [OPEN] * missing,
        " ".join(said),
        [part_of(ranks, columns=measured)] if measured else [],
    )


def _activations(chapters: _Chapters) -> Claim:
    table = chapters["activations"].rendered.tables[0]
    said, verdicts, measured = [], [], []
    for column in table.columns:
        if column.key.endswith("/relu"):  # with the contemporary networks
            continue
        cells = column_of(table, column.key)
        papers = _ranks_in({key: cell.paper for key, cell in cells.items()})
        ranks = _ranks_in({key: standing(cell.ours, cell.lost) for key, cell in cells.items() if cell.whole})
        if len(ranks) < len(papers):
            verdicts.append(OPEN)
            continue
        led, led_in_paper = (sum(rank["eoi"] == 1 for rank in found) for found in (ranks, papers))
        mean = {init: fmean(rank[init] for rank in ranks) for init in INITS}
        first = min(mean, key=lambda init: mean[init]) == "eoi"
        verdicts.append(HOLDS if led >= led_in_paper else PARTLY if first else FAILS)
        seeds = max(cell.seeds for cell in cells.values())
        listed = ", ".join(f"{INITS[init]} {value:.2f}" for init, value in mean.items())
        said.append(
            f"{column.label}: EOI leads under {led} of {len(papers)} distributions (the paper: {led_in_paper}); mean "
            f"rank {listed} (n = {seeds})."
        )
        measured.append(column.key)
    said += [f"{verdicts.count(OPEN)} of {len(verdicts)} columns are not measured."] * (OPEN in verdicts)
    return Claim(
        "EOI leads with other activations too",
        "In a table by activation, at density 0.1, EOI is the best start of ResNet32 with leaky ReLU and SELU under "
        "every distribution; of VGG-16 under most of them.",
        "EOI leads under at least as many distributions as in the paper; in part where it has the best mean rank.",
        verdicts,
        " ".join(said),
        [part_of(table, columns=measured)] if measured else [],
    )


def _ranks_in(numbers: Mapping[str, Number | None]) -> list[dict[str, float]]:
    """Return the ranks of the starts for every distribution that has all of them."""
    by_method = ({init: numbers.get(f"{method}/{init}") for init in INITS} for method in METHODS)
    return [ranks for means in by_method for ranks in ranked(means)]


def _pairs(cells: Mapping[str, Cell]) -> list[str]:
    """Say how far EOI is ahead of base and AI, seed by seed, where both have several seeds."""
    said = []
    for method, label in METHODS.items():
        for other in ("base", "ai"):
            found = _difference(cells[f"{method}/eoi"], cells[f"{method}/{other}"])
            if found is not None and found.error is not None:
                clear = "more" if is_clear(found) else "not more"
                numbers = f"{found.value:+.2f} ± {found.error:.2f}"
                said.append(
                    f"{label}, EOI minus {INITS[other]}, paired by seed: {numbers}, {clear} than two standard errors."
                )
    return said


def _cost(chapters: _Chapters) -> Claim:
    times = chapters["efficiency"].rendered.tables[0]
    cells = {line.key: row for line, row in zip(times.lines, times.cells, strict=True)}
    ratios: dict[str, dict[str, float]] = {}  # by the note, as AI has few iterations on large matrices
    for size, plain, exact in zip(times.columns, cells["ai-plain"], cells["eoi"], strict=True):
        if plain.ours is not None and exact.ours is not None:
            ratios.setdefault(plain.note, {})[size.label] = plain.ours[0] / exact.ours[0]
    said = [_ratios(note, found) for note, found in ratios.items()]
    table = chapters["init_runtime"].rendered.tables[0]
    added = {}
    for column in table.columns:
        ai, eoi = (column_of(table, column.key)[key].ours for key in ("erk/ai", "erk/eoi"))
        if ai is not None and eoi is not None:
            added[column.key] = ai[0]
            said.append(f"{column.label}, ERK: AI adds {ai[0]:.2f} s to the first epoch, EOI {eoi[0]:.2f} s.")
    least = min((ratio for found in ratios.values() for ratio in found.values()), default=0.0)
    verdicts = [HOLDS if least >= _TIMES else FAILS] * bool(ratios)
    verdicts += [HOLDS if min(added.values(), default=0.0) >= _MINUTES else FAILS] * bool(added)
    said += [f"In networks {AI}."] * bool(added and min(added.values(), default=0.0) < _MINUTES)
    return Claim(
        "AI costs far more than EOI",
        "Sampling a matrix by EOI is circa 100 times as fast as optimizing one by AI, and in a whole network AI adds "
        "minutes to the first epoch where EOI adds next to nothing.",
        f"AI takes at least {_TIMES:g} times as long on every size of a matrix; and it adds at least {_MINUTES:g} s to "
        "the first epoch of every network.",
        verdicts,
        " ".join(said),
        [part_of(table, lines=["erk/base", "erk/ai", "erk/eoi"], columns=[*added])] if added else [],
    )


def _ratios(note: str, ratios: Mapping[str, float]) -> str:
    """Say how many times as long as EOI AI takes on matrices of some sizes; the note says after how few iterations."""
    sizes = " to ".join(dict.fromkeys([*ratios][:1] + [*ratios][-1:]))
    where = f"One matrix, {sizes}, after {note}" if note else f"One matrix, {sizes}"
    return f"{where}: AI takes {min(ratios.values()):,.0f} to {max(ratios.values()):,.0f} times as long as EOI."


def _spectra(chapters: _Chapters) -> Claim:
    table = chapters["singular_values"].rendered.tables[0]
    cells = column_of(table, "linear")
    means = {key: cell.ours[0] for key, cell in cells.items() if cell.ours is not None}
    title = "EOI keeps the singular values at one"
    statement = (
        "At high sparsity the singular values of the input-output Jacobian vanish from a base start, fall from an AI "
        "start, and stay where a dense orthogonal network has them with EOI."
    )
    rule = (
        f"The means of EOI are within {_ROUNDED:g} of one, and those of every AI start are between those of every base "
        "start and one."
    )
    if len(means) < len(cells):
        return Claim(title, statement, rule, [OPEN], "", [])
    by_init = {init: [mean for key, mean in means.items() if key.endswith(f"/{init}")] for init in INITS}
    exact = max(abs(mean - 1) for mean in by_init["eoi"]) < _ROUNDED
    ordered = max(by_init["base"]) < min(by_init["ai"]) < 1
    spans = ", ".join(f"{INITS[init]} {_short(min(found))} to {_short(max(found))}" for init, found in by_init.items())
    answer = f"Linear network, density 0.05, over the five distributions: mean singular value {spans}."
    return Claim(
        title, statement, rule, [HOLDS if exact and ordered else FAILS], answer, [part_of(table, columns=["linear"])]
    )


def _snip(chapters: _Chapters) -> Claim:
    table, slow = chapters["contemporary_5"].rendered.tables
    keys = ["snip/base", "snip/ai", "snip/eoi"]
    eoi = {column.label: column_of(table, column.key)["snip/eoi"] for column in table.columns}
    said, verdicts = [], []
    for label, cell in eoi.items():
        ends = [100 * row["metrics"].get("test_accuracy", 0.0) for row in cell.rows]  # none where a run diverged
        failed = sum(end < _FAILED for end in ends)
        if ends:
            mean = "diverged" if cell.ours is None else f"{cell.ours[0]:.2f} %"
            notes = [f"n = {len(ends)}", *[f"{failed} failed"] * bool(failed), *[cell.setting] * (not cell.whole)]
            said.append(f"{label}: {mean} ({', '.join(notes)}).")
        if cell.paper is not None and cell.paper[0] < _FAILED:
            # Some of the paper's five seeds train too; and what trains for fewer epochs may yet fail.
            enough = cell.whole and len(ends) >= len(SEEDS)
            verdicts.append(HOLDS if failed and cell.whole else FAILS if enough else OPEN)
    restored = [
        f"{column.label}: {_percent('EOI', cell)}"
        for column, cell in zip(slow.columns, slow.cells[0], strict=True)
        if cell.ours
    ]
    said.append(f"At a learning rate of 0.01: {', '.join(restored) or 'not measured'}.")
    return Claim(
        "At density 0.05, SNIP with EOI fails on the deeper ResNets",
        "SNIP with EOI reaches 57 % on ResNet56 and 26 % on ResNet110, with deviations of 43 and 36 points; a learning "
        "rate of 0.01 restores 85 %.",
        f"At least one seed of the network diverges or ends below {_FAILED:g} %, after all epochs; it does not hold "
        f"once {len(SEEDS)} seeds train.",
        verdicts,
        " ".join(said),
        [part_of(table, lines=keys), slow],
    )


def _dynamic(chapters: _Chapters) -> Claim:
    table = chapters["dynamic"].rendered.tables[0]
    said, verdicts = [], []
    for column in table.columns:
        cells = column_of(table, column.key)
        eoi = cells["erk/eoi"]
        for key, label in (("erk/base/set", "SET"), ("erk/base/rigl", "RigL")):
            found, moving = _difference(cells[key], eoi), cells[key].ours
            if found is None or moving is None or moving[1] is None:
                continue
            error = "" if found.error is None else f" ± {found.error:.2f}"
            within = "within" if found.value <= moving[1] else "more than"
            said.append(
                f"{column.label}: {label} minus static EOI, paired by seed: {found.value:+.2f}{error} points, {within} "
                f"its standard deviation of {moving[1]:.2f}."
            )
            verdicts.append(HOLDS if 0 < found.value <= moving[1] else PARTLY if found.value > 0 else FAILS)
        said.append("" if any(cell.ours for cell in cells.values()) else f"{column.label}: not measured.")
    return Claim(
        "Dynamic training is a little better than static EOI",
        "SET and RigL end above every static start; static EOI stays within a standard deviation of them (ResNet56).",
        "SET and RigL are ahead of static EOI by no more than their own standard deviation; in part where by more.",
        verdicts,
        " ".join(filter(None, said)),
        [table],
    )


_ANSWERS: list[Callable[[_Chapters], Claim]] = [_deep, _ranks, _activations, _cost, _spectra, _snip, _dynamic]


def _difference(one: Cell, other: Cell) -> Difference | None:
    """Return how far one cell is above another, paired by seed."""
    values = [
        {row["seed"]: 100 * row["metrics"]["test_accuracy"] for row in cell.rows if "test_accuracy" in row["metrics"]}
        for cell in (one, other)
    ]
    return paired(values[0], values[1])


def _percent(name: str, cell: Cell) -> str:
    length = "" if cell.whole else f" ({cell.setting})"
    return f"{name} {number_text(cell.ours and (cell.ours[0], None), 2)} %{length}"


def _short(number: float) -> str:
    return number_text((number, None), 3)
