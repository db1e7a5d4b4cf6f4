/*
 * records.c -- opens data sets of TFRecords: finds the files, and what kind they are
 */
#include "data/records.h"

#include <string.h>

#include "base/log.h"
#include "base/paths.h"
#include "base/text.h"
#include "data/record_sets.h"
#include "data/shard_names.h"

bool td_records_is(const char *path)
{
    return td_shard_names_are(path, TD_SHARDS_RECORD);
}

/* --- the data set ----------------------------------------------------------------------------- */

static td_status set_root(td_dataset *ds, const char *path)
{
    ds->is_list = true;
    ds->root = td_arena_text(&ds->arena, path);
    return ds->root ? TD_OK : TD_ENOMEM;
}

static td_status fill(const td_record_source *s, const td_dataset_opts *opts, td_dataset *ds)
{
    return opts->has_boxes ? td_record_boxes(s, opts, ds) : td_record_classes(s, opts, ds);
}

td_status td_records_parse(const void *bytes, size_t n_bytes, const char *what,
                           const td_dataset_opts *opts, td_dataset *ds)
{
    const td_record_source s = { .files = &what, .n_files = 1, .bytes = bytes, .n_bytes = n_bytes };
    TD_TRY(set_root(ds, what));
    return fill(&s, opts, ds);
}

/* --- missing files --------------------------------------------------------------------------- */

/* The bytes of a name before "00007-of-01024", and the number of files; false: not numbered. */
static bool number_of(const char *path, size_t *n_prefix, int64_t *n_files)
{
    const char *of = strstr(td_path_base(path), "-of-");
    for (const char *next; of && (next = strstr(of + 1, "-of-"));)
        of = next;
    if (!of || !td_text_to_int(of + strlen("-of-"), n_files))
        return false;
    const char *dash = of;
    while (dash > path && dash[-1] >= '0' && dash[-1] <= '9')
        dash--;
    *n_prefix = (size_t)(dash - path);
    return dash < of && dash > path && dash[-1] == '-';
}

/* Warn of files that should be there by the names of the others, which are sorted. */
static void warn_missing(const td_shard_names *names)
{
    for (size_t first = 0, end; first < names->n; first = end) {
        size_t n_prefix, n_other;
        int64_t n_files, other;
        end = first + 1;
        if (!number_of(names->paths[first], &n_prefix, &n_files))
            continue;
        while (end < names->n && number_of(names->paths[end], &n_other, &other) &&
               n_other == n_prefix && other == n_files &&
               memcmp(names->paths[first], names->paths[end], n_prefix) == 0)
            end++;
        if ((int64_t)(end - first) != n_files)
            td_log(TD_LOG_WARN, "data", "'%s' is one of %zu files, and its name says %lld",
                   names->paths[first], end - first, (long long)n_files);
    }
}

td_status td_records_open(const td_dataset_opts *opts, td_dataset *ds)
{
    td_shard_names names = { .arena = &ds->arena, .kind = TD_SHARDS_RECORD };
    td_status st;
    if (opts->annotations)
        return td_error(TD_EARG,
                        "'%s' are TFRecords, which contain their annotations: no annotation file "
                        "can be given",
                        opts->path);
    TD_OUT(set_root(ds, opts->path));
    TD_OUT(td_shard_names_find(opts, &names, &ds->is_unsplit));
    if (!td_path_is_file(opts->path))
        warn_missing(&names);
    st = fill(&(td_record_source){ .files = names.paths, .n_files = names.n }, opts, ds);
out:
    td_free(names.paths);
    return st;
}

/* --- which kind ------------------------------------------------------------------------------- */

/* The first record of the first file that has one; *is_found. */
static td_status read_first(const td_shard_names *names, td_tf_example *x, bool *is_found)
{
    td_tfrecords t;
    td_tfrecord at = { 0 };
    td_status st = TD_OK;
    for (size_t i = 0; i < names->n && st == TD_OK && !at.offset; i++) {
        st = td_tfrecords_open(names->paths[i], &t);
        if (st == TD_OK)
            st = td_tfrecords_next(&t, &at);
        if (st == TD_OK && at.offset)
            st = td_tf_example_read(&t, &at, x);
        td_tfrecords_close(&t);
    }
    *is_found = st == TD_OK && at.offset;
    return st;
}

bool td_records_is_annotated(const char *path, const char *split)
{
    const td_dataset_opts opts = { .path = path, .split = split };
    td_arena arena;
    td_arena_init(&arena);
    td_shard_names names = { .arena = &arena, .kind = TD_SHARDS_RECORD };
    td_tf_example x = { 0 };
    bool is_unsplit, is_found = false;
    if (td_shard_names_find(&opts, &names, &is_unsplit) != TD_OK ||
        read_first(&names, &x, &is_found) != TD_OK)
        td_error_clear();
    const bool is = is_found && x.lists[TD_TF_XMIN].is_there && !x.lists[TD_TF_LABEL].is_there;
    td_tf_example_release(&x);
    td_free(names.paths);
    td_arena_release(&arena);
    return is;
}
