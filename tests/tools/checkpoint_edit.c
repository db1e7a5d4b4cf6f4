/*
 * checkpoint_edit.c -- checkpoint_edit IN OUT [meta.KEY=TEXT | config.NAME=JSON | -NAME ...]
 *
 * Writes the weight file or checkpoint IN as OUT with other metadata, and with a right digest, as
 * an attacker would.  config.NAME sets a member of tandem.config ("config.lr=0.1",
 * "config.csv=\"/tmp/x\""), -NAME removes a metadata text.
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "io/safetensors.h"

static const char *edit_of(int n, char **edits, const char *prefix, const char *name)
{
    const char *value = NULL;
    const size_t n_prefix = strlen(prefix), n_name = strlen(name);
    for (int i = 0; i < n; i++)
        if (strncmp(edits[i], prefix, n_prefix) == 0 &&
            strncmp(edits[i] + n_prefix, name, n_name) == 0 && edits[i][n_prefix + n_name] == '=')
            value = edits[i] + n_prefix + n_name + 1;
    return value;
}

static bool is_removed(int n, char **edits, const char *key)
{
    for (int i = 0; i < n; i++)
        if (edits[i][0] == '-' && strcmp(edits[i] + 1, key) == 0)
            return true;
    return false;
}

static void add_json(const td_json *v, td_text *out)
{
    int64_t whole;
    double real;
    const char *text;
    bool flag;
    if (td_json_as_int(v, &whole) == TD_OK)
        td_text_add(out, "%lld", (long long)whole);
    else if (td_json_as_number(v, &real) == TD_OK)
        td_text_add(out, "%.17g", real);
    else if (td_json_as_bool(v, &flag) == TD_OK)
        td_text_add(out, flag ? "true" : "false");
    else if (td_json_as_text(v, &text) == TD_OK) {
        td_text_add(out, "\"");
        td_text_add_json(out, text);
        td_text_add(out, "\"");
    } else
        td_text_add(out, "null");
}

/* the members of the old configuration that are not edited, then the edits */
static td_status edit_config(const char *old, int n, char **edits, td_text *out)
{
    td_json *doc;
    const char *comma = "";
    TD_TRY(td_json_parse(old, strlen(old), "tandem.config", &doc));
    td_text_add(out, "{");
    for (size_t i = 0; i < td_json_count(doc); i++) {
        if (edit_of(n, edits, "config.", td_json_key(doc, i)))
            continue;
        td_text_add(out, "%s\"%s\": ", comma, td_json_key(doc, i));
        add_json(td_json_member(doc, i), out);
        comma = ", ";
    }
    for (int i = 0; i < n; i++) {
        const char *equals = strchr(edits[i], '=');
        if (strncmp(edits[i], "config.", 7) != 0 || !equals)
            continue;
        td_text_add(out, "%s\"%.*s\": %s", comma, (int)(equals - edits[i] - 7), edits[i] + 7,
                    equals + 1);
        comma = ", ";
    }
    td_text_add(out, "}");
    td_json_free(doc);
    return td_text_status(out);
}

static td_status copy_meta(const td_tensors *in, int n, char **edits, td_tensors *out)
{
    for (size_t i = 0; i < td_tensors_meta_count(in); i++) {
        const char *key = td_tensors_meta_key(in, i);
        if (!td_text_starts(key, "digest") && !is_removed(n, edits, key) &&
            !edit_of(n, edits, "meta.", key))
            TD_TRY(td_tensors_set_meta(out, key, td_tensors_meta(in, key)));
    }
    for (int i = 0; i < n; i++) {
        char key[64];
        const char *equals = strchr(edits[i], '=');
        if (strncmp(edits[i], "meta.", 5) != 0 || !equals)
            continue;
        snprintf(key, sizeof key, "%.*s", (int)(equals - edits[i] - 5), edits[i] + 5);
        TD_TRY(td_tensors_set_meta(out, key, equals + 1));
    }
    return TD_OK;
}

static td_status edit(const char *from, const char *to, int n, char **edits)
{
    td_status st = TD_OK;
    td_tensors *in, *out = NULL;
    td_text config = { 0 };
    TD_TRY(td_tensors_read(from, &in));
    TD_OUT(td_tensors_new(&out));
    for (size_t i = 0; i < td_tensors_count(in); i++) {
        const td_tensor *t = td_tensors_at(in, i);
        TD_OUT(td_tensors_add(out, t->name, t->dtype, t->rank, t->dim, t->data));
    }
    TD_OUT(copy_meta(in, n, edits, out));
    const char *old = td_tensors_meta(out, "tandem.config");
    if (old) {
        TD_OUT(edit_config(old, n, edits, &config));
        TD_OUT(td_tensors_set_meta(out, "tandem.config", td_text_get(&config)));
    }
    TD_OUT(td_tensors_write(out, to));
out:
    td_text_release(&config);
    td_tensors_free(in);
    td_tensors_free(out);
    return st;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr,
                "usage: checkpoint_edit IN OUT [meta.KEY=TEXT | config.NAME=JSON | -NAME]\n");
        return 2;
    }
    if (edit(argv[1], argv[2], argc - 3, argv + 3) == TD_OK)
        return 0;
    fprintf(stderr, "checkpoint_edit: %s\n", td_error_message());
    return 1;
}
