# install.cmake -- headers, both libraries, the command, a pkg-config file and a CMake package
#
# A oneDNN that scripts/setup unpacked is installed into a folder of its own, LIBDIR/tandem, and the installed
# command and library are linked a second time, to search it there, relative to themselves: the result stands
# alone, can be moved, and knows nothing of the build folder.
include(CMakePackageConfigHelpers)

set(tandem_program tandem)
set(tandem_library tandem_shared)
set(private_dir ${CMAKE_INSTALL_LIBDIR}/tandem)
if(TANDEM_DNNL_IS_PRIVATE)
    set(tandem_library tandem_installed_shared)
    add_library(${tandem_library} SHARED $<TARGET_OBJECTS:tandem_objects>)
    tandem_set_up_shared(${tandem_library})
    set_target_properties(${tandem_library} PROPERTIES INSTALL_RPATH "$ORIGIN/tandem"
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/installed)
    if(TARGET tandem)
        set(tandem_program tandem_installed)
        add_executable(${tandem_program} $<TARGET_OBJECTS:tandem_cli>)
        target_link_libraries(${tandem_program} PRIVATE tandem_static)
        set_target_properties(${tandem_program} PROPERTIES OUTPUT_NAME tandem
            INSTALL_RPATH "$ORIGIN/${bin_to_private}" RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/installed)
    endif()
endif()

# first of all: which folders does the installation make?  Those below `tandem` need not be named.
set(folders ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_INCLUDEDIR} ${CMAKE_INSTALL_LIBDIR} ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    ${CMAKE_INSTALL_LIBDIR}/cmake ${CMAKE_INSTALL_DOCDIR} lib/systemd/system share/man/man1 share/tandem
    share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d)
install(CODE "set(FOLDERS \"${folders}\")" COMPONENT whole)
install(SCRIPT cmake/folders.cmake COMPONENT whole)

# components: `runtime`, `devel`, `openmpi`, `mpich`; each is a package (cmake/package.cmake)
install(DIRECTORY include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT devel FILES_MATCHING PATTERN "*.h")
install(TARGETS tandem_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devel)
install(TARGETS ${tandem_library} EXPORT TandemTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT runtime NAMELINK_COMPONENT devel)
foreach(mpi IN LISTS tandem_mpis)
    install(TARGETS tandem_mpi_${mpi} LIBRARY DESTINATION ${private_dir} COMPONENT ${mpi})
endforeach()
install(FILES LICENSE NOTICE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT whole)
if(TARGET tandem)
    install(TARGETS ${tandem_program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
    install(CODE "set(TANDEM $<TARGET_FILE:tandem>)" COMPONENT runtime)
    install(CODE "set(PAGES ${CMAKE_BINARY_DIR}/pages)" COMPONENT runtime)
    install(SCRIPT cmake/pages.cmake COMPONENT runtime)
    install(CODE "set(BIN_DIR ${CMAKE_INSTALL_BINDIR})" COMPONENT runtime)
    install(CODE "configure_file(${CMAKE_SOURCE_DIR}/packaging/tandem-serve.service.in
        ${CMAKE_BINARY_DIR}/tandem-serve.service @ONLY)" COMPONENT runtime)
    install(FILES ${CMAKE_BINARY_DIR}/tandem-serve.service DESTINATION lib/systemd/system COMPONENT runtime)
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
    string(PREPEND private "-ldnnl -lstdc++ ") # dnnl_guard.cpp
endif()
if(TANDEM_DNNL_IS_PRIVATE)
    string(PREPEND private "-L\${libdir}/tandem -Wl,-rpath,\${libdir}/tandem ")
    install(DIRECTORY ${TANDEM_DEPS}/lib/ DESTINATION ${private_dir} COMPONENT runtime
        FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ PATTERN libdnnl.so EXCLUDE)
    if(CMAKE_STRIP)
        install(CODE "if(CMAKE_INSTALL_DO_STRIP)
            file(GLOB copies \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${private_dir}/libdnnl.so.*.*\")
            execute_process(COMMAND ${CMAKE_STRIP} --strip-unneeded \${copies} COMMAND_ERROR_IS_FATAL ANY)
            endif()" COMPONENT runtime)
    endif()
    install(FILES ${TANDEM_DEPS}/lib/libdnnl.so DESTINATION ${private_dir} COMPONENT devel)
    install(DIRECTORY ${TANDEM_DEPS}/doc/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/onednn COMPONENT runtime)
endif()
set(TANDEM_PC_LIBS_PRIVATE "${private}")
file(RELATIVE_PATH TANDEM_PC_PREFIX
    ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" TANDEM_PC_PREFIX "${TANDEM_PC_PREFIX}")
configure_file(cmake/tandem.pc.in tandem.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT devel)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tandem)
install(EXPORT TandemTargets NAMESPACE Tandem:: DESTINATION ${package_dir} COMPONENT devel)
configure_package_config_file(cmake/TandemConfig.cmake.in TandemConfig.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(TandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TandemConfig.cmake ${CMAKE_BINARY_DIR}/TandemConfigVersion.cmake
    DESTINATION ${package_dir} COMPONENT devel)

# what `make uninstall` may remove; not where packages are made
install(SCRIPT cmake/manifest.cmake COMPONENT whole)
