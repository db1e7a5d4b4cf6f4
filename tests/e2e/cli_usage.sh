# cli_usage.sh -- what people mistype: each ends with one clear sentence, the usage line and exit code 2, prints nothing
# on stdout and changes nothing; and the general manners of the command
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"

# usage WORDS ARGUMENTS...: an error that names these words, the usage line, and nothing on stdout
usage() {
    words=$1
    shift
    expect 2 "$@"
    error_names $words
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
usage "'trian' 'train'" trian
usage "'xyzzyxyzzy'" xyzzyxyzzy
usage "'--verson'" --verson
usage "'trains'" help trains
usage "'TRAIN' 'train'" TRAIN data
usage "'eval' 'evaluate'" eval data
usage "'predict' classify detect" predict a.jpg
usage "'export' convert" export w.safetensors w.onnx
usage "'draw' dataset" draw shapes
usage "'preset' presets" help preset
usage "'--arch'" --arch resnet18 train data
usage "'more'" help train more

# options
usage "'--bach-size' '--batch-size'" train --bach-size 8 data
usage "'-z'" train -z data
usage "'--optim' --optimizer" train --optim sgd data
usage "batch-size 0 1" train -b 0 data
usage "batch-size 'many'" train -b many data
usage "lr" train --lr -1 data
usage "lr-schedule step linear cosine" train --lr-schedule sawtooth data
usage "--epochs" train data --epochs
usage "data-backend" train --data-backend oracle data
usage "'--mode' --model --model-config" evaluate --mode inference data
usage "'--iters'" evaluate --iters 3 data
usage "--weights" evaluate data

usage "'--epoch-count' '--epochs'" train --epoch-count 3 data
usage "'--num-epochs' '--epochs'" train --num-epochs 3 data

# a long option after one dash, of any verb; -a would take "rch" as its value
usage "'-arch' '--arch'" train data -arch resnet18
usage "'-arch' '--arch'" train -arch=resnet18 data
usage "'-label_smoothing' '--label_smoothing'" train data -label_smoothing 0.1
usage "'-weights' '--weights'" evaluate data -weights w.safetensors
usage "'-nproc' '--nproc'" launch -nproc 2 train data
usage "'-output' '--output'" init -output w.safetensors
usage "'-json' '--json'" dataset check data -json

# arguments
usage "DATA" train
usage "DATA" evaluate
usage "'two'" train one two
usage "FILE" classify
usage "IN OUT" convert one
usage "'three'" convert one two three
usage "draw check pack FOLDER" dataset
usage "draw FOLDER" dataset draw
usage "pack DATA OUT.pack" dataset pack data
usage "check 'val' FOLDER" dataset check data val
usage "draw check pack 'drew'" dataset drew here
usage "'nets' model graph backends" inspect nets
usage "'modle' 'model'" inspect modle
usage "THING model graph amp kernels memory checkpoint dataset ops" inspect
usage "PATH" inspect checkpoint
usage "'x'" inspect model x
usage "output" init
usage "--mode data DATA" benchmark --mode data
usage "DATA" train ""
usage "DATA" evaluate "" --weights w.safetensors

# arguments that are meant for an option: the error names it
usage "'true' '--amp=true'" train data --amp true
usage "'no' '--amp=no'" train --amp no data
usage "'–epochs' '--epochs'" train data –epochs 3
usage "'—arch' '--arch'" train —arch resnet18 data
usage "'w.safetensors' '--weights" evaluate w.safetensors data
usage "'w.pth.tar' '--weights" serve w.pth.tar
usage "'w.safetensors' '--pretrained-weights" train data w.safetensors
usage "'w.safetensors' '--output" init w.safetensors
usage "--weights --pretrained-weights --resume" train data --weights w.safetensors
for option in '--nproc 2' --nproc=2 '-n 2' '--log-dir logs'; do
    word=${option%%[ =]*}
    usage "'$word' launch 'train'" launch train data $option
done
mkdir folder
: >file
usage "'folder' 'dataset" inspect folder
usage "'file' 'checkpoint" inspect file

# values: the start of one; files named like another format
usage "'train' 'training'" benchmark --mode train
usage "'cos' 'cosine'" train data --lr-schedule cos
usage "--output 'w.onnx' .safetensors" init --arch resnet18 -o w.onnx
usage "--final-weights 'w.pth' .safetensors" train data --final-weights w.pth
[ ! -e w.onnx ] || complain "init wrote a file with the wrong name"

# nothing to measure is an error
printf '# no line\n\n' >none.lines
expect 1 benchmark --mode op --lines none.lines
error_names "'none.lines'" conv2d
silent
printf 'conv2d x=1x2x3x3 w=2x2x2x2\n' >one.lines
usage "--filter 'one.lines' 'konv*'" benchmark --mode op --lines one.lines --filter 'konv*'

# names
usage "'resnet51' 'resnet50'" inspect model --arch resnet51

# a file is no architecture, whether it exists or not
: >net.td
usage "'net.td' --arch --model" train data --arch net.td
usage "'absent.td' --arch --model" inspect model --arch absent.td
: >network
usage "'network' --arch --model" inspect model --arch network

# the networks that have presets, detectors too
usage "'resnet18' resnet50 ssd320 ssd300" train data --preset resnet18/90

# errors of a verb that `launch` starts are printed once, with the verb's line of usage
for line in "train data --bogus" "train data -b many" "train one two" "train data --fp16 --amp" "train data --arch net" \
    train "evaluate data" "benchmark --mode data"; do
    usage '' launch --nproc 2 --cpu-affinity none $line
    [ "$(grep -c '^tandem: error: ' err)$(grep -c '^usage: ' err)" = 11 ] || complain "not one error"
    says "^usage: tandem ${line%% *} "
done
usage "'--bogus'" launch --hosts a,b train data --bogus

# read, but not there yet
usage "--pretrained" train --data-backend synthetic --arch resnet18 --pretrained

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
error_names "c.conf" "1"
printf 'arch resnet18\n' >c.conf
expect 1 inspect model --config c.conf
error_names "c.conf" "1"
expect 1 inspect model --config absent.conf
error_names "absent.conf"

# failures that are not the line's fault
expect 1 train absent --arch resnet18 --no-checkpoints
says "absent"
silent
if grep -q '^train: seed' err; then complain "a run that never began has a seed"; fi
expect 1 evaluate absent --arch resnet18 --weights absent.safetensors
says "absent"
expect 1 convert absent.safetensors out.safetensors
error_names "absent.safetensors"
[ ! -e out.safetensors ] || complain "a failed conversion left a file"
expect 1 inspect checkpoint absent.safetensors
error_names "absent.safetensors"
expect 1 inspect dataset absent
says "absent"

# a result that cannot be written
last="tandem version >/dev/full"
if "$TANDEM" version >/dev/full 2>err; then
    complain "exit code 0"
fi
error_names 'standard output'

# "--" ends options
expect 1 classify --weights absent.safetensors -- --odd-name.jpg
error_names "absent.safetensors"

# two networks, on the line or of a file and the line
own=$TANDEM_SOURCE/examples/small_cnn.td
expect 2 train DIR --arch resnet18 --model "$own" --print-config
error_names "--arch" "resnet18" "--model" "small_cnn.td"
expect 2 inspect model --model "$own" --arch resnet50
error_names --arch resnet50 --model small_cnn.td
expect 0 train DIR --model "$own" --print-config
cp out own.yaml
expect 0 train DIR --config own.yaml --print-config
expect 2 train DIR --config own.yaml --arch resnet18 --print-config
error_names --arch resnet18 --model small_cnn.td

# the wait policy is settled once, and what the user chose is left alone
last="restart"
GOMP_SPINCOUNT=77 HWLOC_SYNTHETIC="pack:2 numa:2 l3:2 core:4 pu:2" "$TANDEM" doctor >out 2>err ||
    complain "doctor with GOMP_SPINCOUNT fails"
for row in 'packages +2' 'numa_nodes +4' 'l3_caches +8' 'cores +32' 'binding +.*HWLOC_SYNTHETIC' \
    'loader_workers +[1-9]' 'threads_bound +no'; do
    prints "^$row"
done
TANDEM_STARTED=1 "$TANDEM" version >out 2>err || complain "no start with the mark set"
prints '^tandem '

# what the machine allows is measured: arithmetic in both types, and memory
last="doctor --json"
"$TANDEM" doctor --json >out 2>err || complain "fails"
for row in matrix_product_gflops bf16_convolution_gflops memory_read_gbs memory_copy_gbs; do
    prints "\"$row\": [0-9.]*[1-9]"
done
prints '"binding": "2 ranks, |"binding": "[0-9]+ ranks, numa: '
finish
