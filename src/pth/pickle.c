/*
 * pickle.c -- interprets pickles with a table of opcodes
 *
 *     stack   [ a ][ b ] (mark) [ c ][ d ]     TUPLE pops c, d and the mark, pushes (c, d)
 *     memo    number -> value                  BINPUT 7 stores the top, BINGET 7 pushes it again
 *
 * The opcodes of protocols 2 to 4 that PyTorch writes have a function; others have at most a name
 * for the message.  An opcode without a function is an error, so INST, OBJ, EXT1, BUILD of anything
 * that could run code, and opcodes of later Python versions, have no effect.  BUILD's state is
 * dropped: it is the `_metadata` of a state_dict, or the content of an opaque value.
 *
 * Source: CPython, Lib/pickletools.py (opcodes and their arguments).
 */
#include "pth/pickle.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "pth/pickle_names.h"

enum {
    VALUES_MAX = 1000000, /* a ResNet-152 with its optimiser has about 60,000 */
    STACK_MAX = 100000,
    MEMO_MAX = 1000000,
    LINE_MAX = 256, /* maximum length of a module or a name */
};

struct td_pickle {
    td_arena values;
    td_pvalue *all; /* the newest first */
    size_t n_values;
    td_pvalue *root;
    size_t end;
};

typedef struct {
    const char *what;
    const unsigned char *bytes; /* [n] */
    size_t n, at;
    size_t op_at; /* offset of the current opcode, for messages */
    int n_protos;
    bool is_done;
    td_pvalue **stack; /* [n_stack] */
    size_t n_stack, cap_stack;
    size_t *marks; /* stack heights at the marks */
    size_t n_marks, cap_marks;
    td_pvalue **memo; /* [n_memo]; NULL: not set */
    size_t n_memo, cap_memo;
    td_pickle *p;
} machine;

/* the form of an opcode's argument */
typedef struct {
    int64_t whole;
    double real;
    td_ptext text, more;
} arg;

typedef enum {
    ARG_NONE,
    ARG_U8,
    ARG_U16,
    ARG_I32,
    ARG_U32,
    ARG_U64,
    ARG_F64,    /* big-endian */
    ARG_LONG1,  /* a length byte, then a little-endian number */
    ARG_BYTES8, /* a text, preceded by its length in 1, 4 or 8 bytes */
    ARG_BYTES32,
    ARG_BYTES64,
    ARG_LINES, /* two lines */
} arg_kind;

typedef struct {
    const char *name;
    arg_kind arg;
    td_status (*run)(machine *m, const arg *a, int param); /* NULL: an error */
    int param;
} opcode;

const char *td_pickle_kind_name(td_pickle_kind kind)
{
    static const char *const names[] = { "None",    "a boolean", "an integer", "a number",
                                         "a text",  "a tuple",   "a list",     "a dict",
                                         "a class", "a storage", "a tensor",   "an object" };
    return names[kind];
}

/* --- errors, all with the byte offset --------------------------------------------------------- */

static td_status refuse(const machine *m, td_status st, const char *why)
{
    return td_error(st, "'%s': byte %zu: %s", m->what, m->op_at, why);
}

static td_status refuse_truncated(const machine *m)
{
    return refuse(m, TD_EFORMAT, "the pickle is truncated");
}

/* formats a text from the file for a message; unprintable characters become '?' */
static void print_safe(td_ptext t, char *out, size_t room)
{
    size_t n = t.len < room - 1 ? t.len : room - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = t.bytes[i] >= ' ' && t.bytes[i] <= '~' ? t.bytes[i] : '?';
    out[n] = '\0';
}

/* --- values, stack, memo ---------------------------------------------------------------------- */

static td_status new_value(machine *m, td_pickle_kind kind, td_pvalue **out)
{
    if (m->p->n_values >= VALUES_MAX)
        return td_error(TD_ELIMIT, "'%s': byte %zu: more than %d values in a pickle", m->what,
                        m->op_at, VALUES_MAX);
    td_pvalue *v = td_arena_alloc(&m->p->values, 1, sizeof *v);
    if (!v)
        return TD_ENOMEM;
    v->kind = kind;
    v->next = m->p->all;
    m->p->all = v;
    m->p->n_values++;
    *out = v;
    return TD_OK;
}

static td_status push(machine *m, td_pvalue *v)
{
    if (m->n_stack >= STACK_MAX)
        return td_error(TD_ELIMIT, "'%s': byte %zu: more than %d values on a pickle's stack",
                        m->what, m->op_at, STACK_MAX);
    TD_TRY(td_reserve(&m->stack, &m->cap_stack, m->n_stack + 1, sizeof *m->stack));
    m->stack[m->n_stack++] = v;
    return TD_OK;
}

static td_status push_new(machine *m, td_pickle_kind kind, td_pvalue **out)
{
    TD_TRY(new_value(m, kind, out));
    return push(m, *out);
}

/* checks that the `n` topmost values are above the last mark */
static td_status need(const machine *m, size_t n)
{
    size_t floor = m->n_marks ? m->marks[m->n_marks - 1] : 0;
    return m->n_stack - floor >= n ? TD_OK : refuse(m, TD_EFORMAT, "the stack is too short");
}

static td_pvalue *top(const machine *m)
{
    return m->stack[m->n_stack - 1];
}

static td_status pop_mark(machine *m, size_t *height)
{
    if (m->n_marks == 0)
        return refuse(m, TD_EFORMAT, "no mark on the stack");
    *height = m->marks[--m->n_marks];
    return TD_OK;
}

/* moves all values above `height` to the end of a list */
static td_status take(machine *m, size_t height, td_plist *to)
{
    size_t n = m->n_stack - height;
    TD_TRY(td_reserve(&to->at, &to->cap, to->n + n, sizeof *to->at));
    if (n)
        memcpy(to->at + to->n, m->stack + height, n * sizeof *to->at);
    to->n += n;
    m->n_stack = height;
    return TD_OK;
}

static td_status put_memo(machine *m, int64_t number)
{
    TD_TRY(need(m, 1));
    if (number >= MEMO_MAX)
        return td_error(TD_ELIMIT, "'%s': byte %zu: memo number %lld, at most %d are read", m->what,
                        m->op_at, (long long)number, MEMO_MAX);
    size_t n = (size_t)number + 1;
    TD_TRY(td_reserve(&m->memo, &m->cap_memo, n, sizeof *m->memo));
    while (m->n_memo < n)
        m->memo[m->n_memo++] = NULL;
    m->memo[number] = top(m);
    return TD_OK;
}

/* --- opcodes ---------------------------------------------------------------------------------- */

static td_status run_proto(machine *m, const arg *a, int param)
{
    (void)param;
    if (m->n_protos++ > 0)
        return refuse(m, TD_EFORMAT, "a second protocol number");
    if (a->whole < 2 || a->whole > 5)
        return td_error(TD_EUNSUPPORTED, "'%s': byte %zu: pickle protocol is %lld, wanted 2 to 5",
                        m->what, m->op_at, (long long)a->whole);
    return TD_OK;
}

/* ignored: a frame only gives the size to read ahead */
static td_status run_nothing(machine *m, const arg *a, int param)
{
    (void)m, (void)a, (void)param;
    return TD_OK;
}

static td_status run_stop(machine *m, const arg *a, int param)
{
    (void)a, (void)param;
    if (m->n_marks != 0 || m->n_stack != 1)
        return refuse(m, TD_EFORMAT, "the pickle does not end with a single value");
    m->is_done = true;
    return TD_OK;
}

static td_status run_mark(machine *m, const arg *a, int param)
{
    (void)a, (void)param;
    if (m->n_marks >= STACK_MAX)
        return td_error(TD_ELIMIT, "'%s': byte %zu: more than %d marks on a pickle's stack",
                        m->what, m->op_at, STACK_MAX);
    TD_TRY(td_reserve(&m->marks, &m->cap_marks, m->n_marks + 1, sizeof *m->marks));
    m->marks[m->n_marks++] = m->n_stack;
    return TD_OK;
}

static td_status run_pop(machine *m, const arg *a, int param)
{
    (void)a, (void)param;
    TD_TRY(need(m, 1));
    m->n_stack--;
    return TD_OK;
}

/* None, {}, [], (), set() */
static td_status run_empty(machine *m, const arg *a, int param)
{
    td_pvalue *v;
    (void)a;
    return push_new(m, (td_pickle_kind)param, &v);
}

static td_status run_bool(machine *m, const arg *a, int param)
{
    td_pvalue *v;
    (void)a;
    TD_TRY(push_new(m, TD_PICKLE_BOOL, &v));
    v->whole = param;
    return TD_OK;
}

static td_status run_int(machine *m, const arg *a, int param)
{
    td_pvalue *v;
    (void)param;
    TD_TRY(push_new(m, TD_PICKLE_INT, &v));
    v->whole = a->whole;
    return TD_OK;
}

static td_status run_long(machine *m, const arg *a, int param)
{
    td_pvalue *v;
    (void)param;
    /* for example a 128-bit seed, which is not needed */
    TD_TRY(push_new(m, a->text.len > 8 ? TD_PICKLE_OPAQUE : TD_PICKLE_INT, &v));
    if (v->kind == TD_PICKLE_INT)
        v->whole = a->whole;
    return TD_OK;
}

static td_status run_real(machine *m, const arg *a, int param)
{
    td_pvalue *v;
    (void)param;
    TD_TRY(push_new(m, TD_PICKLE_REAL, &v));
    v->real = a->real;
    return TD_OK;
}

static td_status run_text(machine *m, const arg *a, int param)
{
    td_pvalue *v;
    (void)param;
    TD_TRY(push_new(m, TD_PICKLE_TEXT, &v));
    v->text = a->text;
    return TD_OK;
}

static td_status push_name(machine *m, td_ptext module, td_ptext name)
{
    td_pvalue *v;
    const td_pickle_name *n = td_pickle_name_find(module, name);
    if (!n) {
        char a[LINE_MAX], b[LINE_MAX];
        print_safe(module, a, sizeof a);
        print_safe(name, b, sizeof b);
        return td_error(TD_EUNSUPPORTED,
                        "'%s': byte %zu: the name '%s.%s' is not supported; nothing in a file is "
                        "executed (a state_dict has no such names)",
                        m->what, m->op_at, a, b);
    }
    TD_TRY(push_new(m, TD_PICKLE_NAME, &v));
    v->name = n;
    return TD_OK;
}

static td_status run_global(machine *m, const arg *a, int param)
{
    (void)param;
    return push_name(m, a->text, a->more);
}

static td_status run_stack_global(machine *m, const arg *a, int param)
{
    (void)a, (void)param;
    TD_TRY(need(m, 2));
    const td_pvalue *module = m->stack[m->n_stack - 2], *name = top(m);
    if (module->kind != TD_PICKLE_TEXT || name->kind != TD_PICKLE_TEXT)
        return refuse(m, TD_EFORMAT, "a name that is not text");
    m->n_stack -= 2;
    return push_name(m, module->text, name->text);
}

static td_status run_put(machine *m, const arg *a, int param)
{
    (void)param;
    return put_memo(m, a->whole);
}

static td_status run_memoize(machine *m, const arg *a, int param)
{
    (void)a, (void)param;
    return put_memo(m, (int64_t)m->n_memo);
}

static td_status run_get(machine *m, const arg *a, int param)
{
    (void)param;
    if ((uint64_t)a->whole >= m->n_memo || !m->memo[a->whole])
        return td_error(TD_EFORMAT, "'%s': byte %zu: memo number %lld was never set", m->what,
                        m->op_at, (long long)a->whole);
    return push(m, m->memo[a->whole]);
}

/* TUPLE1, 2, 3, and TUPLE, which pops back to the mark */
static td_status run_tuple(machine *m, const arg *a, int param)
{
    td_pvalue *v;
    size_t height = m->n_stack;
    (void)a;
    if (param > 0) {
        TD_TRY(need(m, (size_t)param));
        height -= (size_t)param;
    } else {
        TD_TRY(pop_mark(m, &height));
    }
    TD_TRY(new_value(m, TD_PICKLE_TUPLE, &v));
    TD_TRY(take(m, height, &v->list));
    return push(m, v);
}

/*
 * APPEND, APPENDS, ADDITEMS, SETITEM, SETITEMS: add the values above the mark, or `count` values,
 * to the list or dict under them
 */
static td_status run_add(machine *m, td_pickle_kind kind, size_t count)
{
    size_t height = 0;
    if (count > 0) {
        TD_TRY(need(m, count + 1));
        height = m->n_stack - count;
    } else {
        TD_TRY(pop_mark(m, &height));
        count = m->n_stack - height;
        m->n_stack = height;
        TD_TRY(need(m, 1));
        m->n_stack = height + count;
    }
    td_pvalue *to = m->stack[height - 1];
    if (to->kind != kind)
        return td_error(TD_EFORMAT, "'%s': byte %zu: elements for %s, wanted %s", m->what, m->op_at,
                        td_pickle_kind_name(to->kind), td_pickle_kind_name(kind));
    if (kind == TD_PICKLE_DICT && count % 2)
        return refuse(m, TD_EFORMAT, "a key without a value");
    return take(m, height, &to->list);
}

static td_status run_append(machine *m, const arg *a, int param)
{
    (void)a;
    return run_add(m, TD_PICKLE_LIST, (size_t)param);
}

static td_status run_set(machine *m, const arg *a, int param)
{
    (void)a;
    return run_add(m, TD_PICKLE_DICT, (size_t)param);
}

/* ("storage", class, key, device, elements): a storage outside the pickle */
static td_status run_persistent(machine *m, const arg *a, int param)
{
    td_pvalue *v;
    (void)a, (void)param;
    TD_TRY(need(m, 1));
    const td_pvalue *id = top(m);
    td_pvalue *const *x = id->kind == TD_PICKLE_TUPLE ? id->list.at : NULL;
    if (!x || id->list.n < 5 || id->list.n > 6 || !td_pvalue_is(x[0], "storage") ||
        x[1]->kind != TD_PICKLE_NAME || !x[1]->name->is_storage || x[2]->kind != TD_PICKLE_TEXT ||
        x[4]->kind != TD_PICKLE_INT || x[4]->whole < 0)
        return refuse(m, TD_EFORMAT, "a persistent id that is not a storage of PyTorch's");
    if (id->list.n == 6 && x[5]->kind != TD_PICKLE_NONE)
        return refuse(m, TD_EUNSUPPORTED, "a storage that is a view of another one");
    m->n_stack--;
    TD_TRY(push_new(m, TD_PICKLE_STORAGE, &v));
    v->storage = (td_pstorage){ x[1]->name, x[2]->text, x[4]->whole };
    return TD_OK;
}

/* checks that the two topmost values are a callee and its arguments */
static td_status need_call(machine *m, const td_pvalue **callee, const td_pvalue **args)
{
    TD_TRY(need(m, 2));
    *args = top(m);
    *callee = m->stack[m->n_stack - 2];
    if ((*callee)->kind != TD_PICKLE_NAME || (*args)->kind != TD_PICKLE_TUPLE)
        return td_error(TD_EFORMAT, "'%s': byte %zu: a call of %s with %s", m->what, m->op_at,
                        td_pickle_kind_name((*callee)->kind), td_pickle_kind_name((*args)->kind));
    return TD_OK;
}

static td_status run_reduce(machine *m, const arg *a, int param)
{
    const td_pvalue *callee, *args;
    td_pvalue *v;
    (void)a, (void)param;
    TD_TRY(need_call(m, &callee, &args));
    if (!callee->name->call)
        return td_error(TD_EUNSUPPORTED, "'%s': byte %zu: '%s.%s' is called", m->what, m->op_at,
                        callee->name->module, callee->name->name);
    TD_TRY(new_value(m, TD_PICKLE_NONE, &v));
    TD_TRY_MSG(callee->name->call(&args->list, v), "'%s': byte %zu", m->what, m->op_at);
    m->n_stack -= 2;
    return push(m, v);
}

static td_status run_new_object(machine *m, const arg *a, int param)
{
    const td_pvalue *callee, *args;
    td_pvalue *v;
    (void)a, (void)param;
    TD_TRY(need_call(m, &callee, &args));
    if (!callee->name->is_opaque)
        return td_error(TD_EUNSUPPORTED, "'%s': byte %zu: an object of '%s.%s'", m->what, m->op_at,
                        callee->name->module, callee->name->name);
    m->n_stack -= 2;
    return push_new(m, TD_PICKLE_OPAQUE, &v);
}

static td_status run_build(machine *m, const arg *a, int param)
{
    (void)a, (void)param;
    TD_TRY(need(m, 2));
    td_pvalue *to = m->stack[m->n_stack - 2];
    if (to->kind != TD_PICKLE_DICT && to->kind != TD_PICKLE_OPAQUE)
        return td_error(TD_EUNSUPPORTED, "'%s': byte %zu: a state for %s", m->what, m->op_at,
                        td_pickle_kind_name(to->kind));
    to->attributes = top(m);
    m->n_stack--;
    return TD_OK;
}

/* clang-format off */
static const opcode opcodes[256] = {
    [0x80] = { "PROTO",            ARG_U8,      run_proto, 0 },
    [0x95] = { "FRAME",            ARG_U64,     run_nothing, 0 },
    ['.']  = { "STOP",             ARG_NONE,    run_stop, 0 },
    ['(']  = { "MARK",             ARG_NONE,    run_mark, 0 },
    ['0']  = { "POP",              ARG_NONE,    run_pop, 0 },

    ['N']  = { "NONE",             ARG_NONE,    run_empty, TD_PICKLE_NONE },
    ['}']  = { "EMPTY_DICT",       ARG_NONE,    run_empty, TD_PICKLE_DICT },
    [']']  = { "EMPTY_LIST",       ARG_NONE,    run_empty, TD_PICKLE_LIST },
    [')']  = { "EMPTY_TUPLE",      ARG_NONE,    run_empty, TD_PICKLE_TUPLE },
    [0x8f] = { "EMPTY_SET",        ARG_NONE,    run_empty, TD_PICKLE_LIST },
    [0x88] = { "NEWTRUE",          ARG_NONE,    run_bool,  1 },
    [0x89] = { "NEWFALSE",         ARG_NONE,    run_bool,  0 },
    ['J']  = { "BININT",           ARG_I32,     run_int, 0 },
    ['K']  = { "BININT1",          ARG_U8,      run_int, 0 },
    ['M']  = { "BININT2",          ARG_U16,     run_int, 0 },
    [0x8a] = { "LONG1",            ARG_LONG1,   run_long, 0 },
    ['G']  = { "BINFLOAT",         ARG_F64,     run_real, 0 },
    ['X']  = { "BINUNICODE",       ARG_BYTES32, run_text, 0 },
    [0x8c] = { "SHORT_BINUNICODE", ARG_BYTES8,  run_text, 0 },
    [0x8d] = { "BINUNICODE8",      ARG_BYTES64, run_text, 0 },
    ['U']  = { "SHORT_BINSTRING",  ARG_BYTES8,  run_text, 0 },
    ['T']  = { "BINSTRING",        ARG_BYTES32, run_text, 0 },
    ['C']  = { "SHORT_BINBYTES",   ARG_BYTES8,  run_text, 0 },
    ['B']  = { "BINBYTES",         ARG_BYTES32, run_text, 0 },

    ['q']  = { "BINPUT",           ARG_U8,      run_put, 0 },
    ['r']  = { "LONG_BINPUT",      ARG_U32,     run_put, 0 },
    [0x94] = { "MEMOIZE",          ARG_NONE,    run_memoize, 0 },
    ['h']  = { "BINGET",           ARG_U8,      run_get, 0 },
    ['j']  = { "LONG_BINGET",      ARG_U32,     run_get, 0 },

    ['t']  = { "TUPLE",            ARG_NONE,    run_tuple,  0 },
    [0x85] = { "TUPLE1",           ARG_NONE,    run_tuple,  1 },
    [0x86] = { "TUPLE2",           ARG_NONE,    run_tuple,  2 },
    [0x87] = { "TUPLE3",           ARG_NONE,    run_tuple,  3 },
    ['a']  = { "APPEND",           ARG_NONE,    run_append, 1 },
    ['e']  = { "APPENDS",          ARG_NONE,    run_append, 0 },
    [0x90] = { "ADDITEMS",         ARG_NONE,    run_append, 0 },
    ['s']  = { "SETITEM",          ARG_NONE,    run_set,    2 },
    ['u']  = { "SETITEMS",         ARG_NONE,    run_set,    0 },

    ['c']  = { "GLOBAL",           ARG_LINES,   run_global, 0 },
    [0x93] = { "STACK_GLOBAL",     ARG_NONE,    run_stack_global, 0 },
    ['Q']  = { "BINPERSID",        ARG_NONE,    run_persistent, 0 },
    ['R']  = { "REDUCE",           ARG_NONE,    run_reduce, 0 },
    [0x81] = { "NEWOBJ",           ARG_NONE,    run_new_object, 0 },
    ['b']  = { "BUILD",            ARG_NONE,    run_build, 0 },

    /* these are errors; listed for their names */
    ['i']  = { .name = "INST" },      ['o']  = { .name = "OBJ" },
    [0x82] = { .name = "EXT1" },      [0x83] = { .name = "EXT2" },
    [0x84] = { .name = "EXT4" },      [0x92] = { .name = "NEWOBJ_EX" },
    ['P']  = { .name = "PERSID" },    [0x97] = { .name = "NEXT_BUFFER" },
    [0x98] = { .name = "READONLY_BUFFER" }, [0x96] = { .name = "BYTEARRAY8" },
    ['I']  = { .name = "INT" },       ['L']  = { .name = "LONG" },
    ['S']  = { .name = "STRING" },    ['V']  = { .name = "UNICODE" },
    ['F']  = { .name = "FLOAT" },     ['l']  = { .name = "LIST" },
    ['d']  = { .name = "DICT" },      ['p']  = { .name = "PUT" },
    ['g']  = { .name = "GET" },       ['1']  = { .name = "POP_MARK" },
    ['2']  = { .name = "DUP" },       [0x8b] = { .name = "LONG4" },
    [0x8e] = { .name = "BINBYTES8" }, [0x91] = { .name = "FROZENSET" },
};
/* clang-format on */

/* --- arguments -------------------------------------------------------------------------------- */

static td_status read_number(machine *m, size_t n, uint64_t *out)
{
    *out = 0;
    if (m->n - m->at < n)
        return refuse_truncated(m);
    *out = td_get_le(m->bytes + m->at, (int)n);
    m->at += n;
    return TD_OK;
}

static td_status read_text(machine *m, uint64_t len, td_ptext *out)
{
    if (len > m->n - m->at)
        return refuse_truncated(m);
    *out = (td_ptext){ (const char *)m->bytes + m->at, (size_t)len };
    m->at += (size_t)len;
    return TD_OK;
}

static td_status read_counted(machine *m, size_t n_length, td_ptext *out)
{
    uint64_t len;
    TD_TRY(read_number(m, n_length, &len));
    return read_text(m, len, out);
}

static td_status read_line(machine *m, td_ptext *out)
{
    size_t left = m->n - m->at, room = left < LINE_MAX ? left : LINE_MAX;
    const unsigned char *from = m->bytes + m->at, *end = room ? memchr(from, '\n', room) : NULL;
    if (!end && room < LINE_MAX)
        return refuse_truncated(m);
    if (!end)
        return td_error(TD_ELIMIT, "'%s': byte %zu: a name of more than %d bytes", m->what,
                        m->op_at, LINE_MAX - 1);
    *out = (td_ptext){ (const char *)from, (size_t)(end - from) };
    m->at += out->len + 1;
    return TD_OK;
}

static td_status read_real(machine *m, double *out)
{
    uint64_t little, bits = 0;
    TD_TRY(read_number(m, 8, &little));
    for (int i = 0; i < 8; i++, little >>= 8)
        bits = bits << 8 | (little & 255);
    memcpy(out, &bits, sizeof *out);
    return TD_OK;
}

/* two's complement with text.len bytes; only up to 8 bytes become a number */
static td_status read_long(machine *m, arg *a)
{
    uint64_t x = 0;
    TD_TRY(read_counted(m, 1, &a->text));
    if (a->text.len > 8 || a->text.len == 0)
        return TD_OK;
    if (a->text.bytes[a->text.len - 1] & 0x80)
        x = UINT64_MAX;
    for (size_t i = a->text.len; i-- > 0;)
        x = x << 8 | (unsigned char)a->text.bytes[i];
    a->whole = (int64_t)x;
    return TD_OK;
}

static td_status read_arg(machine *m, arg_kind kind, arg *a)
{
    static const struct {
        unsigned char n_number, n_length;
    } sizes[] = { [ARG_U8] = { 1, 0 },      [ARG_U16] = { 2, 0 },     [ARG_I32] = { 4, 0 },
                  [ARG_U32] = { 4, 0 },     [ARG_U64] = { 8, 0 },     [ARG_BYTES8] = { 0, 1 },
                  [ARG_BYTES32] = { 0, 4 }, [ARG_BYTES64] = { 0, 8 }, [ARG_LINES] = { 0, 0 } };
    uint64_t x = 0;

    if (kind == ARG_LINES) {
        TD_TRY(read_line(m, &a->text));
        return read_line(m, &a->more);
    }
    if (kind == ARG_F64)
        return read_real(m, &a->real);
    if (kind == ARG_LONG1)
        return read_long(m, a);
    if (sizes[kind].n_length)
        return read_counted(m, sizes[kind].n_length, &a->text);
    TD_TRY(read_number(m, sizes[kind].n_number, &x));
    a->whole = kind == ARG_I32 ? (int64_t)(int32_t)(uint32_t)x : (int64_t)x;
    return TD_OK;
}

/* --- the main loop ---------------------------------------------------------------------------- */

static td_status step(machine *m)
{
    arg a = { 0 };
    m->op_at = m->at;
    if (m->at >= m->n)
        return refuse_truncated(m);
    const unsigned char code = m->bytes[m->at++];
    const opcode *op = &opcodes[code];
    if (!op->run)
        return td_error(TD_EUNSUPPORTED,
                        "'%s': byte %zu: the pickle opcode %s (0x%02x) is not supported; nothing "
                        "in a file is executed",
                        m->what, m->op_at, op->name ? op->name : "without a name", code);
    TD_TRY(read_arg(m, op->arg, &a));
    return op->run(m, &a, op->param);
}

td_status td_pickle_load(const void *bytes, size_t n_bytes, size_t at, const char *what,
                         td_pickle **out)
{
    td_status st = TD_OK;
    machine m = { .what = what, .bytes = bytes, .n = n_bytes, .at = at };

    *out = NULL;
    m.p = TD_NEW(td_pickle);
    if (!m.p)
        return TD_ENOMEM;
    while (!m.is_done)
        TD_OUT(step(&m));
    m.p->root = m.stack[0];
    m.p->end = m.at;
    *out = m.p;
    m.p = NULL;
out:
    td_free(m.stack);
    td_free(m.marks);
    td_free(m.memo);
    td_pickle_free(m.p);
    return st;
}

static bool has_list(const td_pvalue *v)
{
    return v->kind == TD_PICKLE_TUPLE || v->kind == TD_PICKLE_LIST || v->kind == TD_PICKLE_DICT;
}

void td_pickle_free(td_pickle *p)
{
    if (!p)
        return;
    for (td_pvalue *v = p->all; v; v = v->next)
        if (has_list(v))
            td_free(v->list.at);
    td_arena_release(&p->values);
    td_free(p);
}

const td_pvalue *td_pickle_root(const td_pickle *p)
{
    return p->root;
}

const td_pvalue *td_pickle_values(const td_pickle *p)
{
    return p->all;
}

size_t td_pickle_end(const td_pickle *p)
{
    return p->end;
}

bool td_pvalue_is(const td_pvalue *v, const char *text)
{
    return v->kind == TD_PICKLE_TEXT && v->text.len == strlen(text) &&
           memcmp(v->text.bytes, text, v->text.len) == 0;
}

const td_pvalue *td_pickle_get(const td_pvalue *dict, const char *key)
{
    const td_pvalue *found = NULL;
    if (dict->kind != TD_PICKLE_DICT)
        return NULL;
    for (size_t i = 0; i + 1 < dict->list.n; i += 2)
        if (td_pvalue_is(dict->list.at[i], key))
            found = dict->list.at[i + 1];
    return found;
}
