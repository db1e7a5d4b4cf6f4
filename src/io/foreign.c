/*
 * foreign.c -- recognises foreign files by their first or last bytes
 */
#include "io/foreign.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/file_io.h"
#include "base/paths.h"
#include "base/text.h"
#include "io/blob.h"
#include "io/tfrecord.h"

#define TABLE_MAGIC UINT64_C(0xdb4775248b80fb57) /* LevelDB, table/format.h */
#define STATE_TEXT  "model_checkpoint_path: \""  /* tf.train.Saver's file `checkpoint` */
#define CHECKPOINT  "a TensorFlow checkpoint"

enum { HEAD_BYTES = 24, FILES_TRIED = 16 };

static bool is_table(const td_blob *b)
{
    unsigned char magic[8];
    if (b->n_bytes < 48 || td_blob_read(b, b->n_bytes - 8, sizeof magic, magic) != TD_OK)
        return false;
    return td_get_le(magic, 8) == TABLE_MAGIC;
}

/* ModelProto: field 1 ir_version, then 2 producer_name .. 8 opset_import; in order of field
   numbers */
static bool is_onnx(const unsigned char *head, size_t n)
{
    static const unsigned char next[] = { 0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42, 0 };
    const bool is_safetensors = n > 8 && head[8] == '{';
    return n >= 3 && head[0] == 0x08 && head[1] >= 2 && head[1] <= 30 && !is_safetensors &&
           head[2] && strchr((const char *)next, head[2]) != NULL;
}

static bool is_saved_model(const unsigned char *head, size_t n)
{
    return n > 8 && head[0] == 0x08 && head[1] == 1 && head[2] == 0x12 && head[8] != '{';
}

static bool is_hdf5(const unsigned char *head, size_t n)
{
    return n >= 8 && memcmp(head, "\x89HDF\r\n\x1a\n", 8) == 0;
}

/* NAME.data-00000-of-00001: tensor bytes without a header */
static bool is_checkpoint_data(const char *path)
{
    static const char data[] = ".data-";
    const char *at = strrchr(path, '.');
    if (!at || !td_text_starts(at, data))
        return false;
    at += strlen(data);
    const size_t n = strspn(at, "0123456789");
    return n == 5 && td_text_starts(at + n, "-of-") && strspn(at + n + 4, "0123456789") == n &&
           at[n + 4 + n] == '\0';
}

static const char *kind_of_bytes(const td_blob *b, const char *path)
{
    unsigned char head[HEAD_BYTES + 1] = { 0 };
    const size_t n = b->n_bytes < HEAD_BYTES ? (size_t)b->n_bytes : HEAD_BYTES;
    if (td_blob_read(b, 0, n, head) != TD_OK)
        return NULL;
    if (td_tfrecord_begins(head, n, b->n_bytes))
        return "a TFRecord file";
    if (is_table(b) || td_text_starts((const char *)head, STATE_TEXT) || is_checkpoint_data(path))
        return CHECKPOINT;
    if (is_onnx(head, n))
        return TD_FOREIGN_ONNX;
    if (is_saved_model(head, n))
        return "a TensorFlow SavedModel";
    return is_hdf5(head, n) ? "an HDF5 file" : NULL;
}

static bool has_file(const char *path, const char *suffix)
{
    td_text name = { 0 };
    td_text_add(&name, "%s%s", path, suffix);
    const bool is_there = td_text_status(&name) == TD_OK && td_path_exists(td_text_get(&name));
    td_text_release(&name);
    return is_there;
}

/* the name `checkpoint` alone is not sufficient */
static const char *kind_of_folder(const char *path)
{
    const char *kind = NULL;
    char *state = td_path_join(path, "checkpoint");
    if (has_file(path, "/saved_model.pb"))
        kind = "a TensorFlow SavedModel";
    else if (state && td_path_exists(state) && !td_path_is_folder(state) && td_foreign_kind(state))
        kind = "a folder of TensorFlow checkpoints";
    td_free(state);
    return kind;
}

const char *td_foreign_kind(const char *path)
{
    td_blob b;
    const char *kind = NULL;
    if (td_path_is_folder(path))
        return kind_of_folder(path);
    if (!td_path_exists(path))
        return has_file(path, ".index") ? CHECKPOINT : NULL;
    if (td_blob_open(path, &b) == TD_OK) {
        kind = kind_of_bytes(&b, path);
        td_blob_close(&b);
    }
    td_error_clear(); /* the reader of the file reports the error */
    return kind;
}

td_status td_foreign_refuse(const char *path, const char *wanted)
{
    const char *kind = td_foreign_kind(path);
    return kind ? td_error(TD_EUNSUPPORTED, "'%s' is %s, wanted %s", path, kind, wanted) : TD_OK;
}

td_status td_foreign_refuse_folder(const char *path, const char *wanted)
{
    td_listing l;
    td_status st = td_foreign_refuse(path, wanted);
    if (st != TD_OK || td_list_folder(path, &l) != TD_OK)
        return st;
    for (size_t i = 0, n = 0; i < l.n && n < FILES_TRIED && st == TD_OK; i++) {
        if (l.is_folder[i] || l.names[i][0] == '.')
            continue;
        n++;
        char *file = td_path_join(path, l.names[i]);
        const char *kind = file ? td_foreign_kind(file) : NULL;
        td_free(file);
        if (kind)
            st = td_error(TD_EUNSUPPORTED, "'%s' holds '%s', which is %s, wanted %s", path,
                          l.names[i], kind, wanted);
    }
    td_listing_release(&l);
    return st;
}
