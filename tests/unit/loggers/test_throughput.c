/*
 * test_throughput.c -- the last quarter of speed lines, as the reference's scripts take it
 */
#include <math.h>

#include "support/expect.h"

#include "loggers/throughput.h"

#define expect_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

/* x[int(len(x) * 3 / 4):] in Python, and its mean */
static void lines_are_kept_as_the_script_does(void **state)
{
    static const struct {
        int n, kept;
    } cases[] = {
        { 1, 1 }, { 2, 1 }, { 3, 1 }, { 4, 1 }, { 5, 2 }, { 8, 2 }, { 11, 3 }, { 12, 3 }
    };
    double speeds[12];
    (void)state;
    for (int i = 0; i < 12; i++)
        speeds[i] = i * i;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double sum = 0;
        const td_last_quarter q = td_last_quarter_of(speeds, cases[i].n);
        assert_int_equal(q.n, cases[i].n);
        assert_int_equal(q.n_kept, cases[i].kept);
        for (int k = cases[i].n - cases[i].kept; k < cases[i].n; k++)
            sum += speeds[k];
        expect_near(q.mean, sum / cases[i].kept, 1e-12);
    }
    assert_true(isnan(td_last_quarter_of(speeds, 0).mean));
}

/* 1250 steps: 12 lines of 100, of which 3 count; the last 50 steps are in no line */
static void the_protocol_has_twelve_lines(void **state)
{
    static double seconds[1250];
    (void)state;
    for (int i = 0; i < 1250; i++) /* steps 901 .. 1000 at 2/s, .. 1100 at 4/s, .. 1200 at 10/s */
        seconds[i] = i < 900 ? 100 : i < 1000 ? 0.5 : i < 1100 ? 0.25 : i < 1200 ? 0.1 : 1000;
    const td_last_quarter q = td_last_quarter_of_steps(seconds, 1250);
    assert_int_equal(td_speed_line_steps(1250), 100);
    assert_int_equal(q.n, 12);
    assert_int_equal(q.n_kept, 3);
    expect_near(q.mean, 16.0 / 3, 1e-9); /* of speeds, not 300 steps over their time */
}

static void short_runs_have_short_lines(void **state)
{
    const double seconds[] = { 9, 9, 9, 0.5, 0.25 };
    (void)state;
    assert_int_equal(td_speed_line_steps(1199), 99);
    assert_int_equal(td_speed_line_steps(24), 2);
    assert_int_equal(td_speed_line_steps(12), 1);
    assert_int_equal(td_speed_line_steps(1), 1);
    assert_int_equal(td_speed_line_steps(1000000), 100);
    const td_last_quarter q = td_last_quarter_of_steps(seconds, 5);
    assert_int_equal(q.n, 5);
    assert_int_equal(q.n_kept, 2);
    expect_near(q.mean, 3, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_kept_as_the_script_does),
        cmocka_unit_test(the_protocol_has_twelve_lines),
        cmocka_unit_test(short_runs_have_short_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
