# package.cmake -- Debian packages by CPack: `make deb`
#
#   tandem       the command, libtandem.so, manual pages, completions, the unit for `tandem serve`
#   tandem-dev   headers, libtandem.a, pkg-config and CMake files
#   tandem-openmpi, tandem-mpich   LIBDIR/tandem/libtandem_mpi_*.so, where that MPI was there at build time
#
# Dependencies are what dpkg-shlibdeps finds.  Where the distribution's oneDNN is too old (Debian 12), `tandem`
# holds the copy that scripts/setup fetched, in /usr/lib/TRIPLET/tandem.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tandem)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(TANDEM_MAINTAINER "The Tandem authors <tandem@localhost>" CACHE STRING "who distributes the packages, with an address")
set(CPACK_PACKAGE_CONTACT ${TANDEM_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains, evaluates and runs image networks on the CPU")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR OFF)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL runtime devel)
set(CPACK_COMPONENTS_GROUPING IGNORE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS OFF)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME tandem)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
    "Tandem trains, evaluates, runs and benchmarks image classification networks
and object detectors from a folder of images, and serves them over HTTP.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "tandem-openmpi | tandem-mpich")
set(CPACK_DEBIAN_DEVEL_PACKAGE_NAME tandem-dev)
set(CPACK_DEBIAN_DEVEL_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVEL_PACKAGE_DEPENDS "tandem (= ${PROJECT_VERSION}-1)")
set(CPACK_COMPONENT_DEVEL_DESCRIPTION "Headers, static library, pkg-config and CMake files of Tandem.")
if(TANDEM_DNNL_IS_PRIVATE)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${TANDEM_DEPS}/lib)
else()
    set(CPACK_DEBIAN_DEVEL_PACKAGE_SUGGESTS libdnnl-dev)
endif()
foreach(mpi IN LISTS tandem_mpis)
    string(TOUPPER ${mpi} MPI)
    list(APPEND CPACK_COMPONENTS_ALL ${mpi})
    set(CPACK_DEBIAN_${MPI}_PACKAGE_NAME tandem-${mpi})
    set(CPACK_DEBIAN_${MPI}_PACKAGE_DEPENDS "tandem (= ${PROJECT_VERSION}-1)")
    set(CPACK_COMPONENT_${MPI}_DESCRIPTION "Ranks of Tandem on several machines, by ${mpi}.")
endforeach()

# What Debian's rules want in every package; options of the service are a file that upgrades leave alone.
set(made ${CMAKE_BINARY_DIR}/packaging)
file(MAKE_DIRECTORY ${made})
file(WRITE ${made}/conffiles "/etc/default/tandem-serve\n")
file(WRITE ${made}/triggers "activate-noawait ldconfig\n")
set(abi ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
file(WRITE ${made}/shlibs "libtandem ${abi} tandem (>= ${abi}.0)\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${made}/conffiles ${made}/triggers ${made}/shlibs)
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, where it is set
file(WRITE ${made}/changelog.Debian "tandem (${PROJECT_VERSION}-1) unstable; urgency=medium

  * Version ${PROJECT_VERSION}: see changelog.gz.

 -- ${TANDEM_MAINTAINER}  ${now}
")
configure_file(CHANGELOG.md ${made}/changelog COPYONLY)
foreach(name changelog changelog.Debian)
    execute_process(COMMAND gzip -9n INPUT_FILE ${made}/${name} OUTPUT_FILE ${made}/${name}.gz COMMAND_ERROR_IS_FATAL ANY)
endforeach()
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    foreach(pair runtime:tandem devel:tandem-dev mpi:tandem-mpi)
        string(REGEX REPLACE ":.*" "" component ${pair})
        string(REGEX REPLACE ".*:" "" package ${pair})
        install(FILES packaging/copyright NOTICE ${made}/changelog.gz ${made}/changelog.Debian.gz DESTINATION share/doc/${package}
            COMPONENT ${component} EXCLUDE_FROM_ALL)
    endforeach()
    install(FILES packaging/tandem-serve.default DESTINATION /etc/default RENAME tandem-serve
        COMPONENT runtime EXCLUDE_FROM_ALL)
endif()
include(CPack)
