/*
 * golden.c -- the folders of expected numbers, and the rules of their case files
 */
#include "support/golden.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file_io.h"
#include "base/paths.h"
#include "support/expect.h"

const char *td_golden_path(const char *part, const char *file)
{
    static char path[4096];
    const char *root = getenv("TANDEM_GOLDEN");
    snprintf(path, sizeof path, "%s/%s/%s", root ? root : "tests/golden", part, file);
    return path;
}

void td_golden_require(const char *part)
{
    const char *folder = td_golden_path(part, "");
    if (td_path_is_folder(folder))
        return;
    fprintf(stderr, "skipped: no folder '%s'; set TANDEM_GOLDEN\n", folder);
    exit(77);
}

td_json *td_golden_json(const char *part, const char *file)
{
    const char *path = td_golden_path(part, file);
    char *text;
    size_t n_bytes;
    td_json *doc;

    expect_ok(td_file_read(path, (size_t)64 << 20, &text, &n_bytes));
    expect_ok(td_json_parse(text, n_bytes, file, &doc));
    td_free(text);
    return doc;
}

td_tensors *td_golden_tensors(const char *part, const char *file)
{
    td_tensors *t;
    expect_ok(td_tensors_read(td_golden_path(part, file), &t));
    return t;
}

const td_json *td_golden_rows(const td_json *object, const char *key)
{
    const td_json *rows = td_json_get(object, key);
    if (td_json_count(rows) == 0)
        fail_msg("a golden file has no '%s'", key);
    return rows;
}

double td_golden_number(const td_json *object, const char *key)
{
    double v;
    expect_ok(td_json_number(object, key, &v));
    return v;
}

int td_golden_int(const td_json *object, const char *key)
{
    int64_t v;
    expect_ok(td_json_int(object, key, &v));
    return (int)v;
}

const char *td_golden_text(const td_json *object, const char *key)
{
    const char *v;
    expect_ok(td_json_text(object, key, &v));
    return v;
}

int64_t td_golden_sample(int64_t k, int64_t n)
{
    return (int64_t)((uint64_t)k * 2654435761u % (uint64_t)n);
}
