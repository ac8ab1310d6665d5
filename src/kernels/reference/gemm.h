// The scalar definition of products of float matrices. dense/gemm.h is the contract; needs no
// scratch, and parts share out the rows of C.
#pragma once

#include "kernels/dense/gemm.h"

namespace weft::kernels::reference {

int64_t GemmScratchBytes(const dense::GemmArgs& args);
void Gemm(const dense::GemmArgs& args, std::span<std::byte> scratch, int part, int parts);

}  // namespace weft::kernels::reference
