#include "gpu/spirv/instructions.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weft::gpu::spirv {
namespace {

constexpr Row kRows[] = {
#define WEFT_OP(number, name, form, format) {Op::k##name, Form::form, "Op" #name, format},
#include "gpu/spirv/instructions.inc"
#undef WEFT_OP
};

constexpr std::pair<uint32_t, const char*> kGlsl[] = {
    {2, "rintf($0)"},
    {3, "truncf($0)"},
    {4, "fabsf($0)"},
    {6, "sign($0)"},
    {8, "floorf($0)"},
    {9, "ceilf($0)"},
    {13, "sinf($0)"},
    {14, "cosf($0)"},
    {27, "expf($0)"},
    {28, "logf($0)"},
    {29, "exp2f($0)"},
    {30, "log2f($0)"},
    {31, "sqrtf($0)"},
    {32, "1.0f / sqrtf($0)"},
    {37, "fminf($0, $1)"},
    {38, "($S)Min()($u0, $u1)"},
    {39, "($S)Min()($s0, $s1)"},
    {40, "fmaxf($0, $1)"},
    {41, "($S)Max()($u0, $u1)"},
    {42, "($S)Max()($s0, $s1)"},
    {43, "fminf(fmaxf($0, $1), $2)"},
    {44, "($S)Min()(Max()($u0, $u1), $u2)"},
    {45, "($S)Min()(Max()($s0, $s1), $s2)"},
    {50, "fmaf($0, $1, $2)"},
    {58, "pack_halves($w0)"},
    {62, "unpack_halves($w0)"},
};

}  // namespace

const Row* FindRow(uint32_t opcode) {
    const auto row = std::lower_bound(
        std::begin(kRows), std::end(kRows), opcode,
        [](const Row& each, uint32_t number) { return uint32_t(each.op) < number; });
    return row != std::end(kRows) && uint32_t(row->op) == opcode ? row : nullptr;
}

const char* FindGlsl(uint32_t number) {
    for (const auto& [known, format] : kGlsl) {
        if (known == number) return format;
    }
    return nullptr;
}

}  // namespace weft::gpu::spirv
