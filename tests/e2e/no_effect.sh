# ctest: timeout 240
# no_effect.sh -- an option that is named and changes nothing is named by the log, in one line; rows that are accepted for
# the sake of the reference programs say why, those that are refused, too; `tandem help options` lists every row
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_options.sh"

lists_options
if cut -f 3 list | grep -vqE '^(int|number|switch|choice|text|alias|accepted|refused)$'; then complain "a row of no kind"; fi

walks_refusals
for option in --use-xla --jit=no --memory-format=nhwc --trt=x --fused-se=x; do
    has_no_effect train "$option"
done
has_no_effect evaluate --last-bn-0-init
has_no_effect evaluate --decode=fast
has_no_effect benchmark --bn-decay=0.9
has_no_effect convert --conv-init=fan_in --to onnx
has_no_effect convert --bn-momentum=0.1 --to onnx
for option in --conv-init=fan_in --last-bn-0-init --se-form=ratio; do
    tries train absent "$option" --arch vgg11
    says "${option%%=*} has no effect.*vgg11"
done
tries train absent --bn-epsilon=0.1 --arch vgg11
says "--bn-epsilon .*no effect.*vgg11"
tries train absent --bn-epsilon=0.1 --arch vgg11_bn
if grep -q bn-epsilon err; then complain "vgg11_bn reads it"; fi

for option in --stochastic-depth=0.1 --survival-prob=0.9; do
    tries train absent "$option" --arch mobilenet_v2
    says "${option%%=*} has no effect.*mobilenet_v2"
done
tries train absent --dropout=0.1
says "no effect.*resnet50"
tries train absent --dropout=0.1 --model absent.td
says "no effect.*--model"
has_no_effect convert --dropout=0.1 --to onnx
has_no_effect convert --stochastic-depth=0.1 --to onnx
has_no_effect convert --val-resize=40 --to onnx

# --- options that count beside another only: "OPTIONS : why"
while IFS= read -r line; do
    tries train absent ${line%% : *}
    option=${line%% *}
    says "${option%%=*} has no effect${line#* : }"
done <<'END'
--rmsprop-alpha=0.9 : : it requires --optimizer rmsprop
--rmsprop-eps=0.1 --optimizer sgd : : it requires --optimizer rmsprop
--adam-eps=0.1 --optimizer rmsprop : : it requires --optimizer adam
--momentum=0.8 --optimizer adamw : : it requires --optimizer sgd
--lr-decay=0.5 --lr-schedule cosine : : it requires --lr-schedule exponential
--lr-decay-epochs=5 : : it requires --lr-schedule exponential
--end-lr=0.01 : : it requires --lr-schedule cosine
--lr-power=2 --lr-schedule linear : : it requires --lr-schedule polynomial
--pct-start=0.2 : : it requires --lr-schedule one_cycle
--div-factor=5 --lr-schedule cosine : : it requires --lr-schedule one_cycle
--momentum=0.8 --lr-schedule one_cycle : : it requires --lr-schedule step
--no-cycle-momentum --lr-schedule cosine : : it requires --lr-schedule one_cycle
--max-momentum=0.9 : : it requires --lr-schedule one_cycle
--base-momentum=0.8 --lr-schedule one_cycle --no-cycle-momentum :  with --no-cycle-momentum
--lr-total-steps=5 : : it requires --lr-rule ssd320
--warmup-lr=0.1 : : it requires --warmup
--warmup-method=linear : : it requires --warmup
--no-warmup-prefix --lr-schedule cosine : : it requires --warmup
--no-warmup-prefix --warmup 3 : : it requires --lr-schedule cosine
--multistep=3 --lr-schedule cosine : : it requires --lr-schedule step
--ema-rule=torchvision : : it requires --use-ema
--ema-steps=3 --use-ema 0.9 : : it requires --ema-rule torchvision
--bce-target-thresh=0.2 : : it requires --loss bce
--mixup-mode=sample : : it requires --mixup
--mixup-switch-prob=0.2 --mixup 0.2 : : it requires --cutmix
--ra-magnitude=3 --auto-augment ta_wide : : it requires --auto-augment ra
--ra-ops=3 : : it requires --auto-augment ra
--augment-bins=20 --auto-augment imagenet : : it requires --auto-augment ra
--jitter-strength=1,0,0,0 : : it requires --color-jitter
--final-state : : it requires --final-weights
--amp-stats-every=100 : : it requires --amp-stats
--crop=tf --data-backend synthetic --model absent.td : : it requires --data-backend folder
--epochs=3 --num-train-steps 4 :  with --num-train-steps
--eval-count=3 --training-only :  with --training-only
--gather-checkpoints=3 --no-checkpoints :  with --no-checkpoints
END
tries train absent --rmsprop-alpha 0.9 --optimizer rmsprop --final-state --final-weights w --eval-count 2 --mixup 0.2 --mixup-mode sample
if grep -q 'no effect' err; then complain "options that count are named as without effect"; fi

# --- jobs that read some options of their verb only: "ARGUMENTS : what : options that are not read"
while IFS= read -r line; do
    rest=${line#* : }
    tries ${line%% : *}
    says "no effect on ${rest%% : *}: ${rest#* : }\$"
done <<'END'
train absent --mode predict --lr 1 --optimizer-batch-size 300 --optimizer sgd --topk 3 : train --mode predict : --lr, --optimizer-batch-size, --optimizer, --topk
train absent --evaluate --lr 1 --epochs 2 --topk 3 : train --evaluate : --lr, --epochs
train absent --mode training_benchmark --iter_unit batch --num_iter 2 --lr 1 --mixup 0.1 : a benchmark mode of train : --lr, --mixup
evaluate --detections d.json --annotations a.json --arch resnet18 : evaluate --detections without --weights : --arch
benchmark --mode op --lines absent --arch resnet18 -b 3 : benchmark --mode op : --arch, --batch-size
inspect checkpoint absent --arch resnet18 : inspect checkpoint : --arch
inspect ops --training : inspect ops : --training
dataset check absent --quality 3 : dataset check : --quality
convert absent out.safetensors --arch resnet18 : convert to weights : --arch
END

# one line each, and none that --log does not want
tries train absent --use_xla --use_xla --memory-format nhwc
[ "$(grep -c 'has no effect' err)" = 2 ] || complain "not one line for each option"
tries train absent --use_xla --log error
if grep -q 'no effect' err; then complain "--log error does not hold"; fi
finish
