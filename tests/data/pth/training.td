# The network of training-*.pth.tar: a stem and a block with a shortcut and squeeze-and-excitation, 4 classes.
%images:f32[1,3,12,12] = input
%conv1.weight:f32[4,3,3,3] = param {init=normal, scale=0.272}
%1 = conv2d %images, %conv1.weight {pad=1}
%bn1.weight:f32[4] = param {init=ones}
%bn1.bias:f32[4] = param
%bn1.running_mean:f32[4] = param {role=stat}
%bn1.running_var:f32[4] = param {role=stat, init=ones}
%2 = batch_norm_infer %1, %bn1.weight, %bn1.bias, %bn1.running_mean, %bn1.running_var
%3 = relu %2
%layer1.0.conv1.weight:f32[8,4,3,3] = param {init=normal, scale=0.236}
%4 = conv2d %3, %layer1.0.conv1.weight {stride=2, pad=1}
%layer1.0.bn1.weight:f32[8] = param {init=ones}
%layer1.0.bn1.bias:f32[8] = param
%layer1.0.bn1.running_mean:f32[8] = param {role=stat}
%layer1.0.bn1.running_var:f32[8] = param {role=stat, init=ones}
%5 = batch_norm_infer %4, %layer1.0.bn1.weight, %layer1.0.bn1.bias, %layer1.0.bn1.running_mean, %layer1.0.bn1.running_var
%layer1.0.se.fc1.weight:f32[2,8,1,1] = param {init=uniform, scale=0.354}
%layer1.0.se.fc1.bias:f32[2] = param
%layer1.0.se.fc2.weight:f32[8,2,1,1] = param {init=uniform, scale=0.707}
%layer1.0.se.fc2.bias:f32[8] = param
%6 = squeeze_excite %5, %layer1.0.se.fc1.weight, %layer1.0.se.fc1.bias, %layer1.0.se.fc2.weight, %layer1.0.se.fc2.bias
%layer1.0.downsample.0.weight:f32[8,4,1,1] = param {init=normal, scale=0.707}
%7 = conv2d %3, %layer1.0.downsample.0.weight {stride=2}
%layer1.0.downsample.1.weight:f32[8] = param {init=ones}
%layer1.0.downsample.1.bias:f32[8] = param
%layer1.0.downsample.1.running_mean:f32[8] = param {role=stat}
%layer1.0.downsample.1.running_var:f32[8] = param {role=stat, init=ones}
%8 = batch_norm_infer %7, %layer1.0.downsample.1.weight, %layer1.0.downsample.1.bias, %layer1.0.downsample.1.running_mean, %layer1.0.downsample.1.running_var
%9 = add %6, %8
%10 = relu %9
%11 = global_avg_pool %10
%fc.weight:f32[4,8] = param {init=uniform, scale=0.354}
%fc.bias:f32[4] = param
%12 = linear %11, %fc.weight, %fc.bias
output logits = %12
