/*
 * digest.c -- XXH3 in a struct that the caller allocates
 *
 * The library's state type is opaque unless its layout is requested; requesting it only here keeps
 * xxhash.h out of our header and avoids malloc.
 */
#include "io/digest.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/status.h"

_Static_assert(sizeof(XXH3_state_t) <= TD_DIGEST_STATE_BYTES, "XXH3's state fits");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(td_digest), "XXH3's state is aligned");

static XXH3_state_t *state_of(td_digest *d)
{
    return (XXH3_state_t *)(void *)d->state;
}

void td_digest_init(td_digest *d)
{
    XXH3_INITSTATE(state_of(d));
    TD_CHECK(XXH3_64bits_reset(state_of(d)) == XXH_OK);
}

void td_digest_add(td_digest *d, const void *bytes, size_t n_bytes)
{
    if (n_bytes)
        TD_CHECK(XXH3_64bits_update(state_of(d), bytes, n_bytes) == XXH_OK);
}

uint64_t td_digest_value(const td_digest *d)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)d->state);
}

uint64_t td_digest_of(const void *bytes, size_t n_bytes)
{
    return XXH3_64bits(bytes, n_bytes);
}
