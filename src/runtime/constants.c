/*
 * constants.c -- memory that programs share
 */
#include "runtime/constants.h"

struct td_constant_block {
    char *p;
    size_t bytes;
    td_constant_block *next;
};

td_constants *td_constants_new(const td_device_memory *memory)
{
    td_constants *c = TD_NEW(td_constants);
    if (!c)
        return NULL;
    *c = (td_constants){ .memory = memory, .n_programs = 1, .n_changes = 1 };
    td_arena_init(&c->arena);
    return c;
}

static void free_own(td_constants *c, td_constant *k)
{
    if (k->p && k->bytes)
        c->memory->free(k->p, k->bytes);
    c->held_bytes -= (int64_t)k->bytes;
    k->p = NULL;
    k->bytes = 0;
}

void td_constants_leave(td_constants *c)
{
    if (!c || --c->n_programs > 0)
        return;
    for (size_t i = 0; i < c->map.n; i++)
        free_own(c, c->map.entries[i].value);
    for (td_constant_block *b = c->blocks; b; b = b->next)
        c->memory->free(b->p, b->bytes);
    td_map_release(&c->map);
    td_arena_release(&c->arena);
    td_free(c);
}

td_status td_constants_find(td_constants *c, const char *key, td_constant **out)
{
    *out = td_map_get(&c->map, key);
    if (*out)
        return TD_OK;
    td_constant *k = td_arena_alloc(&c->arena, 1, sizeof *k);
    if (!k)
        return TD_ENOMEM;
    k->number = (int)c->map.n;
    *out = k;
    return td_map_set(&c->map, key, k);
}

char *td_constants_block(td_constants *c, size_t bytes)
{
    td_constant_block *b = td_arena_alloc(&c->arena, 1, sizeof *b);
    char *p = b ? c->memory->alloc(bytes) : NULL;
    if (!p)
        return NULL;
    *b = (td_constant_block){ .p = p, .bytes = bytes, .next = c->blocks };
    c->blocks = b;
    c->held_bytes += (int64_t)bytes;
    return p;
}

td_status td_constant_allocate(td_constants *c, td_constant *k, size_t bytes)
{
    k->p = c->memory->alloc(bytes);
    if (!k->p)
        return TD_ENOMEM;
    c->held_bytes += (int64_t)bytes;
    k->bytes = bytes;
    k->n_claims = 1;
    k->is_set = false;
    return TD_OK;
}

void td_constant_release(td_constants *c, td_constant *k)
{
    if (--k->n_claims == 0)
        free_own(c, k);
}

td_activations *td_activations_new(const td_device_memory *memory, size_t bytes)
{
    td_activations *a = TD_NEW(td_activations);
    if (!a)
        return NULL;
    *a = (td_activations){ .memory = memory, .n_programs = 1, .bytes = bytes };
    a->p = memory->alloc(bytes);
    if (a->p)
        return a;
    td_free(a);
    return NULL;
}

void td_activations_leave(td_activations *a)
{
    if (!a || --a->n_programs > 0)
        return;
    a->memory->free(a->p, a->bytes);
    td_free(a);
}
