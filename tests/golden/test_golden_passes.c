/*
 * test_golden_passes.c -- graphs through single passes, against tests/golden/passes/ *.txt
 *
 *     # what this shows
 *     # range WEIGHT INPUT OUTPUT     a row of the table of ranges; "wide": kept in float32
 *     pass NAME               or NAME {precision=bf16, amp_rule=classic}: mixed precision's options
 *     graph                   fused graphs are asked of the made-up device of support/graphs.h
 *     ---
 *     expected graph, or one line "error: message"
 *
 * Every result must also parse back, and stay as it is when the pass (but grad) runs on it once
 * more.
 * TANDEM_GOLDEN_WRITE=1 rewrites what is below the line.
 */
#include "support/expect.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file_io.h"
#include "options/field.h"
#include "pass/pass.h"
#include "support/golden.h"
#include "support/graphs.h"

typedef struct {
    char *file;      /* everything */
    char *expected;  /* in it: behind the line, cut off there */
    char *graph;     /* in it: behind "pass NAME" */
    char head[1024]; /* up to the graph */
    const td_pass *pass;
    td_amp_opts amp;
    td_arena arena; /* behind amp */
    td_activation_ranges table;
    td_activation_range ranges[16];
    char weights[16][64];
} golden_case;

static const td_pass *find_pass(const char *name, size_t n)
{
    const td_pass *p = NULL;
    for (int i = 0; (p = td_pass_at(i)); i++)
        if (strlen(p->name) == n && strncmp(p->name, name, n) == 0)
            break;
    return p;
}

/* what stands behind the pass's name, in braces */
static void read_options(golden_case *c, const char *line)
{
    char text[256];
    size_t n = strcspn(line, "\n"), open = strcspn(line, "{");
    td_amp_defaults(&c->amp);
    if (open >= n)
        return;
    snprintf(text, sizeof text, "%.*s", (int)(n - open - 2), line + open + 1);
    expect_ok(td_fields_parse(td_amp_fields(), &c->amp, text, &c->arena));
}

/* one comment line */
static void read_range(golden_case *c, const char *line)
{
    const int i = c->table.n;
    char wide[8] = "";
    td_activation_range *r = &c->ranges[i];
    if (i == 16 ||
        sscanf(line, "# range %63s %f %f %7s", c->weights[i], &r->input, &r->output, wide) < 3)
        return;
    r->is_wide = strncmp(wide, "wide", 4) == 0;
    c->table.n++;
}

static golden_case read_case(const char *name)
{
    golden_case c = { 0 };
    size_t n_bytes;
    expect_ok(td_file_read(td_golden_path("passes", name), 1 << 20, &c.file, &n_bytes));
    char *pass = c.file;
    for (; *pass == '#'; pass += strcspn(pass, "\n") + 1)
        read_range(&c, pass);
    char *line = strstr(c.file, "\n---\n");
    if (strncmp(pass, "pass ", 5) != 0 || !line)
        fail_msg("%s: wanted comments, 'pass NAME', a graph and '---'", name);
    c.pass = find_pass(pass + 5, strcspn(pass + 5, " \n"));
    if (!c.pass)
        fail_msg("%s: there is no such pass", name);
    read_options(&c, pass);
    c.graph = pass + strcspn(pass, "\n") + 1;
    snprintf(c.head, sizeof c.head, "%.*s", (int)(c.graph - c.file), c.file);
    line[1] = '\0';
    c.expected = line + 5;
    return c;
}

static char *run_pass(const golden_case *c, const char *text)
{
    td_graph *g = td_test_graph(text), *out;
    char *result;
    td_activation_range ranges[16];
    const td_activation_ranges table = { .n = c->table.n, .ranges = ranges };
    td_amp_opts amp = c->amp;
    for (int i = 0; i < table.n; i++) {
        ranges[i] = c->ranges[i];
        ranges[i].weight = c->weights[i];
    }
    amp.ranges = &table;
    if (td_pass_run(c->pass, g, &td_test_target, &amp, &out) == TD_OK) {
        result = td_test_print(out);
        td_graph_free(out);
    } else {
        td_text t = { 0 };
        td_text_add(&t, "error: %s\n", td_error_message());
        expect_ok(td_text_status(&t));
        result = t.data;
    }
    td_graph_free(g);
    return result;
}

static void write_case(const char *name, const golden_case *c, const char *result)
{
    FILE *f = fopen(td_golden_path("passes", name), "wb");
    assert_non_null(f);
    fprintf(f, "%s%s---\n%s", c->head, c->graph, result);
    assert_int_equal(fclose(f), 0);
}

static bool check_case(const char *name)
{
    bool is_good = true;
    golden_case c = read_case(name);
    char *result = run_pass(&c, c.graph);
    if (getenv("TANDEM_GOLDEN_WRITE")) {
        write_case(name, &c, result);
    } else if (strcmp(result, c.expected) != 0) {
        print_error("%s: found\n%swanted\n%s", name, result, c.expected);
        is_good = false;
    }
    if (strncmp(result, "error: ", 7) != 0) {
        char *twice = run_pass(&c, result);
        if (strcmp(result, twice) != 0) {
            print_error("%s: once\n%stwice\n%s", name, result, twice);
            is_good = false;
        }
        td_text_free(twice);
    }
    td_text_free(result);
    td_arena_release(&c.arena);
    td_free(c.file);
    return is_good;
}

static void every_case_gives_what_it_says(void **state)
{
    (void)state;
    struct dirent **entries;
    int n = scandir(td_golden_path("passes", ""), &entries, NULL, alphasort), n_cases = 0,
        n_bad = 0;
    assert_true(n >= 0);
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(entries[i]->d_name, '.');
        if (dot && strcmp(dot, ".txt") == 0) {
            n_bad += !check_case(entries[i]->d_name);
            n_cases++;
        }
        free(entries[i]);
    }
    free(entries);
    print_message("%d cases\n", n_cases);
    assert_int_equal(n_bad, 0);
    assert_true(n_cases > 0);
}

static void every_pass_has_a_case(void **state)
{
    (void)state;
    const td_pass *p;
    for (int i = 0; (p = td_pass_at(i)); i++) {
        char part[64];
        struct dirent **entries;
        int found = 0, n = scandir(td_golden_path("passes", ""), &entries, NULL, NULL);
        snprintf(part, sizeof part, "%s_", p->name);
        for (int k = 0; k < n; k++) {
            found += strncmp(entries[k]->d_name, part, strlen(part)) == 0;
            free(entries[k]);
        }
        free(entries);
        if (!found)
            fail_msg("no case %s*.txt", part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_gives_what_it_says),
        cmocka_unit_test(every_pass_has_a_case),
    };
    td_golden_require("passes");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
