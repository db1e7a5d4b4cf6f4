# ctest: timeout 300
# tune.sh -- --tune: measured once and kept, used from then on; files that cannot be used are said so
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 16 4
drawn set --classes 4 --train 24 --val 4
run="train set --model small.td -b 4 --threads 1 --workers 1 --seed 3 --lr 0.05 --epochs 2 --run-epochs 1"

# --- full measures and keeps, cached uses that and says nothing --------------------------------------
expect 0 $run --workspace a --tune full --tune-cache times.txt --final-weights a.safetensors
says '^tune: .*measuring'
says '^tune: .*[0-9]+ .*[0-9]+.* [0-9.]+ ms .*[0-9.]+ ms'
head -1 times.txt | grep -q '^tandem-tune 1$' || complain "times.txt is no file of times"
cp times.txt before.txt
expect 0 $run --workspace b --tune-cache times.txt --final-weights b.safetensors
grep -q 'tune: ' err && complain "cached talks"
same a.safetensors b.safetensors
expect 0 $run --workspace c --tune full --tune-cache times.txt --final-weights c.safetensors
same a.safetensors c.safetensors
same times.txt before.txt
# inspect shows it
expect 0 inspect kernels --model small.td --training -b 4 --threads 1 --tune-cache times.txt
prints '^conv1 '

# --- quick, the default: for many runs only, the same bits, kept, and then nothing is left to be said --
bench="benchmark --model small.td -b 4 --threads 2 --warmup 1 --no-bound --tune-cache quick.txt"
expect 0 $bench --iters 1
[ ! -e quick.txt ] || complain "one run was worth measuring"
"$TANDEM" $bench --iters 1000000 >out 2>err & # until the file is there
pid=$! waited=0
while [ ! -e quick.txt ] && [ $waited -lt 600 ]; do
    sleep 0.2
    waited=$((waited + 2))
done
kill -INT $pid
wait $pid
says '^tune: timed .* [0-9]+ .* in [0-9.]+ s: [0-9]+ .* same bits'
grep -q ' quick ' quick.txt || complain "quick.txt has no times of quick"
expect 0 evaluate set --model small.td --weights a.safetensors -b 4 --threads 2 --tune off --logits off.safetensors
expect 0 evaluate set --model small.td --weights a.safetensors -b 4 --threads 2 --tune-cache quick.txt --logits quick.safetensors
same off.safetensors quick.safetensors
expect 0 $run --threads 2 --workspace q --tune off --final-weights q.safetensors
expect 0 $run --threads 2 --workspace r --tune quick --tune-cache quick.txt --final-weights r.safetensors
same q.safetensors r.safetensors

# --- nothing is measured unless it pays ------------------------------------------------------------
expect 0 $run --workspace d --tune-cache none.txt --run-iters 2
[ ! -e none.txt ] || complain "a file for two steps"
expect 0 $run --workspace d --overwrite --tune off --tune-cache none.txt --run-iters 2

# --- the default place -------------------------------------------------------------------------------
expect 0 benchmark --model small.td -b 4 --threads 1 --iters 2 --warmup 1 --no-bound --tune full
ls "$XDG_CACHE_HOME"/tandem/tune-*.txt >/dev/null 2>&1 || complain "nothing in $XDG_CACHE_HOME/tandem"

# --- files that cannot be used: said, and the run goes on --------------------------------------------
sed 's/^machine .*/machine another one/' times.txt | sed '$d' >foreign.txt
printf 'end 0000000000000000\n' >>foreign.txt
expect 0 $run --workspace e --tune-cache foreign.txt --run-iters 2
warning_names "'foreign.txt'"
head -c 300 times.txt >cut.txt
expect 0 $run --workspace e --overwrite --tune-cache cut.txt --run-iters 2
warning_names "'cut.txt'"
head -c 4096 /dev/urandom >noise.txt
expect 0 $run --workspace e --overwrite --tune-cache noise.txt --run-iters 2
warning_names "'noise.txt'"
expect 0 $run --workspace e --overwrite --tune-cache . --run-iters 2
warning_names "'.'"
: >empty.txt
expect 0 $run --workspace e --overwrite --tune-cache empty.txt --run-iters 2
warning_names "'empty.txt'"
# a damaged one is replaced by what is measured now
expect 0 benchmark --model small.td -b 4 --threads 1 --iters 2 --warmup 1 --no-bound --tune full --tune-cache cut.txt
tail -1 cut.txt | grep -q '^end ' || complain "cut.txt was not replaced"
# nowhere to write
expect 0 benchmark --model small.td -b 4 --threads 1 --iters 2 --warmup 1 --no-bound --tune full --tune-cache /dev/null/x
says '^(tandem: warning: )?tune: '
expect 2 $run --workspace f --tune perhaps
says "--tune"
finish
