/*
 * test_scaling_model.c -- the predicted time of a step on many ranks, against sums by hand
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "benchmark/number_list.h"
#include "benchmark/scaling_model.h"
#include "comm/reduction.h"

/* a link on which a byte takes a microsecond, and adding nothing */
static const td_link slow = { .latency_s = 1e-3, .bytes_per_s = 1e6, .added_per_s = 1e30 };

static void close_to(double x, double wanted)
{
    if (!(fabs(x - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("%.12g, wanted %.12g", x, wanted);
}

/* --- one sum ---------------------------------------------------------------------------------- */

static void one_rank_per_machine_sends_two_shares(void **state)
{
    const td_cluster c = { .n_ranks = 4, .per_machine = 1 };
    (void)state;
    /* 4000 bytes, 3/4 of them sent twice; 2 short messages at a time */
    close_to(td_sum_seconds(&c, &slow, 1000), 2e-3 + 6000e-6);
    /* 4,000,000 bytes: messages that are announced first */
    close_to(td_sum_seconds(&c, &slow, 1000000), 6e-3 + 6.0);
}

static void gpus_of_a_machine_share_its_link(void **state)
{
    const td_cluster c = { .n_ranks = 4, .per_machine = 2, .by_gpus = true };
    (void)state;
    /* as four machines, but each link carries the bytes of two ranks */
    close_to(td_sum_seconds(&c, &slow, 1000), 2e-3 + 2 * 6000e-6);
}

static void every_further_rank_costs_a_message(void **state)
{
    td_link l = slow;
    l.message_s = 1e-3;
    (void)state;
    close_to(td_sum_seconds(&(td_cluster){ .n_ranks = 5, .per_machine = 1 }, &l, 1000),
             2e-3 + 2 * 4000 * 4 / 5 * 1e-6 + 2 * 4 * 1e-3);
}

static void one_machine_uses_its_memory(void **state)
{
    (void)state;
    close_to(td_sum_seconds(&(td_cluster){ .n_ranks = 4, .per_machine = 8 }, &slow, 1000),
             2e-3 + 4000e-6);
}

static void halves_are_half_the_bytes(void **state)
{
    td_cluster c = { .n_ranks = 8, .per_machine = 1 };
    (void)state;
    c.allreduce.mode = TD_ALLREDUCE_FAST;
    close_to(td_sum_seconds(&c, &slow, 1000), 6e-3 + 2 * 4000 * 7 / 8 * 1e-6);
    c.allreduce.dtype = TD_WIRE_BF16;
    close_to(td_sum_seconds(&c, &slow, 1000), 6e-3 + 2 * 2000 * 7 / 8 * 1e-6);
}

/* the steps of the chain one by one, as pass_chunks of reduction.c takes them */
static double chunks_sent(int n_machines, int n_chunks)
{
    const int last = n_machines - 1;
    double all = 0;
    for (int time = 0; time < n_chunks + 2 * last - 1; time++) {
        int most = 0;
        for (int m = 0; m < n_machines; m++) {
            const int up = time - m, down = time - (2 * last - m);
            const int sent =
                (m < last && up >= 0 && up < n_chunks) + (m > 0 && down >= 0 && down < n_chunks);
            most = sent > most ? sent : most;
        }
        assert_true(most > 0);
        all += most;
    }
    return all;
}

static void a_chain_takes_its_steps(void **state)
{
    (void)state;
    for (int machines = 2; machines <= 40; machines += machines < 6 ? 1 : 17)
        for (int64_t share = 1 << 10; share <= 1 << 22; share *= 4) {
            const td_cluster c = { .n_ranks = machines * 2, .per_machine = 2 };
            const double chunk = (double)td_chain_chunk(machines, share);
            const int n = (int)ceil((double)share / chunk);
            const double messages = chunk * 4 > 65536 ? 3 : 1;
            const double sent = ((double)share < chunk ? (double)share : chunk) * 4 * 2;
            close_to(td_sum_seconds(&c, &slow, (double)share * 2),
                     (n + 2 * machines - 3) * messages * 1e-3 +
                         chunks_sent(machines, n) * sent * 1e-6);
        }
}

static void chunks_become_smaller_along_longer_chains(void **state)
{
    (void)state;
    assert_true(td_chain_chunk(64, 1 << 20) < td_chain_chunk(4, 1 << 20));
    assert_int_equal(td_chain_chunk(2, 1 << 30), 1 << 16);
    assert_int_equal(td_chain_chunk(1000, 10), 1 << 10);
}

/* --- a step ----------------------------------------------------------------------------------- */

enum { N_BUCKETS = 2 };

/* backward of 1 s, bucket 0, 1 s, bucket 1; both are waited for, each before 0.5 s of updates */
static td_step_time predict(double floats0, double floats1, int n_ranks, double cpu_s_per_byte)
{
    static double finished[N_BUCKETS];
    const double floats[N_BUCKETS] = { floats0, floats1 };
    const td_step_event events[] = {
        { TD_EVENT_COMPUTE, -1, 1 },   { TD_EVENT_COPY, -1, 0.25 }, { TD_EVENT_BEGIN, 0, 0 },
        { TD_EVENT_COMPUTE, -1, 1 },   { TD_EVENT_BEGIN, 1, 0 },    { TD_EVENT_WAIT, 0, 0 },
        { TD_EVENT_COMPUTE, -1, 0.5 }, { TD_EVENT_WAIT, 1, 0 },     { TD_EVENT_COMPUTE, -1, 0.5 },
    };
    const td_step_schedule s = { .n_events = sizeof events / sizeof *events,
                                 .n_buckets = N_BUCKETS,
                                 .events = events,
                                 .floats = floats,
                                 .finished = finished };
    td_link l = slow;
    l.latency_s = 0;
    l.cpu_s_per_byte = cpu_s_per_byte;
    return td_step_predict(&s, &(td_cluster){ .n_ranks = n_ranks, .per_machine = 1 }, &l);
}

static void one_rank_only_computes(void **state)
{
    (void)state;
    const td_step_time t = predict(1e6, 1e6, 1, 1);
    close_to(t.seconds, 3);
    assert_true(t.waiting_s == 0);
}

/* of 2 ranks a sum of n floats takes 4 n us */
static void short_sums_are_hidden(void **state)
{
    (void)state;
    const td_step_time t = predict(1e5, 1e5, 2, 0); /* 0.4 s each: at 1.65 and at 2.65 */
    close_to(t.seconds, 3.25);
    assert_true(t.waiting_s == 0);
}

static void a_long_sum_is_waited_for(void **state)
{
    (void)state;
    const td_step_time t = predict(5e5, 1e5, 2, 0); /* 2 s: from 1.25 to 3.25, then until 3.65 */
    close_to(t.seconds, 3.25 + 0.5 + 0.5);
    close_to(t.waiting_s, 1);
}

static void sums_take_turns(void **state)
{
    (void)state;
    const td_step_time t = predict(5e5, 5e5, 2, 0); /* the second from 3.25 to 5.25 */
    close_to(t.seconds, 5.25 + 0.5);
    close_to(t.waiting_s, 1 + 1.5);
}

static void sums_take_processor_time(void **state)
{
    (void)state;
    /* each 0.04 s, beside the computation after it: 1.25 + 1.04, and the second 0.54 */
    const td_step_time t = predict(1e5, 1e5, 2, 1e-7);
    close_to(t.seconds, 3.25 + 0.08);
}

/* --- a link ----------------------------------------------------------------------------------- */

static void a_fit_finds_the_link(void **state)
{
    const double floats[] = { 1 << 12, 1 << 16, 1 << 19, 1 << 21 };
    const td_cluster clusters[] = { { .n_ranks = 2, .per_machine = 8 },
                                    { .n_ranks = 6, .per_machine = 1 },
                                    { .n_ranks = 8, .per_machine = 2 } };
    const td_link wanted = { 3e-5, 1e-6, 3e9, 1e10, 0 };
    (void)state;
    for (int k = 0; k < 3; k++) {
        double seconds[4];
        td_link l = wanted;
        for (int i = 0; i < 4; i++)
            seconds[i] = td_sum_seconds(&clusters[k], &wanted, floats[i]);
        l.latency_s = l.bytes_per_s = 0;
        td_link_fit(&clusters[k], 4, floats, seconds, &l);
        assert_true(fabs(l.latency_s / wanted.latency_s - 1) < 1e-6);
        assert_true(fabs(l.bytes_per_s / wanted.bytes_per_s - 1) < 1e-6);
    }
}

static void a_fit_is_never_negative(void **state)
{
    const double floats[] = { 1000, 1000000 };
    const td_cluster c = { .n_ranks = 2, .per_machine = 1 };
    td_link l = slow;
    (void)state;
    td_link_fit(&c, 2, floats, (const double[]){ 1, 0.5 }, &l); /* larger sums are faster */
    assert_true(l.latency_s > 0 && isinf(l.bytes_per_s));
    td_link_fit(&c, 2, floats, (const double[]){ 1e-6, 1 }, &l); /* no latency at all */
    assert_true(l.latency_s == 0 && l.bytes_per_s > 0 && isfinite(l.bytes_per_s));
}

/* --- lists ------------------------------------------------------------------------------------ */

static void lists_are_read(void **state)
{
    td_number_list l;
    (void)state;
    assert_int_equal(td_list_read_counts("ranks", "1,2,1024", 1024, &l), TD_OK);
    assert_int_equal(l.n, 3);
    assert_true(l.item[2] == 1024);
    assert_int_equal(td_list_read_numbers("bandwidth", "0.5,200", 1e6, &l), TD_OK);
    assert_true(l.n == 2 && l.item[0] == 0.5);
}

static void bad_lists_are_refused(void **state)
{
    static const char *const bad[] = { "",   ",",   "1,",   "1,,2", "x",   "0",
                                       "-1", "1.5", "1025", "1 2",  "nan", "99999999999999999999" };
    td_number_list l;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(td_list_read_counts("ranks", bad[i], 1024, &l), TD_EUSAGE);
    assert_int_equal(td_list_read_numbers("bandwidth", "nan", 1e6, &l), TD_EUSAGE);
    assert_int_equal(td_list_read_numbers("bandwidth", "inf", 1e6, &l), TD_EUSAGE);
    assert_int_equal(td_list_read_numbers("bandwidth", "-1", 1e6, &l), TD_EUSAGE);
    char many[2 * TD_LIST_MAX + 2] = "1";
    for (int i = 0; i < TD_LIST_MAX; i++)
        many[1 + 2 * i] = ',', many[2 + 2 * i] = '1';
    assert_int_equal(td_list_read_counts("ranks", many, 1024, &l), TD_EUSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_per_machine_sends_two_shares),
        cmocka_unit_test(gpus_of_a_machine_share_its_link),
        cmocka_unit_test(every_further_rank_costs_a_message),
        cmocka_unit_test(one_machine_uses_its_memory),
        cmocka_unit_test(halves_are_half_the_bytes),
        cmocka_unit_test(a_chain_takes_its_steps),
        cmocka_unit_test(chunks_become_smaller_along_longer_chains),
        cmocka_unit_test(one_rank_only_computes),
        cmocka_unit_test(short_sums_are_hidden),
        cmocka_unit_test(a_long_sum_is_waited_for),
        cmocka_unit_test(sums_take_turns),
        cmocka_unit_test(sums_take_processor_time),
        cmocka_unit_test(a_fit_finds_the_link),
        cmocka_unit_test(a_fit_is_never_negative),
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(bad_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
