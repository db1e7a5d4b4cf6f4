/*
 * hold_out.c -- divides a training set into training and validation images
 *
 * The images of a class are sorted by a hash of the seed and their names; the first ones are for
 * validation.  So an image that is added to or removed from the data set changes the part of few
 * others.
 */
#include "data/hold_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/digest.h"

typedef struct {
    int64_t label, sample;
    uint64_t hash;
} ticket;

static int by_class_and_hash(const void *a, const void *b)
{
    const ticket *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return (x->sample > y->sample) - (x->sample < y->sample);
}

static uint64_t hash_of(const td_dataset *ds, int64_t sample, uint64_t seed)
{
    unsigned char bytes[sizeof seed];
    const char *name = td_sample_name(ds, sample);
    td_digest d;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(seed >> 8 * i);
    td_digest_init(&d);
    td_digest_add(&d, bytes, sizeof bytes);
    td_digest_add(&d, name, strlen(name));
    return td_digest_value(&d);
}

/* Set is_val[sample] for the first tickets of each class; returns their number. */
static int64_t choose(const ticket *t, int64_t n, double fraction, bool *is_val)
{
    int64_t n_val = 0;
    for (int64_t first = 0, end; first < n; first = end) {
        for (end = first; end < n && t[end].label == t[first].label;)
            end++;
        const int64_t size = end - first, wanted = (int64_t)floor(fraction * (double)size + 0.5);
        const int64_t count = wanted < size ? wanted : size - 1;
        for (int64_t i = first; i < first + count; i++)
            is_val[t[i].sample] = true;
        n_val += count;
    }
    return n_val;
}

/* Keep samples with is_val == keeps_validation, and their places in a pack. */
static void keep(td_dataset *ds, const bool *is_val, bool keeps_validation)
{
    int64_t n = 0;
    for (int64_t i = 0; i < ds->n; i++) {
        if (is_val[i] != keeps_validation)
            continue;
        ds->samples[n] = ds->samples[i];
        if (ds->places)
            ds->places[n] = ds->places[i];
        n++;
    }
    ds->n = n;
}

static td_status add_places(td_dataset *ds)
{
    if (!ds->pack || ds->places)
        return TD_OK;
    TD_TRY(TD_ALLOC(ds->places, (size_t)ds->n));
    for (int64_t i = 0; i < ds->n; i++)
        ds->places[i] = i;
    return TD_OK;
}

td_status td_dataset_hold_out(td_dataset *ds, double fraction, uint64_t seed, bool keeps_validation)
{
    ticket *tickets = NULL;
    bool *is_val = NULL;
    td_status st = TD_OK;
    if (!(fraction > 0 && fraction < 1) || !td_dataset_decodes(ds) || ds->objects)
        return td_error(TD_EARG, "'%s': a part of %g for validation requires images with classes",
                        ds->root, fraction);
    TD_OUT(TD_ALLOC(tickets, (size_t)ds->n));
    TD_OUT(TD_ALLOC(is_val, (size_t)ds->n));
    for (int64_t i = 0; i < ds->n; i++)
        tickets[i] = (ticket){ ds->samples[i].label, i, hash_of(ds, i, seed) };
    qsort(tickets, (size_t)ds->n, sizeof *tickets, by_class_and_hash);
    if (!choose(tickets, ds->n, fraction, is_val))
        TD_OUT(td_error(TD_EFORMAT,
                        "'%s': %g of the images of each class is none, wanted a larger fraction",
                        ds->root, fraction));
    TD_OUT(add_places(ds));
    keep(ds, is_val, keeps_validation);
out:
    td_free(tickets);
    td_free(is_val);
    return st;
}
