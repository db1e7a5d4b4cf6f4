# fetch_cuda.cmake -- cuDNN 9.28 and NCCL 2.32 for CUDA 13 from two PyPI wheels into DEST/cuda/include and DEST/cuda/lib
#
#   cmake -DDEST=build/deps -P cmake/fetch_cuda.cmake
#
# They are used where they are unpacked; they are not installed with the command.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/fetch_wheel.cmake)

set(tag py3-none-manylinux_2_27_x86_64.whl)
set(cudnn_version 9.28.1.4)
set(cudnn_sha256 a54f205b1db1f2895d99f398754db1369816f0569dd459731f925635cf7b65ec)
set(cudnn_path ef/6f/94535c450d44a68ef0b43d7a5e54c0e5ecda2ca3db7daec5d54c8d94e0d8)
set(nccl_version 2.32.3)
set(nccl_sha256 1459723080ac889d73a26edfa3e04383a7928ab31ac8f0ec43b3ea9548b04ff3)
set(nccl_path 5b/29/6b277e63c92d91f9cb4d1a3a554e148983de39d54baa652bb52c798af78e)

get_filename_component(DEST "${DEST}" ABSOLUTE)
set(unpacked ${DEST}/unpacked_cuda)
file(REMOVE_RECURSE ${unpacked} ${DEST}/cuda)
file(MAKE_DIRECTORY ${DEST}/cuda/include ${DEST}/cuda/lib)
foreach(name cudnn nccl)
    set(file nvidia_${name}_cu13-${${name}_version}-${tag})
    fetch_wheel(nvidia-${name}-cu13 ${${name}_version} ${file} ${${name}_path} ${${name}_sha256})
    file(ARCHIVE_EXTRACT INPUT ${DEST}/download/${file} DESTINATION ${unpacked})
    foreach(folder include lib)
        file(GLOB found ${unpacked}/nvidia/${name}/${folder}/*)
        foreach(path IN LISTS found)
            get_filename_component(last ${path} NAME)
            file(RENAME ${path} ${DEST}/cuda/${folder}/${last})
        endforeach()
    endforeach()
    file(RENAME ${unpacked}/nvidia_${name}_cu13-${${name}_version}.dist-info/licenses/License.txt
        ${DEST}/cuda/${name}_license.txt)
endforeach()
file(REMOVE_RECURSE ${unpacked})
message(NOTICE "setup: cuDNN ${cudnn_version} and NCCL ${nccl_version} are in ${DEST}/cuda")
