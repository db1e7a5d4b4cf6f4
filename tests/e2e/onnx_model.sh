# ctest: timeout 600
# onnx_model.sh -- a network from an ONNX file of another program, in every verb: PyTorch's logits, and its weights after
# three steps; tests/oracle/onnx_import.py --golden made the files
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
golden=$TANDEM_SOURCE/tests/golden/onnx

# apart A B TENSOR: the largest difference of two files' tensors, divided by the largest element
apart() {
    tensor "$1" "$3" | od -An -v -t f4 -w4 >a.txt
    tensor "$2" "$3" | od -An -v -t f4 -w4 >b.txt
    [ -s a.txt ] && [ "$(wc -l <a.txt)" = "$(wc -l <b.txt)" ] || complain "$3 has another size in $1 than in $2"
    paste a.txt b.txt | awk '{ d = $1 - $2; d = d < 0 ? -d : d; m = $2 < 0 ? -$2 : $2
                               if (d > worst) worst = d; if (m > most) most = m }
                             END { if (most > 0) worst /= most
                                   print worst + 0 }'
}

# near A B TENSOR LIMIT
near() {
    d=$(apart "$1" "$2" "$3")
    awk "BEGIN { exit !($d < $4) }" || complain "$3 of $1 differs from $2 by $d, wanted less than $4"
}

fixed="--data-backend tensors --precision fp32 --threads 1"
for form in folded dynamo norms beside; do # beside.onnx: dynamo.onnx with its weights in beside.onnx.data
    expect 0 evaluate "$golden/in.safetensors" --model "$golden/$form.onnx" $fixed -b 4 --logits y.safetensors
    near y.safetensors "$golden/logits.safetensors" logits 1e-5
    expect 0 evaluate "$golden/in.safetensors" --weights "$golden/$form.onnx" $fixed -b 3 --logits z.safetensors
    near z.safetensors "$golden/logits.safetensors" logits 1e-5
    # and out again
    expect 0 convert "$golden/$form.onnx" again.onnx --overwrite
    expect 0 convert "$golden/$form.onnx" own.safetensors --overwrite
    for again in again.onnx own.safetensors; do
        expect 0 evaluate "$golden/in.safetensors" --weights $again $fixed -b 4 --logits z.safetensors
        near z.safetensors "$golden/logits.safetensors" logits 1e-5
    done
done

# A Sigmoid at the end: several labels, or one if the data have one, in train and evaluate
last="sigmoid.onnx"
"$TANDEM" evaluate "$golden/in.safetensors" --weights "$golden/folded.onnx" $fixed -b 4 | grep '^top\|^loss' >wanted
[ "$(grep -c '^top1\|^loss' wanted)" = 2 ] || complain "no scores: $(cat wanted)"
expect 0 convert "$golden/sigmoid.onnx" own.safetensors --overwrite
expect 0 convert own.safetensors again.onnx --overwrite
for weights in "$golden/sigmoid.onnx" own.safetensors again.onnx; do
    expect 0 evaluate "$golden/in.safetensors" --weights $weights $fixed -b 4
    log_names evaluate: "'$golden/in.safetensors'" 'one label'
    grep '^top\|^loss' out >is
    same wanted is
    expect 2 evaluate "$golden/in.safetensors" --weights $weights $fixed -b 4 --multi-label
    error_names "'$golden/in.safetensors'" multi-label
    expect 2 evaluate "$golden/in.safetensors" --weights $weights $fixed -b 4 --threshold 0.4
    error_names --threshold
done
expect 0 train "$golden/in.safetensors" --model "$golden/sigmoid.onnx" $fixed -b 4 --run-iters 1 --epochs 1 --training-only \
    --workspace one --final-weights one.safetensors
log_names train: "'$golden/in.safetensors'" 'one label'
expect 0 evaluate "$golden/in.safetensors" --weights one.safetensors $fixed -b 4

# again NAME FORM SIZE BATCH: the logits of FORM.onnx, and of the file that is written of its weights
again() {
    expect 0 evaluate "$golden/$1_in.safetensors" --model "$golden/$2.onnx" $fixed -b 4 --logits y.safetensors
    near y.safetensors "$golden/$1_logits.safetensors" logits 1e-5
    expect 0 convert "$golden/$2.onnx" own.safetensors --overwrite
    expect 0 convert own.safetensors again.onnx --overwrite --image-size "$3" # verified
    expect 0 evaluate "$golden/$1_in.safetensors" --model again.onnx $fixed -b "$4" --logits z.safetensors
    near z.safetensors "$golden/$1_logits.safetensors" logits 1e-5
}

# three steps of SGD, as torch.optim.SGD(lr=1e-3, momentum=0.9)
steps="--run-iters 3 --lr 0.001 --momentum 0.9 --weight-decay 0 --lr-schedule step --warmup 0 --training-only --no-checkpoints"

# trained INPUT FORM WANTED WEIGHTS TENSOR...: the weights after these steps are in WEIGHTS.safetensors
trained() {
    expect 0 train "$golden/$1.safetensors" --model "$golden/$2.onnx" $fixed -b 4 $steps --workspace "w_$2" \
        --final-weights "$4.safetensors"
    wanted=$golden/$3.safetensors weights=$4.safetensors
    shift 4
    for t in "$@"; do
        near "$weights" "$wanted" "$t" 1e-4
    done
}

trained in norms trained t stem.0.weight stem.1.weight stem.1.bias stem.1.running_mean stem.1.running_var deep.0.weight \
    deep.1.weight deep.1.running_var wide.0.weight wide.0.bias down.weight up.bias mix.weight gain fc.weight fc.bias
# transposed convolutions, windows that are not square, padding, resizing, norms of groups, extremes; opset 11
again more more 24 4
again more opset11 24 4
trained more_in more more_trained t2 row.weight column.weight column.bias groups.weight groups.bias instances.weight \
    up.weight up.bias fc.weight
# windows that are padded and shifted: six dimensions, a mask that the file computes, rows of a trained table
again windows windows_dynamo 16 4
again windows windows_norms 16 4
trained windows_in windows_norms windows_trained t3 features.0.0.weight features.1.0.attn.relative_position_bias_table \
    features.1.1.attn.relative_position_bias_table features.1.0.attn.qkv.weight features.1.1.attn.proj.weight \
    features.1.1.mlp.3.weight norm.bias head.weight
# windows of pooling that are not square, norms and convolutions of rows and signals, products by Einsum, standardized filters
again rare rare 18 3
trained rare_in rare rare_trained t4 filter gain qkv.weight qkv.bias signal.weight signals.weight signals.running_var \
    rows.running_mean rows.weight fc.weight
# linear layers and products of six dimensions, positions that ScatterND writes into zeros
again grouped grouped 8 3
trained grouped_in grouped grouped_trained t5 stem.weight stem.bias qkv.weight qkv.bias places.weight places.bias gate \
    fc.weight fc.bias
# masks, comparisons and choices, gates of one number, Einsum of several dimensions, blocks of pixels, pooling of signals; what is
# no parameter by the notes of the exporter, or is a Constant of its file, is not trained
again chosen chosen 8 3
again chosen chosen_raw 8 3
for form in chosen chosen_raw; do
    trained chosen_in $form chosen_trained t7 stem.weight norm.running_mean groups.weight groups.bias qkv.weight qkv.bias heads \
        gate share power fc.weight fc.bias
done
expect 0 convert "$golden/chosen_raw.onnx" untrained.safetensors
near t7.safetensors untrained.safetensors blur 1e-9
# batch norms that read the same ones and zeros have parameters of their own, named after their results
again fresh fresh 8 4
trained fresh_in fresh fresh_trained t6 a.weight v2.weight v2.bias v2.running_mean v2.running_var b.weight v5.weight v5.bias \
    v5.running_mean v5.running_var fc.weight
# trained weights carry the network; from them, and from the file's network with them
expect 0 evaluate "$golden/in.safetensors" --weights t.safetensors $fixed -b 4 --logits y.safetensors
expect 0 evaluate "$golden/in.safetensors" --weights t.safetensors --model "$golden/norms.onnx" $fixed -b 4 --logits z.safetensors
near y.safetensors z.safetensors logits 1e-6

# images, mixed precision, another head; the run resumes without the file
drawn set --classes 3 --train 24 --val 8 --size 34
cp "$golden/norms.onnx" net.onnx
expect 0 train set --model net.onnx --num-classes 3 --precision bf16 --threads 1 --workers 1 -b 8 --epochs 2 --seed 1 \
    --lr 0.01 --run-iters 3 --workspace run
rm net.onnx
expect 0 train set --resume run/checkpoint.safetensors --run-iters -1 --workspace run --threads 1 --workers 1
expect 0 classify set/val/*/* --weights run/checkpoint.safetensors --threads 1
expect 0 classify set/val/*/* --model "$golden/folded.onnx" --threads 1
prints '^  class [0-9]'
# a file that Tandem wrote names its classes
expect 0 convert run/checkpoint.safetensors named.onnx
expect 0 classify set/val/*/* --model named.onnx --threads 1
prints "^  $(ls set/val | head -n 1): "
features=$(grep -ao '[a-z_0-9]*/Flatten:0' named.onnx | tail -n 1)
expect 0 classify set/val/*/* --weights named.onnx --threads 1 --model-output "$features"
prints '^  class [0-9]'
# files that Tandem wrote of quantized networks and of detectors
expect 0 quantize run/checkpoint.safetensors set -o int8.safetensors
expect 0 convert int8.safetensors int8.onnx
expect 1 classify set/val/*/* --weights int8.onnx --threads 1
error_names "'int8.onnx' has 8-bit weights" 'tandem convert int8.onnx'
expect 0 init --arch ssd320 --backbone resnet18 --num-classes 2 --image-size 160 -o boxes.safetensors
expect 0 convert boxes.safetensors boxes.onnx --no-verify
expect 1 detect set/val/*/* --weights boxes.onnx --threads 1
error_names "'boxes.onnx' is a detector" 'tandem convert boxes.onnx'
expect 0 benchmark --model "$golden/norms.onnx" -b 2 --iters 1 --warmup 0 --threads 1 --mode inference
prints '^network +.*norms.onnx, inference'
expect 0 benchmark --weights run/checkpoint.safetensors -b 2 --iters 1 --warmup 0 --threads 1 --mode inference
prints '^network +run/checkpoint.safetensors, inference'
expect 0 inspect graph --model "$golden/folded.onnx"
prints '%"onnx::Conv_[0-9]+":f32\[8,3,3,3\] = param'
cp out graph.td # the text is a graph file
expect 0 inspect model --model graph.td

# files whose own nodes normalize the images: that is done once, and it is said
expect 0 init --arch resnet18 --image-size 34 --num-classes 3 --seed 2 -o r18.safetensors
expect 0 evaluate set --weights r18.safetensors --precision fp32 --threads 1 --logits y.safetensors
for input in bytes float; do
    expect 0 convert r18.safetensors $input.onnx --export-preprocessing $input --probabilities
    expect 0 evaluate set --weights $input.onnx --precision fp32 --threads 1 --logits z.safetensors
    near z.safetensors y.safetensors logits 1e-5
    # what the last softmax reads are the logits, too
    expect 0 evaluate set --weights $input.onnx --model-output probabilities --precision fp32 --threads 1 --logits z.safetensors
    log_names "'$input.onnx'" Softmax
    near z.safetensors y.safetensors logits 1e-5
    expect 0 evaluate set --model $input.onnx --weights r18.safetensors --precision fp32 --threads 1 --logits z.safetensors
    near z.safetensors y.safetensors logits 1e-5
    expect 0 inspect model --model $input.onnx
    prints '\[N,.*Sub, Div.*--mean 0.485,0.456,0.406 --std 0.229,0.224,0.225'
    expect 0 inspect model --model $input.onnx --json
    prints '"mean": "0.485,0.456,0.406"'
    expect 2 evaluate set --model $input.onnx --mean 0.5,0.5,0.5
    error_names "'$input.onnx'" --mean 0.485,0.456,0.406 0.5,0.5,0.5
    expect 0 evaluate set --model $input.onnx --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
    expect 2 train set --model $input.onnx --std 0.5,0.5,0.5 -b 8 --epochs 1 --no-checkpoints
    error_names "'$input.onnx'" --std 0.229,0.224,0.225 0.5,0.5,0.5
done
expect 0 train set --model bytes.onnx -b 8 --epochs 1 --lr 0.01 --run-iters 1 --threads 1 --workers 1 --workspace b
expect 0 evaluate set --weights b/checkpoint.safetensors --threads 1

# one of several outputs
expect 0 convert bytes.onnx own.safetensors --overwrite # the weights of a file that Tandem has written
expect 1 evaluate set --model bytes.onnx --model-output nothing
error_names "'bytes.onnx'" "'nothing'" "'logits'" "'probabilities'"
expect 1 evaluate set --model bytes.onnx --model-output images
error_names "'images'"
expect 2 evaluate set --weights r18.safetensors --model-output logits
error_names --model-output ONNX
expect 2 inspect model --arch resnet18 --model-output logits
error_names --model-output ONNX
expect 2 inspect model --model graph.td --model-output logits
error_names --model-output ONNX "'graph.td'"

# what cannot be read is said in one sentence
head -c 5000 "$golden/norms.onnx" >short.onnx
expect 1 evaluate "$golden/in.safetensors" --model short.onnx $fixed
says "'short.onnx'"
: >empty.onnx
cp "$golden/beside.onnx" .
expect 1 inspect graph --model beside.onnx
says "'beside.onnx.data'"
head -c 8000 "$golden/beside.onnx.data" >beside.onnx.data
expect 1 inspect graph --model beside.onnx
says "'beside.onnx.data' has 8000 bytes"
expect 1 inspect graph --model empty.onnx
expect 2 classify set/val/*/* --model graph.td
says 'requires --weights'

finish
