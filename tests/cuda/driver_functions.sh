#!/bin/sh
# driver_functions.sh NM STUB SOURCE OUT -- REFUSE(name) for every function of the library STUB that SOURCE does not name
"$1" -D --defined-only "$2" | awk -v source="$3" '
BEGIN {
    while ((getline line < source) > 0)
        while (match(line, /cu[A-Z][A-Za-z0-9_]*/)) {
            named[substr(line, RSTART, RLENGTH)] = 1
            line = substr(line, RSTART + RLENGTH)
        }
}
$2 == "T" && !($3 in named) { print "REFUSE(" $3 ")" }' >"$4"
