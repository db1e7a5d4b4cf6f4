# flags.cmake -- the targets tandem_flags (how we compile) and tandem_warnings (what must not happen)
#
# One portable binary: no -march; kernels name their instruction sets themselves and choose at run time.
# Results do not depend on the compiler's mood: no -ffast-math, no contraction of a*b+c.
include(CheckCSourceCompiles)
add_library(tandem_flags INTERFACE)
add_library(tandem_warnings INTERFACE)

target_compile_definitions(tandem_flags INTERFACE _GNU_SOURCE)
target_compile_options(tandem_flags INTERFACE
    -fvisibility=hidden
    -fno-math-errno -fno-trapping-math -ffp-contract=off
    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)

target_compile_options(tandem_warnings INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wundef -Wwrite-strings -Wvla
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes$<SEMICOLON>-Wmissing-prototypes>)

set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g")

set(sanitize_address -fsanitize=address)
set(sanitize_undefined -fsanitize=undefined -fno-sanitize-recover=all)
set(sanitize_thread -fsanitize=thread)
set(sanitize_fuzzer -fsanitize=fuzzer-no-link)

if(TANDEM_SANITIZE)
    # e.g. "address", "address+undefined"; no -Werror: sanitizers make gcc suspect what is not there
    string(REPLACE "+" ";" sanitizers "${TANDEM_SANITIZE}")
    foreach(name IN LISTS sanitizers)
        if(NOT DEFINED sanitize_${name})
            message(FATAL_ERROR "TANDEM_SANITIZE: '${name}' is none of address, undefined, thread, fuzzer")
        endif()
        target_compile_options(tandem_flags INTERFACE ${sanitize_${name}})
        target_link_options(tandem_flags INTERFACE ${sanitize_${name}})
    endforeach()
    target_compile_options(tandem_flags INTERFACE -fno-omit-frame-pointer)
    # reports need lines only; variables cost a quarter of the vector kernels' compile time
    set(CMAKE_C_FLAGS_RELEASE "-O1 -g1")
elseif(TANDEM_COVERAGE)
    target_compile_options(tandem_flags INTERFACE --coverage)
    target_link_options(tandem_flags INTERFACE --coverage)
    set(CMAKE_C_FLAGS_RELEASE "-O0 -g")
else()
    target_compile_options(tandem_warnings INTERFACE -Werror)
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # a guess of the optimiser that differs from one gcc to the next: shown, but it breaks no build
        target_compile_options(tandem_warnings INTERFACE -Wno-error=maybe-uninitialized)
    elseif(CMAKE_C_COMPILER_ID MATCHES "Clang")
        # the same: a loop that it was asked to vectorize, and did not
        target_compile_options(tandem_warnings INTERFACE $<$<COMPILE_LANGUAGE:C>:-Wno-error=pass-failed>)
    endif()
    # level 3 wants sizes that are known at run time only
    check_c_source_compiles("
        int main(int n, char **v) { return n + (int)__builtin_dynamic_object_size(v, 0); }" has_dynamic_sizes)
    set(fortify 2)
    if(has_dynamic_sizes)
        set(fortify 3)
    endif()
    target_compile_options(tandem_flags INTERFACE -fstack-protector-strong
        $<$<CONFIG:Release>:-U_FORTIFY_SOURCE$<SEMICOLON>-D_FORTIFY_SOURCE=${fortify}>)
    target_link_options(tandem_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack,-z,defs,--as-needed)
endif()

# OpenMP belongs to kernels.  clang needs its own runtime package for it (libomp-dev); without it clang
# still checks and fuzzes the same sources, on one thread.
if(TANDEM_OPENMP)
    find_package(OpenMP COMPONENTS C)
    if(OpenMP_C_FOUND)
        target_link_libraries(tandem_flags INTERFACE OpenMP::OpenMP_C)
    elseif(CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(STATUS "clang has no OpenMP runtime here (libomp-dev): kernels run on one thread")
    else()
        message(FATAL_ERROR "the compiler has no OpenMP; TANDEM_OPENMP=OFF builds without")
    endif()
endif()
if(NOT OpenMP_C_FOUND)
    target_compile_options(tandem_flags INTERFACE -Wno-unknown-pragmas)
endif()
set(CMAKE_CXX_FLAGS_RELEASE ${CMAKE_C_FLAGS_RELEASE})
set(CMAKE_CXX_FLAGS_DEBUG ${CMAKE_C_FLAGS_DEBUG})
