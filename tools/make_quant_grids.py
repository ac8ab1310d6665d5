#!/usr/bin/env python3
"""Makes src/tensor/quant_grids.cc: the code books of the IQ types, from gguf-py 0.19.0.

Run: python3 tools/make_quant_grids.py src/tensor/quant_grids.cc
"""
import sys

import numpy as np
from gguf import quants

# Name in Weft, class in gguf-py, bits of an index into the values.
GRIDS = (("kIq2XxsGrid", quants.IQ2_XXS, 2), ("kIq2XsGrid", quants.IQ2_XS, 2),
         ("kIq2SGrid", quants.IQ2_S, 2), ("kIq1Grid", quants.IQ1_S, 2),
         ("kIq3XxsGrid", quants.IQ3_XXS, 3), ("kIq3SGrid", quants.IQ3_S, 3))
A_LINE = 12


def packed(kind, bits):
    """One number per entry: its bits from k * bits on hold the index of value k in grid_map."""
    kind.init_grid()
    places = {float(value): place for place, value in enumerate(kind.grid_map)}
    for entry in np.asarray(kind.grid).reshape(kind.grid_shape):
        yield sum(places[float(value)] << k * bits for k, value in enumerate(entry))


def main(path):
    with open(path, "w", encoding="ascii") as out:
        out.write('// Made by tools/make_quant_grids.py: do not edit.\n'
                  '#include "tensor/quant_grids.h"\n\nnamespace weft {\n')
        for name, kind, bits in GRIDS:
            numbers = [f"{number:#06x}" for number in packed(kind, bits)]
            out.write(f"\nconst std::array<uint16_t, {len(numbers)}> {name} = {{\n")
            for at in range(0, len(numbers), A_LINE):
                out.write("    " + ", ".join(numbers[at:at + A_LINE]) + ",\n")
            out.write("};\n")
        out.write("\n}  // namespace weft\n")


main(sys.argv[1])
