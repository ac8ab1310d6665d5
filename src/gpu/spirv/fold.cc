#include "gpu/spirv/module.h"

namespace weft::gpu::spirv {
namespace {

int64_t Signed(uint64_t bits, uint32_t width) {
    return width == 0 ? 0 : int64_t(bits << (64 - width)) >> (64 - width);
}

// a, b: as unsigned numbers; s, t: as signed ones.
std::optional<uint64_t> Compute(Op op, uint64_t a, uint64_t b, int64_t s, int64_t t) {
    switch (op) {
        case Op::kUConvert:
        case Op::kBitcast: return a;
        case Op::kSConvert: return uint64_t(s);
        case Op::kSNegate: return 0 - a;
        case Op::kNot: return ~a;
        case Op::kLogicalNot: return a == 0;
        case Op::kIAdd: return a + b;
        case Op::kISub: return a - b;
        case Op::kIMul: return a * b;
        case Op::kUDiv: return b == 0 ? 0 : a / b;
        case Op::kUMod: return b == 0 ? 0 : a % b;
        case Op::kSDiv: return t == 0 ? 0 : uint64_t(s / t);
        case Op::kShiftRightLogical: return b > 63 ? 0 : a >> b;
        case Op::kShiftRightArithmetic: return b > 63 ? 0 : uint64_t(s >> b);
        case Op::kShiftLeftLogical: return b > 63 ? 0 : a << b;
        case Op::kBitwiseOr:
        case Op::kLogicalOr: return a | b;
        case Op::kBitwiseAnd:
        case Op::kLogicalAnd: return a & b;
        case Op::kBitwiseXor: return a ^ b;
        case Op::kIEqual:
        case Op::kLogicalEqual: return a == b;
        case Op::kINotEqual:
        case Op::kLogicalNotEqual: return a != b;
        case Op::kUGreaterThan: return a > b;
        case Op::kUGreaterThanEqual: return a >= b;
        case Op::kULessThan: return a < b;
        case Op::kULessThanEqual: return a <= b;
        case Op::kSGreaterThan: return s > t;
        case Op::kSGreaterThanEqual: return s >= t;
        case Op::kSLessThan: return s < t;
        case Op::kSLessThanEqual: return s <= t;
        default: return std::nullopt;  // NOLINT: the enum is a table
    }
}

}  // namespace

Result<Constant> Fold(const Module& module, Id type, Words op_and_args) {
    const Op op = Op(op_and_args[0]);
    const Words args = op_and_args.subspan(1);
    const Constant& first = module.constants.at(args[0]);
    if (op == Op::kCompositeExtract) {
        const Constant* part = &first;
        for (const uint32_t index : args.subspan(1)) part = &part->parts[index];
        return *part;
    }
    if (op == Op::kSelect) return module.constants.at(args[first.bits != 0 ? 1 : 2]);
    const Constant& second = args.size() > 1 ? module.constants.at(args[1]) : first;
    const auto bits =
        Compute(op, first.bits, second.bits, Signed(first.bits, module.Width(first.type)),
                Signed(second.bits, module.Width(second.type)));
    if (!bits) {
        return MakeError(ErrorCode::kUnsupported, "instruction {} on constants", op_and_args[0]);
    }
    const uint32_t width = module.Width(type);
    return Constant{type, width < 64 ? *bits & ((1ull << width) - 1) : *bits};
}

}  // namespace weft::gpu::spirv
