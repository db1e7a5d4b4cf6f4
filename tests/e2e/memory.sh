# ctest: timeout 300
# memory.sh -- training does not grow: 20 epochs of images, 2,000 steps, checkpoints and validation between
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 32 4
drawn set --classes 4 --train 800 --val 16

last="train, 20 epochs"
"$TANDEM" train set --model small.td -b 8 --threads 1 --workers 2 --seed 3 --lr 0.01 --epochs 20 --workspace run \
    -p 1000 >out 2>err </dev/null &
pid=$!
# resident kilobytes after each report of an epoch; the kernel's figure lags by some pages
: >resident
while kill -0 $pid 2>/dev/null; do
    epochs=$(grep -c '"val.top1"' run/experiment_raport.json 2>/dev/null)
    kb=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$pid/status 2>/dev/null)
    [ -n "$kb" ] && echo "${epochs:-0} $kb" >>resident
    sleep 0.02
done
wait $pid || complain "exit code $?"
grep -q '"step": \[1[0-9]\]' run/experiment_raport.json || complain "not all epochs were trained"

# the most in epochs 3 to 9 against the most in epochs 10 to 19
awk '$1 >= 3 && $1 < 10 && $2 > early { early = $2 }
    $1 >= 10 && $2 > late { late = $2 }
    END {
        printf "%d kB in epochs 3 to 9, %d kB in epochs 10 to 19\n", early, late
        exit !(early > 0 && late > 0 && late <= early + 512)
    }' resident >growth || complain "it grows: $(cat growth)"
cat growth
finish
