/*
 * yaml.c -- builds a tree in one arena from libyaml's events
 *
 * Aliases are pointers, so a document of a few lines may expand to billions of nodes ("billion
 * laughs").  Every node therefore has a weight, its number of nodes after expansion; it is known
 * when the node closes, and parsing fails if it exceeds WEIGHT_MAX.
 */
#include "base/yaml.h"

#include <string.h>
#include <yaml.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

#define TEXT_MAX   ((size_t)1 << 20)
#define DEPTH_MAX  32
#define MEMBER_MAX 1000
#define WEIGHT_MAX 100000

typedef struct {
    const char *key; /* NULL in a list */
    int line;        /* of the key */
    td_yaml *node;
} member;

struct td_yaml {
    td_yaml_kind kind;
    int line;
    bool is_plain; /* TEXT without quotes */
    bool is_open;  /* its end has not been read yet */
    size_t weight;
    const char *text;
    member *members;
    size_t n, cap;
    td_arena *arena; /* the document's arena, which is in its root */
};

typedef struct anchor {
    const char *name;
    td_yaml *node;
    struct anchor *next;
} anchor;

typedef struct {
    const char *what;
    td_arena *arena;
    td_yaml *root;
    anchor *anchors; /* the latest first */
    td_yaml *stack[DEPTH_MAX];
    const char *key[DEPTH_MAX]; /* key of the map at that depth that has no value yet */
    int key_line[DEPTH_MAX];
    int depth;
    size_t n_copied; /* total of members copied by merges */
} builder;

static td_status bad(const builder *b, int line, const char *problem, const char *word)
{
    return td_error(TD_EFORMAT, "%s: line %d: %s%s%s%s", b->what, line, problem, word ? " '" : "",
                    word ? word : "", word ? "'" : "");
}

static td_status too_much(const builder *b, int line, const char *problem, size_t limit)
{
    return td_error(TD_ELIMIT, "%s: line %d: %s, the limit is %zu", b->what, line, problem, limit);
}

static int line_of(const yaml_event_t *e)
{
    return (int)e->start_mark.line + 1;
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* NULL: no memory */
static td_yaml *new_node(builder *b, td_yaml_kind kind, int line)
{
    td_yaml *node = td_arena_alloc(b->arena, 1, sizeof *node);
    if (node)
        *node =
            (td_yaml){ .kind = kind, .line = line, .weight = 1, .is_open = kind != TD_YAML_TEXT };
    return node;
}

/* makes room for one more; an arena cannot resize, so the old array stays allocated */
static td_status grow(builder *b, td_yaml *parent)
{
    if (parent->n < parent->cap)
        return TD_OK;
    size_t cap = parent->cap ? 2 * parent->cap : 8;
    member *wider = td_arena_alloc(b->arena, cap, sizeof *wider);
    if (!wider)
        return TD_ENOMEM;
    if (parent->n)
        memcpy(wider, parent->members, parent->n * sizeof *wider);
    parent->members = wider;
    parent->cap = cap;
    return TD_OK;
}

static size_t find(const td_yaml *map, const char *key)
{
    size_t i = 0;
    while (i < map->n && strcmp(map->members[i].key, key) != 0)
        i++;
    return i;
}

static td_status append(builder *b, td_yaml *parent, member m)
{
    if (parent->kind == TD_YAML_MAP && parent->n >= MEMBER_MAX)
        return too_much(b, m.line, "too many members in one map", MEMBER_MAX);
    TD_CHECK(m.node);
    TD_TRY(grow(b, parent));
    parent->members[parent->n++] = m;
    parent->weight += m.node->weight;
    if (parent->weight > WEIGHT_MAX)
        return too_much(b, m.line, "aliases expand to too many nodes", WEIGHT_MAX);
    return TD_OK;
}

/* --- merges: "<<: *base", "<<: [*one, *two]" ------------------------------------------------- */

/* copies members of `from` that `into` lacks */
static td_status merge_map(builder *b, td_yaml *into, const td_yaml *from, int line)
{
    if (from->kind != TD_YAML_MAP)
        return bad(b, line, "only maps can be merged by", "<<");
    for (size_t i = 0; i < from->n; i++) {
        if (++b->n_copied > WEIGHT_MAX)
            return too_much(b, line, "merges copy too many members", WEIGHT_MAX);
        if (find(into, from->members[i].key) == into->n)
            TD_TRY(append(b, into, from->members[i]));
    }
    return TD_OK;
}

/* applies the merges of a map whose own members are complete */
static td_status merge(builder *b, td_yaml *map)
{
    size_t at = find(map, "<<");
    if (at == map->n)
        return TD_OK;
    member m = map->members[at];
    map->weight -= m.node->weight;
    map->n--;
    memmove(map->members + at, map->members + at + 1, (map->n - at) * sizeof *map->members);
    if (m.node->kind != TD_YAML_LIST)
        return merge_map(b, map, m.node, m.line);
    for (size_t i = 0; i < m.node->n; i++)
        TD_TRY(merge_map(b, map, m.node->members[i].node, m.line));
    return TD_OK;
}

/* --- events ----------------------------------------------------------------------------------- */

/* adds a finished or opened node to the innermost open node */
static td_status place(builder *b, td_yaml *node, int line)
{
    if (b->depth == 0) {
        b->root = node;
        return TD_OK;
    }
    int top = b->depth - 1;
    td_yaml *parent = b->stack[top];
    if (parent->kind == TD_YAML_LIST)
        return append(b, parent, (member){ .line = line, .node = node });
    if (b->key[top]) {
        member m = { .key = b->key[top], .line = b->key_line[top], .node = node };
        b->key[top] = NULL;
        return append(b, parent, m);
    }
    if (node->kind != TD_YAML_TEXT)
        return bad(b, line, "a key is a map or a list, wanted a scalar", NULL);
    size_t same = find(parent, node->text);
    if (same < parent->n)
        return td_error(TD_EFORMAT, "%s: line %d: key '%.60s' is repeated, first used in line %d",
                        b->what, line, node->text, parent->members[same].line);
    b->key[top] = node->text;
    b->key_line[top] = line;
    return TD_OK;
}

static td_status add_anchor(builder *b, const yaml_char_t *name, td_yaml *node)
{
    if (!name)
        return TD_OK;
    anchor *a = td_arena_alloc(b->arena, 1, sizeof *a);
    if (!a)
        return TD_ENOMEM;
    a->name = td_arena_text(b->arena, (const char *)name);
    a->node = node;
    a->next = b->anchors;
    b->anchors = a;
    return a->name ? TD_OK : TD_ENOMEM;
}

static td_status check_tag(const builder *b, const yaml_char_t *tag, int line)
{
    static const char *const known[] = { "!",
                                         "tag:yaml.org,2002:str",
                                         "tag:yaml.org,2002:int",
                                         "tag:yaml.org,2002:float",
                                         "tag:yaml.org,2002:bool",
                                         "tag:yaml.org,2002:null",
                                         "tag:yaml.org,2002:map",
                                         "tag:yaml.org,2002:seq" };
    if (!tag)
        return TD_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp((const char *)tag, known[i]) == 0)
            return TD_OK;
    return td_error(TD_EFORMAT, "%s: line %d: the tag '%.60s' is not supported", b->what, line,
                    (const char *)tag);
}

static td_status scalar(builder *b, const yaml_event_t *e)
{
    int line = line_of(e);
    const char *value = (const char *)e->data.scalar.value;
    TD_TRY(check_tag(b, e->data.scalar.tag, line));
    if (strlen(value) != e->data.scalar.length)
        return bad(b, line, "a string contains a zero byte", NULL);
    td_yaml *node = new_node(b, TD_YAML_TEXT, line);
    if (!node)
        return TD_ENOMEM;
    node->is_plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    node->text = td_arena_text(b->arena, value);
    if (!node->text)
        return TD_ENOMEM;
    TD_TRY(add_anchor(b, e->data.scalar.anchor, node));
    return place(b, node, line);
}

static td_status open(builder *b, td_yaml_kind kind, const yaml_char_t *name,
                      const yaml_char_t *tag, int line)
{
    td_yaml *node;
    TD_TRY(check_tag(b, tag, line));
    if (b->depth == DEPTH_MAX)
        return too_much(b, line, "nested too deep", DEPTH_MAX);
    if (b->depth && b->stack[b->depth - 1]->kind == TD_YAML_MAP && !b->key[b->depth - 1])
        return bad(b, line, "a key is a map or a list, wanted a scalar", NULL);
    node = new_node(b, kind, line);
    if (!node)
        return TD_ENOMEM;
    TD_TRY(add_anchor(b, name, node));
    b->key[b->depth] = NULL;
    b->stack[b->depth++] = node;
    return TD_OK;
}

static td_status close_top(builder *b)
{
    td_yaml *node = b->stack[--b->depth];
    TD_CHECK(node);
    node->is_open = false;
    if (node->kind == TD_YAML_MAP)
        TD_TRY(merge(b, node));
    return place(b, node, node->line);
}

static td_status alias(builder *b, const yaml_event_t *e)
{
    const char *name = (const char *)e->data.alias.anchor;
    const anchor *a = b->anchors;
    while (a && strcmp(a->name, name) != 0)
        a = a->next;
    if (!a)
        return bad(b, line_of(e), "undefined anchor", name);
    if (a->node->is_open)
        return bad(b, line_of(e), "an alias is inside the node that it names,", name);
    return place(b, a->node, line_of(e));
}

static td_status take(builder *b, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return scalar(b, e);
    case YAML_MAPPING_START_EVENT:
        return open(b, TD_YAML_MAP, e->data.mapping_start.anchor, e->data.mapping_start.tag,
                    line_of(e));
    case YAML_SEQUENCE_START_EVENT:
        return open(b, TD_YAML_LIST, e->data.sequence_start.anchor, e->data.sequence_start.tag,
                    line_of(e));
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        return close_top(b);
    case YAML_ALIAS_EVENT:
        return alias(b, e);
    case YAML_DOCUMENT_START_EVENT:
        return b->root ? bad(b, line_of(e), "a second document begins, wanted only one", NULL)
                       : TD_OK;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        break;
    }
    return TD_OK;
}

static td_status parser_error(const builder *b, const yaml_parser_t *p)
{
    if (p->error == YAML_MEMORY_ERROR)
        return td_error(TD_ENOMEM, "%s: out of memory while reading it", b->what);
    size_t line = p->problem_mark.line;
    return td_error(TD_EFORMAT, "%s: line %zu: %s%s%s", b->what, line + 1,
                    p->problem ? p->problem : "no YAML", p->context ? ", " : "",
                    p->context ? p->context : "");
}

static td_status read_events(builder *b, yaml_parser_t *p)
{
    for (bool is_over = false; !is_over;) {
        yaml_event_t e;
        if (!yaml_parser_parse(p, &e))
            return parser_error(b, p);
        is_over = e.type == YAML_STREAM_END_EVENT;
        td_status st = take(b, &e);
        yaml_event_delete(&e);
        TD_TRY(st);
    }
    return TD_OK;
}

static td_status build(builder *b, const char *text, size_t n)
{
    yaml_parser_t p;
    if (!yaml_parser_initialize(&p))
        return td_error(TD_ENOMEM, "%s: out of memory while reading it", b->what);
    yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, n);
    td_status st = read_events(b, &p);
    yaml_parser_delete(&p);
    if (st == TD_OK && (!b->root || td_yaml_is_null(b->root)))
        st = (b->root = new_node(b, TD_YAML_MAP, 1)) ? TD_OK : TD_ENOMEM;
    return st;
}

td_status td_yaml_parse(const char *text, size_t n, const char *what, td_yaml **out)
{
    *out = NULL;
    if (n > TEXT_MAX)
        return td_error(TD_ELIMIT, "%s: %zu bytes, the limit is %zu", what, n, TEXT_MAX);
    td_arena *arena = TD_NEW(td_arena);
    if (!arena)
        return TD_ENOMEM;
    td_arena_init(arena);
    builder b = { .what = what, .arena = arena };
    td_status st = build(&b, text, n);
    if (st == TD_OK) {
        b.root->arena = arena;
        *out = b.root;
        return TD_OK;
    }
    td_arena_release(arena);
    td_free(arena);
    return st;
}

void td_yaml_free(td_yaml *doc)
{
    if (!doc)
        return;
    td_arena *arena = doc->arena;
    td_arena_release(arena);
    td_free(arena);
}

/* --- reading ---------------------------------------------------------------------------------- */

td_yaml_kind td_yaml_kind_of(const td_yaml *y)
{
    return y->kind;
}

int td_yaml_line(const td_yaml *y)
{
    return y->line;
}

size_t td_yaml_count(const td_yaml *y)
{
    return y ? y->n : 0;
}

const td_yaml *td_yaml_member(const td_yaml *y, size_t i)
{
    return y && i < y->n ? y->members[i].node : NULL;
}

const char *td_yaml_key(const td_yaml *map, size_t i)
{
    return map && i < map->n ? map->members[i].key : NULL;
}

int td_yaml_key_line(const td_yaml *map, size_t i)
{
    return map && i < map->n ? map->members[i].line : 0;
}

const td_yaml *td_yaml_get(const td_yaml *map, const char *key)
{
    if (!map || map->kind != TD_YAML_MAP)
        return NULL;
    return td_yaml_member(map, find(map, key));
}

const char *td_yaml_text(const td_yaml *y)
{
    return y && y->kind == TD_YAML_TEXT ? y->text : NULL;
}

bool td_yaml_is_null(const td_yaml *y)
{
    const char *s = td_yaml_text(y);
    return s && y->is_plain && (*s == '\0' || strcmp(s, "~") == 0 || strcmp(s, "null") == 0);
}
