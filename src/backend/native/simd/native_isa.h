/*
 * backend/native/simd/native_isa.h -- names and numbers for the files that compile
 * native_simd.inc and native_winograd.inc for each instruction set and element type
 */
#ifndef TD_BACKEND_NATIVE_SIMD_NATIVE_ISA_H
#define TD_BACKEND_NATIVE_SIMD_NATIVE_ISA_H

#if defined(__x86_64__)
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

#define TEXT2(a)           #a
#define TEXT(a)            TEXT2(a)
#define PASTE2(a, b, c, d) a##_##b##_##c##_##d
#define PASTE(a, b, c, d)  PASTE2(a, b, c, d)
#define NAME(id)           PASTE(id, ISA, LANES, ELEM)

#define BITS_512  3
#define BITS_256  2
#define BITS_128  1
#define BITS_NONE 0

#define KIND_F32  0
#define KIND_BF16 1
#define KIND_F16  2

#define CLASS_SUBNORMAL 0x20 /* a class that vfpclassps tests */
#define UPPER_HALVES         /* word i of 16 into the upper half of lane i of 32 bits */           \
    _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, \
                     3, 0, 2, 0, 1, 0, 0, 0)

#endif
