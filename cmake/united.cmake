# Sources of one folder that are compiled together, where REVERIE_UNITED_SOURCES says so: most of what a
# source costs are the headers and templates that its neighbours need too, so this halves a build.
#
# So names in the unnamed namespaces of one folder must differ, tests apart from sources; a source whose
# names are best as they are stands below. The tidy preset compiles each source of the library by itself, and so
# notices a missing include.
set(reverie_united_max 8)
set(reverie_alone
    # Their parts for other processors, or another library's table, stand behind macros.
    sum_tree/sum_tree_avx512.cc sum_tree/sum_tree_avx2.cc sum_tree/sum_tree_portable.cc bindings/arrays.cc
    # Models and helpers of the same names as their neighbours'.
    agents/q_agent_test.cc replay/table_core_views_test.cc codec/reverb_column_test.cc
    integration/replay_state_test.cc sim/accumulator_sim_test.cc sim/journal_sim_test.cc sim/peer_store_sim_test.cc
    sim/peers_sim_test.cc sim/store_sim_test.cc sim/weights_sim_test.cc)
list(JOIN reverie_alone "|" reverie_alone)

# reverie_unite(<target>): the target's sources by folder, some at a time, except those that have options
# of their own. CMake could unite them itself; it would name each source by its whole path, and then no two
# checkouts would share what a compiler cache holds.
function(reverie_unite target)
  if(NOT REVERIE_UNITED_SOURCES)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  set(folder "")
  set(groups "")
  set(kept "")
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options OR NOT source MATCHES "\\.cc$" OR source MATCHES "/(${reverie_alone})$")
      list(APPEND kept ${source})
      continue()
    endif()
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE name)
    cmake_path(GET name PARENT_PATH parent)
    if(NOT parent STREQUAL folder)
      set(folder ${parent})
      set(count 0)
    endif()
    math(EXPR part "${count} / ${reverie_united_max}")
    string(REGEX REPLACE "[^A-Za-z0-9]" "_" group "${parent}_${part}")
    list(APPEND groups ${group})
    string(APPEND includes_${group} "#include \"${name}\"\n")
    math(EXPR count "${count} + 1")
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    set(united ${PROJECT_BINARY_DIR}/united/${target}/${group}.cc)
    file(CONFIGURE OUTPUT ${united} CONTENT "${includes_${group}}")
    list(APPEND kept ${united})
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${kept}" REVERIE_UNITED ON)
  # g++ takes the unnamed namespace of a file that is included for one of a header.
  target_compile_options(${target} PRIVATE -iquote${PROJECT_SOURCE_DIR}
                                           $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
