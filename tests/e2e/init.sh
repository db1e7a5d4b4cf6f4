# init.sh -- tandem init: the same seed gives the same bytes, another seed others; names, shapes and types are
# PyTorch's; inspect reads what init wrote
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"

expect 0 init --arch resnet18 --num-classes 10 --seed 3 -o a.safetensors
prints '^a.safetensors$'
expect 0 init --arch resnet18 --num-classes 10 --seed 3 --output=b.safetensors --json
prints '^\{"output": "b.safetensors"\}$'
expect 0 init --arch resnet18 --num-classes 10 --seed 4 -o c.safetensors
last="init"
cmp a.safetensors b.safetensors || complain "the same seed gave other bytes"
if cmp -s a.safetensors c.safetensors; then complain "another seed gave the same bytes"; fi

expect 0 inspect checkpoint a.safetensors
prints '^122 tensors|^a.safetensors$'
prints '^122 tensors'
prints '^  conv1.weight +f32\[64,3,7,7\]$'
prints '^  bn1.running_var +f32\[64\]$'
prints '^  bn1.num_batches_tracked +i64\[\]$'
prints '^  layer2.0.downsample.0.weight +f32\[128,64,1,1\]$'
prints '^  fc.weight +f32\[10,512\]$'
prints '^  fc.bias +f32\[10\]$'
expect 0 inspect checkpoint a.safetensors --json
prints '"name": "fc.weight", "dtype": "f32", "shape": \[10, 512\]'

expect 0 init --arch se-resnet50 --se-form ratio --num-classes 4 -o se.safetensors
expect 0 inspect checkpoint se.safetensors
prints '^384 tensors'
prints '^  layer4.2.se.fc1.weight +f32\[128,2048,1,1\]$'
cp se.safetensors before
expect 1 init --arch se-resnet50 --num-classes 4 -o se.safetensors
error_names "'se.safetensors'" --overwrite
cmp se.safetensors before || complain "init replaced a file"
expect 0 init --arch se-resnet50 --num-classes 4 -o se.safetensors --overwrite
expect 0 inspect checkpoint se.safetensors
prints '^  layer4.2.se.fc1.weight +f32\[16,2048,1,1\]$'

# a network of the user's own
expect 0 init --model "$TANDEM_SOURCE/examples/small_cnn.td" -o own.safetensors
expect 0 inspect checkpoint own.safetensors
prints '^  conv2.weight +f32\[32,16,3,3\]$'
prints '^  fc.weight +f32\[10,32\]$'

# nothing is written when nothing can be
expect 1 init --arch resnet18 -o absent/a.safetensors
says "absent/a.safetensors"
expect 2 init --arch resnet19 -o d.safetensors
says "resnet18"
[ ! -e d.safetensors ] || complain "a failed init left a file"
finish
