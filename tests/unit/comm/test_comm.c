/* ctest: labels threads */
/*
 * test_comm.c -- ranks meet, sum, agree; sums have the same bits everywhere and those of one rank
 * that adds up; a rank that dies, fails or hangs is named by the others
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/machine.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/reduction.h"
#include "support/ranks.h"
#include "transport/transport.h"

/* in a rank's body: leave with the line where something is wrong */
#define WANT(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return __LINE__ % 120 + 1;                                                             \
    } while (0)

static void all_end_with(int size, const int *codes, int code)
{
    for (int r = 0; r < size; r++)
        assert_int_equal(codes[r], code);
}

/* --- calls ------------------------------------------------------------------------------------ */

static int use_all_calls(const td_rank_place *place, void *ctx)
{
    td_comm *c;
    char text[64];
    int64_t counts[2] = { place->rank + 1, INT64_C(1) << 60 };
    double sums[1] = { 0.1 * place->rank };
    char word[8] = "";
    (void)ctx;
    WANT(td_comm_open(place, NULL, &c) == TD_OK);
    WANT(td_comm_rank(c) == place->rank && td_comm_size(c) == place->size);
    WANT(td_comm_local_rank(c) == place->rank && td_comm_local_size(c) == place->size);
    WANT(td_comm_threads(c) >= 1 && td_comm_threads(c) <= td_cpu_count());
    WANT(strncmp(td_comm_name(c, 1), "rank 1 (", 8) == 0);
    if (place->rank == 0)
        memcpy(word, "seven", 6);
    WANT(td_comm_broadcast(c, word, sizeof word) == TD_OK && strcmp(word, "seven") == 0);
    WANT(td_comm_sum_i64(c, counts, 2) == TD_OK);
    WANT(counts[0] == place->size * (place->size + 1) / 2);
    WANT(counts[1] == (int64_t)place->size << 60);
    double want = 0;
    for (int r = 0; r < place->size; r++)
        want += 0.1 * r;
    WANT(td_comm_sum_f64(c, sums, 1) == TD_OK && sums[0] == want);
    WANT(td_comm_agree(c, "configuration", "{\"a\": 1, \"lr\": 0.1}") == TD_OK);
    WANT(td_comm_check(c) == TD_OK);
    snprintf(text, sizeof text, "{\"a\": 1, \"lr\": 0.%d}", place->rank == 1 ? 2 : 1);
    WANT(td_comm_agree(c, "configuration", text) == TD_EARG);
    WANT(strstr(td_error_message(), "rank 1 (") && strstr(td_error_message(), "\"lr\": 0.2"));
    td_comm_close(c, TD_OK);
    return 0;
}

static void ranks_join_and_agree(void **state)
{
    (void)state;
    int codes[5];
    td_test_ranks(2, use_all_calls, NULL, codes);
    all_end_with(2, codes, 0);
    td_test_ranks(5, use_all_calls, NULL, codes);
    all_end_with(5, codes, 0);
}

/* --- blocks of any size to rank 0 ------------------------------------------------------------- */

/* rank 1 has nothing, the others some MB each */
static size_t block_bytes(int rank)
{
    return rank == 1 ? 0 : (size_t)3000001 * (size_t)(rank + 1);
}

static unsigned char byte_of(int rank, size_t i)
{
    return (unsigned char)(i * 7 + i / 1000 + (size_t)rank * 31);
}

typedef struct {
    int next, fails_at;
} taking;

static td_status take_block(void *ctx, int rank, const void *bytes, size_t n)
{
    taking *t = ctx;
    const unsigned char *b = bytes;
    if (rank != t->next++ || n != block_bytes(rank))
        return td_error(TD_EFORMAT, "a block of %zu bytes from rank %d", n, rank);
    for (size_t i = 0; i < n; i++)
        if (b[i] != byte_of(rank, i))
            return td_error(TD_EFORMAT, "byte %zu of rank %d is wrong", i, rank);
    return t->next == t->fails_at ? td_error(TD_ENOMEM, "there is no room") : TD_OK;
}

static unsigned char *make_block(int rank)
{
    const size_t n = block_bytes(rank);
    unsigned char *own = malloc(n + 1);
    for (size_t i = 0; own && i < n; i++)
        own[i] = byte_of(rank, i);
    return own;
}

static int collect_blocks(const td_rank_place *place, void *ctx)
{
    td_comm *c;
    taking t = { 0 };
    int64_t n = 1;
    unsigned char *own = make_block(place->rank);
    (void)ctx;
    WANT(own && td_comm_open(place, NULL, &c) == TD_OK);
    for (int round = 0; round < 2; round++) {
        t.next = 0;
        WANT(td_comm_collect(c, own, block_bytes(place->rank), take_block, &t) == TD_OK);
        WANT(t.next == (place->rank == 0 ? place->size : 0));
        WANT(td_comm_sum_i64(c, &n, 1) == TD_OK); /* what comes after it is not mixed up */
    }
    WANT(n == (int64_t)place->size * place->size);
    td_comm_close(c, TD_OK);
    free(own);
    return 0;
}

/* rank 0 has no room for the second block */
static int refuse_blocks(const td_rank_place *place, void *ctx)
{
    td_comm *c;
    taking t = { .fails_at = 2 };
    unsigned char *own = make_block(place->rank);
    (void)ctx;
    WANT(own && td_comm_open(place, NULL, &c) == TD_OK);
    td_status st = td_comm_collect(c, own, block_bytes(place->rank), take_block, &t);
    if (place->rank == 0) {
        WANT(st == TD_ENOMEM);
        td_comm_close(c, st);
    } else {
        WANT(st == TD_EDEVICE && strstr(td_error_message(), "rank 0 ("));
        WANT(strstr(td_error_message(), "there is no room"));
        td_comm_close(c, td_error(TD_EIO, "over"));
    }
    free(own);
    return 0;
}

/* rank 2 dies while the others are at it */
static int lose_a_block(const td_rank_place *place, void *ctx)
{
    td_comm *c;
    taking t = { 0 };
    unsigned char *own = make_block(place->rank);
    (void)ctx;
    WANT(own && td_comm_open(place, NULL, &c) == TD_OK);
    if (place->rank == 2) {
        int64_t sizes[3], size = (int64_t)block_bytes(2);
        WANT(td_comm_gather(c, &size, sizeof size, sizes) == TD_OK); /* it says so much and ... */
        raise(SIGKILL);
    }
    td_status st = td_comm_collect(c, own, block_bytes(place->rank), take_block, &t);
    WANT(st == TD_EDEVICE && strstr(td_error_message(), "rank 2 ("));
    td_comm_close(c, td_error(TD_EIO, "over"));
    free(own);
    return 0;
}

static void blocks_come_in_the_order_of_ranks(void **state)
{
    (void)state;
    int codes[4];
    for (int size = 2; size <= 4; size++) {
        td_test_ranks(size, collect_blocks, NULL, codes);
        all_end_with(size, codes, 0);
    }
}

static void a_failed_collection_ends_all(void **state)
{
    (void)state;
    int codes[3];
    td_test_ranks(3, refuse_blocks, NULL, codes);
    all_end_with(3, codes, 0);
    td_test_ranks(3, lose_a_block, NULL, codes);
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], 0);
    assert_int_equal(codes[2], 128 + SIGKILL);
}

static void one_rank_needs_nobody(void **state)
{
    (void)state;
    int64_t n = 7;
    double x = 0.5;
    assert_int_equal(td_comm_size(NULL), 1);
    assert_int_equal(td_comm_rank(NULL), 0);
    assert_int_equal(td_comm_sum_i64(NULL, &n, 1), TD_OK);
    assert_int_equal(td_comm_sum_f64(NULL, &x, 1), TD_OK);
    assert_int_equal(td_comm_broadcast(NULL, &n, sizeof n), TD_OK);
    assert_int_equal(td_comm_agree(NULL, "text", "a"), TD_OK);
    assert_int_equal(td_comm_check(NULL), TD_OK);
    unsigned char *own = make_block(0);
    taking t = { 0 };
    assert_int_equal(td_comm_collect(NULL, own, block_bytes(0), take_block, &t), TD_OK);
    assert_int_equal(t.next, 1);
    free(own);
    assert_int_equal(n, 7);
    td_comm_close(NULL, TD_OK);
}

/* --- sums of gradients ------------------------------------------------------------------------ */

enum { N_BUCKETS = 4, STEPS = 3 };
/* the first is several chunks for each rank of a machine of two */
static const int64_t bucket_floats[N_BUCKETS] = { 300001, 1, 16, 4099 };

static float number(int rank, int step, int bucket, int64_t i)
{
    td_rng r =
        td_rng_make(77, TD_RNG_SHUFFLE, (uint64_t)(rank * 100 + step * 10 + bucket), (uint64_t)i);
    return (float)td_rng_below(&r, 1000003) * 1e-3f - 400.0f;
}

typedef struct {
    int size, per_machine; /* ranks; 0: one machine */
    bool starts, is_shared;
} layout;

static int reduce_and_compare(const td_rank_place *place, void *ctx)
{
    const layout *l = ctx;
    const bool starts = l->starts;
    td_comm *c;
    td_reduction *r;
    const float *sum;
    WANT(td_comm_open(place, NULL, &c) == TD_OK);
    WANT(td_reduction_new(c, N_BUCKETS, bucket_floats, starts, &r) == TD_OK);
    WANT(td_reduction_is_shared(r) == l->is_shared);
    for (int s = 0; s < STEPS; s++) {
        for (int b = 0; b < N_BUCKETS; b++) {
            for (int64_t i = 0; i < bucket_floats[b]; i++) {
                td_reduction_own(r, b)[i] = number(place->rank, s, b, i);
                if (starts)
                    td_reduction_start(r, b)[i] = (float)i;
            }
            td_reduction_begin(r, b);
        }
        for (int b = 0; b < N_BUCKETS; b++) {
            WANT(td_reduction_wait(r, b, &sum) == TD_OK);
            for (int64_t i = 0; i < bucket_floats[b]; i++) {
                float want = starts ? (float)i : 0;
                for (int k = 0; k < place->size; k++)
                    want += number(k, s, b, i);
                WANT(memcmp(&want, &sum[i], sizeof want) == 0);
            }
        }
    }
    td_comm_close(c, TD_OK);
    td_reduction_free(r); /* as a job's program goes after its ranks */
    return 0;
}

/* in shared memory, along machines, and by messages */
static void sums_are_in_the_order_of_ranks(void **state)
{
    (void)state;
    static const layout layouts[] = {
        { 2, 0, false, true }, { 3, 0, true, true },  { 2, 1, true, false }, { 3, 1, false, false },
        { 4, 2, true, true },  { 6, 2, false, true }, { 6, 3, true, true },  { 8, 2, true, true },
        { 5, 2, true, false }, /* the last machine has one */
    };
    int codes[8];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        layout l = layouts[i];
        char n[8];
        snprintf(n, sizeof n, "%d", l.per_machine);
        if (l.per_machine)
            setenv("TANDEM_RANKS_PER_MACHINE", n, 1);
        td_test_ranks(l.size, reduce_and_compare, &l, codes);
        all_end_with(l.size, codes, 0);
        unsetenv("TANDEM_RANKS_PER_MACHINE");
    }
}

/* messages of a rank in one step; on one machine two barriers for each bucket */
static int count_messages(const td_rank_place *place, void *ctx)
{
    const int *wanted = ctx;
    td_comm *c;
    td_reduction *r;
    const float *sum;
    WANT(td_comm_open(place, NULL, &c) == TD_OK);
    WANT(td_reduction_new(c, N_BUCKETS, bucket_floats, false, &r) == TD_OK);
    WANT(td_reduction_is_shared(r));
    const int64_t before = td_comm_transport(c)->n_messages;
    for (int b = 0; b < N_BUCKETS; b++) {
        memset(td_reduction_own(r, b), 0, (size_t)bucket_floats[b] * sizeof(float));
        td_reduction_begin(r, b);
    }
    for (int b = 0; b < N_BUCKETS; b++)
        WANT(td_reduction_wait(r, b, &sum) == TD_OK);
    WANT(td_comm_transport(c)->n_messages - before == N_BUCKETS * 2 * *wanted);
    td_comm_close(c, TD_OK);
    td_reduction_free(r);
    return 0;
}

static void a_barrier_has_log2_messages_of_each_rank(void **state)
{
    static const struct {
        int size, messages;
    } rows[] = { { 2, 1 }, { 3, 2 }, { 4, 2 }, { 5, 3 }, { 8, 3 }, { 16, 4 } };
    (void)state;
    int codes[16];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int messages = rows[i].messages;
        td_test_ranks(rows[i].size, count_messages, &messages, codes);
        all_end_with(rows[i].size, codes, 0);
    }
}

/* --- ranks that are lost ---------------------------------------------------------------------- */

typedef enum { DIES, FAILS, HANGS, LEAVES } misfortune;

/* in memory that the ranks share */
typedef struct {
    misfortune how;
    _Atomic int n_noticed; /* ranks whose sum failed */
} loss;

/* until it has been noticed: then somebody has to end it */
static void hang(loss *l)
{
    if (fork() == 0) {
        for (int i = 3; i < 256; i++) /* must not keep the connections of its parent */
            close(i);
        while (atomic_load(&l->n_noticed) < 2)
            usleep(10000);
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    raise(SIGSTOP);
}

static int lose_rank_1(const td_rank_place *place, void *ctx)
{
    loss *l = ctx;
    const misfortune how = l->how;
    static const char *const said[] = { "rank 1 (", "rank 1 (", "rank 1 (", "rank 1 (" };
    static const char *const what[] = { ") is gone", "): the disk is full",
                                        ") has stopped responding", ") has already finished" };
    td_comm *c;
    int64_t n = 1;
    WANT(td_comm_open(place, &(td_transport_opts){ .stall_s = 3 }, &c) == TD_OK);
    WANT(td_comm_sum_i64(c, &n, 1) == TD_OK);
    if (place->rank == 1) {
        usleep(300000); /* the others have that sum, too */
        if (how == DIES)
            raise(SIGKILL);
        if (how == FAILS)
            td_comm_close(c, td_error(TD_EIO, "the disk is full"));
        if (how == LEAVES)
            td_comm_close(c, TD_OK);
        if (how == HANGS)
            hang(l);
        return 0;
    }
    const td_status st = td_comm_sum_i64(c, &n, 1);
    atomic_fetch_add(&l->n_noticed, 1);
    WANT(st == TD_EDEVICE);
    WANT(strstr(td_error_message(), said[how]) && strstr(td_error_message(), what[how]));
    WANT(td_comm_check(c) == TD_EDEVICE);
    WANT(td_comm_sum_i64(c, &n, 1) == TD_EDEVICE); /* and so does everything from then on */
    td_comm_close(c, td_error(TD_EIO, "over"));
    return 0;
}

static void lost_ranks_are_named(void **state)
{
    (void)state;
    int codes[3];
    loss *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(l != MAP_FAILED);
    for (int how = DIES; how <= LEAVES; how++) {
        *l = (loss){ .how = (misfortune)how };
        td_test_ranks(3, lose_rank_1, l, codes);
        assert_int_equal(codes[0], 0);
        assert_int_equal(codes[2], 0);
        assert_int_equal(codes[1], how == DIES || how == HANGS ? 128 + SIGKILL : 0);
    }
    munmap(l, sizeof *l);
}

/* rank 0 says a word and ends before the others have listened */
static int leave_early(const td_rank_place *place, void *ctx)
{
    const misfortune how = *(const misfortune *)ctx;
    td_comm *c;
    char words[2][4] = { "one", "two" };
    WANT(td_comm_open(place, NULL, &c) == TD_OK);
    if (place->rank > 0) {
        memset(words, 0, sizeof words);
        usleep(1500000); /* beats, too, lie between */
    }
    td_status st = td_comm_broadcast(c, words[0], sizeof words[0]);
    if (st == TD_OK)
        st = td_comm_broadcast(c, words[1], sizeof words[1]);
    if (place->rank == 0) {
        WANT(st == TD_OK);
        usleep(1200000);
        if (how == DIES)
            raise(SIGKILL);
        td_comm_close(c, how == FAILS ? td_error(TD_EIO, "the disk is full") : TD_OK);
        return 0;
    }
    if (how == LEAVES)
        WANT(st == TD_OK && strcmp(words[0], "one") == 0 && strcmp(words[1], "two") == 0);
    else
        WANT(st == TD_EDEVICE && strstr(td_error_message(), "rank 0 ("));
    if (how == FAILS)
        WANT(strstr(td_error_message(), "the disk is full"));
    td_comm_close(c, st);
    return 0;
}

static void who_leaves_early_is_heard(void **state)
{
    (void)state;
    int codes[3];
    for (int how = DIES; how <= LEAVES; how++) {
        misfortune m = (misfortune)how;
        if (how == HANGS)
            continue;
        td_test_ranks(3, leave_early, &m, codes);
        assert_int_equal(codes[0], how == DIES ? 128 + SIGKILL : 0);
        assert_int_equal(codes[1], 0);
        assert_int_equal(codes[2], 0);
    }
}

/* a rank that computes for long is no rank that hangs */
static int take_long(const td_rank_place *place, void *ctx)
{
    td_comm *c;
    int64_t n = 1;
    (void)ctx;
    WANT(td_comm_open(place, &(td_transport_opts){ .stall_s = 2 }, &c) == TD_OK);
    if (place->rank == 1)
        sleep(4);
    WANT(td_comm_sum_i64(c, &n, 1) == TD_OK && n == 2);
    td_comm_close(c, TD_OK);
    return 0;
}

static void slow_ranks_are_waited_for(void **state)
{
    (void)state;
    int codes[2];
    td_test_ranks(2, take_long, NULL, codes);
    all_end_with(2, codes, 0);
}

/* --- not starting ----------------------------------------------------------------------------- */

/* rank 2 never opens its transport: it ends, or it takes longer than the others wait */
static int miss_one(const td_rank_place *place, void *ctx)
{
    const bool ends = *(const bool *)ctx;
    td_comm *c;
    if (place->rank == 2) {
        if (!ends)
            sleep(3);
        return 0;
    }
    WANT(td_comm_open(place, &(td_transport_opts){ .wait_s = ends ? 60 : 1 }, &c) == TD_EDEVICE);
    WANT(strstr(td_error_message(), ends ? "rank 2 is gone" : "rank 2 has not started"));
    return 0;
}

static int count_wrongly(const td_rank_place *place, void *ctx)
{
    td_rank_place p = *place;
    td_comm *c;
    (void)ctx;
    p.size += p.rank == 1;
    td_status st = td_comm_open(&p, NULL, &c);
    WANT(st == (p.rank == 1 ? TD_EUSAGE : TD_EDEVICE));
    WANT(strstr(td_error_message(), p.rank == 1 ? TD_ENV_RANK_FDS : "rank 1 is gone"));
    return 0;
}

static void ranks_that_do_not_start_are_named(void **state)
{
    (void)state;
    int codes[3];
    for (int ends = 0; ends < 2; ends++) {
        bool how = ends;
        td_test_ranks(3, miss_one, &how, codes);
        all_end_with(3, codes, 0);
    }
    td_test_ranks(2, count_wrongly, NULL, codes);
    all_end_with(2, codes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_join_and_agree),
        cmocka_unit_test(one_rank_needs_nobody),
        cmocka_unit_test(blocks_come_in_the_order_of_ranks),
        cmocka_unit_test(a_failed_collection_ends_all),
        cmocka_unit_test(sums_are_in_the_order_of_ranks),
        cmocka_unit_test(a_barrier_has_log2_messages_of_each_rank),
        cmocka_unit_test(lost_ranks_are_named),
        cmocka_unit_test(who_leaves_early_is_heard),
        cmocka_unit_test(slow_ranks_are_waited_for),
        cmocka_unit_test(ranks_that_do_not_start_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
