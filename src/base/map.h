/*
 * base/map.h -- maps text to pointers; copies keys, keeps insertion order
 */
#ifndef TD_BASE_MAP_H
#define TD_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    char *key; /* owned */
    void *value;
} td_map_entry;

/** Zero-initialise for an empty map.  entries[0 .. n-1] are in insertion order. */
typedef struct {
    td_map_entry *entries;
    size_t n, cap;
    uint32_t *slots; /* open addressing; index + 1 into entries, 0 = free */
    size_t n_slots;
} td_map;

void td_map_release(td_map *m);

/** Set key to value; an existing value is replaced. */
TD_CHECKED td_status td_map_set(td_map *m, const char *key, void *value);

/** The value, or NULL. */
void *td_map_get(const td_map *m, const char *key);
bool td_map_has(const td_map *m, const char *key);

/** 64-bit FNV-1a of a text. */
uint64_t td_hash_text(const char *text);

#endif
