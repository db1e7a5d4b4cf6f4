# The network of small_cnn.c with batch norm, for 32 x 32 images and 10 classes:
#
#     tandem train DATA --model small_cnn.td
#
# The batch of the text does not matter; batch_norm_infer becomes batch_norm with running statistics in training.
%images:f32[1,3,32,32] = input
%conv1.weight:f32[16,3,3,3] = param {init=normal, scale=0.272}
%1 = conv2d %images, %conv1.weight {pad=1}
%bn1.weight:f32[16] = param {init=ones}
%bn1.bias:f32[16] = param
%bn1.running_mean:f32[16] = param {role=stat}
%bn1.running_var:f32[16] = param {role=stat, init=ones}
%2 = batch_norm_infer %1, %bn1.weight, %bn1.bias, %bn1.running_mean, %bn1.running_var
%3 = relu %2
%4, %where1 = max_pool2d %3 {kernel=2, stride=2}
%conv2.weight:f32[32,16,3,3] = param {init=normal, scale=0.118}
%5 = conv2d %4, %conv2.weight {pad=1}
%bn2.weight:f32[32] = param {init=ones}
%bn2.bias:f32[32] = param
%bn2.running_mean:f32[32] = param {role=stat}
%bn2.running_var:f32[32] = param {role=stat, init=ones}
%6 = batch_norm_infer %5, %bn2.weight, %bn2.bias, %bn2.running_mean, %bn2.running_var
%7 = relu %6
%8, %where2 = max_pool2d %7 {kernel=2, stride=2}
%9 = global_avg_pool %8
%fc.weight:f32[10,32] = param {init=uniform, scale=0.177}
%fc.bias:f32[10] = param {init=uniform, scale=0.177}
%10 = linear %9, %fc.weight, %fc.bias
output logits = %10
