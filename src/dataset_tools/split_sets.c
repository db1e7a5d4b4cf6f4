/*
 * split_sets.c -- opens the splits of a data set
 */
#include "dataset_tools/split_sets.h"

/* Open one split, or the data itself when `split` is NULL. */
static td_status open_set(td_dataset_opts o, const char *split, td_split_sets *s)
{
    td_dataset *set;
    o.split = split;
    o.has_boxes = s->has_boxes;
    TD_TRY(td_dataset_open(&o, &set));
    s->sets[s->n] = set;
    s->names[s->n++] = split ? split : "";
    return TD_OK;
}

/* The same, unless the split does not exist. */
static td_status open_if_there(const td_dataset_opts *o, const char *split, td_split_sets *s)
{
    const td_status st = open_set(*o, split, s);
    return st == TD_ENOTFOUND ? TD_OK : st;
}

td_status td_split_sets_open(const td_dataset_opts *opts, td_split_sets *out)
{
    const char *path = opts->path, *split = opts->split;
    *out = (td_split_sets){ 0 };
    out->has_boxes = opts->annotations || td_dataset_is_annotated(path, split) ||
                     (!split && (td_dataset_is_annotated(path, "train") ||
                                 td_dataset_is_annotated(path, "val")));
    if (split || opts->annotations)
        return open_set(*opts, split, out);
    TD_TRY(open_if_there(opts, "train", out));
    TD_TRY(open_if_there(opts, "val", out));
    return out->n > 0 ? TD_OK : open_set(*opts, NULL, out);
}

void td_split_sets_release(td_split_sets *s)
{
    for (int i = 0; i < s->n; i++)
        td_dataset_free(s->sets[i]);
    s->n = 0;
}
