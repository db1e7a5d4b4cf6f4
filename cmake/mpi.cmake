# mpi.cmake -- the MPI plug-ins: one library for each MPI whose compiler wrapper is installed
#
#   libtandem_mpi_openmpi.so   Open MPI
#   libtandem_mpi_mpich.so     MPICH, and what shares its ABI: Intel MPI, Cray MPICH
#
# They are opened only when there are several ranks, so nothing else depends on MPI.
include(CheckCSourceCompiles)
set(tandem_mpis "")
foreach(wrapper mpicc.openmpi mpicc.mpich mpicc)
    find_program(TANDEM_${wrapper} NAMES ${wrapper})
    if(NOT TANDEM_${wrapper})
        continue()
    endif()
    execute_process(COMMAND ${TANDEM_${wrapper}} -show OUTPUT_VARIABLE words ERROR_QUIET RESULT_VARIABLE failed)
    if(failed)
        continue()
    endif()
    separate_arguments(words UNIX_COMMAND "${words}")
    set(mpi_includes ${words})
    list(FILTER mpi_includes INCLUDE REGEX "^-I")
    list(TRANSFORM mpi_includes REPLACE "^-I" "")
    set(mpi_links ${words})
    list(FILTER mpi_links INCLUDE REGEX "^(-L|-l|-Wl)")
    # the name of a plug-in is that of the ABI, which the header tells
    set(CMAKE_REQUIRED_INCLUDES ${mpi_includes})
    check_c_source_compiles("#include <mpi.h>\n#ifndef OPEN_MPI\n#error\n#endif\nint main(void) { return 0; }"
        TANDEM_IS_OPENMPI_${wrapper})
    check_c_source_compiles("#include <mpi.h>\n#ifdef OPEN_MPI\n#error\n#endif\nint main(void) { return 0; }"
        TANDEM_IS_MPICH_${wrapper})
    unset(CMAKE_REQUIRED_INCLUDES)
    if(TANDEM_IS_OPENMPI_${wrapper})
        set(mpi openmpi)
    elseif(TANDEM_IS_MPICH_${wrapper})
        set(mpi mpich)
    else()
        continue()
    endif()
    if(TARGET tandem_mpi_${mpi})
        continue()
    endif()
    file(GLOB mpi_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/mpi/*.c)
    add_library(tandem_mpi_${mpi} MODULE ${mpi_sources})
    target_include_directories(tandem_mpi_${mpi} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_include_directories(tandem_mpi_${mpi} SYSTEM PRIVATE ${mpi_includes})
    target_link_libraries(tandem_mpi_${mpi} PRIVATE ${mpi_links} tandem_flags tandem_warnings)
    set_target_properties(tandem_mpi_${mpi} PROPERTIES BUILD_RPATH "" INSTALL_RPATH "")
    list(APPEND tandem_mpis ${mpi})
endforeach()
