# FindOneDNN.cmake -- oneDNN >= 3.2 as the target OneDNN::dnnl
#
# Looks into TANDEM_DEPS (what scripts/setup unpacks), then DNNLROOT, CMAKE_PREFIX_PATH and the system.
# Sets OneDNN_FOUND, OneDNN_VERSION, OneDNN_LIBRARY, OneDNN_INCLUDE_DIR.
find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h
    HINTS ${TANDEM_DEPS}/include $ENV{DNNLROOT}/include NO_CMAKE_FIND_ROOT_PATH)
get_filename_component(prefix "${OneDNN_INCLUDE_DIR}" DIRECTORY)
find_library(OneDNN_LIBRARY dnnl HINTS ${prefix}/lib $ENV{DNNLROOT}/lib)

if(OneDNN_INCLUDE_DIR AND EXISTS ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h)
    file(READ ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h text)
    set(OneDNN_VERSION "")
    foreach(part MAJOR MINOR PATCH)
        string(REGEX MATCH "DNNL_VERSION_${part} +([0-9]+)" _ "${text}")
        list(APPEND OneDNN_VERSION ${CMAKE_MATCH_1})
    endforeach()
    list(JOIN OneDNN_VERSION "." OneDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN
    REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR VERSION_VAR OneDNN_VERSION
    REASON_FAILURE_MESSAGE "run scripts/setup")

if(OneDNN_FOUND AND NOT TARGET OneDNN::dnnl)
    add_library(OneDNN::dnnl SHARED IMPORTED)
    set_target_properties(OneDNN::dnnl PROPERTIES
        IMPORTED_LOCATION ${OneDNN_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR})
endif()
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)
