# ctest: timeout 180
# ctest: processors 2
# ranks_hostile.sh -- data that differ in contents alone are refused, and the launcher's last line names the rank that
# was the cause
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

# the last line of stderr
last_is() {
    tail -n 1 err | grep -Eq -e "$1" || complain "the last line is not '$1'"
}

drawn set --classes 2 --train 8 --val 4
small_model small.td 32 2
options="--model small.td --threads 1 --workers 1 --seed 7 --lr 0.01 -b 2 --no-checkpoints --epochs 1"

# two_ranks DATA0 DATA1
two_ranks() {
    linked train "$1" $options --data-backend folder ::: train "$2" $options --data-backend folder
}

# --- the same names, labels and sizes, one byte of one image differs --------------------------------
cp -r set same_names
two_ranks set same_names
[ "$code,$code1" = 0,0 ] || complain "exit codes $code, $code1 for the same data"
image=$(ls same_names/train/*/* | head -1)
n=$(wc -c <"$image")
head -c $((n - 8)) "$image" >changed && printf 'abcdefgh' >>changed && mv changed "$image"
two_ranks set same_names
[ "$code,$code1" = 1,1 ] || complain "exit codes $code, $code1"
says 'rank 1 .*rank 0.*[0-9a-f]{16}'

# --- whose fault it was -----------------------------------------------------------------------------
endless="--model small.td --threads 1 --workers 1 --seed 7 --lr 0.01 -p 1 -b 2 --no-checkpoints --epochs 100000"
starts stop launch --log debug --nproc 3 --cpu-affinity none train set $endless
waits stop 'epoch 1, ' && kill -STOP "$(process stop 1)"
ends stop 1
last_is '^tandem: error: launch: rank 1 '
starts kill launch --log debug --nproc 3 --cpu-affinity none train set $endless
waits kill 'epoch 1, ' && kill -KILL "$(process kill 2)"
ends kill 137
last_is '^tandem: error: launch: rank 2 .*signal 9'
finish
