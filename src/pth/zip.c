/*
 * zip.c -- reads zip entries with libzip, after checking the layout
 */
#include "pth/zip.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "base/arena.h"
#include "base/map.h"
#include "pth/zip_layout.h"

#define NAME "%.200s" /* a name from the file, in a message */

typedef struct {
    const char *name; /* owned by the map */
    uint64_t n_bytes;
} entry;

struct td_zip {
    const td_blob *blob;
    zip_t *archive;
    entry *entries; /* [n] */
    size_t n;
    td_map index; /* name -> index into entries, plus 1 */
};

static td_status failed(const td_blob *b, zip_error_t *e)
{
    td_status st = zip_error_code_zip(e) == ZIP_ER_MEMORY ? TD_ENOMEM : TD_EFORMAT;
    if (zip_error_code_zip(e) == ZIP_ER_EXISTS)
        return td_error(TD_EFORMAT, "'%s': two entries with the same name", b->what);
    return td_error(st, "'%s': malformed zip archive (%s)", b->what, zip_error_strerror(e));
}

static td_status open_source(const td_blob *b, zip_source_t **source, zip_error_t *e)
{
    *source = NULL;
    if (b->bytes) {
        *source = zip_source_buffer_create(b->bytes, b->n_bytes, 0, e);
        return *source ? TD_OK : failed(b, e);
    }
    int fd = dup(b->fd);
    FILE *f = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (!f) {
        if (fd >= 0)
            close(fd);
        return td_error_errno(TD_EIO, "cannot read '%s'", b->what);
    }
    *source = zip_source_filep_create(f, 0, -1, e);
    if (*source)
        return TD_OK;
    fclose(f);
    return failed(b, e);
}

static td_status open_archive(td_zip *z)
{
    zip_error_t e;
    zip_source_t *source;
    zip_error_init(&e);
    td_status st = open_source(z->blob, &source, &e);
    if (st == TD_OK) {
        z->archive = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &e);
        if (!z->archive) {
            st = failed(z->blob, &e);
            zip_source_free(source);
        }
    }
    zip_error_fini(&e);
    return st;
}

/* is the name relative, without "..", with '/' as separator? */
static bool is_plain_name(const char *name)
{
    if (!*name || *name == '/' || strchr(name, '\\'))
        return false;
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (strcmp(p, "..") == 0 || strncmp(p, "../", 3) == 0)
            return false;
    }
    return true;
}

static td_status check_entry(const td_zip *z, const zip_stat_t *s)
{
    const char *what = z->blob->what;
    if (!is_plain_name(s->name))
        return td_error(TD_EFORMAT, "'%s': an entry with the name '" NAME "'", what, s->name);
    if (td_map_has(&z->index, s->name))
        return td_error(TD_EFORMAT, "'%s': two entries with the same name", what);
    if (s->encryption_method != ZIP_EM_NONE)
        return td_error(TD_EUNSUPPORTED, "'%s': entry '" NAME "' is encrypted", what, s->name);
    if (strstr(s->name, "/code/"))
        return td_error(
            TD_EUNSUPPORTED,
            "'%s' is a TorchScript program, wanted weights: save model.state_dict() instead", what);
    if (s->comp_method != ZIP_CM_STORE || s->comp_size != s->size)
        return td_error(TD_EUNSUPPORTED,
                        "'%s': entry '" NAME "' is compressed, %" PRIu64 " to %" PRIu64
                        " bytes; only stored entries are read",
                        what, s->name, s->size, s->comp_size);
    if (s->size > z->blob->n_bytes)
        return td_error(TD_EFORMAT,
                        "'%s': entry '" NAME "' of %" PRIu64 " bytes in a file of %" PRIu64, what,
                        s->name, s->size, z->blob->n_bytes);
    return TD_OK;
}

static td_status read_entries(td_zip *z)
{
    const zip_uint64_t wanted = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE |
                                ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    for (size_t i = 0; i < z->n; i++) {
        zip_stat_t s;
        if (zip_stat_index(z->archive, i, ZIP_FL_ENC_RAW, &s) != 0)
            return failed(z->blob, zip_get_error(z->archive));
        if ((s.valid & wanted) != wanted)
            return td_error(TD_EFORMAT, "'%s': entry %zu lacks a name or a size", z->blob->what, i);
        TD_TRY(check_entry(z, &s));
        TD_TRY(td_map_set(&z->index, s.name, (void *)(uintptr_t)(i + 1)));
        z->entries[i] = (entry){ z->index.entries[i].key, s.size };
    }
    return TD_OK;
}

td_status td_zip_open(const td_blob *b, td_zip **out)
{
    td_status st = TD_OK;
    uint64_t n = 0;
    td_zip *z = NULL;

    *out = NULL;
    TD_TRY(td_zip_check_layout(b, &n));
    z = TD_NEW(td_zip);
    if (!z)
        return TD_ENOMEM;
    z->blob = b;
    z->n = (size_t)n;
    z->entries = td_alloc(z->n + 1, sizeof *z->entries);
    if (!z->entries)
        TD_OUT(TD_ENOMEM);
    TD_OUT(open_archive(z));
    int64_t found = zip_get_num_entries(z->archive, 0);
    if (found != (int64_t)n)
        TD_OUT(td_error(TD_EFORMAT, "'%s': found %lld entries, its header announces %" PRIu64,
                        b->what, (long long)found, n));
    TD_OUT(read_entries(z));
    *out = z;
    z = NULL;
out:
    td_zip_close(z);
    return st;
}

void td_zip_close(td_zip *z)
{
    if (!z)
        return;
    if (z->archive)
        zip_discard(z->archive);
    td_free(z->entries);
    td_map_release(&z->index);
    td_free(z);
}

size_t td_zip_count(const td_zip *z)
{
    return z->n;
}

const char *td_zip_name(const td_zip *z, size_t i)
{
    return z->entries[i].name;
}

uint64_t td_zip_bytes(const td_zip *z, size_t i)
{
    return z->entries[i].n_bytes;
}

bool td_zip_find(const td_zip *z, const char *name, size_t *i)
{
    uintptr_t at = (uintptr_t)td_map_get(&z->index, name);
    if (at)
        *i = at - 1;
    return at != 0;
}

static td_status entry_failed(const td_zip *z, size_t i, const char *why)
{
    return td_error(TD_EFORMAT, "'%s': entry '" NAME "' is damaged: %s", z->blob->what,
                    z->entries[i].name, why);
}

td_status td_zip_read(td_zip *z, size_t i, void *to)
{
    td_status st = TD_OK;
    uint64_t at = 0, n = z->entries[i].n_bytes;
    char over;
    zip_file_t *f = zip_fopen_index(z->archive, i, 0);

    if (!f)
        return entry_failed(z, i, zip_error_strerror(zip_get_error(z->archive)));
    while (st == TD_OK && at < n) {
        zip_int64_t got = zip_fread(f, (char *)to + at, n - at);
        if (got > 0)
            at += (uint64_t)got;
        else
            st = entry_failed(z, i, got ? zip_error_strerror(zip_file_get_error(f)) : "too short");
    }
    /* libzip checks the CRC at the end of the entry */
    if (st == TD_OK && zip_fread(f, &over, 1) != 0)
        st = entry_failed(z, i, zip_error_strerror(zip_file_get_error(f)));
    zip_fclose(f);
    return st;
}
