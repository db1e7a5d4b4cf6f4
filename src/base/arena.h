/*
 * base/arena.h -- memory: checked allocation, arenas, and simulated failures for tests
 *
 * Plain blocks:  T *p;  TD_TRY(TD_ALLOC(p, n));   ... td_free(p);
 * Memory comes zeroed and 64-byte aligned.  A failed call has already set the error message, so
 * the caller returns TD_ENOMEM and nothing else.
 *
 * An arena allocates many small blocks that are freed together:
 *
 *     td_arena a;  td_arena_init(&a);
 *     char *name = td_arena_text(&a, "layer1.0.conv1");
 *     td_arena_release(&a);
 */
#ifndef TD_BASE_ARENA_H
#define TD_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TD_HOST_ALIGN 64 /* a cache line, and the widest vector load there is */

/** n * each zeroed bytes, 64-byte aligned; NULL, with the message set, on failure. */
void *td_alloc(size_t n, size_t each) TD_CHECKED;

#define TD_NEW(T) ((T *)td_alloc(1, sizeof(T)))

/** Like td_alloc, into `*out`, where `out` is the address of a pointer.  TD_ENOMEM: it is NULL. */
TD_CHECKED td_status td_alloc_to(void *out, size_t n, size_t each);

/** TD_TRY(TD_ALLOC(p, n)): let `p` be an array of n zeroed elements of its type. */
#define TD_ALLOC(p, n) td_alloc_to(&(p), n, sizeof *(p))

/**
 * Grow or shrink a block of td_alloc to n * each bytes; the old content is kept, new bytes are NOT
 * zeroed.  On failure NULL is returned and the old block is unchanged.
 */
void *td_resize(void *p, size_t n, size_t each) TD_CHECKED;

/**
 * Make room for `want` elements in a growing array of *cap elements (doubling).  `*items` is a
 * pointer to the array's pointer.  TD_ENOMEM leaves both untouched.
 */
TD_CHECKED td_status td_reserve(void *items, size_t *cap, size_t want, size_t each);

char *td_copy_text(const char *text) TD_CHECKED;

/** A copy of n elements; `items` may be NULL if n is 0. */
void *td_copy_array(const void *items, size_t n, size_t each) TD_CHECKED;

void td_free(void *p);

/** Free n texts and the array of them; any of them may be NULL. */
void td_texts_free(char **texts, size_t n);

/** a * b and a + b; false on overflow. */
bool td_mul_size(size_t a, size_t b, size_t *out);
bool td_add_size(size_t a, size_t b, size_t *out);

/** `n` rounded up to a multiple of `to` (a power of two). */
static inline size_t td_round_up(size_t n, size_t to)
{
    return (n + to - 1) & ~(to - 1);
}

typedef struct td_arena_chunk td_arena_chunk;

/** Zero-initialise for an empty arena. */
typedef struct td_arena {
    td_arena_chunk *head;
    size_t used_bytes; /* used bytes of `head` */
} td_arena;

void td_arena_init(td_arena *a);
void td_arena_release(td_arena *a);

/** Zeroed, 16-byte aligned; NULL with the message set on failure. */
void *td_arena_alloc(td_arena *a, size_t n, size_t each) TD_CHECKED;
char *td_arena_text(td_arena *a, const char *text) TD_CHECKED;

/* --- for other allocators (base/machine.c, base/json.c) --------------------------------------- */

/** Count one allocation; true if a test makes it fail. */
bool td_alloc_refused(void);

/** Add to the live counts below: memory that did not come from td_alloc. */
void td_alloc_note(int64_t blocks, int64_t bytes);

/**
 * Record that a library ran out of memory, and read that count: for callers of hooks that can only
 * return false, such as a kernel that rejects a node.
 */
void td_alloc_note_failed(void);
int64_t td_alloc_failed_count(void);

/** The C library's malloc, uncounted: for callbacks that also allocate for a host program. */
void *td_system_alloc(size_t bytes) TD_CHECKED;
void td_system_free(void *p);

/* --- for tests ------------------------------------------------------------------------------- */

/** Make the `n`-th allocation from now (1 = the next) and all later ones fail; 0 turns this off. */
TD_API void td_alloc_fail_at(int64_t n);

/** Allocations so far in this process, failed ones included. */
TD_API int64_t td_alloc_count(void);

/** Blocks handed out and not yet freed. */
TD_API int64_t td_alloc_live(void);

/** Bytes in large blocks of td_alloc that are not yet freed. */
TD_API int64_t td_alloc_live_bytes(void);

#endif
