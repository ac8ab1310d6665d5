#!/bin/sh
# Code compiled for one instruction set must not leak into the rest of the program: an inline
# function that the compiler left as a weak symbol in an avx512 object may be the copy that the
# linker keeps, and an older CPU would then fail on it.
# Run: isa_symbols.sh FOLDER_OF_TARGETS   (of CMake: those of weft_kernels_SET; exit 1 and the
# symbols where there are any)
set -eu
folder=$1 sets=0
for target in "$folder"/weft_kernels_*.dir; do
    set=${target##*weft_kernels_} set=${set%.dir}
    [ -d "$target" ] || continue
    own="::$set::"
    [ "$set" != amx ] || own="::\(amx\|avx512\)::"  # compiled with the same flags
    objects=$(find "$target" -name '*.o')
    [ -n "$objects" ] || { echo "$target: no objects" >&2; exit 1; }
    sets=$((sets + 1))
    for object in $objects; do
        # (data of the compiler's own, the same in every object, is no code)
        leaked=$(nm -C --defined-only "$object" | grep ' [WV] ' | grep -v -e "$own" \
            -e ' V DW\.ref\.' || true)
        if [ -n "$leaked" ]; then
            echo "$object: weak symbols outside weft::kernels::$set:" >&2
            echo "$leaked" >&2
            exit 1
        fi
    done
done
[ "$sets" -gt 0 ] || { echo "$folder: no kernels of an instruction set" >&2; exit 1; }
echo "$sets instruction sets, no weak symbols of others"
