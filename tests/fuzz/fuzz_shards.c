/*
 * fuzz_shards.c -- any bytes as a tar shard of a data set: an error in words, or samples whose
 * images are in the file and whose labels are classes
 */
#include <stdint.h>
#include <string.h>

#include "data/members.h"
#include "data/shards.h"

enum { BLOCK = 512, CHECK = 148, CHECK_BYTES = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Make the checksum of each block right, so that changed headers are read. */
static void repair(uint8_t *bytes, size_t n_bytes)
{
    for (size_t at = 0; at + BLOCK <= n_bytes; at += BLOCK) {
        uint8_t *h = bytes + at;
        unsigned sum = 0;
        if (memcmp(h + 257, "ustar", 5) != 0)
            continue;
        memset(h + CHECK, ' ', CHECK_BYTES);
        for (int i = 0; i < BLOCK; i++)
            sum += h[i];
        for (int i = 5; i >= 0; i--, sum >>= 3)
            h[CHECK + i] = (uint8_t)('0' + (sum & 7));
        h[CHECK + 6] = 0;
    }
}

static void parse(const uint8_t *bytes, size_t n_bytes)
{
    td_dataset *ds = TD_NEW(td_dataset);
    if (!ds)
        return;
    td_error_clear();
    if (td_shards_parse(bytes, n_bytes, "s.tar", ds) != TD_OK) {
        TD_CHECK(*td_error_message());
    } else {
        TD_CHECK(ds->n > 0 && ds->n_classes > 1);
        for (int64_t i = 0; i < ds->n; i++) {
            const td_sample *s = &ds->samples[i];
            TD_CHECK(s->label >= 0 && s->label < ds->n_classes);
            TD_CHECK(strncmp(s->path, "s.tar/", 6) == 0 && s->path[6]);
            TD_CHECK(s->member->offset >= BLOCK && s->member->n_bytes >= 0);
            TD_CHECK(s->member->n_bytes <= (int64_t)n_bytes - s->member->offset);
        }
        for (int i = 0; i < ds->n_classes; i++)
            TD_CHECK(*ds->class_names[i]);
    }
    td_dataset_free(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    uint8_t *copy;
    parse(data, n_bytes);
    if (td_alloc_to(&copy, n_bytes + 1, 1) != TD_OK)
        return 0;
    memcpy(copy, data, n_bytes);
    repair(copy, n_bytes);
    parse(copy, n_bytes);
    td_free(copy);
    return 0;
}
