/*
 * shard_names.c -- finds the tar or TFRecord files of a data set
 *
 * A tar is recognised by its name.  TFRecords have no common one, so a file is one by its first
 * bytes; or, so that a damaged one is not left out of a folder, by one of TensorFlow's names.
 */
#include "data/shard_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file_io.h"
#include "base/paths.h"
#include "io/tfrecord.h"

enum { NAMES_MAX = 1000000, BRACES_MAX = 16, DIGITS_MAX = 9, FILES_TRIED = 16 };

const char *td_shard_word(td_shard_kind kind)
{
    return kind == TD_SHARDS_TAR ? "tar file" : "TFRecord file";
}

/* --- patterns --------------------------------------------------------------------------------- */

static td_status add_name(td_shard_names *s, const char *path)
{
    if (s->n == NAMES_MAX)
        return td_error(TD_ELIMIT, "more than %d shards", NAMES_MAX);
    TD_TRY(td_reserve(&s->paths, &s->cap, s->n + 1, sizeof *s->paths));
    const char *copy = td_arena_text(s->arena, path);
    if (!copy)
        return TD_ENOMEM;
    s->paths[s->n++] = copy;
    return TD_OK;
}

/* "000..012" -> first, last, digits */
static bool is_range(const char *body, size_t n, int64_t *first, int64_t *last, int *digits)
{
    size_t at = 0;
    int64_t v[2] = { 0, 0 };
    size_t n_digits[2] = { 0, 0 };
    for (int i = 0; i < 2; i++) {
        for (; at < n && isdigit((unsigned char)body[at]) && n_digits[i] <= DIGITS_MAX; at++) {
            v[i] = 10 * v[i] + (body[at] - '0');
            n_digits[i]++;
        }
        if (i == 0 && (n - at < 2 || memcmp(body + at, "..", 2) != 0))
            return false;
        at += i == 0 ? 2 : 0;
    }
    *first = v[0];
    *last = v[1];
    *digits = body[0] == '0' || n_digits[0] == n_digits[1] ? (int)n_digits[0] : 1;
    return at == n && n_digits[0] && n_digits[1] && n_digits[0] <= DIGITS_MAX &&
           n_digits[1] <= DIGITS_MAX;
}

static td_status expand(const char *pattern, int depth, td_shard_names *out);

/* `n` bytes instead of the braces from `open` to `close` */
static td_status expand_one(const char *pattern, const char *open, const char *close,
                            const char *body, size_t n, int depth, td_shard_names *out)
{
    td_text t = { 0 };
    td_text_add_bytes(&t, pattern, (size_t)(open - pattern));
    td_text_add_bytes(&t, body, n);
    td_text_add(&t, "%s", close + 1);
    td_status st = td_text_status(&t);
    if (st == TD_OK)
        st = expand(td_text_get(&t), depth + 1, out);
    td_text_release(&t);
    return st;
}

static td_status expand(const char *pattern, int depth, td_shard_names *out)
{
    const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
    int64_t first, last;
    int digits;
    if (!open)
        return add_name(out, pattern);
    if (!close || depth == BRACES_MAX)
        return td_error(TD_EFORMAT, "'%s': %s", pattern,
                        close ? "too many braces" : "a brace without an end");
    const size_t n = (size_t)(close - open - 1);
    if (is_range(open + 1, n, &first, &last, &digits)) {
        if (last < first)
            return td_error(TD_EFORMAT, "'%s' counts from %lld down to %lld", pattern,
                            (long long)first, (long long)last);
        for (int64_t i = first; i <= last; i++) {
            char number[DIGITS_MAX + 12];
            const int length = snprintf(number, sizeof number, "%0*lld", digits, (long long)i);
            TD_TRY(expand_one(pattern, open, close, number, (size_t)length, depth, out));
        }
        return TD_OK;
    }
    for (const char *at = open + 1; at <= close;) {
        const size_t m = strcspn(at, ",}");
        TD_TRY(expand_one(pattern, open, close, at, m, depth, out));
        at += m + 1;
    }
    return TD_OK;
}

td_status td_shard_names_expand(const char *pattern, td_shard_names *out)
{
    return expand(pattern, 0, out);
}

/* --- files ------------------------------------------------------------------------------------ */

/* "...-00007-of-01024" */
static bool is_numbered(const char *name)
{
    enum { DIGITS = 5, LENGTH = 1 + DIGITS + 4 + DIGITS };
    const size_t n = strlen(name);
    const char *at = name + n - LENGTH;
    return n >= LENGTH && at[0] == '-' && strspn(at + 1, "0123456789") == DIGITS &&
           td_text_starts(at + 1 + DIGITS, "-of-") &&
           strspn(at + 1 + DIGITS + 4, "0123456789") == DIGITS;
}

static bool has_record_ending(const char *name)
{
    return td_text_ends(name, ".tfrecord") || td_text_ends(name, ".tfrecords") ||
           td_text_ends(name, ".record");
}

/* TensorBoard's event files are TFRecords, too, but no data. */
static bool begins_as_record(const char *folder, const char *name)
{
    if (strstr(name, ".tfevents."))
        return false;
    char *path = td_path_join(folder, name);
    const bool is = path && td_tfrecord_is(path);
    td_free(path);
    return is;
}

static bool is_shard(const char *folder, const td_listing *l, size_t i, td_shard_kind kind)
{
    const char *name = l->names[i];
    if (l->is_folder[i] || name[0] == '.')
        return false;
    if (kind == TD_SHARDS_TAR)
        return td_text_ends(name, ".tar");
    return is_numbered(name) || has_record_ending(name) || begins_as_record(folder, name);
}

static bool is_file_of(const char *path, td_shard_kind kind)
{
    if (!td_path_is_file(path))
        return false;
    return kind == TD_SHARDS_TAR ? td_text_ends(path, ".tar")
                                 : has_record_ending(path) || td_tfrecord_is(path);
}

/* --- folders ---------------------------------------------------------------------------------- */

static bool is_glob(const char *path)
{
    return td_path_base(path)[strcspn(td_path_base(path), "*?")] && !strchr(path, '{') &&
           !td_path_exists(path);
}

static bool is_pattern(const char *path)
{
    return strchr(path, '{') && !td_path_exists(path);
}

/* Add the files of the folder whose names match the last part of the path. */
static td_status add_matches(const char *path, td_shard_names *out)
{
    const char *name = td_path_base(path);
    const size_t n = (size_t)(name - path);
    td_listing l = { 0 };
    td_status st;
    char *folder = td_copy_text(n ? path : ".");
    if (!folder)
        return TD_ENOMEM;
    if (n)
        folder[n > 1 ? n - 1 : n] = '\0';
    TD_OUT(td_list_folder(folder, &l));
    for (size_t i = 0; i < l.n; i++) {
        if (!td_text_glob(name, l.names[i]) || !is_shard(folder, &l, i, out->kind))
            continue;
        const char *file = n ? td_path_append(out->arena, folder, l.names[i]) : l.names[i];
        TD_OUT(file ? add_name(out, file) : TD_ENOMEM);
    }
    if (!out->n)
        st = td_error(TD_ENOTFOUND, "no %s matches '%s'", td_shard_word(out->kind), path);
out:
    td_listing_release(&l);
    td_free(folder);
    return st;
}

/*
 * Are there shards in a folder?  For tars there are no folders, which would be classes; TFRecords
 * may lie beside a folder of their indexes, but not beside the splits of an image folder, where
 * they are TensorBoard's.
 */
static bool holds_shards(const char *folder, td_shard_kind kind)
{
    td_listing l;
    bool has_shard = false, has_folder = false, has_split = false;
    size_t n_tried = 0;
    if (td_list_folder(folder, &l) != TD_OK) {
        td_error_clear();
        return false;
    }
    for (size_t i = 0; i < l.n; i++) {
        const bool is_hidden = l.names[i][0] == '.';
        has_folder |= l.is_folder[i] && !is_hidden;
        has_split |=
            l.is_folder[i] && (strcmp(l.names[i], "train") == 0 || strcmp(l.names[i], "val") == 0);
        if (kind == TD_SHARDS_TAR)
            has_shard |= is_shard(folder, &l, i, kind);
        else if (!l.is_folder[i] && !is_hidden && !has_shard && n_tried++ < FILES_TRIED)
            has_shard = begins_as_record(folder, l.names[i]);
    }
    td_listing_release(&l);
    return has_shard && !(kind == TD_SHARDS_TAR ? has_folder : has_split);
}

static bool part_holds_shards(const char *path, const char *part, td_shard_kind kind)
{
    char *folder = td_path_join(path, part);
    const bool holds = folder && td_path_is_folder(folder) && holds_shards(folder, kind);
    td_free(folder);
    return holds;
}

/* Is the first file of a pattern one of this kind?  Its name decides if it does not exist. */
static bool is_pattern_of(const char *path, td_shard_kind kind)
{
    td_arena arena;
    td_arena_init(&arena);
    td_shard_names names = { .arena = &arena, .kind = kind };
    const td_status st =
        is_glob(path) ? add_matches(path, &names) : td_shard_names_expand(path, &names);
    const bool is = st == TD_OK && names.n && is_file_of(names.paths[0], kind);
    if (st != TD_OK)
        td_error_clear();
    td_free(names.paths);
    td_arena_release(&arena);
    return is;
}

bool td_shard_names_are(const char *path, td_shard_kind kind)
{
    if (is_file_of(path, kind))
        return true;
    if (is_pattern(path) && td_text_ends(path, ".tar"))
        return kind == TD_SHARDS_TAR;
    if (is_pattern(path) || is_glob(path))
        return is_pattern_of(path, kind);
    return td_path_is_folder(path) &&
           (holds_shards(path, kind) || part_holds_shards(path, "train", kind) ||
            part_holds_shards(path, "val", kind));
}

static td_status add_folder(const char *folder, td_shard_names *out)
{
    td_listing l;
    td_status st = TD_OK;
    TD_TRY(td_list_folder(folder, &l));
    for (size_t i = 0; i < l.n && st == TD_OK; i++) {
        if (!is_shard(folder, &l, i, out->kind))
            continue;
        const char *path = td_path_append(out->arena, folder, l.names[i]);
        st = path ? add_name(out, path) : TD_ENOMEM;
    }
    td_listing_release(&l);
    return st;
}

/* --- splits ----------------------------------------------------------------------------------- */

static bool is_same_word(const char *word, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(word, name, n) == 0;
}

/* "train" or "val", if a word of the file's name is one of their names; or NULL. */
static const char *split_of(const char *path)
{
    static const char *const names[] = { "train",      "training", "val",    "valid",
                                         "validation", "test",     "testing" };
    for (const char *at = td_path_base(path); *at;) {
        size_t n = 0;
        while (isalpha((unsigned char)at[n]))
            n++;
        for (size_t i = 0; n && i < sizeof names / sizeof *names; i++)
            if (is_same_word(at, n, names[i]))
                return i < 2 ? "train" : "val";
        at += n ? n : 1;
    }
    return NULL;
}

static td_status no_shard(const td_dataset_opts *opts, td_shard_kind kind)
{
    return td_error(TD_ENOTFOUND,
                    "'%s' has no shard of split '%s': a %s with '%s' in its name, or in a "
                    "folder of this name",
                    opts->path, opts->split, td_shard_word(kind), opts->split);
}

/* Keep the shards of the split, if there are shards of both. */
static td_status choose(const td_dataset_opts *opts, td_shard_names *s, bool *is_unsplit)
{
    size_t n_of[2] = { 0, 0 };
    const bool wants_val = opts->split && strcmp(opts->split, "val") == 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *split = split_of(s->paths[i]);
        if (split)
            n_of[strcmp(split, "val") == 0]++;
    }
    *is_unsplit = !n_of[0] || !n_of[1];
    if (!opts->split)
        return TD_OK;
    if (*is_unsplit) {
        const bool is_other = wants_val ? !n_of[1] && !opts->allow_root : n_of[1] == s->n;
        return is_other ? no_shard(opts, s->kind) : TD_OK;
    }
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *split = split_of(s->paths[i]);
        if (split && strcmp(split, opts->split) == 0)
            s->paths[n++] = s->paths[i];
    }
    s->n = n;
    return n ? TD_OK : no_shard(opts, s->kind);
}

static td_status find_in_folder(const td_dataset_opts *opts, td_shard_names *out, bool *is_unsplit)
{
    const bool has_train = part_holds_shards(opts->path, "train", out->kind);
    const bool has_val = part_holds_shards(opts->path, "val", out->kind);
    if (opts->split && (has_train || has_val)) {
        const char *folder = td_path_append(out->arena, opts->path, opts->split);
        *is_unsplit = false;
        if (!folder)
            return TD_ENOMEM;
        return part_holds_shards(opts->path, opts->split, out->kind) ? add_folder(folder, out)
                                                                     : no_shard(opts, out->kind);
    }
    TD_TRY(add_folder(opts->path, out));
    if (!out->n)
        return td_error(TD_ENOTFOUND, "'%s' has no %ss", opts->path, td_shard_word(out->kind));
    return choose(opts, out, is_unsplit);
}

td_status td_shard_names_find(const td_dataset_opts *opts, td_shard_names *out, bool *is_unsplit)
{
    *is_unsplit = true;
    if (td_path_is_folder(opts->path))
        return find_in_folder(opts, out, is_unsplit);
    if (is_pattern(opts->path) || is_glob(opts->path)) {
        TD_TRY(is_glob(opts->path) ? add_matches(opts->path, out)
                                   : td_shard_names_expand(opts->path, out));
        return choose(opts, out, is_unsplit);
    }
    if (!td_path_exists(opts->path))
        return td_error(TD_ENOTFOUND, "data set '%s' does not exist", opts->path);
    TD_TRY(add_name(out, opts->path));
    return choose(opts, out, is_unsplit);
}
