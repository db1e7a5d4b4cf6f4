# fetch_onednn.cmake -- oneDNN 3.2 from two PyPI wheels into DEST/include and DEST/lib
#
#   cmake -DDEST=build/deps -P cmake/fetch_onednn.cmake
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/fetch_wheel.cmake)

set(tag 2023.2.0-py2.py3-none-manylinux1_x86_64.whl)
set(wheels onednn_cpu_gomp onednn_devel_cpu_gomp)
set(onednn_cpu_gomp_project onednn-cpu-gomp)
set(onednn_cpu_gomp_sha256 2f22a54d6a890ed14bfa185d42a4be65d8b5b1df85dc1f0f3a9abe31620416fb)
set(onednn_cpu_gomp_path 65/b4/792e6d3ef02a0e14fdc0392bd378dc78f3c8356e6a40fda8c0b9366628a1)
set(onednn_devel_cpu_gomp_project onednn-devel-cpu-gomp)
set(onednn_devel_cpu_gomp_sha256 9763c69e8c907e119056bd52ad918ca84ac9ba939d130a99dfa95ccca3e5e284)
set(onednn_devel_cpu_gomp_path d4/26/e1f06fc4810583d892831817e3217d32be475dd740c86c0b4058cec9d172)

get_filename_component(DEST "${DEST}" ABSOLUTE)
set(unpacked ${DEST}/unpacked)
file(REMOVE_RECURSE ${unpacked})
foreach(name IN LISTS wheels)
    fetch_wheel(${${name}_project} 2023.2.0 ${name}-${tag} ${${name}_path} ${${name}_sha256})
    file(ARCHIVE_EXTRACT INPUT ${DEST}/download/${name}-${tag} DESTINATION ${unpacked})
endforeach()

# the runtime wheel holds the same library three times, because a wheel has no links
set(run ${unpacked}/onednn_cpu_gomp-2023.2.0.data/data)
set(devel ${unpacked}/onednn_devel_cpu_gomp-2023.2.0.data/data)
file(REMOVE_RECURSE ${DEST}/include ${DEST}/lib ${DEST}/doc)
file(MAKE_DIRECTORY ${DEST}/lib)
file(RENAME ${run}/lib/libdnnl.so.3.2 ${DEST}/lib/libdnnl.so.3.2)
file(CREATE_LINK libdnnl.so.3.2 ${DEST}/lib/libdnnl.so.3 SYMBOLIC)
file(CREATE_LINK libdnnl.so.3 ${DEST}/lib/libdnnl.so SYMBOLIC)
file(RENAME ${run}/share/doc/onednn ${DEST}/doc)
file(RENAME ${devel}/include ${DEST}/include)
file(REMOVE_RECURSE ${unpacked})
message(NOTICE "setup: oneDNN 3.2 is in ${DEST}")
