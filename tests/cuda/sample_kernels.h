/*
 * sample_kernels.h -- starts the kernels of sample_kernels.cu, for
 * test_host_grid.cpp
 *
 * Pointers are to memory that the kernels can access.
 */
#ifndef TD_TEST_CUDA_SAMPLE_KERNELS_H
#define TD_TEST_CUDA_SAMPLE_KERNELS_H

#include <cstddef>

constexpr int N_BINS = 64;
constexpr int N_RESULTS = 13; /* of sample_intrinsics, for each thread */

/* ways to get stuck */
enum class stuck { two_lines, two_intrinsics, two_masks, foreign_mask, block_and_warp, deep_stack };

/* *sum += x[0] + ... + x[n-1] */
void sample_sum(const float *x, int n, float *sum, int n_blocks, int n_threads);
/* counts[x[i] % N_BINS]++ */
void sample_histogram(const unsigned *x, int n, unsigned *counts, int n_blocks, int n_threads);
/* out[j][i] = in[i][j]; IN has ROWS x COLS elements */
void sample_transpose(const float *in, float *out, int rows, int cols);
/* out[i] = in[n-1-i] for one block of N_THREADS >= n threads; the others return early */
void sample_reverse(const int *in, int *out, int n, int n_threads);
/* out[thread * N_RESULTS + k]: result of intrinsic k for one block of 64 threads */
void sample_intrinsics(unsigned *out);
/* order[k] = the thread of the grid that runs as number k, *counter = 0 before; without barriers */
void sample_order(unsigned *order, unsigned *counter, int n_blocks, int n_threads);
/* out[i] = the float of half float bits in[i] * scale, as half float bits; bf16 the same */
void sample_halves(const unsigned short *in, unsigned short *half, unsigned short *bf16, int n,
                   float scale);
/* one block of 20 threads, of which the odd ones return first: out[i] = a ballot of the even ones,
 * out[i+1] = a shuffle from lane i+1 (i % 4 = 0) or i+2 */
void sample_leave(unsigned *out);
/* out[i] = i - 1 for one block of n threads, if they run in order: it lacks a barrier */
void sample_race(int *out, int n);
/* a kernel that does nothing */
void sample_launch(int gx, int gy, int gz, int bx, int by, int bz, size_t shared_bytes);
/* does not return */
void sample_stuck(stuck how);
/* out[0] = 7 by way of element OFFSET of a dynamic shared memory of N ints */
void sample_shared(int *out, int n, int offset);

#endif
