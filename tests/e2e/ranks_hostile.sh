# ctest: timeout 180
# ctest: processors 2
# ranks_hostile.sh -- data that differ in contents alone are refused, no rank listens beyond the machine without a
# token, and the launcher's last line names the rank that was the cause
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

# two_ranks DATA0 DATA1: by hand, without a launcher
two_ranks() {
    last="two ranks, $1 and $2"
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 12000))
    RANK=1 "$TANDEM" train "$2" $options --data-backend folder >/dev/null 2>err1 </dev/null &
    code=0
    RANK=0 "$TANDEM" train "$1" $options --data-backend folder >out 2>err </dev/null || code=$?
    wait $!
    code1=$?
    unset WORLD_SIZE MASTER_ADDR MASTER_PORT
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

# --- no token ---------------------------------------------------------------------------------------
export WORLD_SIZE=2 RANK=0 MASTER_ADDR=0.0.0.0 MASTER_PORT=20001
expect 2 train set $options
error_names "'0.0.0.0'" TANDEM_TOKEN
unset WORLD_SIZE RANK MASTER_ADDR MASTER_PORT
expect 2 launch --nnodes 2 --node-rank 0 --master-addr 0.0.0.0 train set $options
error_names TANDEM_TOKEN

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
