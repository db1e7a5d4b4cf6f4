/*
 * problem_line.c -- parses a problem line and builds its graph
 */
#include "ops/problem_line.h"

#include <stdio.h>
#include <string.h>

#include "ir/build.h"
#include "ops/ops.h"

#define LINE_MAX_BYTES 1024

typedef struct {
    const td_op *op;
    td_dtype dtype;
    int n_in;
    char name[TD_IN_MAX][16];
    td_type type[TD_IN_MAX];
    char attrs[512];
} parsed;

/* --- reading ---------------------------------------------------------------------------------- */

static bool has_field(const td_op *op, const char *name)
{
    for (const td_field *f = op->fields; f && f->kind != TD_KIND_END; f++)
        if (strcmp(f->name, name) == 0)
            return true;
    return false;
}

/* "8x64x56x56"; "-" for no dimensions */
static bool parse_shape(const char *s, td_type *t)
{
    *t = (td_type){ 0 };
    if (strcmp(s, "-") == 0)
        return true;
    for (;;) {
        char digits[24];
        const size_t n = strspn(s, "0123456789");
        if (n == 0 || n >= sizeof digits || t->rank == TD_RANK_MAX)
            return false;
        memcpy(digits, s, n);
        digits[n] = '\0';
        if (!td_text_to_int(digits, &t->dim[t->rank++]))
            return false;
        if (s[n] == '\0')
            return true;
        if (s[n] != 'x')
            return false;
        s += n + 1;
    }
}

/* the dtype of an operand, which may differ from the line's; in updates, a half dtype applies to
   the copies only */
static td_dtype operand_dtype(const td_op *op, const char *name, td_dtype line)
{
    static const char *const wide[] = { "gamma", "beta",  "mean", "var",   "finite", "overflow",
                                        "keep",  "share", "last", "scale", "shift",  "u" };
    if (strcmp(name, "labels") == 0 || strcmp(name, "partner") == 0 ||
        strcmp(name, "random") == 0 || strcmp(name, "box") == 0 || strcmp(name, "index") == 0)
        return TD_DT_I64;
    if (strcmp(name, "mask") == 0 || strcmp(name, "pixels") == 0)
        return TD_DT_U8;
    if (td_text_ends(name, "_u8") || td_text_ends(name, "_s8"))
        return td_text_ends(name, "_u8") ? TD_DT_U8 : TD_DT_S8;
    if (td_text_ends(name, "_bf16"))
        return TD_DT_BF16;
    bool is_wide = td_op_is_update(op) && strncmp(name, "copy", 4) != 0;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        is_wide = is_wide || strcmp(name, wide[i]) == 0;
    return is_wide && td_dtype_bytes(line) == 2 ? TD_DT_F32 : line;
}

static td_status parse_word(const char *key, const char *value, parsed *p)
{
    if (strcmp(key, "dtype") == 0) {
        p->dtype = td_dtype_parse(value);
        return p->dtype ? TD_OK : td_error(TD_EUSAGE, "'%s' is not a dtype", value);
    }
    if (has_field(p->op, key)) {
        const size_t len = strlen(p->attrs);
        const int n =
            snprintf(p->attrs + len, sizeof p->attrs - len, "%s%s=%s", len ? ", " : "", key, value);
        return n < (int)(sizeof p->attrs - len) ? TD_OK : td_error(TD_EUSAGE, "line too long");
    }
    if (p->n_in == TD_IN_MAX || strlen(key) >= sizeof p->name[0] ||
        !parse_shape(value, &p->type[p->n_in]))
        return td_error(TD_EUSAGE, "'%s=%s' is neither an attribute nor a shape like 8x64x7x7", key,
                        value);
    memcpy(p->name[p->n_in++], key, strlen(key) + 1);
    return TD_OK;
}

static td_status parse(const char *line, td_dtype dtype, parsed *p)
{
    char text[LINE_MAX_BYTES], *save;
    if (strlen(line) >= sizeof text)
        return td_error(TD_EUSAGE, "line too long");
    memcpy(text, line, strlen(line) + 1);

    *p = (parsed){ .dtype = TD_DT_F32 };
    const char *word = strtok_r(text, " \n", &save);
    p->op = word ? td_op_find(word) : NULL;
    if (!p->op)
        return td_error(TD_EUSAGE, "'%s' is not an op", word ? word : "");
    while ((word = strtok_r(NULL, " \n", &save))) {
        char *equals = strchr(word, '=');
        if (!equals)
            return td_error(TD_EUSAGE, "'%s' is not KEY=VALUE", word);
        *equals = '\0';
        TD_TRY(parse_word(word, equals + 1, p));
    }
    if (dtype)
        p->dtype = dtype;
    for (int i = 0; i < p->n_in; i++)
        p->type[i].dtype = operand_dtype(p->op, p->name[i], p->dtype);
    return TD_OK;
}

/* --- building --------------------------------------------------------------------------------- */

/* fused ops get their gradient from the fuse pass: (dy, mask, x, gamma, mean, var) */
static void fused_norm_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    const td_op *op = n->n_in > 3 ? &td_op_batch_norm_add_relu_grad : &td_op_batch_norm_relu_grad;
    td_emit_n(b, op, n->attr, 6,
              TD_ARGS(dy[0], n->out[3], n->in[0], n->in[1], n->out[1], n->out[2]), dx);
}

static void emit_gradient(td_builder *b, const td_node *n)
{
    void (*grad)(td_builder *, const td_node *, td_value *const *, td_value **) = n->op->grad;
    if (n->op == &td_op_batch_norm_relu || n->op == &td_op_batch_norm_add_relu)
        grad = fused_norm_grad;
    if (!grad || !td_dtype_is_float(n->out[0]->type.dtype))
        return;

    td_value *dy[TD_OUT_MAX] = { NULL }, *dx[TD_IN_MAX] = { NULL };
    dy[0] = td_input(b, "dy", td_type_plain(&n->out[0]->type));
    grad(b, n, dy, dx);
    for (int i = 0; i < n->n_in; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "d%d", i);
        if (dx[i])
            td_output(b, name, dx[i]);
    }
}

static td_status build(const parsed *p, td_graph **out)
{
    td_value *in[TD_IN_MAX], *y[TD_OUT_MAX];
    td_builder *b = td_build_begin();
    if (!b)
        return TD_ENOMEM;
    for (int i = 0; i < p->n_in; i++)
        in[i] = p->op->writes >> i & 1
                    ? td_emit_leaf(b, &td_op_param, NULL, p->name[i], &p->type[i])
                    : td_input(b, p->name[i], p->type[i]);
    td_emit_n(b, p->op, td_build_attr(b, p->op, p->attrs[0] ? p->attrs : NULL), p->n_in, in, y);
    if (p->op == &td_op_reorder)
        td_build_set_layout(b, y[0], ""); /* plain: the caller inserts layouts */
    if (td_build_ok(b) && p->op->n_out) {
        td_output(b, "y", y[0]);
        emit_gradient(b, y[0]->producer);
    }
    return td_build_end(b, out);
}

td_status td_problem_graph(const char *line, td_dtype dtype, td_graph **out, const td_op **op)
{
    parsed p;
    *out = NULL;
    TD_TRY(parse(line, dtype, &p));
    if (op)
        *op = p.op;
    return build(&p, out);
}
