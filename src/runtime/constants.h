/*
 * runtime/constants.h -- parameters and setup results, which programs of one device may share
 *
 *     %w:f32[64,64,3,3]          a parameter: its name and type
 *     winograd_filter #0 ...     a setup result: op, attributes, operands (their numbers), type
 *
 * Two values with the same key have the same contents, so programs that share need one copy.  The
 * set is reference-counted: the last program that uses it frees it, in whatever order they are
 * freed.  A large parameter that only setup nodes read has an allocation of its own, which is freed
 * when every program has released it.
 *
 * Which values are current is known by counting changes: a parameter that is set adds one to
 * `n_changes`, and a setup result is current if it was computed at that count.  So each setup node
 * runs once, in the program that needs it first.
 */
#ifndef TD_RUNTIME_CONSTANTS_H
#define TD_RUNTIME_CONSTANTS_H

#include "base/arena.h"
#include "base/map.h"
#include "device/device_memory.h"

typedef struct {
    int number;   /* in keys of results that depend on it */
    void *p;      /* in the device's memory; NULL: none (a result that only the setup reads) */
    size_t bytes; /* of an own allocation; 0: in a block */
    int n_claims; /* own allocation: programs that have not released it */
    bool is_set;  /* a parameter that has a value */
    int64_t changes_at; /* a setup result: n_changes when it was computed */
} td_constant;

typedef struct td_constant_block td_constant_block;

typedef struct {
    const td_device_memory *memory;
    int n_programs;
    int64_t n_changes;  /* > 0 */
    int64_t held_bytes; /* of all constants, now */
    bool is_released;   /* some parameters are gone: none can be set any more */
    td_map map;         /* td_constant by key */
    td_arena arena;
    td_constant_block *blocks;
} td_constants;

/** With n_programs 1; NULL, with the message set. */
td_constants *td_constants_new(const td_device_memory *memory) TD_CHECKED;
void td_constants_leave(td_constants *c); /* the last program frees it; NULL is fine */

/** The constant of this key, made if there is none. */
td_status td_constants_find(td_constants *c, const char *key, td_constant **out) TD_CHECKED;

/** Zeroed memory for several constants, freed with the set; NULL, with the message set. */
char *td_constants_block(td_constants *c, size_t bytes) TD_CHECKED;

/** Own memory, zeroed and claimed once; TD_ENOMEM. */
td_status td_constant_allocate(td_constants *c, td_constant *k, size_t bytes) TD_CHECKED;
void td_constant_release(td_constants *c, td_constant *k); /* one claim on own memory */

/** Memory for activations of programs that run one at a time. */
typedef struct {
    const td_device_memory *memory;
    int n_programs;
    char *p;
    size_t bytes;
} td_activations;

/** With n_programs 1; NULL, with the message set. */
td_activations *td_activations_new(const td_device_memory *memory, size_t bytes) TD_CHECKED;
void td_activations_leave(td_activations *a);

#endif
