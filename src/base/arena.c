/*
 * arena.c -- the only caller of malloc
 *
 * Every block carries a 64-byte header with its size, so that live bytes can be counted and blocks
 * resized while staying aligned.  The counters are atomic; fail_at makes allocations fail in tests.
 */
#include "base/arena.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t bytes;
} block_head;

#define HEAD_BYTES TD_HOST_ALIGN
#define MOST_BYTES ((size_t)1 << 39) /* a block of half a TiB can only be an invalid size */
_Static_assert(sizeof(block_head) <= HEAD_BYTES, "header fits before the block");

static atomic_int_least64_t n_calls, n_live, n_bytes, fail_at;

void td_alloc_fail_at(int64_t n)
{
    atomic_store(&fail_at, n ? atomic_load(&n_calls) + n : 0);
}

int64_t td_alloc_count(void)
{
    return atomic_load(&n_calls);
}

int64_t td_alloc_live(void)
{
    return atomic_load(&n_live);
}

int64_t td_alloc_live_bytes(void)
{
    return atomic_load(&n_bytes);
}

void td_alloc_note(int64_t blocks, int64_t bytes)
{
    atomic_fetch_add(&n_live, blocks);
    atomic_fetch_add(&n_bytes, bytes);
}

static atomic_llong n_failed; /* failed allocations in libraries */

void td_alloc_note_failed(void)
{
    atomic_fetch_add(&n_failed, 1);
}

int64_t td_alloc_failed_count(void)
{
    return atomic_load(&n_failed);
}

bool td_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool td_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static void *no_memory(size_t bytes)
{
    (void)td_error(TD_ENOMEM, "cannot allocate %zu bytes", bytes);
    return NULL;
}

static block_head *head_of(void *p)
{
    return (block_head *)(void *)((char *)p - HEAD_BYTES);
}

bool td_alloc_refused(void)
{
    int64_t call = atomic_fetch_add(&n_calls, 1) + 1;
    int64_t at = atomic_load(&fail_at);
    return at && call >= at;
}

void *td_alloc(size_t n, size_t each)
{
    size_t bytes, total;
    if (!td_mul_size(n, each, &bytes))
        bytes = SIZE_MAX;
    if (td_alloc_refused() || bytes > MOST_BYTES)
        return no_memory(bytes);

    total = td_round_up(HEAD_BYTES + bytes, TD_HOST_ALIGN);
    block_head *h = aligned_alloc(TD_HOST_ALIGN, total);
    if (!h)
        return no_memory(bytes);
    memset(h, 0, total);
    h->bytes = bytes;
    td_alloc_note(1, (int64_t)bytes);
    return (char *)h + HEAD_BYTES;
}

td_status td_alloc_to(void *out, size_t n, size_t each)
{
    void *p = td_alloc(n, each);
    memcpy(out, &p, sizeof p);
    return p ? TD_OK : TD_ENOMEM;
}

void *td_resize(void *p, size_t n, size_t each)
{
    void *q = td_alloc(n, each);
    if (!q || !p)
        return q;
    size_t old = head_of(p)->bytes, now = head_of(q)->bytes;
    memcpy(q, p, old < now ? old : now);
    td_free(p);
    return q;
}

td_status td_reserve(void *items, size_t *cap, size_t want, size_t each)
{
    void *p;
    memcpy(&p, items, sizeof p);
    if (want <= *cap)
        return TD_OK;
    size_t now = *cap ? *cap : 8;
    while (now < want)
        now = now > SIZE_MAX / 2 ? want : 2 * now;
    p = td_resize(p, now, each);
    if (!p)
        return TD_ENOMEM;
    memcpy(items, &p, sizeof p);
    *cap = now;
    return TD_OK;
}

char *td_copy_text(const char *text)
{
    return td_copy_array(text, strlen(text) + 1, 1);
}

void *td_copy_array(const void *items, size_t n, size_t each)
{
    void *copy = td_alloc(n, each);
    if (copy && n)
        memcpy(copy, items, n * each);
    return copy;
}

void td_free(void *p)
{
    if (!p)
        return;
    block_head *h = head_of(p);
    td_alloc_note(-1, -(int64_t)h->bytes);
    free(h);
}

void td_texts_free(char **texts, size_t n)
{
    for (size_t i = 0; texts && i < n; i++)
        td_free(texts[i]);
    td_free(texts);
}

void *td_system_alloc(size_t bytes)
{
    return malloc(bytes);
}

void td_system_free(void *p)
{
    free(p);
}

/* --- arenas ----------------------------------------------------------------------------------- */

struct td_arena_chunk {
    td_arena_chunk *next;
    size_t bytes;
};

#define CHUNK_BYTES ((size_t)64 << 10) /* a graph of ResNet-50 takes a dozen chunks */
#define CHUNK_HEAD  ((sizeof(td_arena_chunk) + 15) & ~(size_t)15)

void td_arena_init(td_arena *a)
{
    *a = (td_arena){ 0 };
}

void td_arena_release(td_arena *a)
{
    for (td_arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        td_free(c);
    }
    *a = (td_arena){ 0 };
}

void *td_arena_alloc(td_arena *a, size_t n, size_t each)
{
    size_t bytes;
    if (!td_mul_size(n, each, &bytes) || bytes > SIZE_MAX / 2)
        return no_memory(SIZE_MAX);
    bytes = td_round_up(bytes, 16);

    if (!a->head || a->head->bytes - a->used_bytes < bytes) {
        size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        td_arena_chunk *c = td_alloc(1, CHUNK_HEAD + room);
        if (!c)
            return NULL;
        c->next = a->head;
        c->bytes = room;
        a->head = c;
        a->used_bytes = 0;
    }
    void *p = (char *)a->head + CHUNK_HEAD + a->used_bytes;
    a->used_bytes += bytes;
    return p;
}

char *td_arena_text(td_arena *a, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = td_arena_alloc(a, n, 1);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}
