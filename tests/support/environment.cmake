# Read by ctest; sets the environment of all tests. Jobs of tests run on the CPU unless they name
# another device, also on a machine with a GPU, because a GPU gives other numbers.
set(ENV{WEFT_DEVICE} cpu)
# Compiling kernels takes most of the time of tests on lavapipe. Without LLVM's optimization passes,
# which change no result, a test takes a fifth to a quarter less. The nightly suite compiles as users
# do.
if(NOT "$ENV{WEFT_TEST_NIGHTLY}" STREQUAL "1" AND NOT DEFINED ENV{GALLIVM_PERF})
  set(ENV{GALLIVM_PERF} nopt)
endif()
