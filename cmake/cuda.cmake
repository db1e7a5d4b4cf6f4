# cuda.cmake -- the plug-in for NVIDIA GPUs, libtandem_cuda.so, if CUDA's compiler and cuDNN's headers are installed
#
# It is built by `make cuda`, not with the rest: nvcc takes a minute, and nothing else depends on it.
# CUDA's runtime is linked statically, so that loading it without a driver fails with a message of ours.
# cuDNN, cuBLASLt and NCCL are opened at run time; only their headers are needed, which are searched in TANDEM_DEPS/cuda
# (scripts/setup --cuda), in CUDNN_PATH, CUBLAS_PATH and NCCL_PATH, and beside nvcc.  cuBLASLt is a part of most toolkits.  The plug-in looks for the libraries in
# TANDEM_DEPS/cuda and beside nvcc before the system's path.
#
#   TANDEM_CUDA_ROOT       the toolkit's folder
#   tandem_cudnn           objects of src/backend/cuda/cudnn_*.c; no target without the headers
set(tandem_cudnn_wanted 9.8)
find_program(TANDEM_NVCC NAMES nvcc HINTS /usr/local/cuda/bin)
set(TANDEM_CUDA_ROOT "")
if(TANDEM_NVCC)
    get_filename_component(TANDEM_CUDA_ROOT ${TANDEM_NVCC} REALPATH)
    get_filename_component(TANDEM_CUDA_ROOT ${TANDEM_CUDA_ROOT}/../.. ABSOLUTE)
endif()

# what scripts/setup --cuda has unpacked goes before what was found earlier
set(TANDEM_CUDA_DEPS ${TANDEM_DEPS}/cuda)
if(EXISTS ${TANDEM_CUDA_DEPS}/include/cudnn_backend.h)
    set(TANDEM_CUDNN_INCLUDE ${TANDEM_CUDA_DEPS}/include CACHE PATH "cuDNN's headers" FORCE)
    set(TANDEM_CUDNN_LIBRARY ${TANDEM_CUDA_DEPS}/lib/libcudnn.so.9 CACHE FILEPATH "cuDNN, for tests" FORCE)
    set(TANDEM_NCCL_INCLUDE ${TANDEM_CUDA_DEPS}/include CACHE PATH "NCCL's header" FORCE)
endif()
set(cudnn_hints $ENV{CUDNN_PATH} ${TANDEM_CUDA_ROOT} /usr/local/cuda)
find_path(TANDEM_CUDA_INCLUDE cuda_runtime_api.h HINTS ${TANDEM_CUDA_ROOT} /usr/local/cuda PATH_SUFFIXES include)
find_path(TANDEM_CUDNN_INCLUDE cudnn_backend.h HINTS ${cudnn_hints} PATH_SUFFIXES include)
find_path(TANDEM_NCCL_INCLUDE nccl.h HINTS $ENV{NCCL_PATH} ${TANDEM_CUDA_ROOT} /usr/local/cuda
    PATH_SUFFIXES include)
find_path(TANDEM_CUBLASLT_INCLUDE cublasLt.h HINTS ${TANDEM_CUDA_DEPS} $ENV{CUBLAS_PATH} ${TANDEM_CUDA_ROOT}
    /usr/local/cuda PATH_SUFFIXES include)
set(cudnn_version "")
if(TANDEM_CUDNN_INCLUDE)
    foreach(part MAJOR MINOR PATCHLEVEL)
        file(STRINGS ${TANDEM_CUDNN_INCLUDE}/cudnn_version.h line REGEX "^#define CUDNN_${part} ")
        string(REGEX MATCH "[0-9]+" number "${line}")
        list(APPEND cudnn_version ${number})
    endforeach()
    list(JOIN cudnn_version . cudnn_version)
endif()

if(TANDEM_CUDA_INCLUDE AND cudnn_version VERSION_GREATER_EQUAL tandem_cudnn_wanted)
    file(GLOB cudnn_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/cudnn_*.c)
    add_library(tandem_cudnn OBJECT EXCLUDE_FROM_ALL ${cudnn_sources})
    target_include_directories(tandem_cudnn PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_include_directories(tandem_cudnn SYSTEM PUBLIC ${TANDEM_CUDNN_INCLUDE} ${TANDEM_CUDA_INCLUDE})
    target_link_libraries(tandem_cudnn PUBLIC tandem_flags ${CMAKE_DL_LIBS} PRIVATE tandem_warnings)
    set_target_properties(tandem_cudnn PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
endif()

# `make cuda` fails with what is missing
set(missing "")
if(NOT TANDEM_NVCC)
    set(missing "nvcc (CUDA 13), in the search path or /usr/local/cuda/bin")
elseif(NOT TARGET tandem_cudnn)
    set(missing "the headers of cuDNN ${tandem_cudnn_wanted} or newer (found: '${cudnn_version}'), in CUDNN_PATH or the toolkit: run scripts/setup --cuda")
    message(STATUS "CUDA plug-in: cannot be built without ${missing}")
elseif(NOT TANDEM_NCCL_INCLUDE)
    set(missing "nccl.h (NCCL 2.14 or newer), in NCCL_PATH or the toolkit: run scripts/setup --cuda")
    message(STATUS "CUDA plug-in: cannot be built without ${missing}")
elseif(NOT TANDEM_CUBLASLT_INCLUDE)
    set(missing "cublasLt.h (cuBLAS 12 or newer), in CUBLAS_PATH or the toolkit: run scripts/setup --cuda")
    message(STATUS "CUDA plug-in: cannot be built without ${missing}")
endif()
if(missing)
    add_custom_target(cuda VERBATIM
        COMMAND ${CMAKE_COMMAND} -E echo "libtandem_cuda.so cannot be built without ${missing}" COMMAND ${CMAKE_COMMAND} -E false)
    return()
endif()

# Turing to Blackwell, and code for later ones; nvcc 13 has dropped Volta (7.0)
set(TANDEM_CUDA_ARCHS "75;80;86;89;90;100;120" CACHE STRING "compute capabilities of libtandem_cuda.so")
set(cuda_flags -std=c++17 -O3 -lineinfo -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra
    -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/src -isystem ${TANDEM_NCCL_INCLUDE}
    -isystem ${TANDEM_CUBLASLT_INCLUDE})
foreach(arch IN LISTS TANDEM_CUDA_ARCHS)
    list(APPEND cuda_flags -gencode=arch=compute_${arch},code=sm_${arch})
endforeach()
list(GET TANDEM_CUDA_ARCHS -1 newest)
list(APPEND cuda_flags -gencode=arch=compute_${newest},code=compute_${newest})
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
set(cuda_objects "")
foreach(source IN LISTS cuda_sources)
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object} DEPFILE ${object}.d DEPENDS ${source}
        COMMAND ${TANDEM_NVCC} ${cuda_flags} -Werror all-warnings -MD -MF ${object}.d -c ${source} -o ${object}
        COMMENT "nvcc ${name}" VERBATIM)
    list(APPEND cuda_objects ${object})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
set(library ${CMAKE_BINARY_DIR}/libtandem_cuda.so)
add_custom_command(OUTPUT ${library} DEPENDS ${cuda_objects} tandem_cudnn $<TARGET_OBJECTS:tandem_cudnn>
    COMMAND ${TANDEM_NVCC} -shared -cudart static -Xlinker -rpath=${TANDEM_CUDA_DEPS}/lib:${TANDEM_CUDA_ROOT}/lib64 -o ${library} ${cuda_objects} $<TARGET_OBJECTS:tandem_cudnn> -ldl
    COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(cuda DEPENDS ${library})
