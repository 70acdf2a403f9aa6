# SPDX-License-Identifier: Apache-2.0
# Mutants: sources of the library, each changed in one way that a test has to notice; a test that no mutant can fail proves nothing. They are
# in the folders' mutants.txt, which name the files; mutant.py says how. Any folder may use them. The build fails when one does not fit its source any more.
# That a test can fail is shown once, without sanitizers: in such builds a mutant is built only for a test that asks for it (mutant_needed).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(mutant_script ${CMAKE_CURRENT_LIST_DIR}/mutant.py)

# mutant_sources(NAME): makes the sources that the mutant NAME changes. Sets mutant_files, the library's, and mutant_sources, the changed ones, in
# the same order.
file(GLOB mutant_tables CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*/mutants.txt)
execute_process(COMMAND ${Python3_EXECUTABLE} ${mutant_script} --files ${mutant_tables} OUTPUT_VARIABLE mutant_entries
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" mutant_entries "${mutant_entries}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${mutant_tables})
function(mutant_sources name)
  set(entries ${mutant_entries})
  list(FILTER entries INCLUDE REGEX "^${name} ")
  if(NOT entries)
    message(FATAL_ERROR "no table has a mutant ${name}")
  endif()
  mutant_used(${name})
  string(REPLACE " " ";" files "${entries}")
  list(POP_FRONT files name table)
  set(sources "")
  foreach(file IN LISTS files)
    get_filename_component(base ${file} NAME)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/mutants/${name}/${base})
    add_custom_command(OUTPUT ${source} COMMAND ${Python3_EXECUTABLE} ${mutant_script} ${table} ${name} ${file} ${source}
      DEPENDS ${PROJECT_SOURCE_DIR}/${file} ${table} ${mutant_script} VERBATIM)
    list(APPEND sources ${source})
  endforeach()
  list(TRANSFORM files PREPEND ${PROJECT_SOURCE_DIR}/)
  set(mutant_files ${files} PARENT_SCOPE)
  set(mutant_sources ${sources} PARENT_SCOPE)
endfunction()

# mutant_used(NAME): a test is about it, though perhaps not on this machine.
function(mutant_used name)
  set_property(GLOBAL APPEND PROPERTY mutants_used ${name})
endfunction()

# mutants_write_uses(FILE): the names of all that were used, one a line.
function(mutants_write_uses file)
  get_property(names GLOBAL PROPERTY mutants_used)
  list(JOIN names "\n" names)
  file(CONFIGURE OUTPUT ${file} CONTENT "${names}\n" @ONLY)
endfunction()

# mutant(NAME): the library with the sources of a mutant, mutant_NAME, beside the real one.
function(mutant name)
  mutant_sources(${name})
  set(replaced "") # plugin/pending/order.c is plugin/CMakeFiles/slr_plugin.dir/gather/order.c.o, or slr_plugin.dir/./gather/order.c.o
  foreach(file IN LISTS mutant_files)
    file(RELATIVE_PATH file ${PROJECT_SOURCE_DIR} ${file})
    string(REPLACE "." "\\." file ${file})
    string(REGEX REPLACE "^([^/]+)/(.*)" "slr_\\1\\\\.dir/(\\\\./)?\\2" file ${file})
    list(APPEND replaced ${file})
  endforeach()
  list(JOIN replaced "|" replaced)
  foreach(part interpose plugin kernels cache)
    list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:slr_${part}>,EXCLUDE,/(${replaced})\\.o$>")
  endforeach()
  add_library(mutant_${name} SHARED ${mutant_sources} ${objects})
  target_link_libraries(mutant_${name} PRIVATE slr_base ${CMAKE_DL_LIBS})
  target_include_directories(mutant_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(mutant_${name} PRIVATE -Wno-unused -Wno-unused-parameter)
  target_link_options(mutant_${name} PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/interpose/exports.map
    -Wl,--as-needed -Wl,-z,nodelete
    -Wl,--strip-debug) # there are some hundred: most of each would be debug information
  set_target_properties(mutant_${name} PROPERTIES LINKER_LANGUAGE C SKIP_BUILD_RPATH ON)
  add_dependencies(mutant_${name} slipring_exports)
  if(SLIPRING_SANITIZE)
    set_target_properties(mutant_${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
endfunction()

# mutant_needed(NAME): for a test that runs with sanitizers, too.
function(mutant_needed name)
  set_target_properties(mutant_${name} PROPERTIES EXCLUDE_FROM_ALL FALSE)
endfunction()
