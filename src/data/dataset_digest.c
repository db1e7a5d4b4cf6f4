/*
 * dataset_digest.c -- digests of a data set's files, names and annotations
 */
#include "data/dataset_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/fingerprint.h"
#include "data/members.h"
#include "io/digest.h"

enum { SAMPLES_MAX = 4096 };
#define BYTES_MAX (UINT64_C(64) << 20)

/* Add the size of a file, -1 if it cannot be read, and its first bytes, at most `room`. */
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

static void add_sample(td_digest *d, const td_sample *s, char *buffer, size_t room)
{
    if (!s->member) {
        add_file(d, s->path, buffer, room);
        return;
    }
    td_digest_add(d, &s->member->n_bytes, sizeof s->member->n_bytes);
    td_digest_add(d, buffer, td_member_head(s->member, buffer, room));
}

td_status td_dataset_digest(const td_dataset *ds, uint64_t *out)
{
    *out = 0;
    if (ds->pack)
        *out = td_pack_metadata_of(ds->pack)->digest;
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
        add_sample(&d, &ds->samples[i * (ds->n / n) + i * (ds->n % n) / n], buffer, room);
    *out = td_digest_value(&d);
    td_free(buffer);
    return TD_OK;
}

/* The digest of the annotations of all images. */
static uint64_t digest_boxes(const td_dataset *ds)
{
    td_digest d;
    td_digest_init(&d);
    for (int64_t i = 0; i < td_dataset_count(ds); i++) {
        const td_annotated of = td_dataset_annotated(ds, i);
        const int64_t head[3] = { of.id, of.width, of.height };
        int n;
        const td_annotation *a = td_dataset_annotations(ds, i, &n);
        td_digest_add(&d, head, sizeof head);
        for (int k = 0; k < n; k++) {
            const double box[5] = { a[k].x, a[k].y, a[k].width, a[k].height, a[k].area };
            const int64_t what[3] = { td_dataset_category(ds, a[k].label), a[k].label,
                                      a[k].is_crowd };
            td_digest_add(&d, box, sizeof box);
            td_digest_add(&d, what, sizeof what);
        }
    }
    return td_digest_value(&d);
}

static void add_list(const char *what, const td_dataset *ds, td_text *out)
{
    td_digest d;
    td_digest_init(&d);
    for (int64_t i = 0; i < td_dataset_count(ds); i++) {
        const char *name = td_sample_name(ds, i);
        const int64_t label = td_dataset_label(ds, i);
        td_digest_add(&d, &label, sizeof label);
        if (ds->samples && ds->samples[i].n_labels)
            td_digest_add(&d, ds->samples[i].labels,
                          (size_t)ds->samples[i].n_labels * sizeof *ds->samples[i].labels);
        td_digest_add(&d, name, strlen(name));
    }
    td_text_add(out, "%s: %" PRId64 " samples %d classes list %016" PRIx64 "\n", what,
                td_dataset_count(ds), td_dataset_classes(ds), td_digest_value(&d));
}

td_status td_describe_data(const char *what, const td_dataset *ds, td_text *out)
{
    uint64_t contents;
    if (!ds)
        return TD_OK;
    add_list(what, ds, out);
    TD_TRY(td_dataset_digest(ds, &contents));
    td_text_add(out, "%s: contents %016" PRIx64 "\n", what, contents);
    if (td_dataset_has_boxes(ds))
        td_text_add(out, "%s: boxes %016" PRIx64 "\n", what, digest_boxes(ds));
    if (td_dataset_backend(ds) == TD_DATA_TENSORS) /* the file holds the data */
        TD_TRY(td_describe_file(what, td_dataset_root(ds), out));
    return td_text_status(out);
}
