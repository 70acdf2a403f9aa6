# SPDX-License-Identifier: Apache-2.0
# cpack: slipring-<version>-linux-<machine>.tar.gz with everything, and a .deb for each component (an .rpm with
# `cpack -G RPM`). scripts/package.sh builds them from nothing.
set(CPACK_GENERATOR "TGZ;DEB")
set(CPACK_PACKAGE_NAME slipring)
set(CPACK_PACKAGE_VENDOR "slipring maintainers")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_CONTACT "slipring maintainers <slipring@localhost>")
set(CPACK_PACKAGE_FILE_NAME slipring-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(SLIPRING_HOMEPAGE "" CACHE STRING "The address that packages and the wheel name as the project's; none when empty")
set(CPACK_PACKAGE_HOMEPAGE_URL "${SLIPRING_HOMEPAGE}")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL slipring)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_POST_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/deb_scripts.cmake)

# The first line is the summary.
set(CPACK_DEBIAN_SLIPRING_PACKAGE_NAME slipring)
set(CPACK_DEBIAN_SLIPRING_PACKAGE_SUGGESTS slipring-softgpu)
set(CPACK_DEBIAN_SLIPRING_DESCRIPTION "faster NCCL all-gathers for unchanged CUDA programs
libslipring.so is preloaded into CUDA programs that use NCCL and cuBLAS. It
moves all-gathers within one host over CUDA IPC with the copy engines, and
starts a GEMM that consumes the gathered matrix while the rest of it is still
on its way. What it can not move goes to NCCL, and the log says why.

The same file is an NCCL tuner and profiler plugin, and has a small C API.
CUDA, NCCL and cuBLAS are found at run time; nothing of them is needed to
install this package.")

if(SLIPRING_TESTS)
  list(APPEND CPACK_COMPONENTS_ALL softgpu)
  set(CPACK_DEBIAN_SOFTGPU_PACKAGE_NAME slipring-softgpu)
  set(CPACK_DEBIAN_SOFTGPU_PACKAGE_DEPENDS "slipring (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${SOFTGPU_DIR}) # where the stand-ins find each other
  set(CPACK_DEBIAN_SOFTGPU_DESCRIPTION "software GPU for slipring: stand-ins for CUDA, cuBLAS and NCCL
Stand-ins for libcuda.so.1, libcudart, libcublas, libcublasLt and libnccl with
which CUDA programs that use no kernels of their own run without a GPU, in
several processes and on several devices. To try slipring, and for tests.

They lie in a folder of their own and replace nothing; slipring softgpu runs a
program on them.")
endif()
include(rpm.cmake)
include(CPack)
