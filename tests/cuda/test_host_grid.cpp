/*
 * test_host_grid.cpp -- host_grid.h runs kernels as a GPU would: results against plain loops,
 * limits, divergence, order, conversions of half floats against exact arithmetic
 */
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "cuda/host_grid.h"
#include "cuda/sample_kernels.h"

static void assert_no_error()
{
    const char *error = host_grid_error();
    if (error)
        fail_msg("%s", error);
}

/* exact whatever the order of additions: integers below 2^24 */
static std::vector<float> make_floats(int n)
{
    std::vector<float> x(static_cast<size_t>(n));
    for (int i = 0; i < n; i++)
        x[size_t(i)] = float(i * 37 % 101 - 50);
    return x;
}

static void test_sum(void **)
{
    for (int n : { 1, 31, 1000, 5003 })
        for (int n_threads : { 32, 256, 1024 }) {
            std::vector<float> x = make_floats(n);
            float sum = 0.5f, wanted = std::accumulate(x.begin(), x.end(), 0.5f);
            sample_sum(x.data(), n, &sum, 3, n_threads);
            assert_no_error();
            assert_true(sum == wanted);
        }
}

static void test_histogram(void **)
{
    std::vector<unsigned> x(3001), counts(N_BINS), wanted(N_BINS);
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = unsigned(i * i + 7 * i);
        wanted[x[i] % N_BINS]++;
    }
    sample_histogram(x.data(), int(x.size()), counts.data(), 5, 96);
    assert_no_error();
    assert_true(counts == wanted);
}

static void test_transpose(void **)
{
    const int rows = 70, cols = 41;
    std::vector<float> in = make_floats(rows * cols), out(in.size(), -1.0f);
    sample_transpose(in.data(), out.data(), rows, cols);
    assert_no_error();
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            assert_true(out[size_t(j * rows + i)] == in[size_t(i * cols + j)]);
}

/* threads that have returned are not waited for */
static void test_early_return(void **)
{
    for (int n : { 1, 50, 100, 128 }) {
        std::vector<int> in(size_t(n), 0), out(size_t(n), -1);
        std::iota(in.begin(), in.end(), 5);
        sample_reverse(in.data(), out.data(), n, 128);
        assert_no_error();
        std::reverse(out.begin(), out.end());
        assert_true(in == out);
    }
}

static void test_intrinsics(void **)
{
    std::vector<unsigned> out(64 * N_RESULTS);
    sample_intrinsics(out.data());
    assert_no_error();
    for (unsigned i = 0; i < 64; i++) {
        unsigned lane = i % 32, first = i - lane;
        unsigned in_16 = i % 16;
        const unsigned wanted[N_RESULTS] = { 1,
                                             0,
                                             22,
                                             0x22222222u,
                                             i >= 32,
                                             i < 32,
                                             i / 8 * 8 + 5,
                                             in_16 >= 3 ? i - 3 : i,
                                             in_16 < 13 ? i + 3 : i,
                                             first + (lane ^ 17),
                                             (i ^ 1) * 2 + 1,
                                             lane < 8 ? first + (lane + 1) % 8 : 0xffe00000u,
                                             1 };
        for (int k = 0; k < N_RESULTS; k++)
            assert_int_equal(out[i * N_RESULTS + size_t(k)], wanted[k]);
    }
}

/* lanes that have returned or do not exist are not waited for, and a shuffle from them gives ~0 */
static void test_left_lanes(void **)
{
    std::vector<unsigned> out(20);
    sample_leave(out.data());
    assert_no_error();
    for (unsigned i = 0; i < 20; i += 2) {
        assert_int_equal(out[i], 0x55555u & ~0x10u);
        assert_int_equal(out[i + 1], i % 4 == 0 || i == 18 ? ~0u : i + 2);
    }
}

static std::vector<unsigned> run_in_order(const char *order)
{
    setenv("TANDEM_GRID_ORDER", order, 1);
    std::vector<unsigned> out(3 * 64);
    unsigned counter = 0;
    sample_order(out.data(), &counter, 3, 64);
    unsetenv("TANDEM_GRID_ORDER");
    assert_no_error();
    assert_int_equal(counter, out.size());
    return out;
}

static void test_order(void **)
{
    std::vector<unsigned> forward(3 * 64), reverse(3 * 64);
    std::iota(forward.begin(), forward.end(), 0u);
    std::iota(reverse.rbegin(), reverse.rend(), 0u);
    assert_true(run_in_order("") == forward);
    assert_true(run_in_order("reverse") == reverse);
    std::vector<unsigned> seven = run_in_order("random:7");
    assert_true(seven == run_in_order("random:7"));
    assert_true(seven != run_in_order("random:8"));
    assert_true(seven != forward);
    assert_true(std::is_permutation(seven.begin(), seven.end(), forward.begin()));
}

/* kernels with barriers give the same in every order */
static void test_results_in_any_order(void **)
{
    for (const char *order : { "reverse", "random:1", "random:2" }) {
        setenv("TANDEM_GRID_ORDER", order, 1);
        test_sum(nullptr);
        test_histogram(nullptr);
        test_transpose(nullptr);
        test_early_return(nullptr);
        test_left_lanes(nullptr);
        test_intrinsics(nullptr);
        unsetenv("TANDEM_GRID_ORDER");
    }
}

/* another order shows a missing barrier */
static void test_race(void **)
{
    std::vector<int> forward(40), reverse(40);
    sample_race(forward.data(), 40);
    setenv("TANDEM_GRID_ORDER", "reverse", 1);
    sample_race(reverse.data(), 40);
    unsetenv("TANDEM_GRID_ORDER");
    assert_no_error();
    assert_int_equal(forward[39], 38);
    assert_int_equal(reverse[39], -1); /* shared memory starts with all bits 1 */
    assert_true(forward != reverse);
}

static void assert_refused(bool is_refused)
{
    const char *error = host_grid_error();
    assert_int_equal(error != nullptr, is_refused);
    if (error)
        assert_non_null(std::strstr(error, "kernel nothing"));
    assert_null(host_grid_error()); /* an error is reported once */
}

static void test_limits(void **)
{
    struct {
        int grid[3], block[3];
        size_t shared_bytes;
        bool is_refused;
    } cases[] = {
        { { 2, 2, 2 }, { 1024, 1, 1 }, 48 << 10, false },
        { { 1, 1, 1 }, { 4, 4, 64 }, 0, false },
        { { 1, 1, 1 }, { 1025, 1, 1 }, 0, true },
        { { 1, 1, 1 }, { 33, 32, 1 }, 0, true },
        { { 1, 1, 1 }, { 2, 2, 65 }, 0, true },
        { { 1, 1, 1 }, { 0, 1, 1 }, 0, true },
        { { 1, 1, 1 }, { 1, 1, 0 }, 0, true },
        { { 1, 1, 1 }, { 65536, 65536, 1 }, 0, true },
        { { 0, 1, 1 }, { 1, 1, 1 }, 0, true },
        { { 1, 65535, 1 }, { 1, 1, 1 }, 0, false },
        { { 1, 65536, 1 }, { 1, 1, 1 }, 0, true },
        { { 1, 1, 65536 }, { 1, 1, 1 }, 0, true },
        { { -1, 1, 1 }, { 1, 1, 1 }, 0, true },
        { { 1, 1, 1 }, { 1, 1, 1 }, (48 << 10) + 1, true },
    };
    for (auto &c : cases) {
        sample_launch(c.grid[0], c.grid[1], c.grid[2], c.block[0], c.block[1], c.block[2],
                      c.shared_bytes);
        assert_refused(c.is_refused);
    }
}

/* runs BODY in a child, returns its wait status and what it wrote to stderr */
template <typename Body> static int run_child(Body body, std::string *text)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); /* where it hangs, SIGALRM is not what the test wants */
        signal(SIGABRT, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        body();
        _exit(0);
    }
    close(ends[1]);
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
        text->append(part, size_t(n));
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void assert_abort(stuck how, std::vector<const char *> names)
{
    std::string text;
    int status = run_child([=] { sample_stuck(how); }, &text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_int_equal(std::count(text.begin(), text.end(), '\n'), 1);
    names.insert(names.end(), { "get_stuck", "sample_kernels.cu:", "block (0,0,0)" });
    for (const char *name : names)
        if (text.find(name) == std::string::npos)
            fail_msg("'%s' is not in: %s", name, text.c_str());
}

static void test_divergence(void **)
{
    assert_abort(stuck::two_lines, { "thread (0,0,0)", "thread (3,0,0)", "__syncthreads()" });
    assert_abort(stuck::two_intrinsics,
                 { "thread (0,0,0)", "thread (3,0,0)", "__any_sync()", "__shfl_sync()" });
    assert_abort(stuck::two_masks, { "thread (0,0,0)", "thread (3,0,0)", "__syncwarp()",
                                     "0x0000000f", "0xffffffff" });
    assert_abort(stuck::foreign_mask, { "thread (3,0,0)", "__syncwarp()", "0x00000007", "lane 3" });
    assert_abort(stuck::block_and_warp,
                 { "thread (3,0,0)", "thread (0,0,0)", "__syncwarp()", "__syncthreads()" });
}

/* the stack of thread 0 ends above those of the others, with a guard between */
static void test_stack_overflow(void **)
{
    std::string text;
    int status = run_child([] { sample_stuck(stuck::deep_stack); }, &text);
    bool is_fault = WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
    bool is_report = text.find("AddressSanitizer") != std::string::npos;
    assert_true(is_fault || is_report);
}

#if defined(__SANITIZE_ADDRESS__)
static void test_shared_overflow(void **)
{
    int out = 0;
    sample_shared(&out, 5, 4);
    assert_int_equal(out, 7);
    std::string text;
    run_child([&] { sample_shared(&out, 5, 5); }, &text);
    assert_true(text.find("heap-buffer-overflow") != std::string::npos);
}
#else
static void test_shared_overflow(void **)
{
    int out = 0;
    sample_shared(&out, 5, 4); /* only AddressSanitizer sees an index of 5 */
    assert_int_equal(out, 7);
}
#endif

/* --- half floats -------------------------------------------------------------------------- */

/* a 16-bit float: 1 sign bit, then the exponent, then FRACTION bits */
struct format16 {
    int fraction, bias;
    float (*widen)(unsigned short bits);
    unsigned short (*narrow)(float x);

    unsigned infinity() const
    {
        return 0x7fffu >> fraction << fraction;
    }

    /* exact; of infinity the value that its exponent would have */
    double value(unsigned bits) const
    {
        int exponent = int((bits & 0x7fff) >> fraction), m = int(bits & ((1u << fraction) - 1));
        double size = exponent > 0 ? std::ldexp(m + (1 << fraction), exponent - bias - fraction)
                                   : std::ldexp(m, 1 - bias - fraction);
        return bits & 0x8000 ? -size : size;
    }
};

static const format16 formats[] = {
    { 10, 15, [](unsigned short b) { return __half2float(__ushort_as_half(b)); },
      [](float x) { return __half_as_ushort(__float2half_rn(x)); } },
    { 7, 127, [](unsigned short b) { return __bfloat162float(__ushort_as_bfloat16(b)); },
      [](float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); } },
};

static void test_all_halves(void **)
{
    for (const format16 &f : formats)
        for (unsigned bits = 0; bits < 65536; bits++) {
            float x = f.widen(static_cast<unsigned short>(bits));
            unsigned size = bits & 0x7fff;
            if (size > f.infinity()) {
                assert_true(std::isnan(x));
                assert_int_equal(f.narrow(x), 0x7fff);
                continue;
            }
            if (size == f.infinity())
                assert_true(std::isinf(x) && std::signbit(x) == (bits >> 15 != 0));
            else
                assert_true(x == f.value(bits) && std::signbit(x) == (bits >> 15 != 0));
            assert_int_equal(f.narrow(x), bits);
        }
}

/* halfway between neighbours goes to the even one, the next floats to the nearer one */
static void test_rounding(void **)
{
    for (const format16 &f : formats)
        for (unsigned low = 0; low < f.infinity(); low++) {
            double exact = (f.value(low) + f.value(low + 1)) / 2;
            float middle = float(exact);
            assert_true(middle == exact);
            for (unsigned sign : { 0u, 0x8000u }) {
                float s = sign ? -1.0f : 1.0f;
                assert_int_equal(f.narrow(s * middle), sign | (low + (low & 1)));
                assert_int_equal(f.narrow(s * std::nextafter(middle, 0.0f)), sign | low);
                assert_int_equal(f.narrow(s * std::nextafter(middle, INFINITY)), sign | (low + 1));
            }
        }
    assert_int_equal(formats[0].narrow(1e30f), 0x7c00);
    assert_int_equal(formats[0].narrow(-INFINITY), 0xfc00);
}

static void test_halves_in_kernel(void **)
{
    std::vector<unsigned short> in(65536), half(65536), bf16(65536);
    std::iota(in.begin(), in.end(), static_cast<unsigned short>(0));
    sample_halves(in.data(), half.data(), bf16.data(), 65536, 0.75f);
    assert_no_error();
    for (size_t i = 0; i < in.size(); i++) {
        assert_int_equal(half[i], formats[0].narrow(formats[0].widen(in[i]) * 0.75f));
        assert_int_equal(bf16[i], formats[1].narrow(formats[1].widen(in[i]) * 0.75f));
    }
}

/* --- functions that kernels call ------------------------------------------------------------ */

static void test_functions(void **)
{
    assert_int_equal(__clz(0), 32);
    assert_int_equal(__clz(1), 31);
    assert_int_equal(__clz(-1), 0);
    assert_int_equal(__clzll(1), 63);
    assert_int_equal(__popc(0xf0f0f0f0u), 16);
    assert_int_equal(__ffs(0), 0);
    assert_int_equal(__ffs(8), 4);
    assert_int_equal(__umulhi(0x80000000u, 6), 3);
    assert_int_equal(__float_as_uint(-2.0f), 0xc0000000u);
    assert_true(__int_as_float(0x3f800000) == 1.0f);
    assert_true(min(2, 3u) == 2 && max(-1.0f, NAN) == -1.0f && min(NAN, 2.0) == 2.0);
    assert_true(rsqrtf(4.0f) == 0.5f && rsqrtf(0.0f) == INFINITY);
    assert_true(__fmaf_rn(1 + 0x1p-12f, 1 + 0x1p-12f, -1 - 0x1p-11f) == 0x1p-24f);
    assert_true(alignof(float4) == 16 && alignof(uint2) == 8 && sizeof(__half2) == 4);
}

static void test_atomics(void **)
{
    int i = INT32_MAX;
    assert_int_equal(atomicAdd(&i, 1), INT32_MAX);
    assert_int_equal(i, INT32_MIN);
    assert_int_equal(atomicMax(&i, -3), INT32_MIN);
    assert_int_equal(atomicMin(&i, -7), -3);
    assert_int_equal(atomicExch(&i, 9), -7);
    assert_int_equal(atomicCAS(&i, 8, 1), 9);
    assert_int_equal(atomicCAS(&i, 9, 6), 9);
    assert_int_equal(atomicOr(&i, 9), 6);
    assert_int_equal(atomicAnd(&i, 5), 15);
    assert_int_equal(i, 5);
    unsigned long long u = 1;
    assert_true(atomicAdd(&u, 1ull << 40) == 1 && u == (1ull << 40) + 1);
    double d = 0.5;
    assert_true(atomicAdd(&d, 1) == 0.5 && d == 1.5);
    float f = 2;
    assert_true(atomicExch(&f, 3.0f) == 2 && f == 3);
    assert_true(atomicSub(&i, 6) == 5 && i == -1);
}

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_early_return),
        cmocka_unit_test(test_intrinsics),
        cmocka_unit_test(test_left_lanes),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_race),
        cmocka_unit_test(test_results_in_any_order),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_stack_overflow),
        cmocka_unit_test(test_shared_overflow),
        cmocka_unit_test(test_all_halves),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_halves_in_kernel),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_atomics),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
