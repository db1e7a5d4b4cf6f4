# cuda.cmake -- the plug-in for NVIDIA GPUs, libtandem_cuda.so, if CUDA's compiler is installed
#
# It is built by `make cuda`, not with the rest: nvcc takes a minute, and nothing else depends on it.
# CUDA's runtime is linked statically, so that loading it without a driver fails with a message of ours.
find_program(TANDEM_NVCC NAMES nvcc HINTS /usr/local/cuda/bin)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
if(TANDEM_NVCC)
    # Turing to Blackwell, and code for later ones; nvcc 13 has dropped Volta (7.0)
    set(TANDEM_CUDA_ARCHS "75;80;86;89;90;100;120" CACHE STRING "compute capabilities of libtandem_cuda.so")
    set(cuda_flags -std=c++17 -O3 -lineinfo -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra
        -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/src)
    foreach(arch IN LISTS TANDEM_CUDA_ARCHS)
        list(APPEND cuda_flags -gencode=arch=compute_${arch},code=sm_${arch})
    endforeach()
    list(GET TANDEM_CUDA_ARCHS -1 newest)
    list(APPEND cuda_flags -gencode=arch=compute_${newest},code=compute_${newest})
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
    add_custom_command(OUTPUT ${library} DEPENDS ${cuda_objects}
        COMMAND ${TANDEM_NVCC} -shared -cudart static -o ${library} ${cuda_objects} VERBATIM)
    add_custom_target(cuda DEPENDS ${library})
endif()
