/*
 * fuzz_graph.c -- any bytes as graph text: an error in words, or a graph that prints, parses back
 * to the same, and goes through every pass and the planner
 */
#include "pass/pass.h"
#include "plan/plan.h"

#include <string.h>

#include "support/graphs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* bounded: memory plans and passes take time that grows with the square of the nodes */
#define NODES_MAX 300

/* a pass may leave nothing of a graph without outputs, whose text is an error */
static void check_round_trip(const td_graph *g)
{
    char *once, *twice;
    td_graph *again;
    TD_CHECK(td_graph_print(g, &once) == TD_OK);
    if (!*once) {
        TD_CHECK(td_graph_parse(once, "printed", &again) == TD_EFORMAT);
        td_text_free(once);
        return;
    }
    TD_CHECK(td_graph_parse(once, "printed", &again) == TD_OK);
    TD_CHECK(td_graph_print(again, &twice) == TD_OK);
    TD_CHECK(strcmp(once, twice) == 0);
    td_text_free(once);
    td_text_free(twice);
    td_graph_free(again);
}

static void check_plan(const td_graph *g)
{
    td_plan plan;
    bool *is_setup = td_alloc((size_t)g->n_nodes + 1, sizeof *is_setup);
    TD_CHECK(is_setup);
    TD_CHECK(td_plan_make(&plan, g, is_setup, NULL, NULL) == TD_OK);
    TD_CHECK(td_plan_check(&plan, g, is_setup, NULL) == TD_OK);
    td_plan_release(&plan);
    td_free(is_setup);
}

/* what a pass leaves verifies, or the pass says what it will not do */
static void check_passes(const td_graph *g)
{
    const td_graph *now = g;
    const td_pass *pass;
    for (int i = 0; now && (pass = td_pass_at(i)); i++) {
        td_graph *next;
        td_status st = td_pass_run(pass, now, &td_test_target, NULL, &next);
        TD_CHECK(st == TD_OK || (!next && *td_error_message() && st != TD_ENOMEM));
        if (now != g)
            td_graph_free((td_graph *)now);
        now = next;
    }
    if (now) {
        check_round_trip(now);
        check_plan(now);
        td_graph_free((td_graph *)now);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_graph *g;
    char *text = td_alloc(n_bytes + 1, 1);
    TD_CHECK(text);
    if (n_bytes)
        memcpy(text, data, n_bytes);
    td_error_clear();
    td_status st = td_graph_parse(text, "input", &g);
    td_free(text);
    if (st != TD_OK) {
        TD_CHECK(!g && *td_error_message());
        return 0;
    }
    TD_CHECK(td_graph_verify(g) == TD_OK && td_graph_macs(g) >= 0);
    check_round_trip(g);
    if (g->n_nodes <= NODES_MAX)
        check_passes(g);
    td_graph_free(g);
    return 0;
}
