# Read by ctest; sets the environment of all tests. Jobs of tests run on the CPU unless they name
# another device, also on a machine with a GPU, because a GPU gives other numbers.
set(ENV{WEFT_DEVICE} cpu)
