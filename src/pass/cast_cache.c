/*
 * cast_cache.c -- shares casts: one per value and type
 */
#include "pass/cast_cache.h"

#include <string.h>

struct td_cast_entry {
    td_cast_entry *next;
    td_value *value;
};

static td_cast_entry *new_entry(td_cast_cache *c, const td_value *v)
{
    size_t had = c->cap;
    if (td_reserve(&c->of, &c->cap, (size_t)v->id + 1, sizeof *c->of) != TD_OK)
        return NULL;
    if (c->cap > had)
        memset(c->of + had, 0, (c->cap - had) * sizeof(td_cast_entry *));
    return td_arena_alloc(&c->arena, 1, sizeof(td_cast_entry));
}

td_value *td_cast_shared(td_rewriter *rw, td_cast_cache *c, td_value *v, td_dtype to)
{
    if (!td_build_ok(rw->b) || v->type.dtype == to || !td_dtype_is_float(v->type.dtype))
        return v;
    if ((size_t)v->id < c->cap)
        for (const td_cast_entry *e = c->of[v->id]; e; e = e->next)
            if (e->value->type.dtype == to)
                return e->value;
    td_cast_entry *e = new_entry(c, v);
    if (!e) {
        td_build_fail(rw->b, TD_ENOMEM);
        return v;
    }
    e->value = td_cast(rw->b, v, to);
    e->next = c->of[v->id];
    c->of[v->id] = e;
    c->n_casts++;
    return e->value;
}

void td_cast_cache_release(td_cast_cache *c)
{
    td_free((void *)c->of);
    td_arena_release(&c->arena);
}
