# Read by ctest, whose environment all tests have. Jobs of tests compute on the processor where they
# don't name another device: on a machine with a GPU, too, whose numbers are others.
set(ENV{WEFT_DEVICE} cpu)
