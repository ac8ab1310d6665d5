#!/bin/sh
# Code compiled for one instruction set must not leak into the rest of the program: an inline
# function that the compiler left as a weak symbol in an avx512 object may be the copy that the
# linker keeps, and an older CPU would then fail on it.
# Run: isa_symbols.sh FOLDER_OF_KERNEL_OBJECTS   (exit 1 and the symbols where there are any)
set -eu
folder=$1 objects=0
for set in avx2 avx512; do
    for object in "$folder/$set"/*.o; do
        objects=$((objects + 1))
        leaked=$(nm -C --defined-only "$object" | grep ' [WV] ' | grep -v "::$set::" || true)
        if [ -n "$leaked" ]; then
            echo "$object: weak symbols outside weft::kernels::$set:" >&2
            echo "$leaked" >&2
            exit 1
        fi
    done
done
[ "$objects" -gt 2 ] || { echo "$folder: found only $objects objects" >&2; exit 1; }
echo "$objects objects, no weak symbols of others"
