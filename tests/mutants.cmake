# SPDX-License-Identifier: Apache-2.0
# Mutants: sources of the library, each changed in one way that a test has to notice; a test that no mutant can fail proves nothing. Those of a
# folder are in its mutants.txt, which names the files; mutant.py says how. The build fails when one does not fit its source any more.
# That a test can fail is shown once, without sanitizers: in such builds a mutant is built only for a test that asks for it (mutant_needed).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(mutant_script ${CMAKE_CURRENT_LIST_DIR}/mutant.py)

# mutants_written(): writes the sources of all mutants of this folder, with one command: starting Python takes longer than the rest.
# Sets entries: of each mutant its name, and the files that it changes.
function(mutants_written)
  get_property(entries DIRECTORY PROPERTY mutants_entries)
  if(NOT entries)
    set(table ${CMAKE_CURRENT_SOURCE_DIR}/mutants.txt)
    execute_process(COMMAND ${Python3_EXECUTABLE} ${mutant_script} --files ${table} OUTPUT_VARIABLE entries
      OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE "\n" ";" entries "${entries}")
    set_property(DIRECTORY PROPERTY mutants_entries "${entries}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
    set(all "")
    set(sources "")
    foreach(entry IN LISTS entries)
      string(REPLACE " " ";" files "${entry}")
      list(POP_FRONT files name)
      foreach(file IN LISTS files)
        get_filename_component(base ${file} NAME)
        list(APPEND all ${PROJECT_SOURCE_DIR}/${file})
        list(APPEND sources ${CMAKE_CURRENT_BINARY_DIR}/mutants/${name}/${base})
      endforeach()
    endforeach()
    list(REMOVE_DUPLICATES all)
    add_custom_command(OUTPUT ${sources} COMMAND ${Python3_EXECUTABLE} ${mutant_script} --write ${table} ${CMAKE_CURRENT_BINARY_DIR}/mutants
      DEPENDS ${all} ${table} ${mutant_script} COMMENT "Writing the mutants' sources" VERBATIM)
  endif()
  set(entries "${entries}" PARENT_SCOPE)
endfunction()

# mutant_sources(NAME): the sources that the mutant NAME of this folder changes. Sets mutant_files, the library's, and mutant_sources, the
# changed ones, in the same order.
function(mutant_sources name)
  mutants_written()
  list(FILTER entries INCLUDE REGEX "^${name} ")
  if(NOT entries)
    message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}/mutants.txt has no mutant ${name}")
  endif()
  mutant_used(${name})
  string(REPLACE " " ";" files "${entries}")
  list(POP_FRONT files)
  set(sources "")
  foreach(file IN LISTS files)
    get_filename_component(base ${file} NAME)
    list(APPEND sources ${CMAKE_CURRENT_BINARY_DIR}/mutants/${name}/${base})
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

# library_with(NAME FILES SOURCES): the library beside the real one, NAME, with SOURCES in place of its FILES; its other objects are the real one's.
function(library_with name files sources)
  set(replaced "") # plugin/pending/order.c is plugin/CMakeFiles/slr_plugin.dir/gather/order.c.o, or slr_plugin.dir/./gather/order.c.o
  foreach(file IN LISTS files)
    file(RELATIVE_PATH file ${PROJECT_SOURCE_DIR} ${file})
    string(REPLACE "." "\\." file ${file})
    string(REGEX REPLACE "^([^/]+)/(.*)" "slr_\\1\\\\.dir/(\\\\./)?\\2" file ${file})
    list(APPEND replaced ${file})
  endforeach()
  list(JOIN replaced "|" replaced)
  foreach(part interpose plugin kernels cache)
    list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:slr_${part}>,EXCLUDE,/(${replaced})\\.o$>")
  endforeach()
  add_library(${name} SHARED ${sources} ${objects})
  target_link_libraries(${name} PRIVATE slr_base ${CMAKE_DL_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_options(${name} PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/interpose/exports.map
    -Wl,--as-needed -Wl,-z,nodelete
    -Wl,--strip-debug) # there are some hundred: most of each would be debug information
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C SKIP_BUILD_RPATH ON)
  add_dependencies(${name} slipring_exports)
endfunction()

# mutant(NAME): the library with the sources of a mutant, mutant_NAME.
function(mutant name)
  mutant_sources(${name})
  library_with(mutant_${name} "${mutant_files}" "${mutant_sources}")
  target_compile_options(mutant_${name} PRIVATE -Wno-unused -Wno-unused-parameter)
  if(SLIPRING_SANITIZE)
    set_target_properties(mutant_${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
endfunction()

# mutant_needed(NAME): for a test that runs with sanitizers, too.
function(mutant_needed name)
  set_target_properties(mutant_${name} PROPERTIES EXCLUDE_FROM_ALL FALSE)
endfunction()
