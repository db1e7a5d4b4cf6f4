# help.sh -- docs/commands/VERB.md is what `tandem help --markdown VERB` prints, for every verb, and nothing else is
# there; every page has its text form.  TANDEM_GOLDEN_WRITE=1 rewrites the pages.
set -eu
pages=$TANDEM_SOURCE/docs/commands
verbs=$("$TANDEM" help | sed -n 's/^  \([a-z]*\) .*/\1/p')
bad=0

fail() {
    echo "help: $*" >&2
    bad=1
}

[ "$(echo "$verbs" | wc -l)" -ge 11 ] || fail "only these verbs are listed: $verbs"
for verb in $verbs; do
    "$TANDEM" help --markdown "$verb" >"$verb.md" || fail "no Markdown page of $verb"
    [ -z "${TANDEM_GOLDEN_WRITE-}" ] || cp "$verb.md" "$pages/$verb.md"
    diff -u "$pages/$verb.md" "$verb.md" || fail "docs/commands/$verb.md differs: run make golden"
    "$TANDEM" help "$verb" >"$verb.txt" || fail "no page of $verb"
    grep -q "^usage: tandem $verb" "$verb.txt" || fail "the page of $verb has no usage line"
    "$TANDEM" "$verb" --help >"$verb.again" || fail "$verb --help fails"
    awk 'length > 80 { print "wider than 80 columns: " $0; bad = 1 } END { exit bad }' "$verb.txt" || fail "page of $verb"
    # a reader of an installed page has no source tree
    if grep -n 'tests/' "$verb.txt"; then fail "the page of $verb names a file of the source tree"; fi
    # the default size, 0, is explained
    size=$(grep '^| `--image-size N` ' "$verb.md" || true)
    case $size in '' | *' 0: '*) ;; *) fail "$verb: what is --image-size 0?" ;; esac
    # "--[no-]x" stands for --x and --no-x; no name occurs in two rows
    twice=$(sed -n 's/^| `\([^`]*\)`.*/\1/p' "$verb.md" | tr -d ',' | tr ' ' '\n' |
        sed -n 's/^--\[no-\]\(.*\)/--\1\n--no-\1/; /^-/p' | sort | uniq -d)
    [ -z "$twice" ] || fail "the page of $verb lists twice:" $twice
    cmp "$verb.txt" "$verb.again" || fail "help $verb and $verb --help differ"
    # config files name sections: a title that is reworded keeps its former name (TD_TITLE_SECONDARY_RENAMED)
    sed -n "s/^$verb: //p" "$TANDEM_SOURCE/tests/e2e/sections.table" | tr ' ' '\n' | sort >known
    sed -n '/^### Usual options$/d; /^### Common$/d; /^### Result$/d; s/^### //p' "$verb.md" | tr 'A-Z ' 'a-z_' | sort >titled
    comm -23 titled known | sed "s/^/help: sections.table has no section of $verb named /" | grep . >&2 && bad=1
    sed 's/$/: {}/' known >known.yaml
    [ ! -s known ] || "$TANDEM" "$verb" --config known.yaml --print-config >printed ||
        fail "a section of $verb that config files have is not read any more: keep its name as a former one"
done
"$TANDEM" help | awk 'length > 80 { exit 1 }' || fail "the list of verbs is wider than 80 columns"
first=$("$TANDEM" help train | sed -n '/^Usual options:$/,/^$/s/^.*--\(\[no-\]\)\{0,1\}\([a-z-]*\).*  .*/\2/p' | head -3 | paste -s -d ' ')
[ "$first" = "arch image-size batch-size" ] || fail "train's page does not begin with its usual options but '$first'"
# a page lists what its verb reads, not what only training does
for verb in evaluate classify detect serve convert; do
    if grep -e '--conv-init' -e '--last-bn-0-init' -e '--bn-decay' -e '--bn-momentum' -e '--augmentation' "$verb.txt"; then
        fail "the page of $verb lists options of training"
    fi
done
# a terminal gets lines of its own width
if command -v script >/dev/null; then
    script -qec "stty cols 66; '$TANDEM' help train" /dev/null </dev/null | tr -d '\r' >narrow.txt
    awk 'length > 66 { bad = 1 } END { exit bad || NR < 50 }' narrow.txt || fail "a terminal of 66 columns is not filled"
fi
for page in "$pages"/*.md; do
    name=$(basename "$page" .md)
    echo "$verbs" | grep -qx "$name" || fail "docs/commands/$name.md is no verb's"
done
exit $bad
