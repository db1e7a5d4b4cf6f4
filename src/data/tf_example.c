/*
 * tf_example.c -- reads the features of a tf.train.Example, without the bytes of the image
 *
 * The outer messages are walked in the file, so that a large value is skipped and not read; the
 * value of each other feature is read into memory and parsed there.
 */
#include "data/tf_example.h"

#include <string.h>

#include "base/arena.h"
#include "io/protobuf.h"

enum {
    KEY_BYTES = 64,
    FEATURE_BYTES_MAX = 4 << 20,
    EXAMPLE_FEATURES = 1, /* field numbers */
    FEATURES_ENTRY = 1,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    LIST_VALUE = 1,
    WIRE_VARINT = 0,
    WIRE_8 = 1,
    WIRE_BYTES = 2,
    WIRE_4 = 5
};

typedef enum { KIND_TEXTS = 1, KIND_REALS, KIND_INTS } kind; /* field numbers of Feature */

/* clang-format off */
static const struct {
    const char *name;
    kind kind;
} features[TD_TF_FEATURES] = {
    [TD_TF_IMAGE]       = { "image/encoded",            KIND_TEXTS },
    [TD_TF_LABEL]       = { "image/class/label",        KIND_INTS },
    [TD_TF_TEXT]        = { "image/class/text",         KIND_TEXTS },
    [TD_TF_FILENAME]    = { "image/filename",           KIND_TEXTS },
    [TD_TF_SOURCE_ID]   = { "image/source_id",          KIND_TEXTS },
    [TD_TF_HEIGHT]      = { "image/height",             KIND_INTS },
    [TD_TF_WIDTH]       = { "image/width",              KIND_INTS },
    [TD_TF_XMIN]        = { "image/object/bbox/xmin",   KIND_REALS },
    [TD_TF_YMIN]        = { "image/object/bbox/ymin",   KIND_REALS },
    [TD_TF_XMAX]        = { "image/object/bbox/xmax",   KIND_REALS },
    [TD_TF_YMAX]        = { "image/object/bbox/ymax",   KIND_REALS },
    [TD_TF_CLASS_LABEL] = { "image/object/class/label", KIND_INTS },
    [TD_TF_CLASS_TEXT]  = { "image/object/class/text",  KIND_TEXTS },
    [TD_TF_IS_CROWD]    = { "image/object/is_crowd",    KIND_INTS },
    [TD_TF_AREA]        = { "image/object/area",        KIND_REALS },
};
/* clang-format on */

const char *td_tf_feature_name(td_tf_feature f)
{
    return features[f].name;
}

/* --- walking messages in the file ------------------------------------------------------------- */

/* The rest of a message in the file. */
typedef struct {
    td_tfrecords *t;
    const td_tfrecord *r;
    int64_t at, end;
} message;

static td_status wrong(const message *m, const char *why)
{
    return td_error(TD_EFORMAT,
                    "'%s': the record at byte %lld is no tf.train.Example: %s (byte %lld)",
                    m->t->file.what, (long long)m->r->at, why, (long long)m->at);
}

static td_status read_varint(message *m, uint64_t *out)
{
    unsigned char b;
    *out = 0;
    for (int i = 0; i < 10; i++) {
        if (m->at == m->end)
            return wrong(m, "it ends inside a number");
        TD_TRY(td_tfrecords_read(m->t, m->at, 1, &b));
        m->at++;
        if (i == 9 && b > 1)
            break;
        *out |= (uint64_t)(b & 0x7f) << 7 * i;
        if (!(b & 0x80))
            return TD_OK;
    }
    return wrong(m, "a number of more than 64 bits");
}

static td_status skip_bytes(message *m, uint64_t n)
{
    if (n > (uint64_t)(m->end - m->at))
        return wrong(m, "a value that is longer than its message");
    m->at += (int64_t)n;
    return TD_OK;
}

/* The next field; *inner: its bytes, empty if it is a number, which is skipped. */
static td_status next_field(message *m, int *number, message *inner)
{
    uint64_t key, n;
    TD_TRY(read_varint(m, &key));
    if (key >> 3 == 0 || key >> 3 >= 1u << 29)
        return wrong(m, "an invalid field number");
    *number = (int)(key >> 3);
    *inner = *m;
    inner->end = inner->at;
    switch (key & 7) {
    case WIRE_VARINT:
        return read_varint(m, &n);
    case WIRE_8:
        return skip_bytes(m, 8);
    case WIRE_4:
        return skip_bytes(m, 4);
    case WIRE_BYTES:
        TD_TRY(read_varint(m, &n));
        inner->at = m->at;
        TD_TRY(skip_bytes(m, n));
        inner->end = m->at;
        return TD_OK;
    default:
        return wrong(m, "an invalid wire type");
    }
}

/* --- values ----------------------------------------------------------------------------------- */

static td_status refuse(const message *m, td_status st, td_tf_feature f, const char *why)
{
    return td_error(st, "'%s': the record at byte %lld: '%s' %s", m->t->file.what,
                    (long long)m->r->at, features[f].name, why);
}

/* The place of the one value of image/encoded. */
static td_status find_image(message *feature, td_tf_example *x)
{
    message list, value;
    int number;
    while (feature->at < feature->end) {
        TD_TRY(next_field(feature, &number, &list));
        if (number != KIND_TEXTS)
            return refuse(feature, TD_EFORMAT, TD_TF_IMAGE, "is no list of bytes");
        while (list.at < list.end) {
            TD_TRY(next_field(&list, &number, &value));
            if (number != LIST_VALUE)
                continue;
            if (x->image_at)
                return refuse(feature, TD_EFORMAT, TD_TF_IMAGE, "has two values");
            x->image_at = value.at;
            x->image_bytes = value.end - value.at;
        }
    }
    return TD_OK;
}

static td_status add_reals(const td_pb *r, const td_pb_field *f, td_tf_list *l)
{
    td_pb packed;
    float value;
    if (f->wire == WIRE_4) {
        TD_TRY(td_pb_float(r, f, &value));
        TD_TRY(td_reserve(&l->reals, &l->cap_reals, l->n + 1, sizeof *l->reals));
        l->reals[l->n++] = value;
        return TD_OK;
    }
    TD_TRY(td_pb_enter(r, f, &packed));
    const size_t n = f->n_bytes / sizeof value;
    if (f->n_bytes % sizeof value)
        return td_error(TD_EFORMAT, "a list of floats of %zu bytes", f->n_bytes);
    TD_TRY(td_reserve(&l->reals, &l->cap_reals, l->n + n + 1, sizeof *l->reals));
    if (n)
        memcpy(l->reals + l->n, f->bytes, f->n_bytes);
    l->n += n;
    return TD_OK;
}

static td_status add_ints(const td_pb *r, const td_pb_field *f, td_tf_list *l)
{
    const size_t most = f->wire == WIRE_BYTES ? f->n_bytes : 1;
    TD_TRY(td_reserve(&l->ints, &l->cap_ints, l->n + most + 1, sizeof *l->ints));
    return td_pb_ints(r, f, l->ints, l->cap_ints, &l->n);
}

static td_status add_text(const td_pb *r, const td_pb_field *f, td_tf_list *l)
{
    td_pb bytes;
    TD_TRY(td_pb_enter(r, f, &bytes));
    if (f->n_bytes && memchr(f->bytes, '\0', f->n_bytes))
        return td_error(TD_EFORMAT, "a text with a zero byte");
    td_text_add_bytes(&l->texts, (const char *)f->bytes, f->n_bytes);
    td_text_add_bytes(&l->texts, "", 1);
    l->n++;
    return td_text_status(&l->texts);
}

static td_status add_values(td_pb *list, kind k, td_tf_list *l)
{
    td_pb_field f;
    while (td_pb_more(list)) {
        TD_TRY(td_pb_next(list, &f));
        if (f.number != LIST_VALUE)
            continue;
        TD_TRY(k == KIND_INTS    ? add_ints(list, &f, l)
               : k == KIND_REALS ? add_reals(list, &f, l)
                                 : add_text(list, &f, l));
    }
    return TD_OK;
}

static td_status parse_feature(td_pb *feature, kind k, td_tf_list *l)
{
    td_pb_field f;
    td_pb list;
    while (td_pb_more(feature)) {
        TD_TRY(td_pb_next(feature, &f));
        if (f.number != (int)k)
            return td_error(TD_EFORMAT, "it is no list of %s",
                            k == KIND_INTS    ? "integers"
                            : k == KIND_REALS ? "floats"
                                              : "texts");
        TD_TRY(td_pb_enter(feature, &f, &list));
        TD_TRY(add_values(&list, k, l));
    }
    return TD_OK;
}

static td_status read_feature(message *value, td_tf_feature f, td_tf_example *x)
{
    td_tf_list *l = &x->lists[f];
    const int64_t n = value->end - value->at;
    if (l->is_there)
        return refuse(value, TD_EFORMAT, f, "occurs twice");
    l->is_there = true;
    if (f == TD_TF_IMAGE)
        return find_image(value, x);
    if (n > FEATURE_BYTES_MAX)
        return refuse(value, TD_ELIMIT, f, "has more than 4 MiB");
    TD_TRY(td_reserve(&x->buffer, &x->cap_buffer, (size_t)n + 1, 1));
    TD_TRY(td_tfrecords_read(value->t, value->at, (size_t)n, x->buffer));
    td_pb r = td_pb_open(x->buffer, (size_t)n, features[f].name);
    TD_TRY_MSG(parse_feature(&r, features[f].kind, l), "'%s': the record at byte %lld: '%s'",
               value->t->file.what, (long long)value->r->at, features[f].name);
    return TD_OK;
}

/* --- the example ------------------------------------------------------------------------------ */

static td_tf_feature find_feature(const char *key)
{
    int f = 0;
    while (f < TD_TF_FEATURES && strcmp(features[f].name, key) != 0)
        f++;
    return (td_tf_feature)f;
}

/* Longer keys are those of no feature above. */
static td_status read_key(message *key, char out[KEY_BYTES])
{
    const int64_t n = key->end - key->at;
    *out = '\0';
    if (n >= KEY_BYTES)
        return TD_OK;
    TD_TRY(td_tfrecords_read(key->t, key->at, (size_t)n, out));
    out[n] = '\0';
    return TD_OK;
}

static td_status read_entry(message *entry, td_tf_example *x)
{
    char key[KEY_BYTES] = "";
    message inner, value = *entry;
    int number;
    value.end = value.at;
    while (entry->at < entry->end) {
        TD_TRY(next_field(entry, &number, &inner));
        if (number == ENTRY_KEY)
            TD_TRY(read_key(&inner, key));
        else if (number == ENTRY_VALUE)
            value = inner;
    }
    const td_tf_feature f = find_feature(key);
    return f < TD_TF_FEATURES ? read_feature(&value, f, x) : TD_OK;
}

static td_status read_features(message *all, td_tf_example *x)
{
    message entry;
    int number;
    while (all->at < all->end) {
        TD_TRY(next_field(all, &number, &entry));
        if (number == FEATURES_ENTRY)
            TD_TRY(read_entry(&entry, x));
    }
    return TD_OK;
}

static void clear(td_tf_example *x)
{
    x->image_at = x->image_bytes = 0;
    for (int f = 0; f < TD_TF_FEATURES; f++) {
        x->lists[f].is_there = false;
        x->lists[f].n = 0;
        x->lists[f].texts.len = 0;
    }
}

td_status td_tf_example_read(td_tfrecords *t, const td_tfrecord *r, td_tf_example *x)
{
    message m = { t, r, r->offset, r->offset + r->n_bytes }, inner;
    int number;
    clear(x);
    while (m.at < m.end) {
        TD_TRY(next_field(&m, &number, &inner));
        if (number != EXAMPLE_FEATURES)
            return wrong(&m, "it has another field than features");
        TD_TRY(read_features(&inner, x));
    }
    return TD_OK;
}

const char *td_tf_list_text(const td_tf_list *l, size_t i)
{
    const char *text = td_text_get(&l->texts);
    for (; i > 0; i--)
        text += strlen(text) + 1;
    return text;
}

void td_tf_example_release(td_tf_example *x)
{
    for (int f = 0; f < TD_TF_FEATURES; f++) {
        td_free(x->lists[f].ints);
        td_free(x->lists[f].reals);
        td_text_release(&x->lists[f].texts);
    }
    td_free(x->buffer);
}
