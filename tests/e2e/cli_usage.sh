# cli_usage.sh -- what people mistype: each ends with one clear sentence, the usage line and exit code 2, prints nothing
# on stdout and changes nothing; and the general manners of the command
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"

usage() {
    pattern=$1
    shift
    expect 2 "$@"
    says "^tandem: error: .*$pattern"
    says "^usage: tandem "
    silent
}

# verbs
expect 0
prints '^usage: tandem VERB'
expect 0 --help
prints '^  train  '
expect 0 --version
prints '^tandem [0-9]+\.[0-9]+\.[0-9]+$'
expect 0 version --json
prints '^\{"version": "[0-9.]+"\}$'
usage "no verb 'trian', did you mean 'train'" trian
usage "no verb 'xyzzyxyzzy'$" xyzzyxyzzy
usage "no verb '--verson', did you mean" --verson
usage "no verb 'trains'" help trains
usage "what to do with 'more'" help train more

# options
usage "unknown option '--bach-size', did you mean '--batch-size'" train --bach-size 8 data
usage "unknown option '-z'" train -z data
usage "option '--opt' is ambiguous: .*--optimizer" train --opt sgd data
usage "batch-size: 0 is out of range, wanted 1 to" train -b 0 data
usage "batch-size: .*'many'" train -b many data
usage "lr: " train --lr -1 data
usage "lr-schedule: .*step.*linear.*cosine" train --lr-schedule sawtooth data
usage "--epochs" train data --epochs
usage "data-backend" train --data-backend oracle data
usage "option '--mode' is ambiguous: --model, --model-config" evaluate --mode inference data
usage "unknown option '--iters'" evaluate --iters 3 data
usage "evaluate needs --weights" evaluate data

# arguments
usage "no DATA is named" train
usage "no DATA is named" evaluate
usage "what to do with 'two'" train one two
usage "classify wants FILE" classify
usage "convert wants IN OUT" convert one
usage "what to do with 'three'" convert one two three
usage "wants draw.check FOLDER" dataset draw
usage "'draw', 'check' and 'pack', found 'drew'" dataset drew here
usage "no thing 'nets' to inspect, wanted model, graph, .*backends" inspect nets
usage "inspect wants THING: model, graph, amp, amp-stats, kernels, memory, checkpoint, dataset, ops or backends" inspect
usage "wants a PATH" inspect checkpoint
usage "what to do with 'x'" inspect model x
usage "output: no file" init

# names
usage "no architecture 'resnet51', the nearest is 'resnet50'" inspect model --arch resnet51

# read, but not there yet
usage "not supported yet" train --data-backend synthetic --arch resnet18 --pretrained

# a configuration file: read before the line, and wrong ones
printf 'arch = resnet18\nnum_classes = 7 # seven\n' >c.conf
expect 0 inspect model --config c.conf --image-size 64
prints '^resnet18'
prints 'fc .*f32\[1,7\]'
expect 0 inspect model --config c.conf --num-classes 9
prints 'fc .*f32\[1,9\]'
printf '{"arch": "resnet34", "num_classes": 3}' >c.json
expect 0 inspect model --config c.json
prints '^resnet34'
printf 'arsh = resnet18\n' >c.conf
expect 2 inspect model --config c.conf
says "c.conf.*line 1.*arsh"
printf 'arch resnet18\n' >c.conf
expect 1 inspect model --config c.conf
says "c.conf.*line 1"
expect 1 inspect model --config absent.conf
says "absent.conf"

# failures that are not the line's fault
expect 1 train absent --arch resnet18 --no-checkpoints
says "absent"
silent
if grep -q '^train: seed' err; then complain "a run that never began has a seed"; fi
expect 1 evaluate absent --arch resnet18 --weights absent.safetensors
says "absent"
expect 1 convert absent.safetensors out.safetensors
says "absent.safetensors"
[ ! -e out.safetensors ] || complain "a failed conversion left a file"
expect 1 inspect checkpoint absent.safetensors
says "absent.safetensors"
expect 1 inspect dataset absent
says "absent"

# a result that cannot be written
last="tandem version >/dev/full"
if "$TANDEM" version >/dev/full 2>err; then
    complain "exit code 0"
fi
says "cannot be written"

# "--" ends options
expect 1 classify --weights absent.safetensors -- --odd-name.jpg
says "absent.safetensors"

# two networks, on the line or of a file and the line
own=$TANDEM_SOURCE/examples/small_cnn.td
expect 2 train DIR --arch resnet18 --model "$own" --print-config
says "^tandem: error: --arch resnet18 and --model .*small_cnn.td name two networks: only one can be meant$"
expect 2 inspect model --model "$own" --arch resnet50
says "name two networks"
expect 0 train DIR --model "$own" --print-config
cp out own.yaml
expect 0 train DIR --config own.yaml --print-config
expect 2 train DIR --config own.yaml --arch resnet18 --print-config
says "name two networks"

# the wait policy is settled once, and what the user chose is left alone
last="restart"
GOMP_SPINCOUNT=77 "$TANDEM" doctor >out 2>err || complain "doctor with GOMP_SPINCOUNT fails"
TANDEM_STARTED=1 "$TANDEM" version >out 2>err || complain "no start with the mark set"
prints '^tandem '

# what the machine allows is measured: arithmetic in both types, and memory
last="doctor --json"
"$TANDEM" doctor --json >out 2>err || complain "fails"
for row in matrix_product_gflops bf16_convolution_gflops memory_read_gbs memory_copy_gbs; do
    prints "\"$row\": [1-9]"
done
finish
