/*
 * native_erf.h -- erf(x) = x P(x^2) / Q(x^2) for |x| <= 4, Q's first coefficient is 1: a relative
 * error of at most 2.5e-8
 */
#ifndef TD_BACKEND_NATIVE_SIMD_NATIVE_ERF_H
#define TD_BACKEND_NATIVE_SIMD_NATIVE_ERF_H

#define ERF_P0 1.1283791065f
#define ERF_P1 0.1935459971f
#define ERF_P2 0.0531018674f
#define ERF_P3 0.00388338463f
#define ERF_P4 0.000284566951f
#define ERF_P5 1.98677662e-06f
#define ERF_Q1 0.504858196f
#define ERF_Q2 0.115350388f
#define ERF_Q3 0.0152073316f
#define ERF_Q4 0.00118558132f
#define ERF_Q5 3.742017e-05f

#endif
