# every op of a forward graph that ONNX has a counterpart of
%images:f32[1,3,24,24] = input
%c1.weight:f32[8,3,3,3] = param {init=normal, scale=0.3}
%b1.weight:f32[8] = param {init=ones}
%b1.bias:f32[8] = param {init=normal, scale=1}
%b1.running_mean:f32[8] = param {role=stat}
%b1.running_var:f32[8] = param {role=stat, init=ones}
%c2.weight:f32[8,2,3,3] = param {init=normal, scale=0.3}
%c2.bias:f32[8] = param {init=normal, scale=0.3}
%se.fc1.weight:f32[4,8,1,1] = param {init=normal, scale=0.5}
%se.fc1.bias:f32[4] = param {init=normal, scale=0.5}
%se.fc2.weight:f32[8,4] = param {init=normal, scale=0.5}
%se.fc2.bias:f32[8] = param {init=normal, scale=0.5}
%gain:f32[8,1,1] = param {init=normal, scale=1}
%fc1.weight:f32[6,400] = param {init=normal, scale=0.05}
%fc1.bias:f32[6] = param {init=normal, scale=1}
%fc2.weight:f32[6,6] = param {init=normal, scale=1}
%h1.weight:f32[8,8,3,3] = param {init=normal, scale=0.2}
%h1.bias:f32[8] = param {init=normal, scale=1}
%h2.weight:f32[12,8,1,1] = param {init=normal, scale=0.3}
%h2.bias:f32[12] = param {init=normal, scale=1}
%h3.bias:f32[8] = param {init=normal, scale=1}
%h4.bias:f32[8] = param {init=normal, scale=1}
%fc3.weight:f32[6,980] = param {init=normal, scale=0.02}
%fc4.weight:f32[6,392] = param {init=normal, scale=0.03}
%row:f32[1,6] = constant {value=0.25, type="f32[1,6]"}
%1 = conv2d %images, %c1.weight {pad=1, dilation=2, pad_extra=2}
%2 = batch_norm_infer %1, %b1.weight, %b1.bias, %b1.running_mean, %b1.running_var
%3 = relu6 %2
%4 = conv2d_fused %3, %c2.weight, %c2.bias, %2 {pad=1, groups=4, relu=true}
%5, %where = max_pool2d %4 {kernel=3, stride=2, pad_extra=1}
%6 = squeeze_excite %5, %se.fc1.weight, %se.fc1.bias, %se.fc2.weight, %se.fc2.bias
%gated = squeeze_excite %6, %se.fc1.weight, %se.fc1.bias, %se.fc2.weight, %se.fc2.bias {hidden=silu, gate=hardsigmoid}
%7 = avg_pool2d %gated {kernel=3, stride=1, pad=1, count_include_pad=false}
%8 = avg_pool2d %7 {kernel=2, stride=2, pad=1}
%9 = resize_nearest %8 {height=14, width=21}
%10 = resize_nearest %9 {height=10, width=15}
%11 = slice %10 {axis=3, start=2, size=10}
%t1 = transpose %11 {perm=0:2:3:1}
%t2 = transpose %t1 {perm=0:3:1:2}
%gains = broadcast_to %gain {shape=-1:10:10}
%12 = mul %t2, %gains
%13 = add %12, %11
%a1 = silu %13
%a2 = hardswish %a1
%a3 = gelu %a2
%a4 = gelu_tanh %a3
%a5 = leaky_relu %a4 {slope=0.2}
%a6 = elu %a5 {alpha=1.5}
%a7 = tanh %a6
%a8 = clip %a7 {min=-0.75, max=0.5}
%a9 = exp %a8
%a10 = log %a9
%a11 = abs %a10
%a12 = hardsigmoid %a11 {alpha=0.25}
%a13 = reciprocal %a12
%a14 = sqrt %a13
%a15 = pow %a14 {exponent=1.5}
%a16 = erf %a15
%a17 = add %a16, %13
%b1 = sub %a17, %a12
%b2 = div %b1, %a9
%b3 = max %b2, %gain
%b4 = min %b3, %a17
%b5 = conv2d_fused %b4, %h1.weight, %h1.bias {pad=1, act=silu}
%14 = sigmoid %b5
%15 = concat %14, %12 {axis=1}
%16 = avg_pool2d %15 {kernel=2, stride=2}
%17 = reshape %16 {shape=1:400}
%18 = linear %17, %fc1.weight, %fc1.bias
%19 = scale %18 {by=0.5}
%20 = batch_norm_relu_infer %8, %b1.weight, %b1.bias, %b1.running_mean, %b1.running_var
%21 = batch_norm_add_relu_infer %8, %b1.weight, %b1.bias, %b1.running_mean, %b1.running_var, %20
%22 = global_avg_pool %21
%23 = slice %22 {axis=1, start=1, size=6}
%24 = softmax %19
%s1 = slice %22 {axis=1, size=4, step=2}
%s2 = slice %22 {axis=1, start=3, size=2, step=3}
%s3 = concat %s1, %s2 {axis=1}
%s4 = add %23, %s3
%25 = add %24, %s4
%h1 = conv2d %8, %h1.weight {pad=1}
%h2 = bias_add %h1, %h1.bias
%h3 = bias_add %h2, %h3.bias
%h4 = conv2d %h2, %h2.weight
%h5 = join_heads %h3, %h4.bias, %h4, %h2.bias {columns=4, order=pixel}
%h6 = join_heads %h3, %h4.bias {columns=2, order=channel}
%h7 = reshape %h5 {shape=1:980}
%h8 = linear %h7, %fc3.weight
%h9 = reshape %h6 {shape=1:392}
%h10 = linear %h9, %fc4.weight
%h11 = add %h8, %h10
%h12 = add %25, %h11
%m1 = matmul %h12, %fc2.weight, %fc1.bias {transpose_b=true}
%m2 = matmul %m1, %fc2.weight
%m3 = scale %m2 {by=0.1}
%26 = linear %m3, %fc2.weight
%27 = cast %26 {to=f64}
%28 = cast %27 {to=f32}
%y = add %28, %row
output logits = %y
