# ctest: timeout 300
# benchmark.sh -- measuring a tiny network; the walkthrough; the largest batch within a limit, which then does fit
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 16 4
tiny="benchmark --model small.td --threads 1"

# member FILE NAME: the first number of that name
member() {
    sed 's/.*"'"$2"'": \([-+.0-9e]*\).*/\1/' "$1"
}

# no_less A B, for whole numbers
no_less() {
    [ "$1" -ge "$2" ] || complain "$1 is less than $2"
}

# --- memory, planned and real ---------------------------------------------------------------------
for precision in fp32 bf16 fp16; do
    expect 0 $tiny -b 64 --num-iter 3 --warmup-steps 1 --iter-unit batch --precision $precision --json --no-bound
    prints '"iters": 3, "warmup": 1, '
    prints '"precision": "'$precision'"'
    parameters=$(member out planned_parameter_bytes)
    activations=$(member out planned_activation_bytes)
    [ "$(member out planned_memory_bytes)" -eq $((parameters + activations)) ] || complain "the plan is no sum"
    no_less "$(member out peak_memory_bytes)" $((parameters + activations))
    eval "activations_$precision=$activations"
done
# a processor without bf16 emulates it with float32 copies
expect 0 inspect kernels --model small.td --training -b 64 --threads 1 --precision bf16
# shellcheck disable=SC2154
grep -q 'emulated: ' out || no_less $((activations_fp32 * 7 / 10)) "$activations_bf16"
expect 2 $tiny --iter-unit epoch
says "epoch"

# --- the median of two steps is their mean
expect 0 $tiny -b 4 --iters 2 --warmup 0 --json --no-bound
[ "$(member out p50)" = "$(member out avg)" ] || complain "the median of two steps is not their mean"

# --- without --json: lines and tables with units --------------------------------------------------
expect 0 $tiny -b 4 --iters 3 --warmup 1 --kernels
prints '^network +small.td, training, fp32$'
prints '^batch +4 images of 16 x 16$'
prints '^iterations +3, after 1 to warm up$'
prints '^ +median +average +p90 +p95 +p99 +max$'
prints '^ms per batch( +[0-9.]+){6}$'
prints '^images/s +[0-9.]+ at the median, [0-9.]+ to [0-9.]+$'
prints '^last quarter +[0-9.]+ images/s: .* 1 of 3 '
prints '^bound +[0-9.]+ images/s'
prints '^first step +[0-9.]+ s '
prints '^memory +[0-9.]+ MB '
prints '^planned memory +[0-9.]+ MB: parameters [0-9.]+, activations [0-9.]+$'
prints '^ +ms +GMAC +node +op +kernel$'
prints '^ +[0-9.]+ +[0-9.]+ +[^ ]+ +conv2d +[^ ]+'
grep -E 'nan|_ms|bytes|null|[{"]' out && complain "a value without a unit, or none"
expect 0 $tiny -b 4 --iters 3 --warmup 1 --no-bound --mode inference
prints '^network +small.td, inference, fp32$'
grep -E '^(bound|last quarter)' out && complain "lines of training"
expect 0 benchmark --mode op --lines "$TANDEM_SOURCE/tests/ops/small.lines" --filter relu --iters 1 --threads 1
prints '^ +ms +GFLOP/s +op +kernel +line$'
prints '^ +[0-9.]+ +([0-9.]+|-) +relu +[^ ]+.* relu '
# the line that the help page has as an example is one
"$TANDEM" help --markdown benchmark | sed -n "s/^| .--lines FILE.*example '\(conv2d [^']*\)'.*/\1/p" >example.lines
expect 0 benchmark --mode op --lines example.lines --iters 1 --warmup 0 --threads 1
prints 'conv2d'
expect 0 launch --nproc 2 benchmark --mode allreduce --iters 1 --warmup 0
prints '^ranks +2, 2 of them on this machine$'
prints '^ +bytes +median ms +min ms +max ms +GB/s$'
prints '^ +1024( +[0-9.]+){4}$'
scaling="benchmark --mode scaling --model small.td --num-classes 4 --image-size 16 -b 4 --threads 1 --iters 2 --warmup 1"
expect 0 $scaling --ranks 1,2,64 --bandwidth 0.5,200 --latency 50
prints '^gradients +[0-9]+ bytes in [0-9]+ sums$'
prints '^link of a machine: 0.5 Gbit/s, 50.0 us$'
prints '^ +ranks machines +step ms +waiting ms +images/s efficiency$'
prints '^ +1 +1 +[0-9.]+ +0.00 +[0-9.]+ +1.000$'
prints '^ +64 +64( +[0-9.]+){4}$'
expect 0 $scaling --ranks 8,64 --ranks-per-machine 8 --compute-speedup 10 --json
prints '"ranks": 8, "machines": 1,.*"ranks": 64, "machines": 8,'
expect 0 launch --nproc 2 $scaling --ranks 2,4
prints '^ranks +2 on 1 machine, ([0-9.e+]+ Gbit/s, )?[0-9.]+ us$'
prints '^step +[0-9.]+ ms, predicted [0-9.]+ ms \([-+][0-9.]+ %\)$'
expect 2 $scaling --ranks 1,two
error_names --ranks 1,two
expect 2 $scaling --bandwidth 0
error_names --bandwidth 0
expect 2 $scaling --ranks 12 --ranks-per-machine 8
error_names --ranks 12 8
expect 0 $tiny --mode inference -b 1 --iters 1 --ranks 3
log_names --ranks
drawn drawn --classes 2 --train 8 --val 2
expect 0 benchmark --mode data drawn -b 4 --image-size 32 --threads 1 --iters 2
prints '^images/s +[0-9.]+ median, [0-9.]+ to [0-9.]+$'

# --- the walkthrough ------------------------------------------------------------------------------
expect 0 $tiny --walkthrough -b 8 --warmup-steps 1 --num-iter 3
prints '^step +options +images/s +min +max +speed-up +peak MB +planned MB$'
prints '^float32 +-b 8 --precision fp32 --skip-passes fuse +.* 1\.00x '
prints '^mixed +-b 8 --precision bf16 --skip-passes fuse +[0-9.]+ '
prints '^mixed, fused +-b 8 --precision bf16 +[0-9.]+ '
prints '^mixed, fused, twice the batch +-b 16 --precision bf16 +[0-9.]+ '
expect 0 $tiny --walkthrough -b 8 --warmup-steps 0 --num-iter 2 --precision fp16 --skip-passes order --json
prints '^\{"walkthrough": \[\{"step": "float32", "article": "FP32", '
prints '"options": "-b 8 --precision fp16 --skip-passes order,fuse", "is_fused": false, '
prints '"options": "-b 16 --precision fp16 --skip-passes order", "is_fused": true, '
[ "$(grep -o '"peak_memory_bytes": [0-9]' out | wc -l)" -eq 4 ] || complain "not four measurements"
expect 2 $tiny --walkthrough --mode inference
error_names --walkthrough --mode
expect 2 $tiny --walkthrough --precision fp32
error_names --walkthrough bf16 fp16
expect 2 $tiny --walkthrough --largest-batch
error_names --walkthrough --largest-batch
expect 2 $tiny --walkthrough --skip-passes nonsense -b 2
says "step 'float32': .*nonsense"
expect 2 $tiny --walkthrough --device abacus
says 'abacus'

# --- the largest batch ----------------------------------------------------------------------------
limit=60000000
expect 0 $tiny --largest-batch --memory-limit 60M
prints '^largest batches .*60.0 MB'
prints '^fp32 +[0-9]+ +[0-9]+'
prints '^bf16 +[0-9]+ +[0-9]+'
prints '^fp16 +[0-9]+ +[0-9]+'
for precision in fp32 bf16 fp16; do
    expect 0 $tiny --largest-batch --memory-limit 60M --precision $precision --json
    [ "$(grep -c '^amp: Converted' err)" -le 1 ] || complain "what is converted is printed for every batch tried"
    prints '^\{"memory_limit_bytes": 60000000, "image_size": 16, "largest_batch": \[\{"precision": "'$precision'"'
    batch=$(sed 's/.*"largest_batch": \([0-9]*\).*/\1/' out)
    bytes=$(member out bytes)
    no_less $limit "$bytes"
    no_less "$bytes" $((limit * 95 / 100)) # one image more is some 0.1 % of it
    [ $((bytes)) -eq $(($(member out step_bytes) + $(member out validation_bytes) + $(member out input_bytes) +
        $(member out checkpoint_bytes) + $(member out runtime_bytes))) ] || complain "the parts are no sum"
    step=$(member out step_bytes)
    expect 0 $tiny -b "$batch" --iters 1 --warmup 1 --precision $precision --json --no-bound
    [ "$(member out planned_memory_bytes)" -eq "$step" ] || complain "the plan is not the one that runs"
    no_less $limit "$(member out peak_memory_bytes)"
    expect 0 $tiny -b "$batch" --largest-batch --memory-limit 50M --precision $precision --json
    no_less "$batch" $(($(sed 's/.*"largest_batch": \([0-9]*\).*/\1/' out) + 1))
done
expect 0 $tiny --largest-batch --memory-limit 100k --precision fp32
prints '^fp32 +none .*\(one image\)$'
expect 0 $tiny --largest-batch --memory-limit 100k --precision fp32 --json
prints '"largest_batch": 0, '
for not in '--mode inference' --walkthrough; do
    expect 2 $tiny $not --memory-limit 4G
    error_names --memory-limit --mode
done
expect 2 $tiny --largest-batch --mode inference
error_names --largest-batch --mode
expect 2 $tiny --largest-batch --memory-limit -5
expect 2 benchmark --largest-batch --memory-limit 1G --arch resnet19
# --- a line for each of several batch sizes, precisions, numbers of ranks ----------------------------
net="$tiny --iters 3 --warmup 1 --no-bound"
expect 0 $net --mode inference --batch-sizes 1,3
prints '^precision +batch +images/s +min +max +avg ms +p90 +p95 +p99 +peak MB$'
[ "$(awk '$1 == "fp32" && NF == 10 && $3 + 0 > 0 { printf "%s ", $2 }' out)" = "1 3 " ] || complain "no rows of batch 1 and 3"
expect 0 $net --mode training --batch-sizes 3,1
prints '^precision +batch +images/s +min +max +last 1/4 +avg ms '
prints '^last 1/4: .* 1 of 3 .*: 1$'
[ "$(awk '$1 == "fp32" && NF == 11 && $6 + 0 > 0 { printf "%s ", $2 }' out)" = "3 1 " ] || complain "no rows of batch 3 and 1"
expect 0 $net --mode inference --batch-sizes 1,3 --json
prints '^\{"mode": "inference", "rows": \[\{"precision": "fp32", "ranks": 1, "threads": 1, "batch_size": 1, .*"batch_size": 3, '
prints '"last_quarter_images_per_s": null, "speedup": 1, "times_one_rank": 1, "scaling": 1, "result": \{"arch": "small.td", '
[ "$(grep -o '"images_per_s": {"median"' out | wc -l)" = 2 ] || complain "not two results"
expect 0 $tiny -b 4 --precisions bf16,fp32,fp16 --iters 3 --warmup 1 --no-bound
prints '^bf16 +4 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+x '
prints '^fp32 +4 .* 1\.00x '
prints '^fp16 +4 '
prints '^speed-up: over fp32'
for list in 1,,2 1, x '' 1,2x ,1; do
    for option in batch-sizes nproc; do
        expect 2 benchmark --arch resnet18 --$option "$list"
        error_names --$option "'$list'"
    done
done
expect 2 benchmark --mode inference --arch resnet18 --batch-sizes 1,0
error_names --batch-sizes 0 1 1048576
expect 2 benchmark --arch resnet18 --nproc 2,99999999999999999999
error_names --nproc 99999999999999999999 1 1024
for list in fp8 fp32,,bf16 '' bf16, 'fp32 '; do
    expect 2 benchmark --arch resnet18 --precisions "$list"
    error_names --precisions fp32 bf16 fp16
done
expect 2 benchmark --arch resnet18 --precisions fp32 --amp
error_names --precisions --amp
expect 2 benchmark --arch resnet18 --precisions fp32 --no-amp
error_names --precisions --no-amp
expect 2 benchmark --arch resnet18 --batch-sizes "$(seq -s, 1 64)" --precisions fp32,bf16,fp16 --nproc 1,2
error_names 384 256
expect 2 benchmark --mode data x --batch-sizes 1,2
error_names --batch-sizes --mode
expect 2 benchmark --mode inference --nproc 1,2
error_names --nproc --mode
expect 2 benchmark --nproc 2 --memory-limit 4G
error_names --memory-limit --nproc

# --- ranks: this program started again ---------------------------------------------------------------
expect 0 $tiny -b 4 --nproc 1,2 --precisions fp32,bf16 --iters 4 --warmup 1 --no-bound
prints '^precision ranks threads +batch +images/s +min +max +last 1/4 speed-up +vs one +scaling +avg ms'
[ "$(awk '/^(fp32|bf16) +[12] +1 +4 / && NF == 16 { printf "%s%s ", $1, $2 }' out)" = "fp321 fp322 bf161 bf162 " ] || complain "no rows"
[ "$(awk '$2 == 1 && $10 == "1.00x" && $11 == "1.00" { n++ } END { print n }' out)" = 2 ] || complain "one rank is not one"
awk '$2 == 2 { one = $10; d = one / 2 - $11; if (d * d > 1e-4) exit 1 }' out || complain "scaling is not the speed over the ranks"
expect 0 $tiny -b 4 --nproc 2 --iters 4 --warmup 1 --no-bound --json
prints '"ranks": 2, "threads": 1, "batch_size": 4, "images_per_s": [0-9.]+, .*"times_one_rank": null, "scaling": null, "result": \{"arch": "small.td", '
ips=$(sed 's/.*"result": {.*"images_per_s": {"median": \([0-9.]*\).*/\1/' out)
ms=$(sed 's/.*"p50": \([0-9.]*\).*/\1/' out)
awk "BEGIN { q = $ips * $ms / 8000; exit !(q > 0.999 && q < 1.001) }" || complain "$ips images/s in $ms ms are not those of both ranks"
# without --threads one rank has no more threads than it has among others
expect 0 benchmark --model small.td -b 4 --nproc 1,2 --iters 1 --warmup 0 --no-bound
[ "$(awk '$1 == "fp32" { print $3 }' out | sort -u | wc -l)" = 1 ] || complain "rows of different threads"
expect 0 launch --nproc 2 $tiny -b 4 --iters 4 --warmup 1 --no-bound --json
prints '^\{"arch": "small.td", "mode": "training", "precision": "fp32", "batch_size": 4, "ranks": 2, .*"last_quarter": \{"images_per_s": [0-9.]+, "lines": 4, "lines_kept": 1, "line_steps": 1\}'
[ "$(wc -l <out)" = 1 ] || complain "two ranks speak"
expect 1 $tiny --device abacus --nproc 2
error_names "'abacus'"
error_names 32 2 'code 2'
silent
expect 2 launch --nproc 2 $tiny --nproc 2
error_names --nproc
expect 2 launch --nproc 2 $tiny --mode inference
error_names network
expect 2 launch --nproc 2 $tiny --trace t.json
error_names --trace

# a signal ends all of them, and the table
endless="$tiny -b 4 --nproc 2 --iters 1000000 --no-bound --log debug"
starts signal $endless
waits signal 'benchmark: iteration 0'
ranks=$(sed -n 's/^launch: rank [01] is process //p' signal.err)
kill -INT $pid
ends signal 3
says '^tandem: stopped: .*4.*2 ranks'
silent
for rank in $ranks; do
    grep -qs '^State:.[^ZX]' "/proc/$rank/status" && complain "a rank is left behind"
done
[ "$(echo $ranks | wc -w)" = 2 ] || complain "no two ranks"
# so does one that is killed
starts killed $endless
waits killed 'benchmark: iteration 0'
kill -KILL "$(sed -n 's/^launch: rank 1 is process //p' killed.err)"
ends killed 1
error_names 'rank 1' 'signal 9'
error_names 4 2 'code 137'
finish
