# ctest: timeout 900
# readme.sh -- the commands of README.md in their order, on tiny data; those of docs/tasks.md are understood
#
# What is long is made short by options at the end of the line, which win.  Lines that only the machine's measurement or
# a waiting server would end are understood, but not run.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
ln -s "$TANDEM_SOURCE/examples" examples

# the commands of the sh blocks, one a line
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$TANDEM_SOURCE/README.md" |
    sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' -e 's/  *#.*//' >commands
grep -q '^alias tandem="\$PWD/build/tandem"$' commands || complain "the alias is no absolute path"

# the first epoch of N has 1 / N of the rate: N = 1 is no warm-up
if grep -nE -e '--warmup[ =]1( |$|\\)' "$TANDEM_SOURCE/README.md" "$TANDEM_SOURCE/docs/tasks.md" "$TANDEM_SOURCE"/docs/commands/*.md >&2; then
    complain "an example warms up for one epoch, which changes nothing"
fi

short="--threads 1 --workers 1 --epochs 1"
n=0
while IFS= read -r line <&3; do
    case $line in tandem\ *) ;; *) continue ;; esac
    n=$((n + 1))
    case $line in *…* | *' ... '*) complain "a line that nobody can run: $line" ;; esac
    case $line in
    'tandem train '*' --epochs '* | 'tandem train '*' --resume '* | 'tandem train '*' --run-iters '* | *--print-config) ;;
    'tandem train '*) last=$line complain "trains for 90 epochs" ;;
    esac
    eval "set -- ${line#tandem }"
    expect 0 "$@" --print-config
    case $line in
    *' --tune full'* | *'tandem serve'* | *'--arch resnet50'*) continue ;;
    *'dataset draw'*--boxes*) set -- "$@" --train 8 --val 4 --size 96 ;;
    *'dataset draw'*) set -- "$@" --train 64 --val 16 --size 40 ;;
    'tandem benchmark'*) set -- "$@" --iters 1 --warmup 0 --threads 1 ;;
    *'train things'*) set -- "$@" $short ;;
    *--optimizer-batch-size*) set -- "$@" $short --warmup 1 -b 16 --image-size 32 --optimizer-batch-size 32 ;;
    *'train shapes'*--model*) set -- "$@" $short ;;
    *'train shapes'*--resume* | *'train shapes'*--pretrained*) set -- "$@" $short -b 16 ;;
    *'train shapes'*) set -- "$@" $short -b 16 --image-size 32 ;;
    esac
    expect 0 "$@"
done 3<commands
[ "$n" -ge 25 ] || complain "only $n commands in README.md"
for file in run/model_best.safetensors stats.jsonl gradients.svg shapes.pack report.html shapes.onnx found.json drawn int8.safetensors; do
    [ -e $file ] || complain "README.md's commands left no $file"
done

# the table of tasks: what is in it is understood, but for what needs a file of the reader's
grep -o '`tandem [^`]*`' "$TANDEM_SOURCE/docs/tasks.md" | tr -d '`' | sed 's/ >run.yaml//' >commands
if grep 'tests/' commands; then complain "docs/tasks.md has a command with a file of the source tree"; fi
while IFS= read -r line <&3; do
    case $line in *…* | *--resume* | *--config* | *'*'* | *--walkthrough* | *' help '* | *doctor*) continue ;; esac
    eval "set -- ${line#tandem }"
    case $1 in launch | inspect) continue ;; esac
    expect 0 "$@" --print-config
    n=$((n + 1))
done 3<commands
[ "$n" -ge 45 ] || complain "only $n commands in README.md and docs/tasks.md"
finish
