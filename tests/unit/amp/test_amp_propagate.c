/*
 * test_amp_propagate.c -- type propagation on small graphs, on random ones, without memory
 *
 * What TensorFlow does to 122 graphs is in golden/test_golden_amp.c; here every rule has a graph
 * small enough to see why, and laws that no recorded graph can show: painting the painted graph
 * changes nothing, the order of the nodes does not matter (classic), no allocation fails unnoticed.
 *
 * Graphs are rows: name, class, inputs ("a b:1"), and a letter for each port, naming its vertex.
 *
 *   T  float32, may be half      f  float32, fixed         v  list handle
 *   U  float32, may not          i  integer, fixed         q  quantised
 *   K  float32, type but no kernel    b  bool or half already, not fixed
 */
#include <stdio.h>

#include "amp/amp_propagate.h"
#include "base/rng.h"
#include "support/expect.h"

enum {
    ALLOW = TD_AMP_ALLOW,
    INFER = TD_AMP_INFER,
    DENY = TD_AMP_DENY,
    CLEAR = TD_AMP_CLEAR,
    WALL = TD_AMP_NONE
};

#define FETCHED (1u << 31) /* beside the propagation's flags: not eligible */

typedef struct {
    const char *name;
    int class;
    const char *inputs;
    const char *in, *out; /* letters of the ports; NULL: all T, and one result T */
    uint32_t flags;
} row;

#define MOST 512

typedef struct {
    td_amp_graph g;
    td_amp_node nodes[MOST];
    td_amp_vertex vertices[4 * MOST];
    td_amp_edge edges[8 * MOST];
    char letters[4 * MOST]; /* of vertices */
    char out[MOST][8];
} net;

/* --- building --------------------------------------------------------------------------------- */

static int vertex_of(net *n, int node, char letter)
{
    td_amp_node *d = &n->nodes[node];
    for (int v = d->first_vertex; v < d->first_vertex + d->n_vertices; v++)
        if (n->letters[v] == letter)
            return v;
    int v = n->g.n_vertices++;
    assert_true(v < 4 * MOST);
    n->letters[v] = letter;
    n->vertices[v] = (td_amp_vertex){
        .node = node,
        .type = strchr("TUKf", letter) ? TD_AMP_TYPE_F32
                : letter == 'q'        ? TD_AMP_TYPE_QUANTISED
                : letter == 'v'        ? TD_AMP_TYPE_VARIANT
                                       : TD_AMP_TYPE_OTHER,
        .type_ok = strchr("TKb", letter) != NULL,
        .kernel_ok = strchr("Tb", letter) != NULL,
        .is_fixed = strchr("fiv", letter) != NULL,
    };
    d->n_vertices++;
    return v;
}

static int find(const net *n, const char *name, size_t len)
{
    for (int i = 0; i < n->g.n_nodes; i++)
        if (strlen(n->nodes[i].name) == len && memcmp(n->nodes[i].name, name, len) == 0)
            return i;
    fail_msg("no node '%.*s'", (int)len, name);
    return -1;
}

static void connect(net *n, int from, int from_port, int to, int to_port, char letter)
{
    assert_true(n->g.n_edges < 8 * MOST);
    n->edges[n->g.n_edges++] = (td_amp_edge){ .from = vertex_of(n, from, n->out[from][from_port]),
                                              .from_port = from_port,
                                              .to = vertex_of(n, to, letter),
                                              .to_port = to_port };
}

/* A node and its vertices; edges come when all nodes are there (loops). */
static int add_node(net *n, const row *r)
{
    int i = n->g.n_nodes++;
    assert_true(i < MOST);
    n->nodes[i] = (td_amp_node){ .name = r->name,
                                 .class = (td_amp)r->class,
                                 .is_eligible = !(r->flags & FETCHED),
                                 .flags = r->flags & ~FETCHED,
                                 .first_vertex = n->g.n_vertices };
    snprintf(n->out[i], sizeof n->out[i], "%s", r->out ? r->out : "T");
    for (const char *s = r->in ? r->in : "T"; *s; s++)
        (void)vertex_of(n, i, *s);
    for (const char *s = n->out[i]; *s; s++)
        (void)vertex_of(n, i, *s);
    return i;
}

static void add_edges(net *n, int node, const row *r)
{
    const char *s = r->inputs ? r->inputs : "";
    for (int port = 0; *s; port++) {
        size_t len = strcspn(s, " :");
        int from = find(n, s, len), from_port = 0;
        s += len;
        if (*s == ':') {
            from_port = s[1] - '0';
            s += 2;
        }
        connect(n, from, from_port, node, port, r->in ? r->in[port] : 'T');
        s += *s == ' ';
    }
}

static net *start(void)
{
    net *n = TD_NEW(net);
    assert_non_null(n);
    n->g.nodes = n->nodes;
    n->g.vertices = n->vertices;
    n->g.edges = n->edges;
    return n;
}

static net *build(const row *rows, size_t n_rows)
{
    net *n = start();
    for (size_t i = 0; i < n_rows; i++)
        (void)add_node(n, &rows[i]);
    for (size_t i = 0; i < n_rows; i++)
        add_edges(n, (int)i, &rows[i]);
    return n;
}

#define BUILD(rows) build(rows, sizeof rows / sizeof *rows)

static td_amp_propagate_result paint(const net *n, td_amp_propagate_opts o)
{
    td_amp_propagate_result r;
    expect_ok(td_amp_propagate(&n->g, &o, &r));
    return r;
}

static const td_amp_propagate_opts current = { .rule = TD_AMP_RULE_CURRENT };
static const td_amp_propagate_opts classic = { .rule = TD_AMP_RULE_CLASSIC };

/* Paint, compare colours, casts (all, counted) and vertices converted. */
static void expect_paint(const row *rows, size_t n_rows, td_amp_propagate_opts o,
                         const char *colours, const int numbers[3])
{
    net *n = build(rows, n_rows);
    td_amp_propagate_result r = paint(n, o);
    assert_string_equal(r.colour, colours);
    assert_int_equal(r.n_casts, numbers[0]);
    assert_int_equal(r.n_casts_counted, numbers[1]);
    assert_int_equal(r.n_converted, numbers[2]);
    td_amp_propagate_release(&r);
    td_free(n);
}

#define EXPECT_PAINT(rows, opts, colours, ...)                                                     \
    expect_paint(rows, sizeof rows / sizeof *rows, opts, colours, (const int[]){ __VA_ARGS__ })

/* --- the optimizer's own tests ---------------------------------------------------------------- */

static const row simple[] = {
    { "input", WALL, "", "", NULL, TD_AMP_IS_CONST },
    { "exp", DENY, "input", NULL, NULL, 0 },
    { "relu1", CLEAR, "exp", NULL, NULL, 0 },
    { "sqrt", INFER, "relu1", NULL, NULL, 0 },
    { "relu2", CLEAR, "sqrt", NULL, NULL, 0 },
    { "matmul", ALLOW, "relu2 relu2", NULL, NULL, 0 },
    { "relu3", CLEAR, "matmul", NULL, NULL, 0 },
    { "log", INFER, "relu3", NULL, NULL, 0 },
    { "relu4", CLEAR, "log", NULL, NULL, 0 },
    { "sparse", WALL, "relu4 relu4", NULL, NULL, 0 },
    { "relu5", CLEAR, "sparse", NULL, NULL, 0 },
    { "fetch", CLEAR, "relu5", NULL, NULL, FETCHED },
};

static void a_chain_is_half_around_its_allow_op(void **state)
{
    (void)state;
    EXPECT_PAINT(simple, current, ".DDDCAC.....", 2, 1, 3);
    EXPECT_PAINT(simple, classic, ".DDDCAC.....", 2, 1, 3);
    net *n = BUILD(simple);
    td_amp_propagate_result r = paint(n, current);
    assert_string_equal(r.casts[0].name, "sqrt-0-CastToFp16-0-AutoMixedPrecision");
    assert_int_equal(r.casts[0].from.node, 3);
    assert_int_equal(r.casts[0].to[0].node, 4);
    assert_string_equal(r.casts[1].name, "relu3-0-CastToFp32-0-AutoMixedPrecision");
    assert_false(r.casts[1].is_to_half);
    assert_int_equal(r.n_messages, 2);
    assert_string_equal(r.messages[0], "Running auto_mixed_precision graph optimizer");
    assert_string_equal(r.messages[1],
                        "Converted 3/12 nodes to float16 precision using 1 cast(s) to float16 "
                        "(excluding Const and Variable casts)");
    td_amp_propagate_release(&r);
    td_free(n);
}

static const row seven[] = {
    { "deny", DENY, "", NULL, NULL, 0 },          { "infer1", INFER, "deny", NULL, NULL, 0 },
    { "clear1", CLEAR, "infer1", NULL, NULL, 0 }, { "infer2", INFER, "clear1", NULL, NULL, 0 },
    { "clear2", CLEAR, "infer2", NULL, NULL, 0 }, { "allow", ALLOW, "clear2", NULL, NULL, 0 },
    { "infer3", INFER, "allow", NULL, NULL, 0 },
};

static void denial_comes_down_and_the_rim_follows(void **state)
{
    (void)state;
    EXPECT_PAINT(seven, classic, "DDDDCA.", 2, 1, 2);
    EXPECT_PAINT(seven, current, "DDDDCAF", 1, 1, 3);
    td_amp_propagate_opts o = { .rule = TD_AMP_RULE_2_15 };
    EXPECT_PAINT(seven, o, "DDDDCA.", 2, 1, 2);
    o.mode = TD_AMP_MODE_BF16;
    EXPECT_PAINT(seven, o, "DDDDCAF", 1, 1, 3);
}

static const row batch_norm[] = {
    { "x", WALL, "", "", NULL, TD_AMP_IS_CONST },
    { "w", WALL, "", "", NULL, TD_AMP_IS_CONST },
    { "scale", WALL, "", "", NULL, TD_AMP_IS_CONST },
    { "conv1", ALLOW, "x w", NULL, NULL, 0 },
    { "bn", INFER, "conv1 scale scale scale scale", "TUUUU", "TUUUU", 0 },
    { "grad", INFER, "conv1 bn scale bn:3 bn:4", "TTUUU", "TUU", 0 },
    { "add", INFER, "bn grad", NULL, NULL, 0 },
    { "conv2", ALLOW, "add w", NULL, NULL, 0 },
    { "fetch", CLEAR, "conv2", NULL, NULL, FETCHED },
};

static void statistics_stay_float32(void **state)
{
    (void)state;
    EXPECT_PAINT(batch_norm, classic, "...AB.B.BA.", 3, 0, 5);
    EXPECT_PAINT(batch_norm, current, "...AB.B.BA.", 3, 0, 5);
}

static void statistics_do_not_follow(void **state)
{
    (void)state;
    static const row rows[] = {
        { "x", WALL, "", "", NULL, 0 },           { "a", ALLOW, "x", NULL, NULL, 0 },
        { "bn", INFER, "a a", "TU", "TU", 0 },    { "b", ALLOW, "bn", NULL, NULL, 0 },
        { "mean", INFER, "bn:1", NULL, NULL, 0 },
    };
    EXPECT_PAINT(rows, current, ".AB.A.", 2, 1, 3);
}

static void an_existing_cast_is_retargeted(void **state)
{
    (void)state;
    static const row rows[] = {
        { "mask", WALL, "", "", "i", 0 },
        { "cast", WALL, "mask", "b", "T", TD_AMP_IS_CAST },
        { "shared", WALL, "mask", "b", "T", TD_AMP_IS_CAST },
        { "unused", WALL, "mask", "b", "T", TD_AMP_IS_CAST },
        { "fetched", WALL, "mask", "b", "T", TD_AMP_IS_CAST | FETCHED },
        { "a", ALLOW, "cast shared", NULL, NULL, 0 },
        { "b", ALLOW, "a fetched", NULL, NULL, 0 },
        { "sin", WALL, "shared", NULL, NULL, 0 },
        { "fetch", CLEAR, "b", NULL, NULL, FETCHED },
    };
    /* shared and fetched keep float32: a cast behind each, and one in front of fetch */
    EXPECT_PAINT(rows, current, "--K-.-.-.AA..", 3, 2, 3);
    EXPECT_PAINT(rows, classic, "--K-.-.-.AA..", 3, 2, 3);
}

/* --- each step -------------------------------------------------------------------------------- */

static void nothing_to_do_is_said(void **state)
{
    (void)state;
    static const row rows[] = { { "x", WALL, "", NULL, NULL, 0 },
                                { "exp", DENY, "x", NULL, NULL, 0 } };
    EXPECT_PAINT(rows, current, "..", 0, 0, 0);
    net *n = BUILD(rows);
    td_amp_propagate_result r = paint(n, classic);
    assert_string_equal(r.messages[1], "No whitelist ops found, nothing to do");
    td_amp_propagate_release(&r);
    r = paint(n, (td_amp_propagate_opts){ .mode = TD_AMP_MODE_BF16 });
    assert_string_equal(r.messages[0],
                        "Running auto_mixed_precision_onednn_bfloat16 graph optimizer");
    assert_string_equal(r.messages[1], "No allowlist ops found, nothing to do");
    td_amp_propagate_release(&r);
    td_free(n);
}

static void denial_passes_what_may_not_change_and_spares_a_clear_tail(void **state)
{
    (void)state;
    static const row rows[] = {
        { "exp", DENY, "", "", NULL, FETCHED }, /* eligibility does not matter to denial */
        { "add", INFER, "exp", NULL, NULL, FETCHED }, { "mul", INFER, "add", NULL, NULL, 0 },
        { "tail", CLEAR, "mul", NULL, NULL, 0 },      { "end", CLEAR, "tail", NULL, NULL, 0 },
        { "a", ALLOW, "mul", NULL, NULL, 0 },         { "sin", WALL, "mul", NULL, NULL, 0 },
        { "tanh", INFER, "sin", NULL, NULL, 0 },
    };
    EXPECT_PAINT(rows, current, "DDD..A..", 1, 1, 1);
}

static void the_fill_asks_for_a_kernel_and_following_does_not(void **state)
{
    (void)state;
    static const row rows[] = {
        { "a", ALLOW, "", NULL, NULL, 0 },
        { "no_kernel", INFER, "a", "K", "K", 0 },
        { "no_type", INFER, "a", "U", "U", 0 },
        { "b", ALLOW, "no_kernel no_type", NULL, NULL, 0 },
    };
    EXPECT_PAINT(rows, classic, "A..A", 3, 2, 2);
    EXPECT_PAINT(rows, current, "AF.A", 2, 1, 3);
}

static void following_goes_once_in_node_order(void **state)
{
    (void)state;
    static const row rows[] = {
        { "third", INFER, "second", NULL, NULL, 0 }, { "a", ALLOW, "", NULL, NULL, 0 },
        { "first", INFER, "a", NULL, NULL, 0 },      { "second", INFER, "first", NULL, NULL, 0 },
        { "relu", CLEAR, "second", NULL, NULL, 0 },  { "bias", INFER, "relu", NULL, NULL, 0 },
        { "exp", DENY, "", NULL, NULL, 0 },          { "mixed", INFER, "a exp", NULL, NULL, 0 },
    };
    /* third stands before second; a clear op hides what is behind it; a denied input forbids */
    EXPECT_PAINT(rows, current, ".AFFC.DD", 3, 0, 4);
}

static void variables_are_cast_after_their_read(void **state)
{
    (void)state;
    static const row rows[] = {
        { "var", WALL, "", "", NULL, TD_AMP_IS_VARIABLE | TD_AMP_IS_REF_VARIABLE },
        { "read", CLEAR, "var", NULL, NULL, TD_AMP_IS_IDENTITY },
        { "enter2", CLEAR, "enter", NULL, NULL, TD_AMP_IS_ENTER }, /* before what it reads */
        { "enter", CLEAR, "read", NULL, NULL, TD_AMP_IS_ENTER },
        { "copy", CLEAR, "read", NULL, NULL, TD_AMP_IS_IDENTITY },
        { "a", ALLOW, "read enter2 copy", NULL, NULL, 0 },
    };
    EXPECT_PAINT(rows, current, "....CA", 2, 0, 2);
    EXPECT_PAINT(rows, classic, "....CA", 2, 0, 2);
}

static void allow_ops_that_refuse_the_type_are_taken_back(void **state)
{
    (void)state;
    static const row rows[] = {
        { "a", ALLOW, "", NULL, NULL, 0 },
        { "gru", ALLOW, "a", "U", "U", 0 },
        { "quant", ALLOW, "a", "Tq", "T", 0 },
        { "b", ALLOW, "a", "T", "Ti", 0 },
    };
    EXPECT_PAINT(rows, current, "Aaa-A-", 1, 0, 2);
    EXPECT_PAINT(rows, classic, "AAA-A-", 0, 0, 4);
}

static void a_fixed_port_fails_the_rewrite(void **state)
{
    (void)state;
    static const row rows[] = {
        { "const", WALL, "", "", NULL, TD_AMP_IS_CONST },
        { "rng", WALL, "", "", NULL, TD_AMP_IS_UNFORCED },
        { "resize", WALL, "const", "T", "f", 0 },
    };
    td_amp_propagate_opts force = { .level = TD_AMP_LEVEL_UNSAFE_FORCE_ALL };
    net *n = BUILD(rows);
    td_amp_propagate_result r = paint(n, force);
    assert_true(r.is_failed);
    assert_string_equal(r.colour, "..AA");
    assert_int_equal(r.n_casts, 0);
    for (int v = 0; v < n->g.n_vertices; v++)
        assert_false(r.is_half[v]);
    assert_string_equal(r.messages[1], "auto_mixed_precision graph optimizer FAILED: INTERNAL: "
                                       "Failed to set type attribute");
    td_amp_propagate_release(&r);
    force.mode = TD_AMP_MODE_BF16;
    r = paint(n, force);
    assert_true(r.is_failed);
    assert_string_equal(r.colour, "....");
    assert_non_null(strstr(r.messages[1], "cannot be set to UNSAFE_FORCE_ALL"));
    td_amp_propagate_release(&r);
    td_free(n);
}

static void an_op_in_two_lists_fails_the_rewrite(void **state)
{
    (void)state;
    static const char *const twice[] = { "Exp", "Exp" };
    net *n = BUILD(simple);
    td_amp_propagate_result r =
        paint(n, (td_amp_propagate_opts){ .conflict = twice, .n_conflicts = 2 });
    assert_true(r.is_failed);
    assert_int_equal(r.n_messages, 4);
    assert_string_equal(r.messages[1], "Op present in multiple lists: Exp");
    assert_string_equal(r.messages[3], "auto_mixed_precision graph optimizer FAILED: "
                                       "INVALID_ARGUMENT: Op lists have conflicting entries");
    assert_string_equal(r.colour, "............");
    td_amp_propagate_release(&r);
    td_free(n);
}

/* --- lists and loops -------------------------------------------------------------------------- */

#define LIST   TD_AMP_IS_LIST_OP
#define WRITER (TD_AMP_IS_LIST_OP | TD_AMP_IS_LIST_WRITER)
#define READER (TD_AMP_IS_LIST_OP | TD_AMP_IS_LIST_READER)

static const row lists[] = {
    { "make", WALL, "", "T", "v", LIST },
    { "a", ALLOW, "", NULL, NULL, 0 },
    { "put", CLEAR, "make a", "vT", "v", WRITER },
    { "get", CLEAR, "put", "v", "T", READER },
    { "tanh", INFER, "get", NULL, NULL, 0 },
    { "b", ALLOW, "tanh", NULL, NULL, 0 },
    { "exp", DENY, "", NULL, NULL, 0 },
    { "make2", WALL, "", "T", "v", LIST },
    { "put2", CLEAR, "make2 exp", "vT", "v", WRITER },
    { "put3", CLEAR, "put2 a", "vT", "v", WRITER },
    { "get2", CLEAR, "put3", "v", "T", READER },
    { "tanh2", INFER, "get2", NULL, NULL, 0 },
    { "c", ALLOW, "tanh2", NULL, NULL, 0 },
};

static void a_list_has_one_colour(void **state)
{
    (void)state;
    /* a: half through put and get; the second list hears exp, so all that touches it is denied */
    EXPECT_PAINT(lists, current, "L-A-B-BBADD--D-D-DDA", 2, 1, 7);
}

static void a_list_from_elsewhere_is_denied(void **state)
{
    (void)state;
    static const row rows[] = {
        { "arg", WALL, "", "", "v", TD_AMP_IS_HANDLE_END },
        { "a", ALLOW, "", NULL, NULL, 0 },
        { "put", CLEAR, "arg a", "vT", "v", WRITER },
        { "get", CLEAR, "put", "v", "T", READER },
        { "b", ALLOW, "get", NULL, NULL, 0 },
    };
    EXPECT_PAINT(rows, current, "-A-D-DA", 2, 1, 2);
}

static void a_loop_has_one_colour(void **state)
{
    (void)state;
    static const row rows[] = {
        { "exp", DENY, "", NULL, NULL, 0 },
        { "enter", CLEAR, "exp", NULL, NULL, TD_AMP_IS_ENTER },
        { "merge", CLEAR, "enter next", NULL, "Ti", TD_AMP_IS_MERGE },
        { "add", INFER, "merge", NULL, NULL, 0 },
        { "a", ALLOW, "add", NULL, NULL, 0 },
        { "next", CLEAR, "a", NULL, NULL, TD_AMP_IS_NEXT_ITERATION },
    };
    /* the merge is denied, so the next-iteration, half as the allow op's tail, is taken back */
    EXPECT_PAINT(rows, current, "DDD-DAc", 2, 1, 1);
    static const row half[] = {
        { "a", ALLOW, "", NULL, NULL, 0 },
        { "enter", CLEAR, "a", NULL, NULL, TD_AMP_IS_ENTER },
        { "merge", CLEAR, "enter next", NULL, "Ti", TD_AMP_IS_MERGE },
        { "b", ALLOW, "merge", NULL, NULL, 0 },
        { "next", CLEAR, "b", NULL, NULL, TD_AMP_IS_NEXT_ITERATION },
    };
    EXPECT_PAINT(half, current, "ABB-AB", 0, 0, 5);
}

/* --- casts ------------------------------------------------------------------------------------ */

static void a_port_has_one_cast_and_a_free_name(void **state)
{
    (void)state;
    static const row rows[] = {
        { "x", WALL, "", "", "TT", 0 },
        { "x-1-CastToBf16-0-AutoMixedPrecision", WALL, "", "", "T", 0 },
        { "a", ALLOW, "x x:1", NULL, NULL, 0 },
        { "b", ALLOW, "x:1 a", NULL, NULL, 0 },
        { "sin", WALL, "b x", NULL, NULL, 0 },
        { "cos", WALL, "b", NULL, NULL, 0 },
    };
    net *n = BUILD(rows);
    td_amp_propagate_result r = paint(n, (td_amp_propagate_opts){ .mode = TD_AMP_MODE_BF16 });
    assert_int_equal(r.n_casts, 3);
    assert_string_equal(r.casts[0].name, "x-0-CastToBf16-0-AutoMixedPrecision");
    assert_int_equal(r.casts[0].n_to, 1);
    assert_string_equal(r.casts[1].name, "x-1-CastToBf16-1-AutoMixedPrecision");
    assert_int_equal(r.casts[1].n_to, 2);
    assert_int_equal(r.casts[1].to[1].node, 3);
    assert_int_equal(r.casts[1].to[1].port, 0);
    assert_string_equal(r.casts[2].name, "b-0-CastToFp32-0-AutoMixedPrecision");
    assert_int_equal(r.casts[2].n_to, 2);
    assert_int_equal(r.n_casts_counted, 2);
    td_amp_propagate_release(&r);
    r = paint(n, classic);
    assert_string_equal(r.casts[1].name, "x-1-CastToFp16-AutoMixedPrecision");
    td_amp_propagate_release(&r);
    td_free(n);
}

static void emulation_rounds_and_widens(void **state)
{
    (void)state;
    static const row rows[] = {
        { "b", ALLOW, "a a", NULL, NULL, 0 }, /* before its producer */
        { "x", WALL, "", "", NULL, 0 },
        { "a", ALLOW, "x", NULL, NULL, 0 },
        { "sin", WALL, "a", NULL, NULL, 0 },
    };
    net *n = BUILD(rows);
    td_amp_propagate_result r =
        paint(n, (td_amp_propagate_opts){ .mode = TD_AMP_MODE_CPU, .is_emulated = true });
    static const char *const names[] = {
        "x-0-CastToFp16-0-AutoMixedPrecision",
        "x-0-CastToFp16-0-AutoMixedPrecision-0-CastToFp32-0-AutoMixedPrecision",
        "a-0-CastToFp16-0-AutoMixedPrecision",
        "a-0-CastToFp16-0-AutoMixedPrecision-0-CastToFp32-0-AutoMixedPrecision",
        "a-0-CastToFp16-0-AutoMixedPrecision-0-CastToFp32-1-AutoMixedPrecision",
        "a-0-CastToFp16-0-AutoMixedPrecision-0-CastToFp32-2-AutoMixedPrecision",
    };
    assert_int_equal(r.n_casts, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(r.casts[i].name, names[i]);
    assert_int_equal(r.casts[3].to[0].node, 3); /* the float32 consumer's is the first */
    assert_int_equal(r.casts[4].to[0].node, 0);
    assert_int_equal(r.casts[4].from.cast, 2);
    assert_int_equal(r.casts[2].n_to, 3);
    assert_int_equal(r.casts[2].to[0].cast, 3);
    assert_int_equal(r.n_converted, 0);
    assert_int_equal(r.n_casts_counted, 2);
    td_amp_propagate_release(&r);
    td_free(n);
}

static void every_decision_has_a_reason(void **state)
{
    (void)state;
    net *n = BUILD(simple);
    td_amp_propagate_result r = paint(n, current);
    static const td_amp_step steps[] = { TD_AMP_STEP_NONE,  TD_AMP_STEP_DENY,  TD_AMP_STEP_DENY,
                                         TD_AMP_STEP_DENY,  TD_AMP_STEP_CLEAR, TD_AMP_STEP_ALLOW,
                                         TD_AMP_STEP_CLEAR, TD_AMP_STEP_NONE };
    static const int sources[] = { -1, -1, 1, 1, 5, -1, 5, -1 };
    for (int v = 0; v < 8; v++) {
        assert_int_equal(r.step[v], steps[v]);
        assert_int_equal(r.source[v], sources[v]);
    }
    td_amp_propagate_release(&r);
    td_free(n);
    n = BUILD(batch_norm);
    r = paint(n, current);
    assert_int_equal(r.step[4], TD_AMP_STEP_FILL);
    assert_int_equal(r.source[4], 9);
    td_amp_propagate_release(&r);
    td_free(n);
    assert_string_equal(td_amp_step_name(TD_AMP_STEP_FORCE_DOWN), "force-down");
    assert_string_equal(td_amp_step_name(TD_AMP_STEP_NONE), "none");
}

/* --- random graphs ---------------------------------------------------------------------------- */

/* Forward edges only, sometimes two vertices a node, sometimes not eligible. */
static net *random_net(uint64_t seed, int n_nodes)
{
    static char names[MOST][16];
    static const int classes[] = { WALL, ALLOW, INFER, INFER, DENY, CLEAR, CLEAR, CLEAR };
    td_rng rng = td_rng_make(seed, TD_RNG_TEST, 0, 0);
    net *n = start();
    for (int i = 0; i < n_nodes; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        bool two = td_rng_below(&rng, 8) == 0;
        uint32_t flags = td_rng_below(&rng, 10) == 0 ? FETCHED : 0;
        row r = { names[i], classes[td_rng_below(&rng, 8)], "", two ? "TU" : "T", two ? "TU" : "T",
                  flags };
        int node = add_node(n, &r);
        for (int port = 0; i && port < 1 + (int)td_rng_below(&rng, 2); port++) {
            int from = (int)td_rng_below(&rng, (uint64_t)i);
            int from_port = (int)td_rng_below(&rng, strlen(n->out[from]));
            connect(n, from, from_port, node, port, two && port ? 'U' : 'T');
        }
    }
    return n;
}

/* The graph after the rewrite: half vertices are no longer float32, casts are nodes. */
static net *rewrite(const net *old, const td_amp_propagate_result *r)
{
    net *n = start();
    *n = *old;
    n->g.nodes = n->nodes;
    n->g.vertices = n->vertices;
    n->g.edges = n->edges;
    for (int v = 0; v < old->g.n_vertices; v++)
        if (r->is_half[v])
            n->vertices[v].type = TD_AMP_TYPE_OTHER;
    for (int i = 0; i < r->n_casts; i++) {
        const td_amp_cast *c = &r->casts[i];
        row cast = { c->name,       WALL, "", c->is_to_half ? "T" : "b", c->is_to_half ? "b" : "T",
                     TD_AMP_IS_CAST };
        int node = add_node(n, &cast);
        for (int j = 0; j < n->g.n_edges; j++) {
            td_amp_edge *e = &n->edges[j];
            if (e->from != c->vertex || e->from_port != c->from.port ||
                r->is_half[e->to] != c->is_to_half)
                continue;
            e->from = vertex_of(n, node, c->is_to_half ? 'b' : 'T');
            e->from_port = 0;
        }
        n->edges[n->g.n_edges++] =
            (td_amp_edge){ .from = c->vertex,
                           .from_port = c->from.port,
                           .to = vertex_of(n, node, c->is_to_half ? 'T' : 'b') };
    }
    return n;
}

static void painting_the_painted_graph_changes_nothing(void **state)
{
    (void)state;
    int n_converted = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        net *n = random_net(seed, 20 + (int)(seed % 60));
        td_amp_propagate_opts o = { .rule = (td_amp_rule)(seed % 3),
                                    .mode = seed % 2 ? TD_AMP_MODE_BF16 : TD_AMP_MODE_FP16 };
        td_amp_propagate_result r = paint(n, o);
        net *after = rewrite(n, &r);
        td_amp_propagate_result again = paint(after, o);
        assert_int_equal(again.n_converted, 0);
        assert_int_equal(again.n_casts, 0);
        n_converted += r.n_converted;
        td_amp_propagate_release(&again);
        td_amp_propagate_release(&r);
        td_free(after);
        td_free(n);
    }
    assert_true(n_converted > 1000); /* the graphs did have something to paint */
}

/* The same graph with its nodes in another order; where[v]: the vertex v became. */
static net *shuffle(const net *old, uint64_t seed, int *where)
{
    int64_t order[MOST];
    td_rng rng = td_rng_make(seed, TD_RNG_TEST, 1, 0);
    td_rng_permute(&rng, order, old->g.n_nodes);
    net *n = start();
    for (int i = 0; i < old->g.n_nodes; i++) {
        const td_amp_node *d = &old->nodes[order[i]];
        n->nodes[i] = *d;
        n->nodes[i].first_vertex = n->g.n_vertices;
        for (int k = 0; k < d->n_vertices; k++) {
            where[d->first_vertex + k] = n->g.n_vertices;
            n->vertices[n->g.n_vertices] = old->vertices[d->first_vertex + k];
            n->vertices[n->g.n_vertices++].node = i;
        }
    }
    for (int i = 0; i < old->g.n_edges; i++) {
        n->edges[i] = old->edges[i];
        n->edges[i].from = where[old->edges[i].from];
        n->edges[i].to = where[old->edges[i].to];
    }
    n->g.n_nodes = old->g.n_nodes;
    n->g.n_edges = old->g.n_edges;
    return n;
}

static void the_order_of_nodes_does_not_matter_under_classic(void **state)
{
    (void)state;
    int where[4 * MOST], n_follow_differs = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        net *n = random_net(seed, 20 + (int)(seed % 60)), *m = shuffle(n, seed, where);
        td_amp_propagate_result a = paint(n, classic), b = paint(m, classic);
        for (int v = 0; v < n->g.n_vertices; v++)
            assert_int_equal(a.colour[v], b.colour[where[v]]);
        assert_int_equal(a.n_casts, b.n_casts);
        assert_int_equal(a.n_casts_counted, b.n_casts_counted);
        td_amp_propagate_release(&a);
        td_amp_propagate_release(&b);
        a = paint(n, current);
        b = paint(m, current);
        n_follow_differs += a.n_converted != b.n_converted;
        td_amp_propagate_release(&a);
        td_amp_propagate_release(&b);
        td_free(n);
        td_free(m);
    }
    assert_true(n_follow_differs > 0); /* the current rule does depend on it */
}

/* Whatever is left half lies between casts or half neighbours: the promise to the rewriter. */
static void types_agree_along_every_edge(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        net *n = random_net(seed + 1000, 80);
        td_amp_propagate_result r = paint(n, current);
        int n_cast = 0, n_differ = 0;
        for (int i = 0; i < r.n_casts; i++) {
            assert_true(r.casts[i].n_to > 0);
            n_cast += r.casts[i].n_to;
            assert_int_equal(r.casts[i].is_to_half, !r.is_half[r.casts[i].vertex]);
        }
        for (int i = 0; i < n->g.n_edges; i++)
            n_differ += r.is_half[n->edges[i].from] != r.is_half[n->edges[i].to];
        assert_int_equal(n_cast, n_differ);
        td_amp_propagate_release(&r);
        td_free(n);
    }
}

/* --- size, memory, bad descriptions ----------------------------------------------------------- */

static void a_long_chain_needs_no_stack(void **state)
{
    (void)state;
    enum { N = 300000 };
    td_amp_node *nodes = td_alloc(N, sizeof *nodes);
    td_amp_vertex *vertices = td_alloc(N, sizeof *vertices);
    td_amp_edge *edges = td_alloc(N, sizeof *edges);
    assert_non_null(nodes);
    assert_non_null(vertices);
    assert_non_null(edges);
    for (int i = 0; i < N; i++) {
        nodes[i] = (td_amp_node){ .name = "n",
                                  .class = i == 0 || i == N - 1 ? TD_AMP_ALLOW : TD_AMP_CLEAR,
                                  .is_eligible = true,
                                  .first_vertex = i,
                                  .n_vertices = 1 };
        vertices[i] = (td_amp_vertex){ .node = i, .type_ok = true, .kernel_ok = true };
        if (i)
            edges[i - 1] = (td_amp_edge){ .from = i - 1, .to = i };
    }
    td_amp_graph g = { nodes, vertices, edges, N, N, N - 1 };
    td_amp_propagate_result r;
    expect_ok(td_amp_propagate(&g, &current, &r));
    assert_int_equal(r.n_converted, N);
    assert_int_equal(r.n_casts, 0);
    td_amp_propagate_release(&r);
    td_free(nodes);
    td_free(vertices);
    td_free(edges);
}

static void no_allocation_fails_unnoticed(void **state)
{
    (void)state;
    static const char *const twice[] = { "Exp", "Exp" };
    const td_amp_propagate_opts opts[] = {
        current,
        { .mode = TD_AMP_MODE_CPU, .is_emulated = true },
        { .conflict = twice, .n_conflicts = 2 },
    };
    net *nets[] = { BUILD(simple), BUILD(lists), random_net(7, 400) };
    for (int k = 0; k < 9; k++) {
        int64_t before = td_alloc_live();
        td_status st = TD_ENOMEM;
        int n = 0;
        while (st != TD_OK) {
            td_amp_propagate_result r;
            td_alloc_fail_at(++n);
            st = td_amp_propagate(&nets[k / 3]->g, &opts[k % 3], &r);
            td_alloc_fail_at(0);
            if (st != TD_OK) {
                assert_int_equal(st, TD_ENOMEM);
                assert_null(r.colour);
                assert_int_equal(r.n_casts, 0);
            }
            td_amp_propagate_release(&r);
            assert_int_equal(td_alloc_live(), before);
        }
        assert_true(n > 2);
    }
    for (int i = 0; i < 3; i++)
        td_free(nets[i]);
}

static void expect_refused(const net *n, const char *part)
{
    td_amp_propagate_result r;
    expect_error(td_amp_propagate(&n->g, &current, &r), TD_EARG, part);
    assert_null(r.colour);
}

static void a_description_must_hold_together(void **state)
{
    (void)state;
    net *good = BUILD(simple), *n = start();
#define BROKEN(change, part)                                                                       \
    do {                                                                                           \
        *n = *good;                                                                                \
        n->g.nodes = n->nodes;                                                                     \
        n->g.vertices = n->vertices;                                                               \
        n->g.edges = n->edges;                                                                     \
        change;                                                                                    \
        expect_refused(n, part);                                                                   \
    } while (0)
    BROKEN(n->nodes[2].name = NULL, "node 2 has no name");
    BROKEN(n->nodes[2].first_vertex = 5, "node 'relu1' has vertices 5 to 5, wanted from 2");
    BROKEN(n->nodes[11].n_vertices = 7, "node 'fetch' has vertices 11 to 17");
    BROKEN(n->vertices[3].node = 4, "4, but belongs to node 'sqrt', 3");
    BROKEN(n->g.n_nodes = 11, "nodes have 11 vertices, the graph has 12");
    BROKEN(n->g.n_edges = -1, "-1 edges");
    BROKEN(n->edges[1].to = 12, "1 to vertex 12");
    BROKEN(n->edges[1].from = -1, "1 connects vertex -1");
    BROKEN(n->edges[2].from_port = 70000, "edge 2 has ports 70000 and 0");
    BROKEN(n->edges[2].to_port = -1, "edge 2 has ports 0 and -1");
#undef BROKEN
    td_amp_graph empty = { 0 };
    td_amp_propagate_result r;
    expect_ok(td_amp_propagate(&empty, &current, &r));
    assert_string_equal(r.colour, "");
    td_amp_propagate_release(&r);
    td_free(good);
    td_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_half_around_its_allow_op),
        cmocka_unit_test(denial_comes_down_and_the_rim_follows),
        cmocka_unit_test(statistics_stay_float32),
        cmocka_unit_test(statistics_do_not_follow),
        cmocka_unit_test(an_existing_cast_is_retargeted),
        cmocka_unit_test(nothing_to_do_is_said),
        cmocka_unit_test(denial_passes_what_may_not_change_and_spares_a_clear_tail),
        cmocka_unit_test(the_fill_asks_for_a_kernel_and_following_does_not),
        cmocka_unit_test(following_goes_once_in_node_order),
        cmocka_unit_test(variables_are_cast_after_their_read),
        cmocka_unit_test(allow_ops_that_refuse_the_type_are_taken_back),
        cmocka_unit_test(a_fixed_port_fails_the_rewrite),
        cmocka_unit_test(an_op_in_two_lists_fails_the_rewrite),
        cmocka_unit_test(a_list_has_one_colour),
        cmocka_unit_test(a_list_from_elsewhere_is_denied),
        cmocka_unit_test(a_loop_has_one_colour),
        cmocka_unit_test(a_port_has_one_cast_and_a_free_name),
        cmocka_unit_test(emulation_rounds_and_widens),
        cmocka_unit_test(every_decision_has_a_reason),
        cmocka_unit_test(painting_the_painted_graph_changes_nothing),
        cmocka_unit_test(the_order_of_nodes_does_not_matter_under_classic),
        cmocka_unit_test(types_agree_along_every_edge),
        cmocka_unit_test(a_long_chain_needs_no_stack),
        cmocka_unit_test(no_allocation_fails_unnoticed),
        cmocka_unit_test(a_description_must_hold_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
