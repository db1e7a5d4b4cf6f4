/*
 * test_verify.c -- the verifier: every rule of a finished graph, and of each op's operands
 */
#include "support/expect.h"

#include <stdio.h>

#include "ir/build.h"
#include "ops/ops.h"
#include "support/graphs.h"

#define INPUTS                                                                                     \
    "%x:f32[2,16,4,4] = input\n%d:f64[2,16,4,4] = input\n%h:bf16[2,16,4,4] = input\n"              \
    "%s:f32[] = input\n%m:f32[2,3] = input\n%r:f32[3] = input\n%i:i64[2] = input\n"                \
    "%u:u8[64] = input\n%c:f32[16] = input\n%c64:f64[16] = input\n%c3:f32[3] = input\n"            \
    "%f:f32[16,16,3,3] = param\n%w:f32[4,3] = param\n%v:f32[4,3] = param\n"

#define BOXES                                                                                      \
    "%p:f32[2,3,5] = input\n%b:f32[2,3,4] = input\n%q:f32[2,3] = input\n%l:i64[2,3] = input\n"     \
    "%k:i64[2,4] = input\n"

/* one more line behind INPUTS is refused, and the message contains `part` */
typedef struct {
    const char *lines, *part;
} row;

static void expect_refused(const row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char text[2048];
        td_graph *g;
        snprintf(text, sizeof text, "%s%s\n", INPUTS, rows[i].lines);
        expect_error(td_graph_parse(text, "t", &g), TD_ESHAPE, rows[i].part);
        assert_null(g);
    }
}

#define BLOCK                                                                                      \
    "%e:f32[24,16,1,1] = param\n%g:f32[24] = param\n%q:f32[24,1,3,3] = param\n"                    \
    "%p:f32[16,24,1,1] = param\n"
#define WIDE BLOCK "%z:f32[2,24,4,4] = input\n%t:f32[2,24] = input\n%y = conv2d_gated "

static void blocks_check_their_operands(void **state)
{
    (void)state;
    static const row rows[] = {
        { BLOCK "%y = inverted_residual %i, %e, %g, %q, %g, %p, %c", "1 dimensions, wanted 4" },
        { BLOCK "%y = inverted_residual %x, %e, %g, %q, %g", "5 operands, wanted 7" },
        { BLOCK "%y = inverted_residual %x, %e, %g, %q, %g, %p, %c64",
          "operand 6 is f64, wanted f32" },
        { BLOCK "%y = inverted_residual %x, %e, %g, %q, %c, %p, %c",
          "operand 4 has 16 elements, wanted 24" },
        { BLOCK "%y = inverted_residual %x, %e, %g, %e, %g, %p, %c",
          "operand 3 is 24x16x1x1, wanted 24x1x1x1" },
        { BLOCK "%y = inverted_residual %x, %e, %g, %q, %g, %p, %c {residual=true}",
          "residual is set" },
        { BLOCK "%d1, %a = expand_depthwise %x, %e, %g", "expand_depthwise: 3 operands, wanted 5" },
        { BLOCK "%d1, %a = expand_depthwise %x, %q, %g, %q, %g {expand=false}",
          "expand_depthwise: 5 operands, wanted 3" },
        { BLOCK "%d1, %a = expand_depthwise %x, %q, %g {expand=false}",
          "operand 1 is 24x1x3x3, wanted 16x1x3x3" },
        { BLOCK "%k:f32[24,1,7,7] = param\n%d1, %a = expand_depthwise %x, %e, %g, %k, %g",
          "a 7x7 filter is larger than a 4x4 image" },
        { WIDE "%z, %m, %p, %c", "gate is 2x3, wanted 2x24" },
        { WIDE "%z, %t, %e, %g", "filter is 24x16x1x1, wanted 24x24x1x1" },
        { WIDE "%x, %m, %f, %c", "gate is 2x3, wanted 2x16" },
        { WIDE "%z, %t, %p, %g", "bias has 24 elements, wanted 16" },
        { WIDE "%z, %t, %p, %c64", "operand 3 is f64, wanted f32" },
        { WIDE "%z, %t, %p, %c, %z", "the residual does not have the result's shape" },
        { BLOCK "%z:u8[2,24,4,4] = input\n%t:f32[2,24] = input\n%y = conv2d_gated %z, %t, %p, %c",
          "is u8" },
        { BLOCK "%z:f32[2,24,4,4] = input\n%t:f32[2,24] = input\n%k:f32[16,24,3,3] = param\n"
                "%y = conv2d_gated %z, %t, %k, %c",
          "filter is 16x24x3x3, wanted 16x24x1x1" },
    };
    expect_refused(rows, sizeof rows / sizeof rows[0]);
}

#define INT8 "%a:u8[2,16,4,4] = input\n%q, %t = quantize_weights %f\n%y = conv2d_int8 "

static void int8_ops_check_their_operands(void **state)
{
    (void)state;
    static const row rows[] = {
        { "%y = quantize %i", "operand 0 is i64" },
        { "%y = dequantize %x", "operand 0 is f32, wanted u8 or s8" },
        { "%q:f64[4,3,1,1] = param\n%y, %t = quantize_weights %q", "operand 0 is f64, wanted f32" },
        { "%y, %t = quantize_weights %w", "2 dimensions, wanted 4" },
        { INT8 "%x, %q, %t, %c {pad=1}", "input is f32, filter is s8" },
        { INT8 "%a, %f, %t, %c {pad=1}", "input is u8, filter is f32" },
        { INT8 "%a, %q, %c64, %c {pad=1}", "operand 2 is f64, wanted f32" },
        { INT8 "%a, %q, %t, %c64 {pad=1}", "operand 3 is f64, wanted f32" },
        { INT8 "%a, %q, %c3, %c {pad=1}", "operand 2 has 3 elements, wanted 16" },
        { INT8 "%a, %q, %t, %c3 {pad=1}", "operand 3 has 3 elements, wanted 16" },
        { INT8 "%a, %q, %t, %c, %x {pad=1}", "the residual is f32, wanted u8 or s8" },
        { INT8 "%a, %q, %t, %c, %a {pad=1, to=f32}", "the residual is u8, wanted f32" },
        { INT8 "%a, %q, %t, %c, %a", "the residual does not have the result's shape" },
        { INT8 "%a, %q, %t, %c {pad=1, relu=true, act=silu}", "both relu and act are set" },
        { INT8 "%a, %q, %t, %c {groups=2, pad=1}", "16 channels, 16 filters need 16 x 2 groups" },
        { INT8 "%a, %q, %t, %c {pad=1, to=f32}\n%z = shift_int8 %a", "operand 0 is u8, wanted s8" },
        { "%y = shift_int8_bias %f, %c, %c", "operand 0 is f32, wanted s8" },
        { "%q, %t = quantize_weights %f\n%y = shift_int8_bias %q, %c3, %c",
          "operand 1 is f32[3], wanted f32[16]" },
        { "%q, %t = quantize_weights %f\n%y = shift_int8_bias %q, %t, %c64",
          "operand 2 is f64[16], wanted f32[16]" },
        { INT8 "%a, %q, %t, %c {dilation=2}", "the filter is larger than the padded image" },
        { "%y = conv2d_pool_int8 %h, %f, %c", "input is bf16, filter is f32, bias is f32" },
        { "%y = conv2d_pool_int8 %x, %f, %c64", "bias is f64, wanted f32" },
        { "%y = conv2d_pool_int8 %x, %f, %c3", "filter is 16x16, input has 16 channels, bias 3" },
        { "%y = conv2d_pool_int8 %x, %f, %c {kernel=1, pool_pad=1}",
          "pool_pad 1 is more than half of kernel 1" },
        { "%y = conv2d_pool_int8 %x, %f, %c {kernel=3}", "a window does not fit a 4x4 image" },
    };
    expect_refused(rows, sizeof rows / sizeof rows[0]);
}

static void ops_check_their_operands(void **state)
{
    (void)state;
    static const row rows[] = {
        { "%y = conv2d %x, %w", "1 has 2 dimensions, wanted 4" },
        { "%q:f32[4,5,3,3] = param\n%y = conv2d %x, %q", "16 channels, filter needs 5 x 1" },
        { "%q:f64[4,16,3,3] = param\n%y = conv2d %x, %q", "input is f32, filter is f64" },
        { "%q:f32[5,8,3,3] = param\n%y = conv2d %x, %q {groups=2}",
          "5 filters do not divide into 2" },
        { "%q:f32[4,16,7,7] = param\n%y = conv2d %x, %q {pad=1}",
          "7x7 filter is larger than a 4x4 image with pad 1" },
        { "%y = conv2d_fused %x, %f {pad=1, relu=true, act=silu}", "both relu and act are set" },
        { "%y = conv2d_fused %x, %f, %c3 {pad=1}", "3 elements, wanted 16" },
        { "%y = conv2d_fused %x, %f, %c, %x", "the residual does not have the result's shape" },
        { "%y = conv2d_fused %x, %f, %c64 {pad=1}", "operand 2 is f64, wanted f32" },
        { "%q:f32[16,16,3,1] = param\n%y = winograd_filter %q", "the filter is 3x1, wanted 3x3" },
        { "%q:f32[17,16,3,3] = param\n%y = winograd_filter %q",
          "17 filters are not a multiple of 16" },
        { "%q:f32[16,17,3,3] = param\n%y = winograd_filter %q {grad_x=true}",
          "17 channels are not a multiple of 16" },
        { "%q = winograd_filter %f {tile=3}", "winograd_filter: tile is 3, wanted 2 or 4" },
        { "%q:f32[16,15,3,3] = param\n%y = winograd_filter %q {tile=2}",
          "winograd_filter: with tile=2 an odd number of channels, 15" },
        { "%q = winograd_filter %f {tile=2, stride=2}",
          "winograd_filter: stride is 2, wanted 1 with tile=2" },
        { "%q = winograd_filter %f {tile=2}\n%y = conv2d_winograd %x, %q {tile=2}",
          "conv2d_winograd: with tile=2 the input is f32, wanted bf16" },
        { "%q = winograd_filter %f {tile=2}\n%y = conv2d_winograd %x, %q",
          "1 is not the result of winograd_filter" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd %x, %q {tile=2}",
          "1 is not the result of winograd_filter" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd %x, %q {tile=3}",
          "conv2d_winograd: tile is 3, wanted 2 or 4" },
        { "%y = conv2d_winograd %x, %f", "1 is not the result of winograd_filter" },
        { "%q:f32[1,36,8,16] = param\n%y = conv2d_winograd %x, %q", "16 channels, filter needs 8" },
        { "%q:f32[1,16,2,9] = input\n%u2:f32[1,36,16,16] = param\n%y = conv2d_winograd %q, %u2",
          "a 3x3 filter does not fit a 2x9 image with pad 0" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd %x, %q, %c3", "3 elements, wanted 16" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd %x, %q, %c, %x",
          "conv2d_winograd: the residual does not have the result's shape" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd %x, %q, %c64",
          "conv2d_winograd: operand 2 is f64, wanted f32" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd %d, %q",
          "conv2d_winograd: operand 1 is f32, wanted f64" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd %x, %q {tile=2, stride=2}",
          "conv2d_winograd: stride is 2, wanted 1 with tile=2" },
        { "%q = winograd_filter %f {grad_x=true, stride=2}\n"
          "%y = conv2d_winograd_grad_x %x, %q, %x",
          "conv2d_winograd_grad_x: dy does not have the convolution's type" },
        { "%q = winograd_filter %f {grad_x=true, stride=2}\n%z8:f32[2,32,8,8] = input\n"
          "%y = conv2d_winograd_grad_x %x, %q, %z8",
          "conv2d_winograd_grad_x: dy does not have the convolution's type" },
        { "%z8:f32[2,16,8,8] = input\n%y = conv2d_winograd_grad_x %x, %f, %z8",
          "operand 1 is not the result of winograd_filter" },
        { "%y = conv2d_winograd_grad_w %x, %x, %f {pad=1, stride=2}",
          "dy does not have the convolution's type" },
        { "%q:f32[16,16,3,1] = param\n%y = conv2d_winograd_grad_w %x, %x, %q {pad=1}",
          "the filter is 16x16x3x1, wanted 3x3 and multiples of 16" },
        { "%y = conv2d_winograd_grad_w %x, %x, %f", "dy does not have the convolution's type" },
        { "%y = conv2d_winograd_grad_w %d, %x, %f {pad=1}",
          "dy does not have the convolution's type" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd_scaled %x, %q, %c3, %c",
          "conv2d_winograd_scaled: scale has 3 elements, wanted 16" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd_scaled %x, %q, %c, %c3",
          "conv2d_winograd_scaled: bias has 3 elements, wanted 16" },
        { "%q = winograd_filter %f\n%y = conv2d_winograd_scaled %x, %q, %c64, %c",
          "conv2d_winograd_scaled: operand 2 is f64, wanted f32" },
        { "%y = conv2d_grad_x %x, %f, %x", "dy does not have the convolution's type" },
        { "%y = conv2d_grad_x %d, %f, %x {pad=1}",
          "input is f64, filter is f32, wanted one float type" },
        { "%y = conv2d_grad_w %x, %x, %f", "dy does not have the convolution's type" },
        { "%y = linear %m, %m, %m", "2 dimensions, wanted 1" },
        { "%q:f32[4,5] = param\n%y = linear %m, %q", "3 features, weight needs 5" },
        { "%q:f64[4,3] = param\n%y = linear %m, %q", "linear" },
        { "%y = linear %m, %w, %r", "3 elements, wanted 4" },
        { "%q:f64[4] = param\n%y = linear %m, %w, %q", "bias is f64, wanted f32" },
        { "%q:f32[4,5] = param\n%y = linear_fused %m, %q",
          "linear_fused: input has 3 features, weight needs 5" },
        { "%y = linear_fused %m, %w, %r", "linear_fused: bias has 3 elements, wanted 4" },
        { "%q:f32[4] = param\n%y = linear_fused %m, %w, %q, %m",
          "the residual does not have the result's type" },
        { "%y = transpose_view %x {perm=\"0:2:3:1\"}",
          "0:2:3:1 of layout '' is not the same memory" },
        { "%y = transpose_view %x {perm=\"0:1:3:2\"}", "0:1:3:2 of layout ''" },
        { "%q:f32[2,4,4,16]@acdb = input\n%y = transpose_view %q {perm=\"0:3:1:2\"}",
          "0:3:1:2 of layout 'acdb'" },
        { "%y:f32[2,4,16,4] = transpose_view %x {perm=\"0:3:1:2\"}",
          "declared as f32[2,4,16,4], but is f32[2,4,16,4]@acdb" },
        { "%q:f32[2,3,7] = input\n%y = attention %q",
          "attention: 7 numbers of a token are not 3 x 1 parts" },
        { "%q:f32[2,3,6] = input\n%y = attention %q {heads=4}", "are not 3 x 4 parts" },
        { "%y = linear_grad_x %m, %w", "dy has 3 columns, weight 4 rows" },
        { "%y = linear_grad_w %m, %w", "dy has 2 rows, x 4" },
        { "%q:f64[3,4] = input\n%y = linear_grad_x %m, %q", "operands are f32 and f64" },
        { "%y, %a, %b = batch_norm %x, %c, %c3",
          "operand 2 has 3 elements, input has 16 channels" },
        { "%y, %a, %b = batch_norm %x, %c, %c64",
          "operand 2 is f64, wanted f32 or f64, all alike" },
        { "%q:bf16[16] = input\n%y, %a, %b = batch_norm %h, %q, %q", "operand 1 is bf16" },
        { "%o:f32[1,3,1,1] = input\n%y, %a, %b, %k = batch_norm_relu %o, %c3, %c3",
          "3 elements are not a multiple of 8" },
        { "%z:f32[1,16,4,4] = input\n%y, %a, %b, %k = batch_norm_add_relu %x, %c, %c, %z",
          "operands 0 and 3 differ in shape" },
        { "%y, %a, %b = batch_norm_grad %d, %x, %c, %c, %c", "operands 0 and 1 differ in dtype" },
        { "%q:u8[63] = input\n%y, %a, %b = batch_norm_relu_grad %x, %q, %x, %c, %c, %c",
          "the mask does not have one bit an element" },
        { "%q:i32[64] = input\n%y, %a, %b = batch_norm_relu_grad %x, %q, %x, %c, %c, %c",
          "the mask does not have one bit an element" },
        { "%y = batch_norm_infer %x, %c, %c, %c, %c3", "operand 4 has 3 elements" },
        { "%y = batch_norm_scale %c, %c3", "operands 0 and 1 differ in shape" },
        { "%q:f32[4,16,3,3] = param\n%y, %a, %b = conv2d_statistics %x, %q, %c",
          "conv2d_statistics: operand 2, scale, has no shift" },
        { "%q:f32[4,16,3,3] = param\n%y, %a, %b = conv2d_statistics %x, %q, %c, %c3",
          "operand 3 has 3 elements, input has 16 channels" },
        { "%q:f32[4,16,3,3] = param\n%y, %a, %b = conv2d_statistics %x, %q, %c64, %c64",
          "operand 2 is f64, wanted f32 or f32, both alike" },
        { "%q:f32[4,5,3,3] = param\n%y, %a, %b = conv2d_statistics %x, %q",
          "conv2d_statistics: input has 16 channels, filter needs 5 x 1 groups" },
        { "%dy:f32[2,4,2,2] = input\n%q:f32[4,16,3,3] = param\n"
          "%y = conv2d_scale_relu_grad_w %dy, %x, %q, %c, %c3",
          "operand 4 has 3 elements, input has 16 channels" },
        { "%y, %a, %b, %e = batch_norm_statistics %c, %c, %c, %c3",
          "operands 0 and 3 differ in shape" },
        { "%q:bf16[16] = input\n%y, %a, %b, %e = batch_norm_statistics %q, %q, %q, %q",
          "sums are bf16, wanted f32 or f64" },
        { "%z:f32[1,16,4,4] = input\n%y, %a = batch_norm_add_relu_given %x, %c, %c, %c, %c, %z",
          "operands 0 and 5 differ in shape" },
        { "%y, %a = batch_norm_add_relu_given %x, %c, %c, %c, %c3, %x",
          "operand 4 has 3 elements" },
        { "%y, %a, %b = batch_norm_scale_relu_grad %x, %x, %c, %c, %c, %c, %c3",
          "scale and shift do not have 16 elements" },
        { "%y, %a, %b = batch_norm_scale_relu_grad %x, %x, %c, %c, %c, %c, %c64",
          "operands 5 and 6 differ in dtype" },
        { "batch_norm_update %c, %c, %c, %c", "operand 0 is overwritten and must be a parameter" },
        { "%p:f32[16] = param\n%q:f32[16] = param\nbatch_norm_update %p, %q, %c, %c3",
          "operands 0 and 3 differ in shape" },
        { "%y = sigmoid %i", "sigmoid: operand 0 is i64, wanted a float type" },
        { "%y = silu_grad %x, %c", "silu_grad: dy and y differ in type" },
        { "%y = dropout %x {p=1}", "dropout: p is 1, wanted 0 to less than 1" },
        { "%y = dropout %s", "the operand is a scalar, wanted rows of samples" },
        { "%y = dropout %x, %c3", "random is no i64[3]" },
        { "%q:i64[2] = input\n%y = dropout %x, %q", "random is no i64[3]" },
        { "%wide:f64[2] = input\n%y = round_tf32 %wide",
          "round_tf32: the operand is f64, wanted f32" },
        { "%y = gather %x, %i {axis=4}", "gather: axis is 4, x has 4 dimensions" },
        { "%y = gather %x, %c", "gather: index is f32, wanted i64" },
        { "%q:i64[2,1,2] = input\n%y = gather %x, %q", "would have 6 dimensions, at most 5" },
        { "%y = gather_grad %m, %i, %m {axis=1}", "dy does not have the shape of the elements" },
        { "%y = constant {type=\"f32[2]\", values=1}", "constant: 1 values for 2 elements" },
        { "%y = constant {type=\"f32[2]\", values=1@3:4}", "3 values and more for 2 elements" },
        { "%y = constant {type=\"f32[2]\", values=1:x}", "'x' is not a list of numbers" },
        { "%y = constant {type=\"f32[2]\", values=1:nan}", "'nan' is not a list of numbers" },
        { "%y = constant {type=\"f32[2]\", values=1@0}", "'1@0' is not a list of numbers" },
        { "%y = constant {type=\"f32[2]\", values=1:0x1}", "'0x1' is not a list of numbers" },
        { "%y = constant {type=\"f32[1]\", value=2, values=1}", "both value and values" },
        { "%y = normalize %x {mean=0:0:0, std=1:1:1}", "operand 0 is f32, wanted u8" },
        { "%q:u8[1,2,2,5] = input\n%y = normalize %q {mean=0:0:0:0:0, std=1:1:1:1:1}",
          "images of 5 channels, wanted 1 .. 4" },
        { "%q:u8[1,2,2,3] = input\n%y = normalize %q {std=1:1:1}", "mean is '', wanted 3 numbers" },
        { "%q:u8[1,2,2,3] = input\n%y = normalize %q {mean=0:0, std=1:1:1}", "mean is '0:0'" },
        { "%q:u8[1,2,2,3] = input\n%y = normalize %q {mean=0:0:0:, std=1:1:1}",
          "mean is '0:0:0:'" },
        { "%q:u8[1,2,2,3] = input\n%y = normalize %q {mean=0:1e39:0, std=1:1:1}", "'0:1e39:0'" },
        { "%q:u8[1,2,2,3] = input\n%y = normalize %q {mean=0:0:0, std=1:x:1}", "std is '1:x:1'" },
        { "%q:u8[1,2,2,2] = input\n%y = normalize %q {mean=0:0, std=1:0}",
          "std is '1:0', wanted positive numbers" },
        { "%y = relu_grad %x, %c", "relu_grad: dy and y differ in type" },
        { "%y = relu_grad %x, %d", "relu_grad: dy and y differ in type" },
        { "%y, %k = max_pool2d %x {kernel=3, pad=2}", "pad 2 is more than half of kernel 3" },
        { "%y = avg_pool2d %x {kernel=5}", "a window of 5x5 does not fit a 4x4 image" },
        { "%y = avg_pool2d %x {kernel=2, kernel_w=5}", "a window of 2x5 does not fit a 4x4 image" },
        { "%y = avg_pool2d %x {kernel=4, kernel_w=1, pad=1}", "more than half of kernel 1" },
        { "%q:u8[2,16,3,3] = input\n%z:f32[2,16,3,3] = input\n%y = max_pool2d_grad %z, %q, %x",
          "1 is not the result 'where' of this max_pool2d" },
        { "%z, %q = max_pool2d %x {kernel=3, pad=1}\n%y = max_pool2d_grad %z, %q, %x {kernel=1}",
          "1 is not the result 'where' of this max_pool2d" },
        { "%z, %q = max_pool2d %x\n%y = max_pool2d_grad %x, %q, %x",
          "dy does not have the forward result's type" },
        { "%y = avg_pool2d_grad %x, %x", "dy does not have the forward result's type" },
        { "%y = global_avg_pool_grad %m, %x", "dy is not [N, C] of x" },
        { "%y = add %x, %d", "operands are f32 and f64, wanted one float type" },
        { "%y = mul %m, %c", "dimension 1 is 3 in one operand and 16 in the other" },
        { "%y = mul_reduce %m, %r, %c", "the shapes do not broadcast" },
        { "%y = sum_to %r, %m", "the shapes do not broadcast" },
        { "%y = broadcast_like %m, %r", "the shapes do not broadcast" },
        { "%y = concat %x, %m", "1 does not match operand 0" },
        { "%y = concat %m, %m {axis=2}", "concat: axis is 2, the operands have" },
        { "%y = concat %x, %d", "1 does not match operand 0" },
        { "%y = slice %m {start=2, size=2}", "[2, 4) of axis 1 is out of range" },
        { "%y = slice %m {axis=2}", "axis 2 is out of range" },
        { "%y = slice_grad %m, %m {size=2}", "dy does not have the slice's shape" },
        { "%y = slice %r {size=2, step=3}", "of axis 1 is out of range" },
        { "%y = slice %m {axis=1, start=1, size=2, step=2}", "of axis 1 is out of range" },
        { "%y = reshape %m {shape=-1:-1}", "'-1:-1' is not a shape like 8:64:1:1" },
        { "%y = reshape %m {shape=4:-1}", "6 elements do not make 4" },
        { "%y = matmul %m, %r", "operands have 2 and 1 dimensions, wanted at least 2" },
        { "%y = matmul %m, %w", "a has 3 columns, b 4 rows" },
        { "%y = matmul %m, %w {transpose_a=true}", "a has 2 columns, b 4 rows" },
        { "%y = matmul %m, %w, %c {transpose_b=true}", "bias has 16 elements, wanted 4" },
        { "%y = matmul %x, %d", "operands are f32 and f64, wanted one float type" },
        { "%y = matmul %h, %h, %c64", "bias has 16 elements, wanted 4" },
        { "%q:f32[3,16,4,4] = input\n%y = matmul %x, %q", "batches of 2 and 3 matrices" },
        { "%y, %q, %s2 = layer_norm %m, %c, %c", "operand 1 does not have x's last dimensions" },
        { "%y, %q, %s2 = layer_norm %m, %r, %m", "gamma and beta differ in shape" },
        { "%q:f64[3] = input\n%y, %q2, %s2 = layer_norm %m, %q, %q",
          "operand 1 is f64, wanted f32" },
        { "%y, %q, %s2 = layer_norm_grad %m, %w, %r, %r, %r", "dy and x differ in type" },
        { "%y, %q, %s2 = layer_norm_grad %m, %m, %r, %r, %r", "operand 3 is no statistic" },
        { "%y = transpose %m {perm=1:1}", "'1:1' is not an order of 2 dimensions" },
        { "%y = transpose %m {perm=0}", "'0' is not an order of 2 dimensions" },
        { "%y = transpose %m {perm=0:2}", "'0:2' is not an order of 2 dimensions" },
        { "%y = transpose %s", "is not an order of 0 dimensions" },
        { "%y = broadcast_to %m {shape=2:4}", "operand 0 does not broadcast to it" },
        { "%y = broadcast_to %m {shape=3}", "operand 0 does not broadcast to it" },
        { "%y = broadcast_to %m {shape=-1:2:3}", "operand 0 does not broadcast to it" },
        { "%y = broadcast_to %m {shape=2:x}", "'2:x' is not a shape like 8:64:1:1" },
        { "%q:f32[2,15,2,2] = input\n%y = resize_nearest_grad %q, %x", "differ in N or C" },
        { "%y = softmax %s", "a scalar has no last dimension" },
        { "%y = softmax_grad %m, %r", "dy and y differ in type" },
        { "%y = one_hot %r", "labels are f32, wanted i64" },
        { "%y = softmax_cross_entropy %m, %w", "logits are [2,3], targets [4,3]" },
        { "%y = softmax_cross_entropy_grad %r, %m, %m", "dloss is not [N]" },
        { BOXES "%y = sigmoid_focal_loss %p, %q", "labels are f32, wanted i64" },
        { BOXES "%y = sigmoid_focal_loss %p, %k",
          "predictions for [2,3] anchors, labels for [2,4]" },
        { BOXES "%o:f32[2,3,1] = input\n%y = sigmoid_focal_loss %o, %l",
          "1 column, wanted the background and a class" },
        { BOXES "%e:f64[] = input\n%y = sigmoid_focal_loss_grad %e, %p, %l", "dloss is f64" },
        { BOXES "%y = huber_box_loss %p, %p, %l", "deltas of 5 numbers, wanted 4" },
        { BOXES "%y = huber_box_loss %b, %p, %l", "deltas and target differ in type" },
        { BOXES "%y = huber_box_loss_grad %s, %b, %b, %k", "labels for [2,4]" },
        { BOXES "%y = multibox_class_loss %p, %m", "labels are f32, wanted i64" },
        { BOXES "%y = multibox_class_loss_grad %s, %p, %k", "labels for [2,4]" },
        { "%y = squeeze_excite %x, %w, %r, %w, %r", "match 16 channels" },
        { "%y = pad %m {axis=2}", "pad: axis is 2, the operand has 2 dimensions" },
        { "%y = pad %m {axis=1, before=3, mode=reflect}",
          "pad: 3 elements in mode reflect, of 3 elements only 2 are" },
        { "%y = pad %m {axis=1, after=4, mode=wrap}", "of 3 elements only 3 are" },
        { "%y = group_norm %r, %r, %r {groups=1}", "x has 1 dimensions, wanted at least 2" },
        { "%y = group_norm %x, %c, %c {groups=3}", "16 channels do not divide into 3 groups" },
        { "%y = group_norm %x, %c, %r {groups=4}", "operand 2 is f32[3], wanted f32[16]" },
        { "%y = conv_transpose2d %x, %d", "filter is f64, wanted one float type" },
        { "%y = conv_transpose2d %x, %x", "input has 16 channels, filter 2, in 1 groups" },
        { "%q:f32[16,1,1,1] = input\n%y = conv_transpose2d %x, %q {output_pad=1}",
          "output_pad 1 is not less than stride 1" },
        { "%q:f32[16,1,1,1] = input\n%y = conv_transpose2d %x, %q {pad=9}",
          "pad 9 removes the whole result" },
        { "%y = resize %x {height_scale=1e-9}", "scale 1e-09 is less than 1/65536" },
        { "%y = resize_grad %x, %x {height=5, width=4}",
          "dy does not have the forward result's shape" },
        { "%y = gradient %m, %w", "6 elements, wanted 1" },
        { "sgd %w, %v, %m, %s", "operand 2 does not have the weight's type" },
        { "%g:f64[4,3] = input\nsgd %w, %v, %g, %s", "operand 2 does not have the weight's type" },
        { "sgd %w, %v, %w, %m", "the learning rate is neither a scalar nor" },
        { "%y = grad_norm %w, %m", "operand 1 is not a scalar" },
        { "%y = limit_grad %w, %m", "operand 1 is not a scalar" },
        { "sgd %w, %m, %w, %s", "operand 1 is overwritten and must be a parameter" },
        { "sgd %w, %w, %v, %s", "operands 0 and 1 are both 'w', which is overwritten" },
        { "%y = cast %m {to=f64}\n%z = add %y, %m", "wanted one float type" },
    };
    expect_refused(rows, sizeof rows / sizeof *rows);
}

static void overwritten_parameters_are_not_read(void **state)
{
    (void)state;
    static const row rows[] = {
        { "sgd %w, %v, %w, %s\n%y = relu %w\noutput y = %y",
          "node 15: relu: operand 'w' was overwritten before" },
        { "%a = reshape %w {shape=12}\nsgd %w, %v, %w, %s\n%y = relu %a\noutput y = %y",
          "relu: operand 'w' was overwritten before" },
        { "sgd %w, %v, %w, %s\n%a = reshape %w {shape=12}\noutput y = %a",
          "reshape: operand 'w' was overwritten before" },
        { "sgd %w, %v, %w, %s\nsgd %w, %v, %w, %s", "operand 'w' was overwritten before" },
        { "sgd %w, %v, %w, %s\noutput w = %w",
          "output 'w' is parameter 'w', which the graph overwrites" },
        { "%a = reshape %w {shape=12}\nsgd %w, %v, %w, %s\noutput y = %a",
          "output 'y' is parameter 'w', which the graph overwrites" },
    };
    expect_refused(rows, sizeof rows / sizeof *rows);
    td_graph_free(td_test_graph(INPUTS "%y = scale %w\nsgd %w, %v, %y, %s\n%z = relu %y\n"
                                       "output z = %z\noutput y = %y\n"));
}

static void layouts_must_agree(void **state)
{
    (void)state;
    static const row rows[] = {
        { "%b = reorder %x {layout=acdb}\n%y = add %b, %x", "1 has layout '', wanted 'acdb'" },
        { "%b = reorder %x {layout=acdb}\n%y:f32[2,16,4,4] = relu %b",
          "0 has layout '', wanted 'acdb'" },
        { "%b = reorder %x {layout=acdb}\n%y = sum %b", "0 has layout 'acdb', wanted ''" },
        { "%y:f32[2,16]@ba = global_avg_pool %x", "0 has layout 'ba', wanted ''" },
        { "%b = reorder %x {layout=acdb}\n%y, %a, %v1, %k = batch_norm_relu %b, %c, %c\n"
          "%z = reorder %y\n%dx, %dg, %db = batch_norm_relu_grad %z, %k, %x, %c, %a, %v1",
          "1 has layout 'acdb', operand 0 has ''" },
    };
    expect_refused(rows, sizeof rows / sizeof *rows);
}

/* --- graphs that the text form cannot make ---------------------------------------------------- */

static void damaged_graphs_are_refused(void **state)
{
    (void)state;
    td_graph *g = td_test_graph("%x:f32[2,3] = input\n%y = relu %x\n%z = relu %y\noutput z = %z\n");
    td_node *last = g->nodes[2];
    expect_ok(td_graph_verify(g));

    last->in[0] = g->values[2];
    expect_error(td_graph_verify(g), TD_ESHAPE, "node 2: relu: operand 0 is used before it exists");
    td_value stranger = *g->values[1];
    last->in[0] = &stranger;
    expect_error(td_graph_verify(g), TD_ESHAPE, "relu: operand 0 belongs to another graph");
    stranger.id = 99;
    expect_error(td_graph_verify(g), TD_ESHAPE, "relu: operand 0 belongs to another graph");
    last->in[0] = g->values[1];

    g->values[2]->type.dim[1] = 4;
    expect_error(td_graph_verify(g), TD_ESHAPE, "'%z' is declared as f32[2,4], but is f32[2,3");
    g->values[2]->type.dim[1] = 3;
    g->values[2]->type.dtype = TD_DT_BF16;
    expect_error(td_graph_verify(g), TD_ESHAPE, "'%z' is declared as bf16[2,3");
    g->values[2]->type.dtype = TD_DT_F32;

    last->n_in = 0;
    expect_error(td_graph_verify(g), TD_ESHAPE, "0 operands, wanted 1");
    last->n_in = 1;
    stranger.id = 2;
    g->outputs[0].value = &stranger;
    expect_error(td_graph_verify(g), TD_ESHAPE, "output 'z' belongs to another graph");
    g->outputs[0].value = g->values[2];
    expect_ok(td_graph_verify(g));
    td_graph_free(g);
}

static void attributes_out_of_range_are_refused(void **state)
{
    (void)state;
    td_graph *g = td_test_graph("%x:f32[1,1,4,4] = input\n%y = avg_pool2d %x\noutput y = %y\n");
    ((td_pool_attr *)g->nodes[1]->attr)->stride = 0;
    expect_error(td_graph_verify(g), TD_EUSAGE, "node 1: avg_pool2d: ");
    td_graph_free(g);
}

static void every_op_survives_operands_of_any_kind(void **state)
{
    (void)state;
    /* infer is total: a type or an error, whatever comes */
    static const char *const types[] = { "f32[]",         "f32[3]",        "i64[4]",
                                         "u8[2,3]",       "f64[2,3]",      "f32[2,3,4,4]",
                                         "bf16[1,1,1,1]", "f32[16,3,1,1]", "f32[1,2,3,4,5]" };
    enum { N = sizeof types / sizeof *types };
    int n_ops, n_good = 0;
    const td_op *const *ops = td_op_all(&n_ops);
    for (int o = 0; o < n_ops; o++)
        for (unsigned seed = 0; seed < 400 && !ops[o]->is_leaf; seed++) {
            td_builder *b = td_build_begin();
            td_value *in[6], *out[TD_OUT_MAX];
            unsigned rest = seed * 2654435761u >> 3;
            for (int i = 0; i < 6; i++, rest = rest * 1103515245u + 12345u) {
                td_type t;
                const char *end;
                char name[2] = { (char)('a' + i), '\0' };
                assert_true(td_type_parse(types[(rest >> 16) % N], &t, &end));
                in[i] = td_param(b, name, t.dtype, t.rank, t.dim, NULL);
            }
            td_emit_n(b, ops[o], NULL, ops[o]->n_in < 6 ? ops[o]->n_in : 6, in, out);
            td_graph *g;
            td_status st = td_build_end(b, &g);
            assert_true(st == TD_OK || (st == TD_ESHAPE && *td_error_message()));
            n_good += st == TD_OK;
            td_graph_free(g);
        }
    assert_true(n_good > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_check_their_operands),
        cmocka_unit_test(blocks_check_their_operands),
        cmocka_unit_test(int8_ops_check_their_operands),
        cmocka_unit_test(overwritten_parameters_are_not_read),
        cmocka_unit_test(layouts_must_agree),
        cmocka_unit_test(damaged_graphs_are_refused),
        cmocka_unit_test(attributes_out_of_range_are_refused),
        cmocka_unit_test(every_op_survives_operands_of_any_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
