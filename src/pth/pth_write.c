/*
 * pth_write.c -- writes a pickle of protocol 2 and the zip archive around it
 *
 *     archive/data.pkl | archive/byteorder | archive/data/0 | archive/data/1 ... | archive/version
 *
 * Every entry is stored uncompressed.  Its local header has an extra field with PyTorch's id, sized
 * so that the data begins at a multiple of 64 bytes.  Times are 1980-01-01.
 *
 * Source: PyTorch 2, torch/serialization.py and caffe2/serialize/inline_container.cc; PKWARE,
 * APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12, 4.3.16; CPython, Lib/pickletools.py.
 */
#include "pth/pth_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "io/atomic.h"
#include "io/crc32.h"

enum {
    ALIGN = 64,
    LOCAL_BYTES = 30,
    ROW_BYTES = 46,
    END_BYTES = 22,
    EXTRA_HEAD_BYTES = 4,
    EXTRA_ID = 0x4246,   /* 'F', 'B' */
    VERSION_NEEDED = 10, /* 1.0: stored entries */
    DATE = 0x21,         /* 1980-01-01 */
    NAME_ROOM = 48,
    ENTRIES_MAX = 65000,
};

/* --- the pickle ------------------------------------------------------------------------------- */

static void put(td_pth_writer *w, const char *opcodes)
{
    td_text_add_bytes(&w->pickle, opcodes, strlen(opcodes));
}

/* an opcode and a number of n bytes, lowest byte first */
static void put_number(td_pth_writer *w, char opcode, uint64_t value, int n)
{
    unsigned char bytes[9] = { (unsigned char)opcode };
    (void)td_put_le(bytes + 1, value, n);
    td_text_add_bytes(&w->pickle, (const char *)bytes, (size_t)n + 1);
}

void td_pth_dict(td_pth_writer *w)
{
    put(w, "}("); /* EMPTY_DICT, MARK */
}

void td_pth_ordered_dict(td_pth_writer *w)
{
    put(w, "ccollections\nOrderedDict\n)R("); /* GLOBAL, EMPTY_TUPLE, REDUCE, MARK */
}

void td_pth_end_dict(td_pth_writer *w)
{
    put(w, "u"); /* SETITEMS */
}

void td_pth_attributes(td_pth_writer *w)
{
    put(w, "b"); /* BUILD */
}

void td_pth_list(td_pth_writer *w)
{
    put(w, "]("); /* EMPTY_LIST, MARK */
}

void td_pth_end_list(td_pth_writer *w)
{
    put(w, "e"); /* APPENDS */
}

void td_pth_text(td_pth_writer *w, const char *text)
{
    const size_t n = strlen(text);
    if (n > UINT32_MAX) {
        w->st =
            w->st != TD_OK ? w->st : td_error(TD_ELIMIT, "a string of %zu bytes is too long", n);
        return;
    }
    put_number(w, 'X', n, 4); /* BINUNICODE */
    td_text_add_bytes(&w->pickle, text, n);
}

void td_pth_int(td_pth_writer *w, int64_t value)
{
    if (value >= INT32_MIN && value <= INT32_MAX) {
        put_number(w, 'J', (uint64_t)value, 4); /* BININT */
        return;
    }
    put_number(w, '\x8a', 8, 1); /* LONG1 of eight bytes */
    unsigned char bytes[8];
    (void)td_put_le(bytes, (uint64_t)value, 8);
    td_text_add_bytes(&w->pickle, (const char *)bytes, sizeof bytes);
}

void td_pth_real(td_pth_writer *w, double value)
{
    uint64_t bits;
    char bytes[9] = { 'G' }; /* BINFLOAT: highest byte first */
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 8; i++)
        bytes[1 + i] = (char)(unsigned char)(bits >> (56 - 8 * i));
    td_text_add_bytes(&w->pickle, bytes, sizeof bytes);
}

void td_pth_bool(td_pth_writer *w, bool value)
{
    put(w, value ? "\x88" : "\x89");
}

void td_pth_none(td_pth_writer *w)
{
    put(w, "N");
}

static const char *storage_class(td_dtype dtype)
{
    static const char *const names[TD_N_DTYPE] = {
        [TD_DT_F32] = "Float",     [TD_DT_F64] = "Double", [TD_DT_F16] = "Half",
        [TD_DT_BF16] = "BFloat16", [TD_DT_I64] = "Long",   [TD_DT_I32] = "Int",
        [TD_DT_U8] = "Byte",       [TD_DT_S8] = "Char",
    };
    return names[dtype];
}

/* storage, offset, sizes, strides, requires_grad, hooks */
static void put_tensor(td_pth_writer *w, const td_tensor *x, const char *class, const char *key)
{
    int64_t n = 1, stride[TD_TENSOR_RANK_MAX];
    for (int i = x->rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= x->dim[i] ? x->dim[i] : 1;
    }
    put(w, "ctorch._utils\n_rebuild_tensor_v2\n((");
    td_pth_text(w, "storage");
    td_text_add(&w->pickle, "ctorch\n%sStorage\n", class);
    td_pth_text(w, key);
    td_pth_text(w, "cpu");
    td_pth_int(w, (int64_t)(x->n_bytes / td_dtype_bytes(x->dtype)));
    put(w, "tQ"); /* TUPLE, BINPERSID */
    td_pth_int(w, 0);
    put(w, "(");
    for (int i = 0; i < x->rank; i++)
        td_pth_int(w, x->dim[i]);
    put(w, "t(");
    for (int i = 0; i < x->rank; i++)
        td_pth_int(w, stride[i]);
    put(w, "t\x89"
           "ccollections\nOrderedDict\n)RtR");
}

void td_pth_tensor(td_pth_writer *w, const td_tensor *x)
{
    char key[24];
    const char *class = storage_class(x->dtype);
    if (w->st == TD_OK && !class)
        w->st =
            td_error(TD_EUNSUPPORTED, "tensor '%.200s' is %s, which PyTorch files cannot contain",
                     x->name, td_dtype_name(x->dtype));
    if (w->st == TD_OK && w->n >= ENTRIES_MAX)
        w->st = td_error(TD_ELIMIT, "more than %d tensors", ENTRIES_MAX);
    if (w->st == TD_OK)
        w->st = td_reserve(&w->storages, &w->cap, w->n + 1, sizeof *w->storages);
    if (w->st != TD_OK)
        return;
    snprintf(key, sizeof key, "%zu", w->n);
    put_tensor(w, x, class, key);
    w->storages[w->n++] = *x;
}

void td_pth_writer_release(td_pth_writer *w)
{
    td_text_release(&w->pickle);
    td_free(w->storages);
    *w = (td_pth_writer){ 0 };
}

/* --- the archive ------------------------------------------------------------------------------ */

typedef struct {
    td_atomic *file;
    uint64_t at;       /* bytes written */
    td_text directory; /* directory rows of the entries written */
    int n_entries;
} archive;

static td_status append(archive *a, const void *bytes, size_t n)
{
    a->at += n;
    if (a->at > UINT32_MAX)
        return td_error(TD_ELIMIT, "a file of 4 GB or more, as PyTorch's zip archive");
    return n ? td_atomic_write(a->file, bytes, n) : TD_OK;
}

/* the 26 bytes common to a local header and a row of the directory */
static void put_common(unsigned char *p, uint32_t crc, size_t n_bytes, size_t n_name,
                       size_t n_extra)
{
    p = td_put_le(p, VERSION_NEEDED, 2);
    p = td_put_le(p, 0, 2); /* flags */
    p = td_put_le(p, 0, 2); /* stored */
    p = td_put_le(p, 0, 2); /* time */
    p = td_put_le(p, DATE, 2);
    p = td_put_le(p, crc, 4);
    p = td_put_le(p, n_bytes, 4);
    p = td_put_le(p, n_bytes, 4);
    p = td_put_le(p, n_name, 2);
    (void)td_put_le(p, n_extra, 2);
}

static td_status put_entry(archive *a, const char *name, const void *bytes, size_t n_bytes)
{
    unsigned char local[LOCAL_BYTES], row[ROW_BYTES] = { 0 }, extra[EXTRA_HEAD_BYTES + ALIGN];
    const size_t n_name = strlen(name);
    const uint64_t begin = a->at, data = begin + LOCAL_BYTES + n_name + EXTRA_HEAD_BYTES;
    const size_t n_pad = (ALIGN - data % ALIGN) % ALIGN, n_extra = EXTRA_HEAD_BYTES + n_pad;

    if (n_bytes > UINT32_MAX)
        return td_error(TD_ELIMIT, "a tensor of 4 GB or more, in PyTorch's zip archive");
    const uint32_t crc = td_crc32(bytes, n_bytes);
    (void)td_put_le(local, 0x04034b50, 4);
    put_common(local + 4, crc, n_bytes, n_name, n_extra);
    memset(extra, 'Z', sizeof extra);
    (void)td_put_le(td_put_le(extra, EXTRA_ID, 2), n_pad, 2);
    TD_TRY(append(a, local, sizeof local));
    TD_TRY(append(a, name, n_name));
    TD_TRY(append(a, extra, n_extra));
    TD_TRY(append(a, bytes, n_bytes));

    (void)td_put_le(row, 0x02014b50, 4);
    (void)td_put_le(row + 4, VERSION_NEEDED, 2); /* version made by */
    put_common(row + 6, crc, n_bytes, n_name, 0);
    (void)td_put_le(row + 42, begin, 4);
    td_text_add_bytes(&a->directory, (const char *)row, sizeof row);
    td_text_add_bytes(&a->directory, name, n_name);
    a->n_entries++;
    return TD_OK;
}

static td_status put_directory(archive *a)
{
    unsigned char end[END_BYTES] = { 0 };
    const uint64_t begin = a->at;
    TD_TRY(td_text_status(&a->directory));
    TD_TRY(append(a, a->directory.data, a->directory.len));
    (void)td_put_le(end, 0x06054b50, 4);
    (void)td_put_le(end + 8, (uint64_t)a->n_entries, 2);
    (void)td_put_le(end + 10, (uint64_t)a->n_entries, 2);
    (void)td_put_le(end + 12, a->directory.len, 4);
    (void)td_put_le(end + 16, begin, 4);
    return append(a, end, sizeof end);
}

static td_status put_archive(archive *a, const td_pth_writer *w, const td_text *pickle)
{
    char name[NAME_ROOM];
    TD_TRY(put_entry(a, "archive/data.pkl", pickle->data, pickle->len));
    TD_TRY(put_entry(a, "archive/byteorder", "little", 6));
    for (size_t i = 0; i < w->n; i++) {
        snprintf(name, sizeof name, "archive/data/%zu", i);
        TD_TRY(put_entry(a, name, w->storages[i].data, w->storages[i].n_bytes));
    }
    TD_TRY(put_entry(a, "archive/version", "3\n", 2));
    return put_directory(a);
}

td_status td_pth_save(const td_pth_writer *w, const char *path)
{
    td_status st;
    archive a = { 0 };
    td_text pickle = { 0 };

    TD_OUT(w->st);
    TD_OUT(td_text_status(&w->pickle));
    td_text_add_bytes(&pickle, "\x80\x02", 2); /* PROTO 2 */
    td_text_add_bytes(&pickle, w->pickle.data, w->pickle.len);
    td_text_add_bytes(&pickle, ".", 1); /* STOP */
    TD_OUT(td_text_status(&pickle));
    TD_OUT(td_atomic_open(path, &a.file));
    st = put_archive(&a, w, &pickle);
    if (st != TD_OK)
        TD_OUT(td_error_context(st, "'%s'", path));
    TD_OUT(td_atomic_commit(a.file));
out:
    td_atomic_close(a.file);
    td_text_release(&a.directory);
    td_text_release(&pickle);
    return st;
}
