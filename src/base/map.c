/*
 * map.c -- hash map: open addressing over indices, linear probing, at most half full
 *
 * The entries are kept in insertion order in one array; the slots hold index + 1.  Entries are
 * never removed, so there are no tombstones.  FNV-1a: Fowler, Noll, Vo, 64-bit constants.
 */
#include "base/map.h"

#include <string.h>

#include "base/arena.h"

enum { FIRST_SLOTS = 16 };

uint64_t td_hash_text(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        h = (h ^ *p) * UINT64_C(0x100000001b3);
    return h;
}

void td_map_release(td_map *m)
{
    for (size_t i = 0; i < m->n; i++)
        td_free(m->entries[i].key);
    td_free(m->entries);
    td_free(m->slots);
    *m = (td_map){ 0 };
}

/* the slot of the key, or the free slot to store it in */
static size_t slot_of(const td_map *m, const uint32_t *slots, size_t n_slots, const char *key)
{
    size_t i = (size_t)td_hash_text(key) & (n_slots - 1);
    while (slots[i] && strcmp(m->entries[slots[i] - 1].key, key) != 0)
        i = (i + 1) & (n_slots - 1);
    return i;
}

static td_map_entry *find(const td_map *m, const char *key)
{
    if (m->n_slots == 0)
        return NULL;
    uint32_t at = m->slots[slot_of(m, m->slots, m->n_slots, key)];
    return at ? &m->entries[at - 1] : NULL;
}

static td_status grow_slots(td_map *m)
{
    if (2 * (m->n + 1) <= m->n_slots)
        return TD_OK;
    size_t n_slots = m->n_slots ? 2 * m->n_slots : FIRST_SLOTS;
    uint32_t *slots = td_alloc(n_slots, sizeof *slots);
    if (!slots)
        return TD_ENOMEM;
    for (size_t i = 0; i < m->n; i++)
        slots[slot_of(m, slots, n_slots, m->entries[i].key)] = (uint32_t)(i + 1);
    td_free(m->slots);
    m->slots = slots;
    m->n_slots = n_slots;
    return TD_OK;
}

td_status td_map_set(td_map *m, const char *key, void *value)
{
    td_map_entry *e = find(m, key);
    if (e) {
        e->value = value;
        return TD_OK;
    }
    if (m->n >= UINT32_MAX - 1)
        return td_error(TD_ELIMIT, "a map of %zu keys is full", m->n);
    TD_TRY(grow_slots(m));
    TD_TRY(td_reserve(&m->entries, &m->cap, m->n + 1, sizeof *m->entries));
    char *copy = td_copy_text(key);
    if (!copy)
        return TD_ENOMEM;
    m->slots[slot_of(m, m->slots, m->n_slots, key)] = (uint32_t)(m->n + 1);
    m->entries[m->n++] = (td_map_entry){ .key = copy, .value = value };
    return TD_OK;
}

void *td_map_get(const td_map *m, const char *key)
{
    const td_map_entry *e = find(m, key);
    return e ? e->value : NULL;
}

bool td_map_has(const td_map *m, const char *key)
{
    return find(m, key) != NULL;
}
