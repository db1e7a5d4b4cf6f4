# ctest: timeout 300
# never_ignored.sh -- no option of any verb is ignored silently: `tandem help options` lists every row, and each has a line
# in options.table that names the proof of its effect, unless it is refused or the log names it as one without effect
# (e2e.no_effect).  A new row fails here until it has its line.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_options.sh"
table=$TANDEM_SOURCE/tests/e2e/options.table

lists_options

# Lines of options.table:
#   VERB --option ~ CONTEXT :: OPTION   a run differs with it
#   VERB --option = TEST                that test uses it; or a source file that does
#   VERB --option - REASON              it is accepted, and the log says that it has no effect
#   @VERB ARGUMENTS : --option ...      a job that reads these alone; the log names all others

# --- every row has its line, and every line its row ------------------------------------------------
grep -v "$tab\(accepted\|refused\|alias\)$tab" list | cut -f 1,2 | tr '\t' ' ' | sort >rows
sed -n 's/^\([a-z]* --[a-z0-9-]*\) .*/\1/p' "$table" | sort >lines
last="options.table"
[ -z "$(uniq -d lines)" ] || complain "twice: $(uniq -d lines | tr '\n' ';')"
comm -23 rows lines >missing
comm -13 rows lines >stale
[ ! -s missing ] || complain "an option has no line, say there how its effect is shown: $(tr '\n' ';' <missing)"
[ ! -s stale ] || complain "there is no such option: $(tr '\n' ';' <stale)"

# --- "~ CONTEXT :: OPTION": a run with the option differs from the same without it ------------------
drawn set --classes 2 --train 24 --val 8
small_model small.td 32 2
expect 0 train set --model small.td --threads 1 --workers 1 --seed 1 -b 8 --epochs 1 --use-ema 0.9 --workspace made
image=$(find set/val -name '*.jpg' | sort | head -1)

# all that a run prints and leaves behind but for times
trace_of() {
    rm -rf w
    code=0
    "$TANDEM" "$@" >out 2>err </dev/null || code=$?
    echo "exit code $code"
    sed -E 's/(, )?[0-9.e+]+ images\/s//; /^(images\/s|latency) /d; s/: [0-9.e+-]+([,}])/: N\1/g' out
    sed -E 's/(, )?[0-9.e+]+ images\/s//' err
    [ ! -d w ] || find w -type f | sort | while read -r file; do
        case $file in *.safetensors) cksum "$file" ;; *) echo "$file" ;; esac
    done
}

differs() {
    verb=$1
    context=${2%%::*}
    probe=${2#*::}
    fixed="--threads 1"
    case $verb in
    train)
        fixed="set --threads 1 --workers 1 --seed 1 -b 8 --print-freq 1 --workspace w --no-checkpoints --final-weights w/f.safetensors"
        case $context in *--epochs*) ;; *) fixed="$fixed --epochs 2" ;; esac
        case $context in *--arch*) ;; *) fixed="$fixed --model small.td" ;; esac
        mkdir -p w
        ;;
    evaluate) fixed="set --weights made/checkpoint.safetensors --threads 1" ;;
    classify) fixed="$image --weights made/checkpoint.safetensors --threads 1" ;;
    benchmark) fixed="--model small.td --threads 1 --iters 1 --warmup 0 --no-bound" ;;
    inspect) fixed= ;;
    esac
    trace_of $verb $fixed $context >without
    trace_of $verb $fixed $context $probe >with
    last="tandem $verb $fixed $context$probe"
    ! cmp -s without with || complain "the option changes nothing"
}

# --- "= TEST": a test that uses the option, by any of its spellings; flags.table sets, it does not run
spelled_in() {
    spellings=$(grep "^$1$tab$2$tab" list | cut -f 5)
    for spelling in $spellings; do
        # in scripts with dashes, in C as a member or a row
        pattern=$(echo "${spelling#--}" | sed 's/[-_]/[-_]/g')
        grep -Eq -e "(^|[^a-z0-9_-])(--?(no-)?)?$pattern([^a-z0-9_-]|\$)" "$3" && return 0
    done
    return 1
}
while read -r verb option sign proof; do
    case $verb in '' | '#'* | '@'*) continue ;; esac
    last="options.table: $verb $option"
    case $sign in
    =)
        name=${proof%% *}
        case $name in
        src/*) file=$TANDEM_SOURCE/$name ;;
        e2e.*) file=$TANDEM_SOURCE/tests/e2e/${name#e2e.}.sh ;;
        *) file=$(find "$TANDEM_SOURCE/tests/${name%%.*}" -name "test_${name#*.}.c") ;;
        esac
        [ -f "$file" ] || { complain "there is no test $name"; continue; }
        spelled_in "$verb" "$option" "$file" || complain "$name does not use it"
        ;;
    '~') differs "$verb" "$proof" ;;
    -) ;; # below
    *) complain "'$sign' is none of ~, = and -" ;;
    esac
done <"$table"

# --- "- REASON": the log names the option as one without effect ------------------------------------
sed -n 's/^\([a-z]*\) \(--[a-z0-9-]*\) - .*/\1 \2/p' "$table" >without
while read -r verb option; do
    value=$(grep "^$verb$tab$option$tab" list | cut -f 4)
    has_no_effect "$verb" "$option$value"
done <without

# --- jobs that read only some options of their verb -------------------------------------------------
# all options that have a default are given at once, the others one by one: each is read, which the line says, or
# refused, or named by the log
unread_of() {
    sed -n 's/^tandem: warning: [a-z]*: no effect on .*: \(--.*\)$/\1/p' err | tr -d ' ' | tr ',' '\n'
    sed -n 's/^tandem: warning: [a-z]*: \(--[a-z0-9-]*\) has no effect.*/\1/p' err
}
while IFS= read -r line; do
    case $line in @*) ;; *) continue ;; esac
    arguments=${line%% : *}
    arguments=${arguments#@}
    verb=${arguments%% *}
    set --
    : >unread
    : >given
    while IFS=$tab read -r of option kind value spellings; do
        [ "$of" = "$verb" ] || continue
        case $kind in alias | refused | accepted) continue ;; esac
        case $option in --help | --print-config | --config | --log) continue ;; esac
        case " $arguments " in *" $option "*) continue ;; esac
        echo "$option" >>given
        case $value in
        =x)
            case " ${line#* : } " in *" $option "*) continue ;; esac
            tries $arguments "$option=x"
            [ "$code" = 2 ] && echo "$option" >>unread || unread_of >>unread
            ;;
        *) set -- "$@" "$option$value" ;;
        esac
    done <list
    tries $arguments "$@"
    unread_of >>unread
    sort -u unread >sorted
    for word in ${line#* : }; do echo "$word"; done | sort >read
    sort given >all
    [ -z "$(comm -12 sorted read)" ] || complain "named as without effect: $(comm -12 sorted read | tr '\n' ' ')"
    sort -m sorted read | comm -23 all - >passed_over
    [ ! -s passed_over ] || complain "neither read nor named by the log: $(tr '\n' ' ' <passed_over)"
done <"$table"

finish
