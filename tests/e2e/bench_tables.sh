# bench_tables.sh -- bench/tables.py compares the logits that programs give of the same images: equal ones, others, NaN, and
# logits that are all 0, of which nothing can be said.  Needs python3.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
command -v python3 >/dev/null || exit 77

cat >tables_test.py <<'END'
import math
import tables


def line_of(*answers, precision="float32"):
    found = tables.answers([{f"p{i}": {"alone": {"answer": a}} for i, a in enumerate(answers)}], precision)
    return found[0].split()[0] if found else ""


assert line_of([1.0, -2.0], [1.0, -2.001]) == "Same"
assert line_of([1.0, -2.0], [1.0, -2.01]) == "UNEQUAL:"
assert line_of([1.0, -2.0], [1.0, -2.01], precision="bf16") == "Same"
assert line_of([1.0, -2.0], [1.0, math.nan]) == "UNEQUAL:"
assert line_of([1.0, -2.0], [0.0, 0.0]) == "UNEQUAL:"
assert line_of([0.0, 0.0], [0.0, 0.0]) == line_of([0.0, 0.0], [1.0, 0.0]) == "NOT"
assert line_of([1.0]) == line_of([1.0], None) == ""
END
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$TANDEM_SOURCE/bench python3 tables_test.py || complain "bench/tables.py"
finish
