/*
 * data/record_walk.h -- visits the records of TFRecord files with what they say about images
 */
#ifndef TD_DATA_RECORD_WALK_H
#define TD_DATA_RECORD_WALK_H

#include "data/dataset.h"
#include "data/members.h"
#include "data/tf_example.h"

/** A record, valid during the call; `member`, `path` and `name` are in the data set's arena. */
typedef struct {
    const char *file;
    const char *path; /* "FILE/NAME" */
    const char *name; /* that of the image, or else the record's number in the file */
    int64_t at;       /* byte at which it begins */
    const td_member *member;
    const td_tf_example *x;
} td_record;

typedef td_status td_record_fn(void *ctx, const td_record *r);

/** An error about a record. */
TD_CHECKED td_status td_record_refuse(const td_record *r, const char *why);

/** The one integer of a feature.  TD_EFORMAT: none, or several. */
TD_CHECKED td_status td_record_int(const td_record *r, td_tf_feature f, int64_t *out);

/** The text of a feature, if it has one that can be displayed; else NULL. */
const char *td_record_text(const td_record *r, td_tf_feature f, size_t i);

/** What a data set is made from: files, or bytes of one. */
typedef struct {
    const char **files;
    size_t n_files;
    const void *bytes;
    size_t n_bytes;
} td_record_source;

/** Call `fn` for every record, in order. */
TD_CHECKED td_status td_records_walk(const td_record_source *s, td_dataset *ds, td_record_fn *fn,
                                     void *ctx);

#endif
