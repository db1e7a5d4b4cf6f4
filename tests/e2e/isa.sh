# isa.sh -- TANDEM_MAX_ISA limits the instruction sets of all kernels, oneDNN's too; results agree
# ctest: timeout 300
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

# value NAME: a number of the JSON object
value() {
    sed "s/.*\"$1\": \([-0-9.e+]*\)[,}].*/\1/" out
}

drawn set --classes 2 --train 8 --val 4 --size 64
expect 0 init --arch resnet18 --num-classes 2 --image-size 64 --seed 1 -o w.safetensors
expect 0 inspect kernels --weights w.safetensors -b 2
cp out all
case $(grep -oE 'native_conv2d_winograd F[^ ]* [a-z0-9_]*' all | head -1) in
*avx512*) below="avx2 generic" ;;
*avx2) below=generic ;;
*) exit 77 ;; # nothing to limit
esac

expect 0 evaluate set --weights w.safetensors --threads 1 --json --logits all.safetensors
loss=$(value loss)
for isa in $below; do
    export TANDEM_MAX_ISA=$isa
    expect 0 inspect kernels --weights w.safetensors -b 2
    grep -v ' refused: ' out >kernels
    grep -q avx512 kernels && complain "kernels for AVX-512 with TANDEM_MAX_ISA=$isa"
    [ "$isa" = avx2 ] || ! grep -q avx2 kernels || complain "kernels for AVX2 with TANDEM_MAX_ISA=$isa"
    expect 0 evaluate set --weights w.safetensors --threads 1 --json --logits "$isa.safetensors"
    awk "BEGIN { d = $(value loss) - $loss; exit !(d < 1e-5 && d > -1e-5) }" || complain "loss $(value loss), was $loss"
    for precision in fp32 bf16; do
        expect 0 train set --arch resnet18 --image-size 64 --threads 1 --workers 1 --seed 1 -b 4 --run-iters 1 \
            --precision $precision --training-only --no-checkpoints --workspace w --json
        awk "BEGIN { exit !($(value train_loss) > 0) }" || complain "no loss"
    done
    expect 0 doctor --json
    prints "\"instruction_set\": \"$isa\""
done
cmp -s all.safetensors generic.safetensors && complain "generic kernels give the same bits"

export TANDEM_MAX_ISA=sse9
expect 2 evaluate set --weights w.safetensors --threads 1
error_names TANDEM_MAX_ISA sse9 generic avx2 avx512_bf16
silent
TANDEM_MAX_ISA='' expect 0 evaluate set --weights w.safetensors --threads 1 --json --logits again.safetensors
cmp -s all.safetensors again.safetensors || complain "an empty TANDEM_MAX_ISA changes logits"
finish
