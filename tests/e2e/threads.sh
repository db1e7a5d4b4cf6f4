#!/bin/sh
# threads.sh -- more threads than processors: 8, 32 and 128 on whatever this machine has: the same
# plan, no kernel refused that one thread has, and the bits that docs/numerics.md promises
# ctest: processors 2
# ctest: timeout 300
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

expect 0 dataset draw set --classes 2 --train 8 --val 4 --size 40
expect 0 init --arch resnet18 --num-classes 2 --image-size 32 --seed 1 -o w.safetensors

# parameters and activations do not depend on the number of threads; scratch of libraries may
for t in 2 8 32 128; do
    expect 0 inspect memory --arch resnet18 --image-size 64 -b 4 --training --threads "$t"
    grep -E '^(param|unplanned)_bytes' out >"plan$t"
    [ "$(wc -l <"plan$t")" = 2 ] || complain "no plan with $t threads"
    cmp -s plan2 "plan$t" || complain "$t threads have another plan"
done

# every node has the kernel that it has with two threads, in float32 and bf16; bf16 filter gradients are divided into
# images and channels as long as there are enough of both, otherwise by the library.  Which layout the library wants for
# a filter depends on the threads, so copies of filters count as one kernel.
for precision in fp32 bf16; do
    for t in 2 8 32 128; do
        expect 0 inspect kernels --arch resnet18 --image-size 64 -b 4 --training \
            --precision "$precision" --threads "$t"
        # (bf16 is emulated on processors without it; those with AMX have channels last, whose channels
        # are not divided)
        if [ "$t$precision" = 8bf16 ] && grep -q avx512_core_amx out; then
            prints 'dnnl_conv_grad_w_parts: 4 images for 8 threads'
        elif [ "$t$precision" = 8bf16 ]; then
            grep -q emulated out || prints 'dnnl_conv_grad_w_parts +4 x 2 x '
        fi
        grep -v ' refused: ' out | grep -oE '(native|dnnl|ref)_[a-z0-9_]+|emulated: [a-z0-9_]+' |
            sed 's/_parts$//; s/native_amx_filter/dnnl_reorder/' | sort | uniq -c >"kernels$t"
        [ -s "kernels$t" ] || complain "no kernels with $t threads"
        cmp -s kernels2 "kernels$t" || complain "$t threads have other kernels in $precision"
    done
done

# an image's bits do not depend on the number of threads
for t in 1 8 32 128; do
    expect 0 classify set/val/*/* --weights w.safetensors --image-size 32 --threads "$t" --json
    sed -E 's/"[a-z_]*(ms|time|_s|per_s|latency)[a-z_0-9]*": *[-0-9.e+]+,?//g' out >"logits$t"
    cmp -s logits1 "logits$t" || complain "$t threads give other probabilities"
done

# OpenMP gives fewer threads than asked for: filter gradients must not lose the share of the others
for run in 2 1; do
    limit=
    [ $run = 2 ] && limit=OMP_THREAD_LIMIT=1
    last="$limit train --threads $run"
    env $limit "$TANDEM" train set --arch resnet18 --image-size 32 --workers 1 --seed 1 -b 4 --run-iters 2 --lr 0.01 \
        --training-only --no-checkpoints --threads $run --workspace w --final-weights limit$run.safetensors >out 2>err ||
        complain "fails"
done
same limit1.safetensors limit2.safetensors

# a training's weights are the same bytes in every run with the same number of threads, however many there are; losses
# of other numbers differ by rounding only: oneDNN adds the sums of filter gradients in another order
expect 0 dataset draw learn --classes 2 --train 16 --val 2 --size 40 --seed 3
for t in 8 32 128; do
    for run in a b; do
        rm -rf run
        expect 0 train learn --arch resnet18 --image-size 32 -b 8 --epochs 1 --lr 0.01 --seed 1 --training-only \
            --threads "$t" --workspace run # whose name is in the file
        mv run/checkpoint.safetensors "$t$run"
    done
    cmp -s "${t}a" "${t}b" || complain "two trainings with $t threads end with other weights"
    sed -n 's/.*"train.loss": *\([0-9.]*\).*/\1/p' run/experiment_raport.json | tail -1 >"loss$t"
    [ -s "loss$t" ] || complain "no loss with $t threads"
    paste loss8 "loss$t" | awk '{ d = $1 - $2; exit !(d < 0.02 && d > -0.02) }' ||
        complain "with $t threads the loss is $(cat "loss$t"), with 8 $(cat loss8)"
done

# the user's places are for compute threads; what else the process counts and starts is not bound
last="OMP_PROC_BIND"
"$TANDEM" doctor >out 2>err || complain "fails"
grep -E '^(processors|threads|cores|loader_workers) ' out >free
OMP_PROC_BIND=true "$TANDEM" doctor >out 2>err || complain "fails with OMP_PROC_BIND"
grep -E '^(processors|threads|cores|loader_workers) ' out >bound
[ "$(wc -l <free)" = 4 ] && cmp -s free bound || complain "other processors are counted"

finish
