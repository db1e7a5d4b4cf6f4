/*
 * rng.c -- Philox4x32-10 and the distributions built on it
 *
 * How key and counter are made from (seed, purpose, a, b):
 *
 *   key[0]  seed, low word     (and b's bits 56..63, always 0 for indices)
 *   key[1]  seed, high word    xor a's high word (0 for epochs; a name's hash fills it)
 *   ctr[0]  number of the block of four words
 *   ctr[1]  purpose in bits 24..31, b's bits 32..55 below
 *   ctr[2]  b, low word
 *   ctr[3]  a, low word
 *
 * So streams of one seed differ in the counter whenever a < 2^32 and b < 2^56.
 */
#include "base/rng.h"

#include <math.h>

#include "base/status.h"

enum { ROUNDS = 10 };

#define MUL_0  UINT32_C(0xD2511F53)
#define MUL_1  UINT32_C(0xCD9E8D57)
#define WEYL_0 UINT32_C(0x9E3779B9) /* golden ratio */
#define WEYL_1 UINT32_C(0xBB67AE85) /* sqrt(3) - 1 */
#define TWO_PI 6.283185307179586476925286766559

void td_philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t p0 = (uint64_t)MUL_0 * c0, p1 = (uint64_t)MUL_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

td_rng td_rng_make(uint64_t seed, td_rng_purpose purpose, uint64_t a, uint64_t b)
{
    return (td_rng){
        .key = { (uint32_t)seed ^ (uint32_t)(b >> 56),
                 (uint32_t)(seed >> 32) ^ (uint32_t)(a >> 32) },
        .ctr = { 0, (uint32_t)purpose << 24 | ((uint32_t)(b >> 32) & 0xffffff), (uint32_t)b,
                 (uint32_t)a },
    };
}

uint32_t td_rng_u32(td_rng *r)
{
    if (r->n_left == 0) {
        td_philox4x32(r->ctr, r->key, r->out);
        r->ctr[0]++;
        TD_CHECK(r->ctr[0] != 0); /* after 2^34 words: no stream is that long */
        r->n_left = 4;
    }
    return r->out[4 - r->n_left--];
}

uint64_t td_rng_u64(td_rng *r)
{
    uint64_t low = td_rng_u32(r);
    return low | (uint64_t)td_rng_u32(r) << 32;
}

double td_rng_uniform(td_rng *r)
{
    return (double)(td_rng_u64(r) >> 11) * 0x1p-53;
}

/* Lemire 2019, "Fast random integer generation in an interval", algorithm 5 */
uint64_t td_rng_below(td_rng *r, uint64_t n)
{
    TD_CHECK(n > 0);
    unsigned __int128 product = (unsigned __int128)td_rng_u64(r) * n;
    if ((uint64_t)product < n) {
        uint64_t reject = (0 - n) % n; /* 2^64 mod n */
        while ((uint64_t)product < reject)
            product = (unsigned __int128)td_rng_u64(r) * n;
    }
    return (uint64_t)(product >> 64);
}

double td_rng_normal(td_rng *r)
{
    if (r->has_normal) {
        r->has_normal = 0;
        return r->next_normal;
    }
    double radius = sqrt(-2 * log(1 - td_rng_uniform(r))); /* 1 - u is never 0 */
    double angle = TWO_PI * td_rng_uniform(r);
    r->next_normal = radius * sin(angle);
    r->has_normal = 1;
    return radius * cos(angle);
}

void td_rng_permute(td_rng *r, int64_t *items, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        items[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)td_rng_below(r, (uint64_t)i + 1);
        int64_t kept = items[i];
        items[i] = items[j];
        items[j] = kept;
    }
}
