// Reads rows of packed weights back as the rows of the file that they were packed from
// (Kernels::pack).
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels {

// Whether the rows of a packed weight can be read back. TQ1_0 cannot: kernels hold it as TQ2_0.
bool CanReadBack(const Kernels& kernels, DType dtype);
// Writes rows [row_begin, row_begin + count) of the matrix to `out`, row_stride_bytes apart. The
// type must allow it (CanReadBack).
void ReadBack(const Kernels& kernels, const PackedMatrix& matrix, int64_t row_begin, int64_t count,
              std::byte* out, int64_t row_stride_bytes);

namespace weight_tiles {
// ReadBack for strips.
void Unpack(const PackedMatrix& matrix, int64_t row_begin, int64_t count, std::byte* out,
            int64_t row_stride_bytes);
}  // namespace weight_tiles

}  // namespace weft::kernels
