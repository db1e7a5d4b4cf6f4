/*
 * safetensors.c -- reads and checks files of tensors; writes them with a digest
 *
 *     0         8                            8 + n
 *     | n: u64 | JSON header, then spaces   | data of the 1st tensor | 2nd | ...      | end of file
 *
 * Reading proceeds in this order, so that nothing is used before it is checked and memory is
 * proportional to the file's size: length, header, an entry per tensor; the entries, sorted by
 * offset, must tile the rest of the file exactly; then the data.  Every tensor of a file that was
 * read is 64-byte aligned in memory, wherever it was in the file.
 *
 * A file written here starts with
 *
 *     {"__metadata__":{"digest":"xxh3:0123456789abcdef","digest_of":"header and data", ...
 *
 * The digest covers the whole file except its own 16 digits.  There are two entries so that a file
 * with damage in the name of one does not look like a file without a digest.
 *
 * Source: https://github.com/huggingface/safetensors (format; limits of its reader).
 */
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/json.h"
#include "base/map.h"
#include "base/text.h"
#include "io/atomic.h"
#include "io/blob.h"
#include "io/digest.h"
#include "io/mapping.h"
#include "io/tensor_set.h"

#define HEADER_MAX    100000000u /* as in the reference reader */
#define LENGTH_BYTES  8
#define VALUES_MAX    2000000 /* 200,000 tensors of four dimensions; 500 MB during parsing */
#define META_NAME     "__metadata__"
#define DIGEST_DIGITS 16
#define DIGEST_START  "{\"" META_NAME "\":{\"digest\":\"xxh3:"
#define DIGEST_AT     (sizeof DIGEST_START - 1)
#define DIGEST_OF     "header and data"
#define NAME          TD_NAME_IN_MESSAGE

/* --- element types --------------------------------------------------------------------------- */

static const char *const dtype_names[TD_N_DTYPE] = { NULL,
#define DTYPE_NAME(name, text, bytes, st) st,
                                                     TD_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
};

/* types in the format that are not supported here */
static const char *const foreign_dtypes[] = { "BOOL",    "I16",     "U16",     "U32",
                                              "U64",     "F8_E4M3", "F8_E5M2", "F8_E8M0",
                                              "F6_E2M3", "F6_E3M2", "F4",      "C64" };

static td_dtype find_dtype(const char *name)
{
    for (int d = 1; d < TD_N_DTYPE; d++)
        if (strcmp(name, dtype_names[d]) == 0)
            return (td_dtype)d;
    return TD_DT_NONE;
}

static bool is_foreign_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof foreign_dtypes / sizeof *foreign_dtypes; i++)
        if (strcmp(name, foreign_dtypes[i]) == 0)
            return true;
    return false;
}

/* computes the bytes of a shape; false if a dimension is negative or the product overflows */
static bool count_bytes(td_dtype dtype, int rank, const int64_t *dim, size_t *out)
{
    size_t n = td_dtype_bytes(dtype);
    for (int i = 0; i < rank; i++)
        if (dim[i] < 0 || !td_mul_size(n, (size_t)dim[i], &n) || n > INT64_MAX)
            return false;
    *out = n;
    return true;
}

/* --- the set --------------------------------------------------------------------------------- */

td_status td_tensors_new(td_tensors **out)
{
    *out = TD_NEW(td_tensors);
    return *out ? TD_OK : TD_ENOMEM;
}

void td_tensors_free(td_tensors *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_blocks; i++)
        td_free(t->blocks[i]);
    td_free(t->blocks);
    td_free(t->items);
    td_map_release(&t->index);
    td_map_release(&t->meta);
    td_arena_release(&t->texts);
    td_mapping_close(t->file);
    td_free(t);
}

size_t td_tensors_count(const td_tensors *t)
{
    return t->n;
}

const td_tensor *td_tensors_at(const td_tensors *t, size_t i)
{
    return i < t->n ? &t->items[i] : NULL;
}

const td_tensor *td_tensors_get(const td_tensors *t, const char *name)
{
    uintptr_t i = (uintptr_t)td_map_get(&t->index, name);
    return i ? &t->items[i - 1] : NULL;
}

const char *td_tensors_meta(const td_tensors *t, const char *key)
{
    return td_map_get(&t->meta, key);
}

size_t td_tensors_meta_count(const td_tensors *t)
{
    return t->meta.n;
}

const char *td_tensors_meta_key(const td_tensors *t, size_t i)
{
    return i < t->meta.n ? t->meta.entries[i].key : NULL;
}

/* appends `x`; its name is copied */
static td_status append(td_tensors *t, td_tensor x)
{
    TD_TRY(td_reserve(&t->items, &t->cap, t->n + 1, sizeof *t->items));
    x.name = td_arena_text(&t->texts, x.name);
    if (!x.name)
        return TD_ENOMEM;
    TD_TRY(td_map_set(&t->index, x.name, (void *)(uintptr_t)(t->n + 1)));
    t->items[t->n++] = x;
    return TD_OK;
}

static td_status put_meta(td_tensors *t, const char *key, const char *value)
{
    char *copy = td_arena_text(&t->texts, value);
    return copy ? td_map_set(&t->meta, key, copy) : TD_ENOMEM;
}

td_status td_tensors_new_block(td_tensors *t, size_t n_bytes, void **out)
{
    TD_TRY(td_reserve(&t->blocks, &t->cap_blocks, t->n_blocks + 1, sizeof *t->blocks));
    *out = td_alloc(n_bytes, 1);
    if (!*out)
        return TD_ENOMEM;
    t->blocks[t->n_blocks++] = *out;
    return TD_OK;
}

static void drop_last_block(td_tensors *t)
{
    td_free(t->blocks[--t->n_blocks]);
}

/* --- adding ---------------------------------------------------------------------------------- */

static td_status check_new(const td_tensors *t, const char *name, td_dtype dtype, int rank,
                           const int64_t *dim, size_t *n_bytes)
{
    if (!*name || strcmp(name, META_NAME) == 0 || !td_text_is_utf8(name))
        return td_error(TD_EARG, "'" NAME "' cannot name a tensor", name);
    if (td_map_has(&t->index, name))
        return td_error(TD_EARG, "tensor '" NAME "' is repeated", name);
    if (td_dtype_bytes(dtype) == 0)
        return td_error(TD_EARG, "tensor '" NAME "' has no element type", name);
    if (rank < 0 || rank > TD_TENSOR_RANK_MAX)
        return td_error(TD_EARG, "tensor '" NAME "' has %d dimensions, wanted 0 to %d", name, rank,
                        TD_TENSOR_RANK_MAX);
    if (!count_bytes(dtype, rank, dim, n_bytes))
        return td_error(TD_EARG, "tensor '" NAME "' has an invalid shape", name);
    return TD_OK;
}

td_status td_tensors_add(td_tensors *t, const char *name, td_dtype dtype, int rank,
                         const int64_t *dim, const void *data)
{
    td_tensor x = { .name = name, .dtype = dtype, .rank = rank, .data = data };

    TD_TRY(check_new(t, name, dtype, rank, dim, &x.n_bytes));
    if (!data && x.n_bytes)
        return td_error(TD_EARG, "tensor '" NAME "' has no data", name);
    if (rank)
        memcpy(x.dim, dim, (size_t)rank * sizeof *dim);
    return append(t, x);
}

td_status td_tensors_add_new(td_tensors *t, const char *name, td_dtype dtype, int rank,
                             const int64_t *dim, void **data)
{
    size_t n_bytes;
    void *block;

    *data = NULL;
    TD_TRY(check_new(t, name, dtype, rank, dim, &n_bytes));
    TD_TRY(td_tensors_new_block(t, n_bytes, &block));
    td_status st = td_tensors_add(t, name, dtype, rank, dim, block);
    if (st != TD_OK)
        drop_last_block(t);
    else
        *data = block;
    return st;
}

static bool is_digest_key(const char *key)
{
    return strcmp(key, "digest") == 0 || strcmp(key, "digest_of") == 0;
}

td_status td_tensors_set_meta(td_tensors *t, const char *key, const char *value)
{
    if (is_digest_key(key))
        return td_error(TD_EARG, "metadata '%s' is set by the writer", key);
    if (!td_text_is_utf8(key) || !td_text_is_utf8(value))
        return td_error(TD_EARG, "metadata '" NAME "' is not UTF-8", key);
    return put_meta(t, key, value);
}

/* --- reading the header ---------------------------------------------------------------------- */

typedef struct {
    td_tensors *t;
    const char *what;   /* names the source in messages */
    const char *header; /* [n_header] bytes */
    size_t n_header;
    uint64_t n_data; /* bytes after the header */
} reader;

/* an entry of the header, to be sorted into file order */
typedef struct {
    td_tensor x;
    uint64_t begin, end; /* range in the data */
    size_t i;            /* index in the header: order of empty tensors */
} entry;

static td_status check_length(const char *what, uint64_t n_header, uint64_t n_file)
{
    if (n_header > HEADER_MAX)
        return td_error(TD_ELIMIT,
                        "'%s' is not a safetensors file: its first 8 bytes give a header of "
                        "%" PRIu64 " bytes, the limit is %u",
                        what, n_header, HEADER_MAX);
    if (n_header > n_file - LENGTH_BYTES)
        return td_error(TD_EFORMAT, "'%s': header of %" PRIu64 " bytes in a file of %" PRIu64, what,
                        n_header, n_file);
    if (n_header < 2)
        return td_error(TD_EFORMAT, "'%s': header of %" PRIu64 " bytes, wanted 2 or more", what,
                        n_header);
    return TD_OK;
}

static td_status too_short(const char *what, uint64_t n_file)
{
    if (n_file == 0)
        return td_error(TD_EFORMAT, "'%s' is empty", what);
    return td_error(TD_EFORMAT, "'%s': %" PRIu64 " bytes, too short for a safetensors file", what,
                    n_file);
}

static td_status read_dtype(const reader *r, const td_json *j, td_tensor *x)
{
    const td_json *text = td_json_get(j, "dtype");
    const char *name;

    if (!text)
        return td_error(TD_EFORMAT, "'%s': tensor '" NAME "' has no dtype", r->what, x->name);
    TD_TRY(td_json_as_text(text, &name));
    x->dtype = find_dtype(name);
    if (x->dtype != TD_DT_NONE)
        return TD_OK;
    if (is_foreign_dtype(name))
        return td_error(TD_EUNSUPPORTED, "'%s': tensor '" NAME "' is %s, which is not supported",
                        r->what, x->name, name);
    return td_error(TD_EFORMAT, "'%s': tensor '" NAME "' has the unknown type '" NAME "'", r->what,
                    x->name, name);
}

static td_status read_shape(const reader *r, const td_json *j, td_tensor *x)
{
    const td_json *shape = td_json_get(j, "shape");
    if (!shape || td_json_kind_of(shape) != TD_JSON_ARRAY)
        return td_error(TD_EFORMAT, "'%s': tensor '" NAME "' has no shape", r->what, x->name);
    size_t rank = td_json_count(shape);
    if (rank > TD_TENSOR_RANK_MAX)
        return td_error(TD_ELIMIT,
                        "'%s': tensor '" NAME "' has %zu dimensions, at most %d are read", r->what,
                        x->name, rank, TD_TENSOR_RANK_MAX);
    x->rank = (int)rank;
    for (size_t i = 0; i < rank; i++)
        TD_TRY_MSG(td_json_as_int(td_json_at(shape, i), &x->dim[i]), "tensor '" NAME "'", x->name);
    if (!count_bytes(x->dtype, x->rank, x->dim, &x->n_bytes))
        return td_error(TD_EFORMAT, "'%s': tensor '" NAME "' has a negative or too large shape",
                        r->what, x->name);
    return TD_OK;
}

static td_status read_offsets(const reader *r, const td_json *j, entry *e)
{
    const td_json *pair = td_json_get(j, "data_offsets");
    int64_t begin, end;

    if (!pair || td_json_kind_of(pair) != TD_JSON_ARRAY || td_json_count(pair) != 2)
        return td_error(TD_EFORMAT, "'%s': tensor '" NAME "' has no pair of data_offsets", r->what,
                        e->x.name);
    TD_TRY_MSG(td_json_as_int(td_json_at(pair, 0), &begin), "tensor '" NAME "'", e->x.name);
    TD_TRY_MSG(td_json_as_int(td_json_at(pair, 1), &end), "tensor '" NAME "'", e->x.name);
    if (begin < 0 || end < begin || (uint64_t)end > r->n_data)
        return td_error(TD_EFORMAT,
                        "'%s': tensor '" NAME "' is at %" PRId64 " to %" PRId64 " of %" PRIu64
                        " bytes of data",
                        r->what, e->x.name, begin, end, r->n_data);
    e->begin = (uint64_t)begin;
    e->end = (uint64_t)end;
    if (e->end - e->begin != e->x.n_bytes)
        return td_error(TD_EFORMAT,
                        "'%s': tensor '" NAME "' has %" PRIu64 " bytes, its shape needs %zu",
                        r->what, e->x.name, e->end - e->begin, e->x.n_bytes);
    return TD_OK;
}

static td_status read_entry(const reader *r, const td_json *j, entry *e)
{
    if (td_json_kind_of(j) != TD_JSON_OBJECT || td_json_count(j) != 3)
        return td_error(TD_EFORMAT, "'%s': tensor '" NAME "': wanted dtype, shape and data_offsets",
                        r->what, e->x.name);
    TD_TRY(read_dtype(r, j, &e->x));
    TD_TRY(read_shape(r, j, &e->x));
    return read_offsets(r, j, e);
}

static td_status read_meta(const reader *r, const td_json *meta)
{
    if (td_json_kind_of(meta) != TD_JSON_OBJECT)
        return td_error(TD_EFORMAT, "'%s': " META_NAME " is not an object", r->what);
    for (size_t i = 0; i < td_json_count(meta); i++) {
        const char *key = td_json_key(meta, i), *value;
        TD_TRY_MSG(td_json_as_text(td_json_member(meta, i), &value), "'%s': " META_NAME, r->what);
        TD_TRY(put_meta(r->t, key, value));
    }
    return TD_OK;
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* sorted entries must follow each other without a gap and cover the data */
static td_status check_tiling(const reader *r, const entry *e, size_t n)
{
    uint64_t at = 0;

    for (size_t i = 0; i < n; at = e[i++].end)
        if (e[i].begin != at)
            return td_error(TD_EFORMAT,
                            "'%s': tensor '" NAME "' starts at %" PRIu64
                            " and %s the one that ends at %" PRIu64,
                            r->what, e[i].x.name, e[i].begin,
                            e[i].begin < at ? "overlaps" : "leaves a hole after", at);
    if (at != r->n_data)
        return td_error(TD_EFORMAT, "'%s': %" PRIu64 " bytes after the last tensor", r->what,
                        r->n_data - at);
    return TD_OK;
}

static td_status read_entries(const reader *r, const td_json *doc)
{
    td_status st = TD_OK;
    size_t n = 0;
    entry *e = td_alloc(td_json_count(doc), sizeof *e);

    if (!e)
        TD_OUT(TD_ENOMEM);
    for (size_t i = 0; i < td_json_count(doc); i++) {
        const char *name = td_json_key(doc, i);
        if (strcmp(name, META_NAME) == 0) {
            TD_OUT(read_meta(r, td_json_member(doc, i)));
            continue;
        }
        e[n] = (entry){ .x.name = name, .i = i };
        TD_OUT(read_entry(r, td_json_member(doc, i), &e[n]));
        n++;
    }
    qsort(e, n, sizeof *e, by_offset);
    TD_OUT(check_tiling(r, e, n));
    for (size_t i = 0; i < n; i++)
        TD_OUT(append(r->t, e[i].x));
out:
    td_free(e);
    return st;
}

/* limits the values: a header of only "0,0,0,..." takes a hundred times its size in memory */
static td_status check_count(const reader *r)
{
    size_t n = 0;
    const char *end = r->header + r->n_header;
    for (const char *p = r->header; (p = memchr(p, ',', (size_t)(end - p))); p++)
        if (++n > VALUES_MAX)
            return td_error(TD_ELIMIT, "'%s': header of more than %d values", r->what, VALUES_MAX);
    return TD_OK;
}

/* reads all of r->t except the data */
static td_status read_header(const reader *r)
{
    td_status st;
    td_json *doc = NULL;
    td_text what = { 0 };

    if (r->header[0] != '{')
        return td_error(TD_EFORMAT, "'%s': the header does not start with '{'", r->what);
    TD_TRY(check_count(r));
    td_text_add(&what, "header of '%s'", r->what);
    TD_OUT(td_text_status(&what));
    TD_OUT(td_json_parse(r->header, r->n_header, td_text_get(&what), &doc));
    TD_OUT(read_entries(r, doc));
out:
    td_json_free(doc);
    td_text_release(&what);
    return st;
}

/* --- the digest ------------------------------------------------------------------------------ */

/* true if either entry exists: if one is damaged, the other remains */
static bool has_digest(const td_tensors *t)
{
    const char *digest = td_tensors_meta(t, "digest");
    return td_tensors_meta(t, "digest_of") || (digest && td_text_starts(digest, "xxh3:"));
}

/* digests length and header without the digits; the header has at least DIGEST_AT + DIGEST_DIGITS
   bytes */
static void digest_header(td_digest *d, const char *header, size_t n_header)
{
    unsigned char length[LENGTH_BYTES];
    const size_t after = DIGEST_AT + DIGEST_DIGITS;

    td_digest_init(d);
    (void)td_put_le(length, n_header, LENGTH_BYTES);
    td_digest_add(d, length, sizeof length);
    td_digest_add(d, header, DIGEST_AT);
    td_digest_add(d, header + after, n_header - after);
}

static void print_digest(char digits[DIGEST_DIGITS], uint64_t value)
{
    for (int i = 0; i < DIGEST_DIGITS; i++)
        digits[i] = "0123456789abcdef"[value >> 4 * (DIGEST_DIGITS - 1 - i) & 15];
}

static td_status damaged(const char *what)
{
    return td_error(TD_EFORMAT, "'%s' is damaged: its digest does not match its contents", what);
}

static td_status check_digest(const reader *r)
{
    char digits[DIGEST_DIGITS];
    td_digest d;

    if (!has_digest(r->t))
        return TD_OK;
    if (r->n_header < DIGEST_AT + DIGEST_DIGITS || memcmp(r->header, DIGEST_START, DIGEST_AT) != 0)
        return damaged(r->what);
    digest_header(&d, r->header, r->n_header);
    for (size_t i = 0; i < r->t->n; i++)
        td_digest_add(&d, r->t->items[i].data, r->t->items[i].n_bytes);
    print_digest(digits, td_digest_value(&d));
    if (memcmp(digits, r->header + DIGEST_AT, DIGEST_DIGITS) != 0)
        return damaged(r->what);
    return TD_OK;
}

/* --- reading the data ------------------------------------------------------------------------ */

/* allocates one block for all tensors that `wants` selects, each 64-byte aligned */
static td_status allocate_tensors(td_tensors *t, bool (*wants)(const td_tensor *))
{
    size_t n_bytes = 0, at = 0;
    void *block;

    for (size_t i = 0; i < t->n; i++)
        if (wants(&t->items[i]))
            n_bytes += td_round_up(t->items[i].n_bytes, TD_HOST_ALIGN);
    if (n_bytes == 0)
        return TD_OK;
    TD_TRY(td_tensors_new_block(t, n_bytes, &block));
    for (size_t i = 0; i < t->n; i++) {
        td_tensor *x = &t->items[i];
        if (!wants(x))
            continue;
        const void *old = x->data;
        x->data = (char *)block + at;
        if (old)
            memcpy((char *)block + at, old, x->n_bytes);
        at += td_round_up(x->n_bytes, TD_HOST_ALIGN);
    }
    return TD_OK;
}

static bool wants_always(const td_tensor *x)
{
    (void)x;
    return true;
}

static bool wants_when_crooked(const td_tensor *x)
{
    return (uintptr_t)x->data % 8 != 0;
}

/* file: that the bytes are of, or NULL; its pages are asked for when the header is found valid */
static td_status parse(const td_mapping *file, const void *bytes, size_t n_bytes, const char *what,
                       td_tensors **out)
{
    td_status st;
    reader r = { .what = what };

    *out = NULL;
    if (n_bytes < LENGTH_BYTES)
        return too_short(what, n_bytes);
    uint64_t n_header = td_get_le(bytes, LENGTH_BYTES);
    TD_TRY(check_length(what, n_header, n_bytes));
    TD_TRY(td_tensors_new(&r.t));

    r.header = (const char *)bytes + LENGTH_BYTES;
    r.n_header = (size_t)n_header;
    r.n_data = n_bytes - LENGTH_BYTES - r.n_header;
    TD_OUT(read_header(&r));
    if (file)
        td_mapping_will_be_read(file);
    const char *data = r.header + r.n_header;
    for (size_t i = 0; i < r.t->n; data += r.t->items[i++].n_bytes)
        r.t->items[i].data = data;
    TD_OUT(allocate_tensors(r.t, wants_when_crooked));
    TD_OUT(check_digest(&r));
    *out = r.t;
    r.t = NULL;
out:
    td_tensors_free(r.t);
    return st;
}

td_status td_tensors_parse(const void *bytes, size_t n_bytes, const char *what, td_tensors **out)
{
    return parse(NULL, bytes, n_bytes, what, out);
}

/* --- files ----------------------------------------------------------------------------------- */

static td_status read_data(const td_blob *file, const reader *r)
{
    uint64_t at = LENGTH_BYTES + r->n_header;
    TD_TRY_MSG(allocate_tensors(r->t, wants_always), "cannot read '%s'", r->what);
    for (size_t i = 0; i < r->t->n; i++) {
        td_tensor *x = &r->t->items[i];
        TD_TRY(td_blob_read(file, at, x->n_bytes, (void *)x->data));
        at += x->n_bytes;
    }
    return TD_OK;
}

td_status td_tensors_read(const char *path, td_tensors **out)
{
    td_status st;
    td_blob file;
    unsigned char length[LENGTH_BYTES];
    char *header = NULL;
    reader r = { .what = path };

    *out = NULL;
    TD_TRY(td_blob_open(path, &file));
    if (file.n_bytes < LENGTH_BYTES)
        TD_OUT(too_short(path, file.n_bytes));
    TD_OUT(td_blob_read(&file, 0, sizeof length, length));
    TD_OUT(check_length(path, td_get_le(length, LENGTH_BYTES), file.n_bytes));

    r.n_header = (size_t)td_get_le(length, LENGTH_BYTES);
    r.n_data = file.n_bytes - LENGTH_BYTES - r.n_header;
    r.header = header = td_alloc(r.n_header, 1);
    if (!header)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_blob_read(&file, LENGTH_BYTES, r.n_header, header));
    TD_OUT(td_tensors_new(&r.t));
    TD_OUT(read_header(&r));
    TD_OUT(read_data(&file, &r));
    TD_OUT(check_digest(&r));
    *out = r.t;
    r.t = NULL;
out:
    td_tensors_free(r.t);
    td_free(header);
    td_blob_close(&file);
    return st;
}

td_status td_tensors_map(const char *path, td_tensors **out)
{
    td_mapping *file;
    *out = NULL;
    TD_TRY(td_mapping_open(path, &file));
    td_status st = parse(file, td_mapping_bytes(file), td_mapping_size(file), path, out);
    if (st == TD_OK) {
        (*out)->file = file;
        return TD_OK;
    }
    const td_status broken = td_mapping_check(file); /* an unreadable page may be the cause */
    td_mapping_close(file);
    return broken != TD_OK ? broken : st;
}

td_status td_tensors_check(const td_tensors *t)
{
    return t->file ? td_mapping_check(t->file) : TD_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

/* by decreasing element size, which keeps tensors aligned; then in insertion order */
static void order_items(const td_tensors *t, const td_tensor **order)
{
    size_t n = 0;
    for (size_t each = 8; each; each /= 2)
        for (size_t i = 0; i < t->n; i++)
            if (td_dtype_bytes(t->items[i].dtype) == each)
                order[n++] = &t->items[i];
    TD_CHECK(n == t->n);
}

static void print_meta(td_text *h, const td_tensors *t)
{
    td_text_add(h, DIGEST_START "%0*d\",\"digest_of\":\"" DIGEST_OF "\"", DIGEST_DIGITS, 0);
    for (size_t i = 0; i < t->meta.n; i++) {
        if (is_digest_key(t->meta.entries[i].key)) /* from the file that was read */
            continue;
        td_text_add(h, ",\"");
        td_text_add_json(h, t->meta.entries[i].key);
        td_text_add(h, "\":\"");
        td_text_add_json(h, t->meta.entries[i].value);
        td_text_add(h, "\"");
    }
    td_text_add(h, "}");
}

static void print_entry(td_text *h, const td_tensor *x, uint64_t begin)
{
    td_text_add(h, ",\"");
    td_text_add_json(h, x->name);
    td_text_add(h, "\":{\"dtype\":\"%s\",\"shape\":[", dtype_names[x->dtype]);
    for (int i = 0; i < x->rank; i++)
        td_text_add(h, "%s%" PRId64, i ? "," : "", x->dim[i]);
    td_text_add(h, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, begin + x->n_bytes);
}

/* header with the digest in it, padded so that the data starts 64-byte aligned */
static td_status print_header(const td_tensors *t, const td_tensor *const *order, td_text *h)
{
    td_digest d;
    uint64_t at = 0;

    print_meta(h, t);
    for (size_t i = 0; i < t->n; at += order[i++]->n_bytes)
        print_entry(h, order[i], at);
    td_text_add(h, "}");
    while (td_text_status(h) == TD_OK && (LENGTH_BYTES + h->len) % TD_HOST_ALIGN)
        td_text_add(h, " ");
    TD_TRY(td_text_status(h));
    if (h->len > HEADER_MAX)
        return td_error(TD_ELIMIT, "header of %zu bytes, at most %u can be read back", h->len,
                        HEADER_MAX);

    digest_header(&d, h->data, h->len);
    for (size_t i = 0; i < t->n; i++)
        td_digest_add(&d, order[i]->data, order[i]->n_bytes);
    print_digest(h->data + DIGEST_AT, td_digest_value(&d));
    return TD_OK;
}

td_status td_tensors_write(const td_tensors *t, const char *path)
{
    td_status st;
    td_atomic *a = NULL;
    td_text header = { 0 };
    unsigned char length[LENGTH_BYTES];
    const td_tensor **order = td_alloc(t->n, sizeof *order);

    if (!order)
        TD_OUT(TD_ENOMEM);
    order_items(t, order);
    TD_OUT(print_header(t, order, &header));
    (void)td_put_le(length, header.len, LENGTH_BYTES);
    TD_OUT(td_atomic_open(path, &a));
    TD_OUT(td_atomic_write(a, length, sizeof length));
    TD_OUT(td_atomic_write(a, header.data, header.len));
    for (size_t i = 0; i < t->n; i++)
        TD_OUT(td_atomic_write(a, order[i]->data, order[i]->n_bytes));
    TD_OUT(td_atomic_commit(a));
out:
    td_atomic_close(a);
    td_text_release(&header);
    td_free(order);
    return st;
}
