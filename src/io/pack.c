/*
 * pack.c -- reads and writes packs: all images of a data set in one file
 *
 *     0      16                                    index_at                       end - 64     end
 *     | head | image | image | ... | image   | index                        | tail       |
 *
 *     head   "tandpack", version: u32 (1; 2: annotated), zero: u32
 *     index  images  [n_images]  at: u64, n_bytes: u32, class: u32, digest: u64, name: u32,
 *                                    zero: u32
 *            splits    [n_splits]    n_images: u64, n_classes: u32, name: u32
 *            classes   [n_classes]   name: u32, of all splits one after the other
 *            texts                   names, each ends in a zero byte; `name` above: where it begins
 *     tail   index_at: u64, index_bytes: u64, n_images: u64, n_splits: u32, n_classes: u32,
 *            short_side: u32, quality: u32, index_digest: u64, digest: u64, "packends"
 *
 * All numbers are little-endian.  The index follows the images, so that images are written
 * immediately while the index grows in memory: 32 bytes and a name for each.
 *
 * Check values form a tree.  The index has each image's digest; the tail has the index's digest,
 * and a digest over the head and the preceding part of the tail: the latter identifies the whole
 * file, and opening reads no image.  An image's digest is verified each time it is used, which
 * takes a hundredth of its decoding time.
 *
 * Head, tail and index are read into memory before they are checked, and each image is read into
 * its reader's buffer.  Images are not mapped: in a mapping, a truncated file or a failing disk
 * would end the process by SIGBUS; here it is an error for one image.  The copy takes some
 * hundredths of a millisecond, decoding takes a whole one.
 */
#include "io/pack.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/text.h"
#include "io/atomic.h"
#include "io/blob.h"
#include "io/digest.h"

enum {
    VERSION = 1,
    VERSION_ANNOTATED = 2,
    MAGIC_BYTES = 8,
    HEAD_BYTES = 16,
    TAIL_BYTES = 64,
    TAIL_DIGESTED = 48,
    IMAGE_BYTES = 32,
    SPLIT_BYTES = 16,
    CLASS_BYTES = 4,
    SPLITS_MAX = 16,
    CLASSES_MAX = 1 << 24
};

static const char head_magic[] = "tandpack", tail_magic[] = "packends";

/* an image's row in the index */
typedef struct {
    uint64_t at, digest;
    uint32_t n_bytes, label, name;
} record;

/* --- numbers ---------------------------------------------------------------------------------- */

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)td_get_le(p, 4);
}

static uint64_t get64(const unsigned char *p)
{
    return td_get_le(p, 8);
}

static record get_record(const unsigned char *p)
{
    return (record){ .at = get64(p),
                     .n_bytes = get32(p + 8),
                     .label = get32(p + 12),
                     .digest = get64(p + 16),
                     .name = get32(p + 24) };
}

static void put_record(unsigned char *p, const record *r)
{
    p = td_put_le(p, r->at, 8);
    p = td_put_le(p, r->n_bytes, 4);
    p = td_put_le(p, r->label, 4);
    p = td_put_le(p, r->digest, 8);
    p = td_put_le(p, r->name, 4);
    (void)td_put_le(p, 0, 4);
}

static uint64_t digest_of_ends(const unsigned char *head, const unsigned char *tail)
{
    td_digest d;
    td_digest_init(&d);
    td_digest_add(&d, head, HEAD_BYTES);
    td_digest_add(&d, tail, TAIL_DIGESTED);
    return td_digest_value(&d);
}

/* could the name be a folder's name? */
static bool is_class_name(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

/* --- an open pack ----------------------------------------------------------------------------- */

struct td_pack {
    char *what;   /* the path, for messages */
    td_blob blob; /* of metadata.n_bytes */
    td_pack_metadata metadata;

    unsigned char *index;        /* [n_index], owned */
    const unsigned char *images; /* points into the index */
    const char *texts;           /* points into the index */
    size_t n_index, n_texts;
    uint64_t index_at;
    int n_classes;         /* total of all splits */
    td_pack_split *splits; /* [metadata.n_splits] */
    const char **classes;  /* [n_classes] */
};

const td_pack_metadata *td_pack_metadata_of(const td_pack *p)
{
    return &p->metadata;
}

const td_pack_split *td_pack_split_at(const td_pack *p, int i)
{
    TD_CHECK(i >= 0 && i < p->metadata.n_splits);
    return &p->splits[i];
}

static record record_at(const td_pack *p, uint64_t i)
{
    TD_CHECK(i < p->metadata.n_images);
    return get_record(p->images + i * IMAGE_BYTES);
}

td_pack_image td_pack_image_at(const td_pack *p, uint64_t i)
{
    record r = record_at(p, i);
    return (
        td_pack_image){ .name = p->texts + r.name, .label = (int)r.label, .n_bytes = r.n_bytes };
}

void td_pack_close(td_pack *p)
{
    if (!p)
        return;
    td_blob_close(&p->blob);
    td_free(p->what);
    td_free(p->index);
    td_free(p->splits);
    td_free(p->classes);
    td_free(p);
}

/* --- checking head and tail ------------------------------------------------------------------- */

static td_status check_head(td_pack *p, const unsigned char *head)
{
    if (memcmp(head, head_magic, MAGIC_BYTES) != 0)
        return td_error(TD_EFORMAT, "'%s' is not a pack: it begins with the wrong bytes", p->what);
    uint32_t version = get32(head + MAGIC_BYTES);
    if (version != VERSION && version != VERSION_ANNOTATED)
        return td_error(TD_EUNSUPPORTED, "'%s': pack version is %" PRIu32 ", wanted %d or %d",
                        p->what, version, VERSION, VERSION_ANNOTATED);
    p->metadata.is_annotated = version == VERSION_ANNOTATED;
    return TD_OK;
}

static td_status check_tail(td_pack *p, const unsigned char *head, const unsigned char *tail)
{
    td_pack_metadata *f = &p->metadata;
    if (memcmp(tail + TAIL_BYTES - MAGIC_BYTES, tail_magic, MAGIC_BYTES) != 0)
        return td_error(TD_EFORMAT, "'%s': the pack is truncated: its trailer is missing", p->what);
    f->digest = get64(tail + TAIL_DIGESTED);
    if (f->digest != digest_of_ends(head, tail))
        return td_error(TD_EFORMAT, "'%s' is damaged: header and trailer disagree", p->what);
    p->index_at = get64(tail);
    uint64_t n_index = get64(tail + 8);
    f->n_images = get64(tail + 16);
    uint32_t n_splits = get32(tail + 24), n_classes = get32(tail + 28);
    f->short_side = (int)(get32(tail + 32) & INT32_MAX);
    f->quality = (int)(get32(tail + 36) & INT32_MAX);
    uint64_t room = f->n_bytes - TAIL_BYTES;
    if (p->index_at < HEAD_BYTES || p->index_at > room || n_index != room - p->index_at)
        return td_error(TD_EFORMAT,
                        "'%s': index of %" PRIu64 " bytes at byte %" PRIu64 " of %" PRIu64, p->what,
                        n_index, p->index_at, f->n_bytes);
    if (n_splits < 1 || n_splits > SPLITS_MAX || n_classes > CLASSES_MAX ||
        f->n_images > n_index / IMAGE_BYTES ||
        f->n_images * IMAGE_BYTES + n_splits * SPLIT_BYTES + n_classes * (uint64_t)CLASS_BYTES >
            n_index)
        return td_error(TD_EFORMAT,
                        "'%s': %" PRIu64 " images, %" PRIu32 " splits and %" PRIu32
                        " classes do not match an index of %" PRIu64 " bytes",
                        p->what, f->n_images, n_splits, n_classes, n_index);
    f->n_splits = (int)n_splits;
    p->n_classes = (int)n_classes;
    p->n_index = (size_t)n_index;
    return TD_OK;
}

/* --- checking the index ----------------------------------------------------------------------- */

static td_status check_name(const td_pack *p, uint32_t name, const char *of)
{
    if (name < p->n_texts)
        return TD_OK;
    return td_error(TD_EFORMAT, "'%s': %s name at %" PRIu32 " of %zu bytes of names", p->what, of,
                    name, p->n_texts);
}

static td_status read_classes(td_pack *p, const unsigned char *raw)
{
    for (int i = 0; i < p->n_classes; i++) {
        uint32_t name = get32(raw + (size_t)i * CLASS_BYTES);
        TD_TRY(check_name(p, name, "class"));
        p->classes[i] = p->texts + name;
        if (!is_class_name(p->classes[i]))
            return td_error(TD_EFORMAT, "'%s': class %d has a name that is not a valid folder name",
                            p->what, i);
    }
    return TD_OK;
}

static td_status read_splits(td_pack *p, const unsigned char *raw)
{
    uint64_t n_images = 0, n_classes = 0;
    for (int i = 0; i < p->metadata.n_splits; i++, raw += SPLIT_BYTES) {
        td_pack_split *s = &p->splits[i];
        uint32_t classes = get32(raw + 8), name = get32(raw + 12);
        TD_TRY(check_name(p, name, "split"));
        *s = (td_pack_split){ .name = p->texts + name, .first = n_images, .n_images = get64(raw) };
        if (classes < 2 || classes > (uint64_t)p->n_classes - n_classes ||
            s->n_images > p->metadata.n_images - n_images)
            return td_error(TD_EFORMAT,
                            "'%s': split %d refers to %" PRIu32 " classes and %" PRIu64
                            " images that the pack does not have",
                            p->what, i, classes, s->n_images);
        s->classes = p->classes + n_classes;
        s->n_classes = (int)classes;
        n_classes += classes;
        n_images += s->n_images;
        for (int c = 1; c < s->n_classes; c++)
            if (strcmp(s->classes[c - 1], s->classes[c]) >= 0)
                return td_error(TD_EFORMAT, "'%s': classes of split %d are not in order", p->what,
                                i);
        for (int k = 0; k < i; k++)
            if (strcmp(p->splits[k].name, s->name) == 0)
                return td_error(TD_EFORMAT, "'%s': two splits have the same name", p->what);
    }
    if (n_images != p->metadata.n_images || n_classes != (uint64_t)p->n_classes)
        return td_error(TD_EFORMAT, "'%s': some images or classes belong to no split", p->what);
    return TD_OK;
}

/* checks the images of a split: within the file, named, ordered by class without a gap */
static td_status check_images(const td_pack *p, const td_pack_split *s)
{
    uint32_t label = 0;
    for (uint64_t i = s->first; i < s->first + s->n_images; i++) {
        record r = record_at(p, i);
        if (r.at < HEAD_BYTES || r.at > p->index_at || r.n_bytes > p->index_at - r.at ||
            r.n_bytes > TD_PACK_IMAGE_BYTES_MAX)
            return td_error(TD_EFORMAT,
                            "'%s': image %" PRIu64 " of %" PRIu32 " bytes at byte %" PRIu64
                            ", the images end at %" PRIu64,
                            p->what, i, r.n_bytes, r.at, p->index_at);
        TD_TRY(check_name(p, r.name, "image"));
        if (!p->texts[r.name])
            return td_error(TD_EFORMAT, "'%s': image %" PRIu64 " has no name", p->what, i);
        if (r.label != label && (r.label != label + 1 || i == s->first))
            return td_error(TD_EFORMAT,
                            "'%s': image %" PRIu64 " has class %" PRIu32 ", after class "
                            "%" PRIu32,
                            p->what, i, r.label, label);
        label = r.label;
    }
    if (s->n_images == 0 || label + 1 != (uint32_t)s->n_classes)
        return td_error(TD_EFORMAT, "'%s': split '%s' has classes without images", p->what,
                        s->name);
    return TD_OK;
}

static td_status read_index(td_pack *p, uint64_t digest)
{
    const td_pack_metadata *f = &p->metadata;
    if (td_digest_of(p->index, p->n_index) != digest)
        return td_error(TD_EFORMAT, "'%s' is damaged: the digest of its index is wrong", p->what);
    size_t images = (size_t)f->n_images * IMAGE_BYTES;
    size_t splits = images + (size_t)f->n_splits * SPLIT_BYTES;
    size_t classes = splits + (size_t)p->n_classes * CLASS_BYTES;
    p->images = p->index;
    p->texts = (const char *)p->index + classes;
    p->n_texts = p->n_index - classes;
    if (p->n_texts == 0 || p->texts[p->n_texts - 1] != '\0')
        return td_error(TD_EFORMAT, "'%s': the names in the index are not terminated", p->what);
    TD_TRY(TD_ALLOC(p->splits, (size_t)f->n_splits));
    TD_TRY(TD_ALLOC(p->classes, (size_t)p->n_classes + 1));
    TD_TRY(read_classes(p, p->index + splits));
    TD_TRY(read_splits(p, p->index + images));
    for (int i = 0; i < f->n_splits; i++)
        TD_TRY(check_images(p, &p->splits[i]));
    return TD_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

static td_status read_all(td_pack *p)
{
    unsigned char head[HEAD_BYTES] = { 0 }, tail[TAIL_BYTES];
    const uint64_t n = p->metadata.n_bytes = p->blob.n_bytes;
    TD_TRY(td_blob_read(&p->blob, 0, n < HEAD_BYTES ? (size_t)n : HEAD_BYTES, head));
    if (n >= MAGIC_BYTES && n < HEAD_BYTES + TAIL_BYTES &&
        memcmp(head, head_magic, MAGIC_BYTES) == 0)
        return td_error(TD_EFORMAT, "'%s': the pack is truncated to %" PRIu64 " bytes", p->what, n);
    if (n == 0)
        return td_error(TD_EFORMAT, "'%s' is not a pack: it is empty", p->what);
    TD_TRY(check_head(p, head));
    TD_TRY(td_blob_read(&p->blob, n - TAIL_BYTES, TAIL_BYTES, tail));
    TD_TRY(check_tail(p, head, tail));
    p->index = td_alloc(p->n_index, 1);
    if (!p->index)
        return TD_ENOMEM;
    TD_TRY(td_blob_read(&p->blob, p->index_at, p->n_index, p->index));
    return read_index(p, get64(tail + 40));
}

static td_status new_pack(const char *what, td_pack **out)
{
    td_pack *p = TD_NEW(td_pack);
    if (!p)
        return TD_ENOMEM;
    p->blob.fd = -1;
    p->what = td_copy_text(what);
    if (!p->what) {
        td_free(p);
        return TD_ENOMEM;
    }
    *out = p;
    return TD_OK;
}

td_status td_pack_open(const char *path, td_pack **out)
{
    td_pack *p;
    td_status st;
    *out = NULL;
    TD_TRY(new_pack(path, &p));
    TD_OUT(td_blob_open(p->what, &p->blob));
    TD_OUT(read_all(p));
    *out = p;
    p = NULL;
out:
    td_pack_close(p);
    return st;
}

td_status td_pack_parse(const void *bytes, size_t n_bytes, const char *what, td_pack **out)
{
    td_pack *p;
    *out = NULL;
    TD_TRY(new_pack(what, &p));
    p->blob = td_blob_of(bytes, n_bytes, p->what);
    td_status st = read_all(p);
    if (st == TD_OK)
        *out = p;
    else
        td_pack_close(p);
    return st;
}

bool td_pack_is(const char *path)
{
    struct stat s;
    char magic[MAGIC_BYTES];
    if (stat(path, &s) != 0 || !S_ISREG(s.st_mode))
        return false;
    if (td_text_ends(path, ".pack"))
        return true;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is = pread(fd, magic, MAGIC_BYTES, 0) == MAGIC_BYTES &&
              memcmp(magic, head_magic, MAGIC_BYTES) == 0;
    (void)close(fd);
    return is;
}

/* --- images --------------------------------------------------------------------------------- */

void td_pack_read_ahead(const td_pack *p, uint64_t i)
{
    record r = record_at(p, i);
    if (!p->blob.bytes)
        (void)posix_fadvise(p->blob.fd, (off_t)r.at, (off_t)r.n_bytes, POSIX_FADV_WILLNEED);
}

/* gets the image's bytes: from memory, or read into the buffer */
static td_status load_image(const td_pack *p, const record *r, td_pack_buffer *b, const void **out)
{
    *out = p->blob.bytes ? p->blob.bytes + r->at : NULL;
    if (*out)
        return TD_OK;
    TD_TRY(td_reserve(&b->bytes, &b->cap_bytes, (size_t)r->n_bytes + 1, 1));
    *out = b->bytes;
    return td_blob_read(&p->blob, r->at, r->n_bytes, b->bytes);
}

td_status td_pack_read(const td_pack *p, uint64_t i, td_pack_buffer *buffer, const void **bytes,
                       size_t *n_bytes)
{
    record r = record_at(p, i);
    const void *at;
    TD_TRY(load_image(p, &r, buffer, &at));
    if (td_digest_of(at, r.n_bytes) != r.digest)
        return td_error(TD_EFORMAT, "damaged in the pack: the digest of its bytes is wrong");
    *bytes = at;
    *n_bytes = r.n_bytes;
    return TD_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct {
    uint64_t n_images;
    uint32_t n_classes, name;
} split;

struct td_pack_writer {
    td_atomic *file;
    uint64_t at;
    int short_side, quality;
    bool is_annotated;
    split splits[SPLITS_MAX];
    int n_splits;
    uint32_t label; /* label of the split's last image */
    record *images;
    size_t n_images, cap_images;
    uint32_t *classes; /* offsets of class names */
    size_t n_classes, cap_classes;
    td_text texts;
};

static td_status append(td_pack_writer *w, const void *bytes, size_t n_bytes)
{
    TD_TRY(td_atomic_write(w->file, bytes, n_bytes));
    w->at += n_bytes;
    return TD_OK;
}

static void make_head(const td_pack_writer *w, unsigned char *head)
{
    uint64_t version = w->is_annotated ? VERSION_ANNOTATED : VERSION;
    memcpy(head, head_magic, MAGIC_BYTES);
    (void)td_put_le(td_put_le(head + MAGIC_BYTES, version, 4), 0, 4);
}

td_status td_pack_create(const char *path, int short_side, int quality, bool is_annotated,
                         td_pack_writer **out)
{
    unsigned char head[HEAD_BYTES];
    td_status st;
    *out = NULL;
    td_pack_writer *w = TD_NEW(td_pack_writer);
    if (!w)
        return TD_ENOMEM;
    w->short_side = short_side;
    w->quality = quality;
    w->is_annotated = is_annotated;
    TD_OUT(td_atomic_open(path, &w->file));
    make_head(w, head);
    TD_OUT(append(w, head, sizeof head));
    *out = w;
    w = NULL;
out:
    td_pack_writer_free(w);
    return st;
}

void td_pack_writer_free(td_pack_writer *w)
{
    if (!w)
        return;
    td_atomic_close(w->file);
    td_free(w->images);
    td_free(w->classes);
    td_text_release(&w->texts);
    td_free(w);
}

static td_status add_text(td_pack_writer *w, const char *text, uint32_t *name)
{
    size_t n = strlen(text) + 1;
    if (n > UINT32_MAX - w->texts.len)
        return td_error(TD_ELIMIT, "the names of a pack take more than 4 GiB");
    *name = (uint32_t)w->texts.len;
    td_text_add_bytes(&w->texts, text, n);
    return td_text_status(&w->texts);
}

/* checks that the last split has an image in each class */
static td_status check_split_done(const td_pack_writer *w)
{
    const split *s = w->n_splits ? &w->splits[w->n_splits - 1] : NULL;
    if (!s || (s->n_images > 0 && w->label + 1 == s->n_classes))
        return TD_OK;
    return td_error(TD_EARG, "pack: split '%s' has classes without images",
                    w->texts.data + s->name);
}

td_status td_pack_begin_split(td_pack_writer *w, const char *name, int n_classes,
                              const char *const *classes)
{
    TD_TRY(check_split_done(w));
    if (n_classes < 2 || (size_t)n_classes > CLASSES_MAX - w->n_classes)
        return td_error(TD_EARG, "pack: split '%s' has %d classes, wanted 2 or more", name,
                        n_classes);
    if (w->n_splits == SPLITS_MAX)
        return td_error(TD_EARG, "pack: more than %d splits", SPLITS_MAX);
    for (int i = 0; i < w->n_splits; i++)
        if (strcmp(w->texts.data + w->splits[i].name, name) == 0)
            return td_error(TD_EARG, "pack: split '%s' is repeated", name);
    for (int i = 0; i < n_classes; i++)
        if (!is_class_name(classes[i]) || (i > 0 && strcmp(classes[i - 1], classes[i]) >= 0))
            return td_error(TD_EARG, "pack: class '%s' of split '%s' is repeated or out of order",
                            classes[i], name);
    TD_TRY(td_reserve(&w->classes, &w->cap_classes, w->n_classes + (size_t)n_classes,
                      sizeof *w->classes));
    split *s = &w->splits[w->n_splits];
    *s = (split){ .n_classes = (uint32_t)n_classes };
    TD_TRY(add_text(w, name, &s->name));
    for (int i = 0; i < n_classes; i++)
        TD_TRY(add_text(w, classes[i], &w->classes[w->n_classes + (size_t)i]));
    w->n_classes += (size_t)n_classes;
    w->n_splits++;
    w->label = 0;
    return TD_OK;
}

td_status td_pack_add(td_pack_writer *w, int label, const char *name, const void *bytes,
                      size_t n_bytes)
{
    split *s = w->n_splits ? &w->splits[w->n_splits - 1] : NULL;
    if (!s || label < 0 || (uint32_t)label >= s->n_classes || !*name)
        return td_error(TD_EARG,
                        "pack: image '%s' of class %d does not belong to the current split", name,
                        label);
    uint32_t next = (uint32_t)label;
    if (next != w->label && (next != w->label + 1 || s->n_images == 0))
        return td_error(TD_EARG, "pack: class %d comes after class %" PRIu32, label, w->label);
    if (n_bytes > TD_PACK_IMAGE_BYTES_MAX)
        return td_error(TD_ELIMIT, "'%s' has %zu bytes, an image has at most %u", name, n_bytes,
                        TD_PACK_IMAGE_BYTES_MAX);
    record r = { .at = w->at,
                 .n_bytes = (uint32_t)n_bytes,
                 .label = next,
                 .digest = td_digest_of(bytes, n_bytes) };
    TD_TRY(td_reserve(&w->images, &w->cap_images, w->n_images + 1, sizeof *w->images));
    TD_TRY(add_text(w, name, &r.name));
    TD_TRY(append(w, bytes, n_bytes));
    w->images[w->n_images++] = r;
    w->label = next;
    s->n_images++;
    return TD_OK;
}

/* appends a part of the index and adds it to the digest */
static td_status append_index(td_pack_writer *w, td_digest *d, const void *bytes, size_t n_bytes)
{
    td_digest_add(d, bytes, n_bytes);
    return append(w, bytes, n_bytes);
}

static td_status write_index(td_pack_writer *w, td_digest *d)
{
    enum { MANY = 1024 };
    unsigned char block[MANY * IMAGE_BYTES];
    size_t n = 0;
    for (size_t i = 0; i < w->n_images; i++) {
        put_record(block + n * IMAGE_BYTES, &w->images[i]);
        if (++n == MANY || i + 1 == w->n_images) {
            TD_TRY(append_index(w, d, block, n * IMAGE_BYTES));
            n = 0;
        }
    }
    for (int i = 0; i < w->n_splits; i++) {
        unsigned char *p = td_put_le(block, w->splits[i].n_images, 8);
        p = td_put_le(p, w->splits[i].n_classes, 4);
        (void)td_put_le(p, w->splits[i].name, 4);
        TD_TRY(append_index(w, d, block, SPLIT_BYTES));
    }
    for (size_t i = 0; i < w->n_classes; i++) {
        (void)td_put_le(block, w->classes[i], CLASS_BYTES);
        TD_TRY(append_index(w, d, block, CLASS_BYTES));
    }
    return append_index(w, d, w->texts.data, w->texts.len);
}

td_status td_pack_finish(td_pack_writer *w, td_pack_metadata *out)
{
    unsigned char head[HEAD_BYTES], tail[TAIL_BYTES];
    TD_TRY(check_split_done(w));
    if (w->n_images == 0)
        return td_error(TD_EARG, "pack: no image was added");
    uint64_t index_at = w->at;
    td_digest d;
    td_digest_init(&d);
    TD_TRY(write_index(w, &d));
    unsigned char *p = td_put_le(tail, index_at, 8);
    p = td_put_le(p, w->at - index_at, 8);
    p = td_put_le(p, w->n_images, 8);
    p = td_put_le(p, (uint64_t)w->n_splits, 4);
    p = td_put_le(p, w->n_classes, 4);
    p = td_put_le(p, (uint64_t)w->short_side, 4);
    p = td_put_le(p, (uint64_t)w->quality, 4);
    p = td_put_le(p, td_digest_value(&d), 8);
    make_head(w, head);
    uint64_t digest = digest_of_ends(head, tail);
    p = td_put_le(p, digest, 8);
    memcpy(p, tail_magic, MAGIC_BYTES);
    TD_TRY(append(w, tail, sizeof tail));
    TD_TRY(td_atomic_commit(w->file));
    *out = (td_pack_metadata){ .n_splits = w->n_splits,
                               .n_images = w->n_images,
                               .n_bytes = w->at,
                               .digest = digest,
                               .is_annotated = w->is_annotated,
                               .short_side = w->short_side,
                               .quality = w->quality };
    return TD_OK;
}
