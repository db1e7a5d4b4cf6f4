/*
 * test_golden_amp.c -- type propagation against what TensorFlow does to many graphs
 *
 * Every run that has a result, of three releases: colours of all vertices; casts with names,
 * source, type and consumers; messages; and the four lists.  tf-amp/README.md has the format.
 *
 * TensorFlow's three oddities are left out on purpose; the runs that show them are in the table
 * `oddities` with what differs, and must differ exactly so:
 *
 *   - a cast that is fetched is not retargeted: the caller asked for float32;
 *   - the statistics of a batch norm do not follow: no kernel takes them in bfloat16;
 *   - emulation, which throws there where a node precedes its producer: those runs have no result.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "amp/amp_env.h"
#include "amp/amp_propagate.h"
#include "base/text.h"
#include "support/expect.h"
#include "support/golden.h"

#define PART "tf-amp"

/* --- numbers in texts ------------------------------------------------------------------------- */

static int number(const char **s)
{
    char *end;
    long v = strtol(*s, &end, 10);
    assert_ptr_not_equal(*s, end);
    *s = end;
    return (int)v;
}

static void expect_char(const char **s, char c)
{
    if (**s != c)
        fail_msg("found '%s', wanted '%c'", *s, c);
    (*s)++;
}

static const char *text_at(const td_json *array, size_t i)
{
    const char *text;
    expect_ok(td_json_as_text(td_json_at(array, i), &text));
    return text;
}

static bool is_word(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

/* --- kinds of nodes: op, remarks, vertices ---------------------------------------------------- */

#define PORTS 128 /* of a node, at most, each way */

static void read_word(const char **s, char *word, size_t cap)
{
    size_t n = strcspn(*s, " ");
    assert_true(n < cap);
    memcpy(word, *s, n);
    word[n] = '\0';
    *s += n;
}

/* "0,1,5": ports that vertex v types; "-": none */
static void read_ports(const char **s, int *vertex_of, int v)
{
    if (**s == '-') {
        (*s)++;
        return;
    }
    for (;; (*s)++) {
        int port = number(s);
        assert_true(port >= 0 && port < PORTS);
        vertex_of[port] = v;
        if (**s != ',')
            return;
    }
}

static uint32_t flags_of_op(const char *op)
{
    static const struct {
        const char *op;
        uint32_t flags;
    } rows[] = {
        { "Const", TD_AMP_IS_CONST },
        { "Variable", TD_AMP_IS_VARIABLE | TD_AMP_IS_REF_VARIABLE },
        { "VariableV2", TD_AMP_IS_VARIABLE | TD_AMP_IS_REF_VARIABLE },
        { "VarHandleOp", TD_AMP_IS_VARIABLE },
        { "ReadVariableOp", TD_AMP_IS_VARIABLE },
        { "Identity", TD_AMP_IS_IDENTITY },
        { "Enter", TD_AMP_IS_ENTER },
        { "Merge", TD_AMP_IS_MERGE },
        { "NextIteration", TD_AMP_IS_NEXT_ITERATION },
        { "Cast", TD_AMP_IS_CAST },
        { "SoftmaxCrossEntropyWithLogits", TD_AMP_IS_UNFORCED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(op, rows[i].op) == 0)
            return rows[i].flags;
    return 0;
}

static uint32_t flags_of_list_op(const char *op)
{
    static const char *const readers[] = { "TensorListConcat",
                                           "TensorListConcatV2",
                                           "TensorListGather",
                                           "TensorListGetItem",
                                           "TensorListPopBack",
                                           "TensorListStack",
                                           NULL };
    static const char *const writers[] = {
        "TensorListFromTensor", "TensorListPushBack",  "TensorListPushBackBatch",
        "TensorListScatter",    "TensorListScatterV2", "TensorListScatterIntoExistingList",
        "TensorListSetItem",    "TensorListSplit",     NULL
    };
    static const char *const ends[] = { "_Arg",
                                        "_Retval",
                                        "OptionalFromValue",
                                        "OptionalGetValue",
                                        "PartitionedCall",
                                        "Placeholder",
                                        "StatefulPartitionedCall",
                                        NULL };
    uint32_t flags = is_word(op, ends) ? TD_AMP_IS_HANDLE_END : 0;
    if (strstr(op, "TensorList"))
        flags |= TD_AMP_IS_LIST_OP;
    if (is_word(op, readers))
        flags |= TD_AMP_IS_LIST_READER;
    if (is_word(op, writers))
        flags |= TD_AMP_IS_LIST_WRITER;
    return flags;
}

static td_amp_type type_of(const char *name)
{
    if (strcmp(name, "float") == 0)
        return TD_AMP_TYPE_F32;
    if (strcmp(name, "variant") == 0)
        return TD_AMP_TYPE_VARIANT;
    return td_text_starts(name, "qint") || td_text_starts(name, "quint") ? TD_AMP_TYPE_QUANTISED
                                                                         : TD_AMP_TYPE_OTHER;
}

/* --- a graph ---------------------------------------------------------------------------------- */

typedef struct {
    td_amp_graph g;
    td_amp_node *nodes;
    td_amp_vertex *vertices;
    td_amp_edge *edges;
    char **names;        /* [n_nodes] */
    const char **ops;    /* [n_nodes] */
    const char **inputs; /* [n_nodes] rest of the line */
    char (*pinned)[8];   /* [n_nodes] "CPU", "GPU", "" */
    bool *is_preserved;  /* [n_nodes] */
    char (*support)[4];  /* [n_vertices] */

    int *vertex_of; /* of a port: the vertex that types it, -1 */
} graph;

static const td_json *doc;

static const td_json *kind_at(int i)
{
    return td_json_at(td_json_get(doc, "kinds"), (size_t)i);
}

/* "T float 0,1 0 222": name, type, input ports, output ports, support */
static void read_vertex(graph *w, int node, int v, const char *s)
{
    char id[32], type[16];
    int *of_in = w->vertex_of + 2 * node * PORTS, *of_out = of_in + PORTS;
    read_word(&s, id, sizeof id);
    expect_char(&s, ' ');
    read_word(&s, type, sizeof type);
    expect_char(&s, ' ');
    read_ports(&s, of_in, v);
    expect_char(&s, ' ');
    read_ports(&s, of_out, v);
    expect_char(&s, ' ');
    read_word(&s, w->support[v], sizeof w->support[v]);
    if (strcmp(id, "U") == 0 && td_text_starts(w->ops[node], "FusedBatchNorm"))
        memcpy(w->support[v], "000", 4); /* no type of it has a half kernel: see oddities */
    w->vertices[v] = (td_amp_vertex){
        .node = node,
        .type = type_of(type),
        .is_fixed = id[0] == '@',
    };
}

static void read_vertices(graph *w, int node, const td_json *kind)
{
    td_amp_node *n = &w->nodes[node];
    n->first_vertex = w->g.n_vertices;
    n->n_vertices = (int)td_json_count(kind) - 2;
    for (int i = 0; i < n->n_vertices; i++)
        read_vertex(w, node, w->g.n_vertices++, text_at(kind, (size_t)i + 2));
}

/* "9|suffix kind [@device] inputs"; returns where the inputs begin. */
static const char *read_node(graph *w, int node, const char *s)
{
    int shared = number(&s);
    expect_char(&s, '|');
    int n = (int)strcspn(s, " ");
    const char *before = node ? w->names[node - 1] : "";
    w->names[node] = td_alloc((size_t)(shared + n) + 1, 1);
    assert_non_null(w->names[node]);
    snprintf(w->names[node], (size_t)(shared + n) + 1, "%.*s%.*s", shared, before, n, s);
    s += n;

    const td_json *kind = kind_at(number(&s));
    w->ops[node] = text_at(kind, 0);
    w->nodes[node].name = w->names[node];
    w->nodes[node].flags = flags_of_op(w->ops[node]) | flags_of_list_op(w->ops[node]);
    if (*text_at(kind, 1))
        w->nodes[node].flags |= TD_AMP_IS_UNFORCED;
    if (td_text_starts(s, " @")) {
        s += 2;
        read_word(&s, w->pinned[node], sizeof w->pinned[node]);
    }
    read_vertices(w, node, kind);
    return s;
}

static void read_edges(graph *w, int node)
{
    const char *s = w->inputs[node];
    for (int port = 0; *s == ' '; port++) {
        s++;
        int producer = number(&s);
        expect_char(&s, ':');
        int from_port = number(&s);
        assert_true(port < PORTS && from_port < PORTS);
        w->edges[w->g.n_edges++] =
            (td_amp_edge){ .from = w->vertex_of[(2 * producer + 1) * PORTS + from_port],
                           .from_port = from_port,
                           .to = w->vertex_of[2 * node * PORTS + port],
                           .to_port = port };
    }
}

static void *room(size_t n, size_t each)
{
    void *p = td_alloc(n, each);
    assert_non_null(p);
    return p;
}

static void count_room(const td_json *nodes, size_t *n_vertices, size_t *n_edges)
{
    *n_vertices = *n_edges = 0;
    for (size_t i = 0; i < td_json_count(nodes); i++) {
        const char *s = text_at(nodes, i);
        s += strcspn(s, " ");
        *n_vertices += td_json_count(kind_at(number(&s))) - 2;
        for (; *s; s++)
            *n_edges += *s == ' ';
    }
}

static graph read_graph(const td_json *j)
{
    const td_json *nodes = td_json_get(j, "nodes"), *preserve = td_json_get(j, "preserve");
    size_t n = td_json_count(nodes), n_vertices, n_edges;
    count_room(nodes, &n_vertices, &n_edges);
    graph w = { .nodes = room(n, sizeof *w.nodes),
                .vertices = room(n_vertices, sizeof *w.vertices),
                .edges = room(n_edges + 1, sizeof *w.edges),
                .names = room(n, sizeof *w.names),
                .ops = room(n, sizeof *w.ops),
                .inputs = room(n, sizeof *w.inputs),
                .pinned = room(n, sizeof *w.pinned),
                .is_preserved = room(n, sizeof *w.is_preserved),
                .support = room(n_vertices, sizeof *w.support),
                .vertex_of = room(n * 2 * PORTS, sizeof *w.vertex_of) };
    memset(w.vertex_of, -1, n * 2 * PORTS * sizeof *w.vertex_of);
    for (size_t i = 0; i < td_json_count(preserve); i++) {
        int64_t at;
        expect_ok(td_json_as_int(td_json_at(preserve, i), &at));
        w.is_preserved[at] = true;
    }
    for (int i = 0; i < (int)n; i++)
        w.inputs[i] = read_node(&w, i, text_at(nodes, (size_t)i));
    for (int i = 0; i < (int)n; i++)
        read_edges(&w, i);
    w.g.nodes = w.nodes;
    w.g.vertices = w.vertices;
    w.g.edges = w.edges;
    w.g.n_nodes = (int)n;
    return w;
}

static void free_graph(graph *w)
{
    for (int i = 0; i < w->g.n_nodes; i++)
        td_free(w->names[i]);
    void *all[] = { w->nodes,  w->vertices, w->edges,        w->names,   w->ops,
                    w->inputs, w->pinned,   w->is_preserved, w->support, w->vertex_of };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        td_free(all[i]);
}

/* --- a run's settings ------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    td_amp_list_opts lists;
    bool is_emulated;
} setting;

static const char *setting_value(void *ctx, const char *name)
{
    static const char prefix[] = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_";
    const char *v = NULL;
    if (!td_text_starts(name, prefix))
        return NULL;
    const td_json *text = td_json_get(ctx, name + sizeof prefix - 1);
    if (text)
        expect_ok(td_json_as_text(text, &v));
    return v;
}

/* [run, release, mode, environment] */
static setting read_setting(const td_json *row)
{
    td_amp_env env;
    void *ctx;
    const td_json *variables = td_json_at(row, 3);
    memcpy(&ctx, &variables, sizeof ctx);
    expect_ok(td_amp_env_read(setting_value, ctx, &env));
    const char *tf = text_at(row, 1), *mode = text_at(row, 2);
    setting s = { .name = text_at(row, 0) };
    s.lists.rule = strcmp(tf, "2.21") == 0   ? TD_AMP_RULE_CURRENT
                   : strcmp(tf, "2.15") == 0 ? TD_AMP_RULE_2_15
                                             : TD_AMP_RULE_CLASSIC;
    s.lists.mode = strcmp(mode, "fp16") == 0   ? TD_AMP_MODE_FP16
                   : strcmp(mode, "bf16") == 0 ? TD_AMP_MODE_BF16
                                               : TD_AMP_MODE_CPU;
    s.lists.level = env.level;
    s.lists.allow = env.allow;
    s.lists.infer = env.infer;
    s.lists.deny = env.deny;
    s.lists.clear = env.clear;
    s.is_emulated = s.lists.mode == TD_AMP_MODE_CPU && env.emulate != TD_AMP_OFF;
    return s;
}

static setting find_setting(const char *name)
{
    const td_json *all = td_json_get(doc, "settings");
    for (size_t i = 0; i < td_json_count(all); i++)
        if (strcmp(text_at(td_json_at(all, i), 0), name) == 0)
            return read_setting(td_json_at(all, i));
    fail_msg("no setting '%s'", name);
    return (setting){ 0 };
}

/* What a run changes in the description: classes, eligibility, support. */
static void apply(graph *w, const setting *s, const td_amp_lists *lists, const char *support)
{
    static const int digit_of[] = {
        [TD_AMP_MODE_FP16] = 0, [TD_AMP_MODE_BF16] = 1, [TD_AMP_MODE_CPU] = 2
    };
    const char *device = s->lists.mode == TD_AMP_MODE_FP16 ? "GPU" : "CPU";
    for (int i = 0; i < w->g.n_nodes; i++) {
        w->nodes[i].class = td_amp_lists_class(lists, w->ops[i]);
        w->nodes[i].is_eligible =
            !w->is_preserved[i] && (!w->pinned[i][0] || strcmp(w->pinned[i], device) == 0);
    }
    for (int v = 0; v < w->g.n_vertices; v++) {
        char digit = w->support[v][digit_of[s->lists.mode]];
        w->vertices[v].type_ok = digit >= '1';
        w->vertices[v].kernel_ok = digit >= '2';
    }
    for (const char *at = support; *at;) {
        int v = number(&at);
        expect_char(&at, ':');
        char digit = at[digit_of[s->lists.mode]];
        w->vertices[v].type_ok = digit >= '1';
        w->vertices[v].kernel_ok = digit >= '2';
        at += 3;
        at += *at == ' ';
    }
}

/* --- ours as the text of the file ------------------------------------------------------------- */

static const td_amp_propagate_result *sorted_of;

static int by_name(const void *a, const void *b)
{
    return strcmp(sorted_of->casts[*(const int *)a].name, sorted_of->casts[*(const int *)b].name);
}

static void add_end(td_text *t, const td_amp_end *e, const int *rank)
{
    if (e->cast >= 0)
        td_text_add(t, "c%d:%d", rank[e->cast], e->port);
    else
        td_text_add(t, "%d:%d", e->node, e->port);
}

/* The number in a cast's name; the rest of the name must be what it has to be. */
static int number_in_name(const graph *w, const setting *s, const td_amp_propagate_result *r,
                          const td_amp_cast *c)
{
    const char *source = c->from.cast >= 0 ? r->casts[c->from.cast].name : w->names[c->from.node];
    const char *half = s->lists.mode == TD_AMP_MODE_BF16 ? "Bf16" : "Fp16";
    char head[512], tail[64];
    snprintf(head, sizeof head, "%s-%d-CastTo%s-", source, c->from.port,
             c->is_to_half ? half : "Fp32");
    if (!td_text_starts(c->name, head))
        fail_msg("cast '%s', wanted '%s...'", c->name, head);
    const char *rest = c->name + strlen(head);
    int k = 0;
    if (s->lists.rule == TD_AMP_RULE_CLASSIC) {
        assert_string_equal(rest, "AutoMixedPrecision");
    } else {
        k = number(&rest);
        snprintf(tail, sizeof tail, "-AutoMixedPrecision");
        assert_string_equal(rest, tail);
    }
    return k;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Consumers: casts by rank, then ports in graph order. */
static void add_users(td_text *t, const td_amp_cast *c, const int *rank)
{
    int *casts = room((size_t)c->n_to, sizeof *casts), n = 0;
    for (int i = 0; i < c->n_to; i++)
        if (c->to[i].cast >= 0)
            casts[n++] = rank[c->to[i].cast];
    qsort(casts, (size_t)n, sizeof *casts, by_number);
    for (int i = 0; i < n; i++)
        td_text_add(t, " c%d:0", casts[i]);
    for (int i = 0; i < c->n_to; i++)
        if (c->to[i].cast < 0)
            td_text_add(t, " %d:%d", c->to[i].node, c->to[i].port);
    td_free(casts);
}

static void add_casts(td_text *t, const graph *w, const setting *s,
                      const td_amp_propagate_result *r)
{
    size_t n = (size_t)r->n_casts;
    int *order = room(n + 1, sizeof *order), *rank = room(n + 1, sizeof *rank);
    for (int i = 0; i < r->n_casts; i++)
        order[i] = i;
    sorted_of = r;
    qsort(order, n, sizeof *order, by_name);
    for (int i = 0; i < r->n_casts; i++)
        rank[order[i]] = i;
    for (int i = 0; i < r->n_casts; i++) {
        const td_amp_cast *c = &r->casts[order[i]];
        int k = number_in_name(w, s, r, c);
        td_text_add(t, "%s", i ? ";" : "");
        add_end(t, &c->from, rank);
        td_text_add(t, ">%s", c->is_to_half ? "h" : "f");
        if (k)
            td_text_add(t, "%d", k);
        add_users(t, c, rank);
    }
    td_free(order);
    td_free(rank);
}

/* --- oddities --------------------------------------------------------------------------------- */

/* What differs, on purpose, from the file: one vertex, the casts, two of the counts. */
typedef struct {
    const char *graph, *runs; /* runs: a pattern */
    int vertex;               /* '.' here, `letter` in the file */
    char letter;
    const char *casts;
    int converted, counted; /* added to the counts of the statistics line */
} oddity;

static const oddity oddities[] = {
    /* cst3 is fetched: it stays float32, and one more cast goes behind it */
    { "syn_existing_cast_mixed", "*UNSAFE_FORCE_ALL", 8, 'K', "11:0>f 13:0;4:0>h 8:1", -1, 1 },
    { "syn_existing_cast_mixed", "*", 8, 'K',
      "11:0>f 13:0;2:0>h 7:1;4:0>h 8:1;6:0>h 11:1;9:0>h 10:1", -1, 1 },
    /* bn1.U stays float32: its scale is cast, its other parameters (constants) are not */
    { "syn_scale_low", "*bf16", 16, 'F',
      "2:0>h 4:0;4:0>f 9:1 14:1;15:0>f 16:0;3:0>h 4:1;0:0>h 5:0;1:0>h 5:1 10:1 15:1", -1, 0 },
};

/* The oddity that a row shows, or NULL. */
static const oddity *find_oddity(const char *graph_name, const char *run, const char *letters)
{
    for (size_t i = 0; i < sizeof oddities / sizeof *oddities; i++) {
        const oddity *o = &oddities[i];
        if (strcmp(o->graph, graph_name) == 0 && td_text_glob(o->runs, run) &&
            letters[o->vertex] == o->letter)
            return o;
    }
    return NULL;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* What the file says of a run: a text, or the number of the row above that has it. */
static const char *cell(const td_json *rows, size_t row, size_t column)
{
    const td_json *at = td_json_at(td_json_at(rows, row), column);
    if (td_json_kind_of(at) == TD_JSON_INT) {
        int64_t other;
        expect_ok(td_json_as_int(at, &other));
        at = td_json_at(td_json_at(rows, (size_t)other), column);
    }
    const char *text;
    expect_ok(td_json_as_text(at, &text));
    return text;
}

/* "5.2D" as ".....DD" */
static void expand_runs(td_text *t, const char *packed)
{
    while (*packed) {
        int n = isdigit((unsigned char)*packed) ? number(&packed) : 1;
        for (int i = 0; i < n; i++)
            td_text_add_bytes(t, packed, 1);
        packed++;
    }
}

/* "0 3,12,18,4": messages by number, with the numbers in them. */
static void expand_log(td_text *t, const char *packed, const oddity *odd)
{
    const td_json *all = td_json_get(doc, "messages");
    while (*packed) {
        const char *text = text_at(all, (size_t)number(&packed));
        for (int k = 0; *text; text++) {
            if (*text != '%') {
                td_text_add_bytes(t, text, 1);
                continue;
            }
            expect_char(&packed, ',');
            int change = !odd ? 0 : k == 0 ? odd->converted : k == 2 ? odd->counted : 0;
            td_text_add(t, "%d", number(&packed) + change);
            k++;
        }
        td_text_add(t, "\n");
        packed += *packed == ' ';
    }
}

static struct {
    int graphs, runs, failed, vertices, casts, messages, oddities;
    int wrong_colours, wrong_casts, wrong_messages, wrong_graphs;
} total;

static bool same(const char *name, const char *run, const char *what, const char *found,
                 const char *wanted)
{
    if (strcmp(found, wanted) == 0)
        return true;
    print_error("%s %s: %s\n  found  %s\n  wanted %s\n", name, run, what, found, wanted);
    return false;
}

static bool check_result(const graph *w, const setting *s, const td_amp_propagate_result *r,
                         const char *name, const char *const wanted[3])
{
    td_text colours = { 0 }, casts = { 0 }, log = { 0 }, wanted_log = { 0 };
    expand_runs(&colours, wanted[0]);
    const oddity *odd = find_oddity(name, s->name, td_text_get(&colours));
    if (odd)
        colours.data[odd->vertex] = '.';
    add_casts(&casts, w, s, r);
    for (int i = 0; i < r->n_messages; i++)
        td_text_add(&log, "%s\n", r->messages[i]);
    expand_log(&wanted_log, wanted[2], odd);
    bool ok[3] = {
        same(name, s->name, "colours", r->colour, td_text_get(&colours)),
        same(name, s->name, "casts", td_text_get(&casts), odd ? odd->casts : wanted[1]),
        same(name, s->name, "messages", td_text_get(&log), td_text_get(&wanted_log)),
    };
    total.oddities += odd != NULL;
    total.wrong_colours += !ok[0];
    total.wrong_casts += !ok[1];
    total.wrong_messages += !ok[2];
    td_text_release(&colours);
    td_text_release(&casts);
    td_text_release(&log);
    td_text_release(&wanted_log);
    return ok[0] && ok[1] && ok[2];
}

/* --- runs ------------------------------------------------------------------------------------- */

static void check_run(graph *w, const char *name, const td_json *rows, size_t row, bool *ok)
{
    setting s = find_setting(cell(rows, row, 0));
    const char *wanted[3] = { cell(rows, row, 1), cell(rows, row, 2), cell(rows, row, 3) };
    td_amp_lists *lists;
    expect_ok(td_amp_lists_new(&s.lists, &lists));
    apply(w, &s, lists, cell(rows, row, 4));
    td_amp_propagate_opts o = { .rule = s.lists.rule,
                                .mode = s.lists.mode,
                                .level = s.lists.level,
                                .is_emulated = s.is_emulated };
    o.conflict = td_amp_lists_conflicts(lists, &o.n_conflicts);
    td_amp_propagate_result r;
    expect_ok(td_amp_propagate(&w->g, &o, &r));
    *ok = check_result(w, &s, &r, name, wanted) && *ok;
    total.runs++;
    total.failed += r.is_failed;
    total.casts += r.n_casts;
    total.messages += r.n_messages;
    for (int v = 0; v < w->g.n_vertices; v++)
        total.vertices += r.colour[v] != '-';
    td_amp_propagate_release(&r);
    td_amp_lists_free(lists);
}

static void test_graphs(void **state)
{
    (void)state;
    const td_json *graphs = td_golden_rows(doc, "graphs");
    for (size_t i = 0; i < td_json_count(graphs); i++) {
        const td_json *j = td_json_at(graphs, i), *rows = td_golden_rows(j, "runs");
        graph w = read_graph(j);
        bool ok = true;
        for (size_t row = 0; row < td_json_count(rows); row++)
            check_run(&w, td_golden_text(j, "name"), rows, row, &ok);
        total.graphs++;
        total.wrong_graphs += !ok;
        free_graph(&w);
    }
    printf("amp: %d graphs, %d runs (%d given up, %d with an oddity), %d float32 vertices, "
           "%d casts, %d messages; "
           "differing: %d graphs, %d runs' colours, %d runs' casts, %d runs' messages\n",
           total.graphs, total.runs, total.failed, total.oddities, total.vertices, total.casts,
           total.messages, total.wrong_graphs, total.wrong_colours, total.wrong_casts,
           total.wrong_messages);
    assert_int_equal(total.wrong_graphs, 0);
    assert_int_equal(total.graphs, td_json_count(graphs));
    assert_true(total.runs >= total.graphs && total.vertices > 0 && total.casts > 0);
}

/* --- lists ------------------------------------------------------------------------------------ */

typedef struct {
    const char *names[256];
    int n;
} name_list;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* "-Exp": taken out, "+Exp": put in */
static void change(name_list *l, const char *name)
{
    if (*name == '+') {
        assert_true(l->n < 256);
        l->names[l->n++] = name + 1;
        return;
    }
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->names[i], name + 1) == 0) {
            l->names[i] = l->names[--l->n];
            return;
        }
    fail_msg("'%s' is not in the list", name);
}

/* Row i of lists.json, which starts from an earlier row or from nothing. */
static void read_lists(const td_json *rows, int i, name_list lists[4])
{
    int64_t chain[64], n = 0;
    for (int64_t at = i; at >= 0; n++) {
        assert_true(n < 64);
        chain[n] = at;
        expect_ok(td_json_as_int(td_json_at(td_json_at(rows, (size_t)at), 1), &at));
    }
    memset(lists, 0, 4 * sizeof *lists);
    while (n > 0) {
        const td_json *row = td_json_at(rows, (size_t)chain[--n]);
        for (size_t k = 0; k < 4; k++) {
            const td_json *names = td_json_at(row, k + 2);
            for (size_t j = 0; j < td_json_count(names); j++)
                change(&lists[k], text_at(names, j));
        }
    }
    for (int k = 0; k < 4; k++)
        qsort(lists[k].names, (size_t)lists[k].n, sizeof *lists[k].names, by_text);
}

static void test_lists(void **state)
{
    (void)state;
    static const td_amp which[] = { TD_AMP_ALLOW, TD_AMP_INFER, TD_AMP_DENY, TD_AMP_CLEAR };
    td_json *rows = td_golden_json(PART, "lists.json");
    int n_names = 0;
    for (int i = 0; i < (int)td_json_count(rows); i++) {
        name_list wanted[4];
        read_lists(rows, i, wanted);
        setting s = find_setting(text_at(td_json_at(rows, (size_t)i), 0));
        td_amp_lists *lists;
        expect_ok(td_amp_lists_new(&s.lists, &lists));
        expect_ok(td_amp_lists_check(lists));
        for (int k = 0; k < 4; k++) {
            int n;
            const char *const *names = td_amp_lists_names(lists, which[k], &n);
            for (int j = 0; j < n && j < wanted[k].n; j++)
                if (strcmp(names[j], wanted[k].names[j]) != 0)
                    fail_msg("%s, list %d: found '%s', wanted '%s'", s.name, k, names[j],
                             wanted[k].names[j]);
            assert_int_equal(n, wanted[k].n);
            n_names += n;
        }
        td_amp_lists_free(lists);
    }
    printf("amp: lists of %zu runs, %d names agree\n", td_json_count(rows), n_names);
    assert_true(n_names > 0);
    td_json_free(rows);
}

static int set_up(void **state)
{
    (void)state;
    doc = td_golden_json(PART, "graphs.json");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    td_json *owned;
    memcpy(&owned, &doc, sizeof owned);
    td_json_free(owned);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_graphs),
    };
    td_golden_require(PART);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
