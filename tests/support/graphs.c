/*
 * graphs.c -- small graphs and a fake device
 */
#include "support/graphs.h"

#include "ops/ops.h"
#include "support/expect.h"

td_graph *td_test_graph(const char *text)
{
    td_graph *g;
    expect_ok(td_graph_parse(text, "test", &g));
    return g;
}

char *td_test_print(const td_graph *g)
{
    char *text;
    expect_ok(td_graph_print(g, &text));
    return text;
}

const td_value *td_test_value(const td_graph *g, const char *name)
{
    const td_value *v = td_graph_find(g, name);
    if (!v)
        fail_msg("the graph has no value '%s'", name);
    return v;
}

/* --- the device ------------------------------------------------------------------------------- */

static bool is_padded(const td_type *t)
{
    return td_type_bytes(t) != td_type_count(t) * (int64_t)td_dtype_bytes(t->dtype);
}

static bool supports(void *ctx, const td_node *n)
{
    (void)ctx;
    for (int i = 0; i < n->n_in; i++)
        if (!(n->op->shape_only >> i & 1) && is_padded(td_in_type(n, i)))
            return false;
    for (int i = 0; i < n->n_out; i++)
        if (is_padded(&n->out[i]->type))
            return false;
    return true;
}

static bool preferred_layout(void *ctx, const td_node *n, td_node_layouts *out)
{
    (void)ctx;
    const char *blocked = "aBcd16b", *filter = "ABcd16b16a";
    *out = (td_node_layouts){ 0 };
    if (n->op != &td_op_conv2d && n->op != &td_op_conv2d_fused && n->op != &td_op_conv2d_grad_x &&
        n->op != &td_op_conv2d_grad_w)
        return false;
    const td_type *w = td_in_type(n, n->op == &td_op_conv2d_grad_w ? 2 : 1);
    if (((const td_conv_attr *)n->attr)->groups != 1 || w->dim[0] % 16 || w->dim[1] % 16)
        return false;
    bool is_grad_w = n->op == &td_op_conv2d_grad_w;
    strcpy(out->in[0], blocked);
    strcpy(out->in[1], is_grad_w ? blocked : filter);
    strcpy(out->in[3], blocked);
    strcpy(out->out, is_grad_w ? filter : blocked);
    return true;
}

static const void *multi(void *ctx, const td_node *n, int *chained)
{
    (void)ctx;
    *chained = -1;
    return n->op == &td_op_sgd || n->op == &td_op_ema ? n->op : NULL;
}

const td_target td_test_target = { .supports = supports,
                                   .preferred_layout = preferred_layout,
                                   .bf16_rate = 2,
                                   .multi = multi,
                                   .is_reference = true,
                                   .fuses_gates = true,
                                   .fuses_norms = true };

/* --- graphs ----------------------------------------------------------------------------------- */

const char td_test_training[] =
    "%images:f32[4,3,8,8] = input\n"
    "%labels:i64[4] = input\n"
    "%lr:f32[] = input\n"
    "%conv.weight:f32[16,3,3,3] = param {init=normal, scale=0.2}\n"
    "%conv.momentum:f32[16,3,3,3] = param {role=momentum}\n"
    "%bn.weight:f32[16] = param {init=ones}\n"
    "%bn.bias:f32[16] = param\n"
    "%bn.mean:f32[16] = param {role=stat}\n"
    "%bn.var:f32[16] = param {role=stat, init=ones}\n"
    "%conv2.weight:f32[16,16,3,3] = param {init=normal, scale=0.1}\n"
    "%conv2.momentum:f32[16,16,3,3] = param {role=momentum}\n"
    "%fc.weight:f32[5,16] = param {init=uniform, scale=0.25}\n"
    "%fc.bias:f32[5] = param {init=uniform, scale=0.25}\n"
    "%fc.momentum:f32[5,16] = param {role=momentum}\n"
    "%a = conv2d %images, %conv.weight {pad=1}\n"
    "%n, %m, %v = batch_norm %a, %bn.weight, %bn.bias\n"
    "batch_norm_update %bn.mean, %bn.var, %m, %v {count=256}\n"
    "%r = relu %n\n"
    "%c = conv2d %r, %conv2.weight {pad=1}\n"
    "%s = add %c, %r\n"
    "%t = relu %s\n"
    "%p, %where = max_pool2d %t {stride=2}\n"
    "%g = global_avg_pool %p\n"
    "%logits = linear %g, %fc.weight, %fc.bias\n"
    "%q = one_hot %labels {classes=5, smoothing=0.1}\n"
    "%losses = softmax_cross_entropy %logits, %q\n"
    "%loss = mean %losses\n"
    "%dconv = gradient %loss, %conv.weight\n"
    "%dconv2 = gradient %loss, %conv2.weight\n"
    "%dfc = gradient %loss, %fc.weight\n"
    "sgd %conv.weight, %conv.momentum, %dconv, %lr {momentum=0.9, decay=1e-4}\n"
    "sgd %conv2.weight, %conv2.momentum, %dconv2, %lr {momentum=0.9, nesterov=true}\n"
    "sgd %fc.weight, %fc.momentum, %dfc, %lr\n"
    "output loss = %loss\n"
    "output logits = %logits\n";

const char td_test_inference[] =
    "%images:f32[2,3,8,8] = input\n"
    "%conv.weight:f32[16,3,3,3] = param {init=normal, scale=0.2}\n"
    "%bn.weight:f32[16] = param {init=ones}\n"
    "%bn.bias:f32[16] = param {init=uniform, scale=0.5}\n"
    "%bn.mean:f32[16] = param {role=stat, init=uniform, scale=0.5}\n"
    "%bn.var:f32[16] = param {role=stat, init=ones}\n"
    "%conv2.weight:f32[16,16,3,3] = param {init=normal, scale=0.1}\n"
    "%bn2.weight:f32[16] = param {init=ones}\n"
    "%bn2.bias:f32[16] = param\n"
    "%bn2.mean:f32[16] = param {role=stat, init=uniform, scale=0.5}\n"
    "%bn2.var:f32[16] = param {role=stat, init=ones}\n"
    "%fc.weight:f32[5,16] = param {init=uniform, scale=0.25}\n"
    "%fc.bias:f32[5] = param {init=uniform, scale=0.25}\n"
    "%a = conv2d %images, %conv.weight {pad=1}\n"
    "%n = batch_norm_infer %a, %bn.weight, %bn.bias, %bn.mean, %bn.var\n"
    "%r = relu %n\n"
    "%c = conv2d %r, %conv2.weight {pad=1}\n"
    "%d = batch_norm_infer %c, %bn2.weight, %bn2.bias, %bn2.mean, %bn2.var\n"
    "%s = add %d, %r\n"
    "%t = relu %s\n"
    "%g = global_avg_pool %t\n"
    "%logits = linear %g, %fc.weight, %fc.bias\n"
    "%probabilities = softmax %logits\n"
    "output logits = %logits\n"
    "output probabilities = %probabilities\n";
