# SPDX-License-Identifier: Apache-2.0
# cpack -G RPM: an .rpm for each component, with the descriptions of the .deb files.
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_GROUP Development/Libraries)
set(CPACK_RPM_PACKAGE_LICENSE "Apache-2.0 AND MIT") # Jansson's parts are under MIT
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} component)
  set(description "${CPACK_DEBIAN_${component}_DESCRIPTION}")
  string(FIND "${description}" "\n" end)
  string(SUBSTRING "${description}" 0 ${end} summary)
  math(EXPR end "${end} + 1")
  string(SUBSTRING "${description}" ${end} -1 description)
  set(CPACK_RPM_${component}_PACKAGE_NAME "${CPACK_DEBIAN_${component}_PACKAGE_NAME}")
  set(CPACK_RPM_${component}_PACKAGE_SUMMARY "${summary}")
  set(CPACK_RPM_${component}_PACKAGE_DESCRIPTION "${description}")
endforeach()
set(CPACK_RPM_SOFTGPU_PACKAGE_REQUIRES "slipring = ${PROJECT_VERSION}")
set(CPACK_RPM_SOFTGPU_PACKAGE_AUTOPROV no) # it is nobody's CUDA
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/lib64/cmake /usr/lib64/pkgconfig /usr/libexec /usr/share/lintian
  /usr/share/lintian/overrides /usr/share/man /usr/share/man/man1 /usr/share/man/man7 /usr/share/bash-completion /usr/share/bash-completion/completions
  /usr/share/zsh /usr/share/zsh/site-functions /usr/share/zsh/vendor-completions /usr/share/fish /usr/share/fish/vendor_completions.d)
# What programs here need of CUDA comes with the driver and the user's programs; slipring.pc asks for no pkg-config. No links
# by build id; times as in the other packages.
set(CPACK_RPM_SPEC_MORE_DEFINE "%global __requires_exclude ^(lib(cuda|cudart|cublas|cublasLt|nccl)[.]so.*|/usr/bin/pkg-config)$
%global _build_id_links none
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
%global _buildhost localhost")
