// The SPIR-V instructions that kernels use, and how each is written in C++.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::gpu::spirv {

enum class Op : uint16_t {
#define WEFT_OP(number, name, form, format) k##name = number,
#include "gpu/spirv/instructions.inc"
#undef WEFT_OP
};

enum class Form : uint8_t {
    kSkip,       // carries nothing that the translation needs
    kModule,     // outside functions: Parse
    kEach,       // a value, component by component
    kWhole,      // a value
    kStatement,  // no value
    kCode,       // a value that needs more than a format: Expressions
    kFlow,       // control flow: Flow
};

// Placeholders of a format, where N is an operand's number:
//   $N   the operand's component (kEach), or the operand; $uN, $sN: cast to an unsigned or signed
//        integer of the operand's width
//   $wN  the whole operand; $pN: the operand, a pointer, as a typed C++ pointer
//   $T   type of the result; $S: of its component
struct Row {
    Op op;
    Form form;
    std::string_view name, format;
};

// Null if no kernel uses the instruction.
const Row* FindRow(uint32_t opcode);
// The function of an instruction of GLSL.std.450, in the same form; null if no kernel uses it.
const char* FindGlsl(uint32_t number);

}  // namespace weft::gpu::spirv
