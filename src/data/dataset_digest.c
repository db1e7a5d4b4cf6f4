/*
 * dataset_digest.c -- see dataset_digest.h
 */
#include "data/dataset_digest.h"

#include <stdio.h>
#include <sys/stat.h>

#include "io/digest.h"

enum { SAMPLES_MAX = 4096 };
#define BYTES_MAX (UINT64_C(64) << 20)

/* the size of a file, -1 for none, and its first bytes, as many as fit in buffer[room] */
static void add_file(td_digest *d, const char *path, char *buffer, size_t room)
{
    struct stat s;
    FILE *f = stat(path, &s) == 0 && S_ISREG(s.st_mode) ? fopen(path, "rb") : NULL;
    const int64_t size_bytes = f ? (int64_t)s.st_size : -1;
    td_digest_add(d, &size_bytes, sizeof size_bytes);
    if (!f)
        return;
    td_digest_add(d, buffer, fread(buffer, 1, room, f));
    fclose(f);
}

td_status td_dataset_digest(const td_dataset *ds, uint64_t *out)
{
    *out = 0;
    if (ds->pack)
        *out = td_pack_facts_of(ds->pack)->digest;
    if (ds->pack || !td_dataset_decodes(ds) || ds->n == 0)
        return TD_OK;
    const int64_t n = ds->n < SAMPLES_MAX ? ds->n : SAMPLES_MAX;
    const size_t room = (size_t)(BYTES_MAX / (uint64_t)n);
    char *buffer = td_alloc(room, 1);
    if (!buffer)
        return TD_ENOMEM;
    td_digest d;
    td_digest_init(&d);
    for (int64_t i = 0; i < n; i++)
        add_file(&d, ds->samples[i * (ds->n / n) + i * (ds->n % n) / n].path, buffer, room);
    *out = td_digest_value(&d);
    td_free(buffer);
    return TD_OK;
}
