/*
 * tensorboard.c -- writes event files: protocol buffers framed as TFRecord
 *
 *     record   length u64 | masked crc of the length u32 | data | masked crc of the data u32
 *     data     Event { 1 wall_time double, 2 step int64,
 *                      3 file_version string | 5 summary Summary | 7 session_log SessionLog }
 *     Summary  { 1 value { 1 tag string, 2 simple_value float,
 *                          8 tensor { 1 dtype, 2 shape { 2 dim { 1 size } }, 8 string_val },
 *                          9 metadata { 1 plugin_data { 1 plugin_name } } } ... }
 *
 * All little endian.  Source: tensorflow/core/util/event.proto, framework/summary.proto and
 * tensor.proto, lib/io/record_writer.cc; only the parts needed.
 */
#include "loggers/tensorboard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/paths.h"
#include "base/text.h"
#include "io/crc32c.h"
#include "io/protobuf.h"

struct td_tensorboard {
    FILE *f;
    char *path;
};

enum { DT_STRING = 7, SESSION_START = 1 };

/* --- records ---------------------------------------------------------------------------------- */

/* Append `inside` to `t` as a member, and release it. */
static void add_message(td_text *t, int field, td_text *inside)
{
    td_pb_put_message(t, field, inside);
    td_text_release(inside);
}

static void add_fixed(td_text *t, uint64_t x, int n_bytes)
{
    unsigned char bytes[8];
    td_put_le(bytes, x, n_bytes);
    td_text_add_bytes(t, (const char *)bytes, (size_t)n_bytes);
}

static td_status write_record(td_tensorboard *t, const td_text *data)
{
    td_text r = { 0 };
    add_fixed(&r, data->len, 8);
    const uint32_t of_length = td_crc32c_masked(td_text_get(&r), r.len);
    add_fixed(&r, of_length, 4);
    td_text_add_bytes(&r, td_text_get(data), data->len);
    add_fixed(&r, td_crc32c_masked(td_text_get(data), data->len), 4);
    td_status st = td_text_status(&r);
    if (st == TD_OK && fwrite(td_text_get(&r), 1, r.len, t->f) != r.len)
        st = td_error_errno(TD_EIO, "cannot write '%s'", t->path);
    td_text_release(&r);
    return st;
}

/* Write an event with one member, number `field`, and release `inside`. */
static td_status write_event(td_tensorboard *t, int64_t step, int field, td_text *inside)
{
    td_text event = { 0 };
    td_pb_put_double(&event, 1, td_wall_s());
    if (step)
        td_pb_put_int(&event, 2, step);
    add_message(&event, field, inside);
    td_status st = td_text_status(&event);
    if (st == TD_OK)
        st = write_record(t, &event);
    td_text_release(&event);
    return st;
}

td_status td_tensorboard_restart(td_tensorboard *t, int64_t step)
{
    td_text session = { 0 };
    td_pb_put_int(&session, 1, SESSION_START);
    return write_event(t, step, 7, &session);
}

td_status td_tensorboard_scalar(td_tensorboard *t, const char *tag, int64_t step, double value)
{
    td_text summary = { 0 }, v = { 0 };
    td_pb_put_text(&v, 1, tag);
    td_pb_put_float(&v, 2, (float)value);
    add_message(&summary, 1, &v);
    return write_event(t, step, 5, &summary);
}

td_status td_tensorboard_text(td_tensorboard *t, const char *tag, const char *text)
{
    td_text summary = { 0 }, v = { 0 }, tensor = { 0 }, shape = { 0 }, dim = { 0 };
    td_text metadata = { 0 }, plugin = { 0 };
    td_pb_put_int(&dim, 1, 1);
    add_message(&shape, 2, &dim);
    td_pb_put_int(&tensor, 1, DT_STRING);
    add_message(&tensor, 2, &shape);
    td_pb_put_text(&tensor, 8, text);
    td_pb_put_text(&plugin, 1, "text");
    add_message(&metadata, 1, &plugin);
    td_pb_put_text(&v, 1, tag);
    add_message(&v, 8, &tensor);
    add_message(&v, 9, &metadata);
    add_message(&summary, 1, &v);
    return write_event(t, 0, 5, &summary);
}

/* --- the file --------------------------------------------------------------------------------- */

/* Create events.out.tfevents.SECONDS.HOST.PID.N with the first free N. */
static td_status open_file(td_tensorboard *t, const char *folder)
{
    char host[64] = "", name[160];
    if (gethostname(host, sizeof host - 1) != 0 || !*host || strchr(host, '/'))
        snprintf(host, sizeof host, "tandem");
    for (int i = 0; !t->f; i++) {
        snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.%d", (long long)td_wall_s(),
                 host, (long)getpid(), i);
        td_free(t->path);
        t->path = td_path_join(folder, name);
        if (!t->path)
            return TD_ENOMEM;
        t->f = fopen(t->path, "wxe");
        if (!t->f && errno != EEXIST)
            return td_error_errno(TD_EIO, "cannot write '%s'", t->path);
    }
    return TD_OK;
}

td_status td_tensorboard_open(const char *folder, td_tensorboard **out)
{
    td_status st = TD_OK;
    td_text version = { 0 };
    *out = NULL;
    td_tensorboard *t = TD_NEW(td_tensorboard);
    if (!t)
        return TD_ENOMEM;
    TD_OUT(td_make_folder(folder));
    TD_OUT(open_file(t, folder));
    td_text_add(&version, "brain.Event:2");
    TD_OUT(write_event(t, 0, 3, &version));
    TD_OUT(td_tensorboard_flush(t));
    *out = t;
    return TD_OK;
out:
    if (t->f)
        fclose(t->f);
    td_free(t->path);
    td_free(t);
    return st;
}

td_status td_tensorboard_flush(td_tensorboard *t)
{
    if (fflush(t->f) != 0)
        return td_error_errno(TD_EIO, "cannot write '%s'", t->path);
    return TD_OK;
}

td_status td_tensorboard_close(td_tensorboard *t)
{
    td_status st = TD_OK;
    if (!t)
        return TD_OK;
    if (fclose(t->f) != 0)
        st = td_error_errno(TD_EIO, "cannot write '%s'", t->path);
    td_free(t->path);
    td_free(t);
    return st;
}
