# pages.sh -- manual pages that troff takes without a warning, and completion that bash, zsh and fish take: driven in a
# real bash
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
verbs=$("$TANDEM" help | sed -n 's/^  \([a-z]*\) .*/\1/p')

# --- manual pages: every option of the help page is in them
for verb in '' $verbs; do
    expect 0 help --man $verb
    grep -q '^\.TH tandem' out || complain "no title line"
    cp out "page.1"
    if command -v groff >/dev/null 2>&1; then
        groff -ww -man -Tascii page.1 >page.txt 2>warnings || complain "groff fails"
        [ ! -s warnings ] || complain "groff warns: $(head -3 warnings)"
        sed 's/.\x08//g; s/\x1b\[[0-9;]*m//g' page.txt >plain.txt
        [ -z "$verb" ] || "$TANDEM" help "$verb" | grep -o '^ *\(-[a-z], \)\?--[][a-z0-9-]*' | sed 's/.* //' |
            while read -r option; do
                grep -qF -e "$option" plain.txt || echo "$option"
            done >missing
        [ -z "$verb" ] || [ ! -s missing ] || complain "not on the page: $(cat missing)"
    else
        echo "pages: groff is not there: manual pages are not rendered"
    fi
    if command -v mandoc >/dev/null 2>&1; then
        mandoc -T lint -W error page.1 >lint || complain "mandoc: $(head -3 lint)"
    fi
done
expect 2 help --man --markdown train
error_names --man --markdown exclude
expect 2 help --completion tcsh
error_names --completion "'tcsh'" none bash zsh fish

# --- bash: what TAB offers after WORDS; the last one is being typed
"$TANDEM" help --completion bash >tandem.bash
cat >complete.bash <<'END'
source ./tandem.bash
complete -p tandem >/dev/null || exit 1
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_tandem
printf '%s\n' "${COMPREPLY[@]}"
END
offers() {
    wanted=$1
    shift
    last="completion of $*"
    bash complete.bash "$@" >out 2>err || complain "bash fails"
    [ ! -s err ] || complain "bash says something"
    got=$(sort -u out | tr '\n' ' ' | sed 's/ $//')
    [ "$got" = "$wanted" ] || complain "found '$got', wanted '$wanted'"
}
if command -v bash >/dev/null 2>&1; then
    touch file.yaml
    mkdir -p folder
    offers 'train' tandem tr
    offers 'cosine' tandem train --lr-schedule c
    offers 'cosine' tandem train --lr-schedule = c
    offers 'cosine exponential linear one_cycle polynomial step' tandem train --lr-schedule =
    offers '--label-smoothing' tandem train --label-s
    offers 'resnet101 resnet152 resnet18' tandem init --arch resnet1
    offers 'resnet50/T4/AMP resnet50/T4/FP32' tandem train --preset resnet50/T
    offers '--no-nesterov' tandem train --no-nest
    offers '--momentum' tandem train -b 8 --mom
    offers '' tandem train --lr f
    offers 'file.yaml' tandem train --config file
    offers 'folder' tandem train --workspace f
    offers 'folder' tandem train fo
    offers 'evaluate' tandem help ev
    offers '' tandem nothing --x
    offers '--weights' tandem evaluate --wei
    # nothing hidden, nothing missing: the words are those of the help page
    for verb in $verbs; do
        [ "$verb" = help ] && continue
        bash complete.bash tandem "$verb" -- | grep '^--' | sed 's/^--no-/--/' | sort -u >offered
        "$TANDEM" help "$verb" | grep -o '^ *\(-[a-zA-Z], \)*--[^ ].*' | sed 's/^ *//; s/  .*//' | grep -o '\-\-[][a-z0-9-]*' |
            sed 's/\[no-\]//; s/^--no-/--/' | sort -u >listed
        cmp -s offered listed || complain "$verb: $(diff offered listed | head -3)"
    done
else
    echo "pages: bash is not there"
fi

# --- zsh and fish: parsed where they are installed
for shell in zsh fish; do
    "$TANDEM" help --completion $shell >"completion.$shell"
    grep -q 'lr-schedule' "completion.$shell" || complain "$shell: no options"
    grep -q 'resnet18 resnet34' "completion.$shell" || complain "$shell: no architectures"
    grep -q ' resnet50/T4/AMP ' "completion.$shell" || complain "$shell: no presets"
    if command -v $shell >/dev/null 2>&1; then
        $shell -n "completion.$shell" || complain "$shell does not parse it"
    else
        echo "pages: $shell is not there: its completion is not parsed"
    fi
done
finish
