# ctest: timeout 180
# ctest: processors 2
# ranks_hostile.sh -- data that differ in contents alone are refused, no rank listens on a socket, and the launcher's
# last line names the rank that was the cause
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

# --- nothing listens --------------------------------------------------------------------------------
# the sockets of a process that listen, by the kernel's tables: TCP in state 0A, UNIX with the flag of listen()
listening() {
    for fd in /proc/"$1"/fd/*; do
        readlink "$fd"
    done 2>/dev/null | sed -n 's/^socket:.\([0-9]*\).$/\1/p' | while read -r inode; do
        awk -v i="$inode" '$10 == i && $4 == "0A"' "/proc/$1/net/tcp" "/proc/$1/net/tcp6" 2>/dev/null
        awk -v i="$inode" '$7 == i && $4 == "00010000"' "/proc/$1/net/unix"
    done
}
# the check finds a server
expect 0 init --model small.td --seed 3 -o small.safetensors
starts server serve --weights small.safetensors --port 0 --threads 1
waits server 127.0.0.1
grep -q "^serving small at" out || complain "a network of the user's own is not served under the name of its file: $(cat out)"
[ -n "$(listening $pid)" ] || complain "a server does not listen"
kill -TERM $pid
wait $pid
endless="--model small.td --threads 1 --workers 1 --seed 7 --lr 0.01 -p 1 -b 2 --no-checkpoints --epochs 100000"
starts quiet launch --log debug --nproc 3 --cpu-affinity none train set $endless
waits quiet 'epoch 1, '
for process in $pid "$(process quiet 0)" "$(process quiet 1)" "$(process quiet 2)"; do
    [ -z "$(listening "$process")" ] || complain "process $process listens: $(listening "$process")"
done
kill -INT $pid
ends quiet 3

# --- whose fault it was -----------------------------------------------------------------------------
starts stop launch --log debug --nproc 3 --cpu-affinity none train set $endless
waits stop 'epoch 1, ' && kill -STOP "$(process stop 1)"
ends stop 1
last_is '^tandem: error: launch: rank 1 '
starts kill launch --log debug --nproc 3 --cpu-affinity none train set $endless
waits kill 'epoch 1, ' && kill -KILL "$(process kill 2)"
ends kill 137
last_is '^tandem: error: launch: rank 2 .*signal 9'
finish
