/*
 * programs.c -- counts nodes, copies results
 */
#include "support/programs.h"

#include <string.h>

#include "base/arena.h"
#include "ir/type.h"
#include "support/expect.h"

int td_test_count_ops(const td_program *p, const char *op)
{
    int n = 0;
    for (int i = 0; i < td_program_node_count(p); i++)
        n += strcmp(td_program_node(p, i).op, op) == 0;
    return n;
}

void *td_test_run(td_program *p, const char *output, int64_t *count)
{
    expect_ok(td_program_run(p));
    return td_test_output(p, output, count);
}

void *td_test_output(const td_program *p, const char *name, int64_t *count)
{
    td_type t;
    const void *y = td_program_output(p, name, &t);
    assert_non_null(y);
    const size_t n_bytes = (size_t)td_type_bytes(&t);
    void *copy = td_alloc(n_bytes, 1);
    assert_non_null(copy);
    memcpy(copy, y, n_bytes);
    if (count)
        *count = td_type_count(&t);
    return copy;
}
