# install.cmake -- headers, both libraries, the command, a pkg-config file and a CMake package
#
# A oneDNN that scripts/setup unpacked is installed beside the library, so that the result stands alone.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS tandem_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tandem_shared EXPORT TandemTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tandem_mpi)
    install(TARGETS tandem_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET tandem)
    install(TARGETS tandem RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(CODE "set(TANDEM $<TARGET_FILE:tandem>)")
    install(CODE "set(PAGES ${CMAKE_BINARY_DIR}/pages)")
    install(SCRIPT cmake/pages.cmake)
endif()

# what a program needs that links libtandem.a: the shared libraries of others by name, without their own
# private needs (pkg-config would add those, and with them packages nobody has installed)
set(private "-lm -ldl -pthread")
foreach(module IN LISTS modules)
    list(TRANSFORM ${module}_LIBRARIES PREPEND -l OUTPUT_VARIABLE names)
    list(JOIN names " " names)
    string(PREPEND private "${names} ")
endforeach()
if(OpenMP_C_FOUND)
    string(APPEND private " ${OpenMP_C_FLAGS}")
endif()
if(TANDEM_DNNL)
    string(PREPEND private "-ldnnl ")
    cmake_path(IS_PREFIX TANDEM_DEPS ${OneDNN_LIBRARY} NORMALIZE is_unpacked)
    if(is_unpacked)
        install(DIRECTORY ${TANDEM_DEPS}/lib/ DESTINATION ${CMAKE_INSTALL_LIBDIR} USE_SOURCE_PERMISSIONS)
        install(DIRECTORY ${TANDEM_DEPS}/doc/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/onednn)
    endif()
endif()
set(TANDEM_PC_LIBS_PRIVATE "${private}")
file(RELATIVE_PATH TANDEM_PC_PREFIX
    ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" TANDEM_PC_PREFIX "${TANDEM_PC_PREFIX}")
configure_file(cmake/tandem.pc.in tandem.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tandem)
install(EXPORT TandemTargets NAMESPACE Tandem:: DESTINATION ${package_dir})
configure_package_config_file(cmake/TandemConfig.cmake.in TandemConfig.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(TandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TandemConfig.cmake ${CMAKE_BINARY_DIR}/TandemConfigVersion.cmake
    DESTINATION ${package_dir})
