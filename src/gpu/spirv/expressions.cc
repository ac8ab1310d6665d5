#include <bit>
#include <cmath>

#include "gpu/spirv/writer.h"

namespace weft::gpu::spirv {

Expressions::Expressions(const Module& module) : module_(module) {}

void Expressions::Fail(const std::string& what) {
    if (status_.ok()) status_ = MakeError(ErrorCode::kUnsupported, "{}", what);
}

std::string Expressions::Scalar(Id type) {
    const Type& found = module_.type(type);
    if (found.op == Op::kTypeBool) return "bool";
    if (found.op == Op::kTypePointer) return "u64";
    if (found.op == Op::kTypeInt)
        return fmt::format("{}{}", found.args[1] ? 'i' : 'u', found.args[0]);
    if (found.op == Op::kTypeFloat && found.args[0] == 32) return "float";
    if (found.op == Op::kTypeFloat && found.args[0] == 16) return "f16";
    Fail(fmt::format("a type of kind {} with arguments as a scalar", int(found.op)));
    return "?";
}

std::string Expressions::TypeName(Id type) {
    const Type& found = module_.type(type);
    const auto count = [&](int i) { return module_.constants.at(found.args[i]).bits; };
    if (found.op == Op::kTypeVector) {
        return fmt::format("vec<{}, {}>", TypeName(found.args[0]), found.args[1]);
    }
    if (found.op == Op::kTypeArray) {
        const std::string text = fmt::format("arr<{}, {}>", TypeName(found.args[0]), count(1));
        if (const auto stride = module_.Decorated(type, kArrayStride)) {
            Check(fmt::format("sizeof({}) == {}", text, *stride * count(1)));
        }
        return text;
    }
    if (found.op == Op::kTypeStruct) return StructName(type);
    if (found.op == Op::kTypeCooperativeMatrixKHR) {
        return fmt::format("matrix<{}, {}, {}, {}>", TypeName(found.args[0]), count(2), count(3),
                           count(4));
    }
    return Scalar(type);
}

void Expressions::Check(const std::string& condition) {
    if (checks_.insert(condition).second) {
        definitions_ += fmt::format("static_assert({}, \"layout\");\n", condition);
    }
}

std::string Expressions::StructName(Id type) {
    const std::string name = fmt::format("S{}", type);
    if (!structs_.insert(type).second) return name;
    const Words members = module_.type(type).args;
    std::string body;
    for (uint32_t i = 0; i < members.size(); ++i) {
        body += fmt::format(" {} m{};", TypeName(members[i]), i);
    }
    definitions_ += fmt::format("struct {} {{{} }};\n", name, body);
    for (uint32_t i = 0; i < members.size(); ++i) {
        if (const auto offset = module_.Decorated(type, i, kOffset)) {
            Check(fmt::format("WEFT_IS_AT({}, m{}, {})", name, i, *offset));
        }
    }
    return name;
}

std::string Expressions::Literal(const Constant& constant) {
    const Type& type = module_.type(constant.type);
    const uint32_t width = module_.Width(constant.type);
    if (!constant.parts.empty()) {
        std::string parts;
        for (const Constant& part : constant.parts) {
            parts += (parts.empty() ? "" : ", ") + Literal(part);
        }
        const bool is_struct = type.op == Op::kTypeStruct;
        if (type.op == Op::kTypeCooperativeMatrixKHR) {
            return fmt::format("splat<{}>({})", TypeName(constant.type), parts);
        }
        return TypeName(constant.type) + (is_struct ? "{" : "{{") + parts +
               (is_struct ? "}" : "}}");
    }
    if (type.op == Op::kTypeBool) return constant.bits ? "true" : "false";
    if (type.op == Op::kTypeInt && width == 32 && !type.args[1])
        return fmt::format("{}u", constant.bits);
    if (type.op == Op::kTypeInt || type.op == Op::kTypePointer) {
        return fmt::format("({}){}ull", Scalar(constant.type), constant.bits);
    }
    if (type.op == Op::kTypeFloat && width == 32) {
        const float number = std::bit_cast<float>(uint32_t(constant.bits));
        if (std::isfinite(number)) return fmt::format("{:#}f", number);
        return fmt::format("bits<float>({}u)", constant.bits);
    }
    if (type.op == Op::kTypeFloat) return fmt::format("bits<f16>((u16){})", constant.bits);
    return TypeName(constant.type) + "{}";
}

std::string Expressions::Value(Id id) {
    const auto text = text_.find(id);
    if (text != text_.end()) return text->second;
    const Constant* constant = module_.FindConstant(id);
    if (constant == nullptr) return fmt::format("v{}", id);
    const Op kind = module_.kind(constant->type);
    if (kind != Op::kTypeArray && kind != Op::kTypeStruct) return Literal(*constant);
    definitions_ += fmt::format("WEFT_CONSTANT {} c{} = {};\n", TypeName(constant->type), id,
                                Literal(*constant));
    SetText(id, fmt::format("c{}", id));
    return fmt::format("c{}", id);
}

std::string Expressions::Component(Id id, uint32_t lane) {
    if (module_.Lanes(module_.type_of.at(id)) == 0) return Value(id);
    if (const Constant* constant = module_.FindConstant(id)) return Literal(constant->parts[lane]);
    return fmt::format("{}.at[{}]", Value(id), lane);
}

// Numbers of less than 32 bits become 32 bits wide, so that products of u16 do not overflow an int.
std::string Expressions::Cast(Id id, uint32_t lane, bool is_signed) {
    Id type = module_.type_of.at(id);
    if (module_.Lanes(type) > 0) type = module_.Element(type, 0);
    const Type& found = module_.type(type);
    const uint32_t width = module_.Width(type);
    const std::string value = Component(id, lane);
    if (found.op == Op::kTypeBool) return value;
    const std::string inner = fmt::format("({}{}){}", is_signed ? 'i' : 'u', width, value);
    if (width < 32) return fmt::format("({}32)({})", is_signed ? 'i' : 'u', inner);
    return found.op == Op::kTypeInt && bool(found.args[1]) == is_signed ? value : inner;
}

std::string Expressions::Expand(std::string_view format, const Instruction& from, uint32_t lane) {
    std::string text;
    for (size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '$') {
            text += format[i];
            continue;
        }
        char kind = format[++i];
        if (kind == 'T') {
            text += TypeName(from.type);
        } else if (kind == 'S') {
            text += Scalar(module_.Lanes(from.type) ? module_.Element(from.type, 0) : from.type);
        } else {
            const bool plain = kind >= '0' && kind <= '9';
            const Id operand = from.args[(plain ? kind : format[++i]) - '0'];
            text += plain         ? Component(operand, lane)
                    : kind == 'w' ? Value(operand)
                    : kind == 'p' ? Place(operand)
                                  : Cast(operand, lane, kind == 's');
        }
    }
    return text;
}

std::string Expressions::Each(std::string_view format, const Instruction& from) {
    const uint32_t lanes = module_.Lanes(from.type);
    if (lanes == 0) return Term(format, from, 0);
    std::string text;
    for (uint32_t i = 0; i < lanes; ++i) text += (i ? ", " : "") + Term(format, from, i);
    return fmt::format("{}{{{{{}}}}}", TypeName(from.type), text);
}

// A component of the result. A dot product of bytes includes the number to which it is added:
// compilers do not join the two, and reorder the sums, so that all products of an unrolled loop
// live at once.
std::string Expressions::Term(std::string_view format, const Instruction& from, uint32_t lane) {
    if (from.row->op == Op::kIAdd) {
        for (const size_t k : {1, 0}) {
            const Instruction* const dot = FindDot(from.args[k], lane);
            if (dot == nullptr) continue;
            const Id type = module_.Lanes(from.type) ? module_.Element(from.type, 0) : from.type;
            return fmt::format("({})dot4({}, {}, {})", Scalar(type), Value(dot->args[0]),
                               Value(dot->args[1]), Cast(from.args[1 - k], lane, true));
        }
    }
    return Expand(format, from, lane);
}

// The OpSDot of this block that gives component `lane` of a value, or the value if it is no vector;
// null: none.
const Instruction* Expressions::FindDot(Id id, uint32_t lane) const {
    const auto found = made_.find(id);
    if (found == made_.end()) return nullptr;
    const Instruction& from = *found->second;
    if (from.row->op == Op::kSDot) return &from;
    const bool of_components =
        from.row->op == Op::kCompositeConstruct && from.args.size() == module_.Lanes(from.type);
    return of_components ? FindDot(from.args[lane], 0) : nullptr;
}

std::string Expressions::Construct(const Instruction& instruction) {
    const Op kind = module_.kind(instruction.type);
    std::string parts;
    for (const Id id : instruction.args) {
        const uint32_t lanes = module_.Lanes(module_.type_of.at(id));
        const bool spread = kind == Op::kTypeVector && lanes > 0;
        for (uint32_t i = 0; i < (spread ? lanes : 1); ++i) {
            parts += (parts.empty() ? "" : ", ") + (spread ? Component(id, i) : Value(id));
        }
    }
    const std::string type = TypeName(instruction.type);
    if (kind == Op::kTypeCooperativeMatrixKHR) return fmt::format("splat<{}>({})", type, parts);
    if (kind == Op::kTypeStruct) return fmt::format("{}{{{}}}", type, parts);
    return fmt::format("{}{{{{{}}}}}", type, parts);
}

// OpDot, OpAny, OpAll: a term for each component.
std::string Expressions::Joined(const Instruction& instruction) {
    const uint32_t lanes = module_.Lanes(module_.type_of.at(instruction.args[0]));
    const std::string_view term = instruction.row->op == Op::kDot ? "$0 * $1" : "$0";
    std::string text;
    for (uint32_t i = 0; i < lanes; ++i) {
        text += (i ? std::string(instruction.row->format) : "") + Expand(term, instruction, i);
    }
    return text;
}

std::string Expressions::Shuffle(const Instruction& instruction) {
    const uint32_t first = module_.Lanes(module_.type_of.at(instruction.args[0]));
    std::string text;
    for (const uint32_t index : instruction.args.subspan(2)) {
        const bool from_first = index < first;
        text += (text.empty() ? "" : ", ") +
                Component(instruction.args[from_first ? 0 : 1], from_first ? index : index - first);
    }
    return fmt::format("{}{{{{{}}}}}", TypeName(instruction.type), text);
}

std::string Expressions::Path(Id type, Words indices) {
    std::string text;
    for (const uint32_t index : indices) {
        const bool is_struct = module_.kind(type) == Op::kTypeStruct;
        text += is_struct ? fmt::format(".m{}", index) : fmt::format(".at[{}]", index);
        type = module_.Element(type, index);
    }
    return text;
}

std::string Expressions::Extract(const Instruction& instruction) {
    const Id from = instruction.args[0];
    const Words indices = instruction.args.subspan(1);
    const Constant* constant = module_.FindConstant(from);
    if (constant == nullptr) return Value(from) + Path(module_.type_of.at(from), indices);
    for (const uint32_t index : indices) constant = &constant->parts[index];
    return Literal(*constant);
}

std::string Expressions::Insert(const Instruction& instruction, bool declare) {
    const bool dynamic = instruction.row->op == Op::kVectorInsertDynamic;
    const Id whole = instruction.args[dynamic ? 0 : 1], part = instruction.args[dynamic ? 1 : 0];
    const std::string name = fmt::format("v{}", instruction.id);
    const std::string copy = fmt::format(
        "{}{} = {};", declare ? TypeName(instruction.type) + " " : "", name, Value(whole));
    if (dynamic) {
        return fmt::format("{} put({}, {}, {});", copy, name, Value(instruction.args[2]),
                           Value(part));
    }
    return fmt::format("{} {}{} = {};", copy, name,
                       Path(instruction.type, instruction.args.subspan(2)), Value(part));
}

std::string Expressions::Expression(const Instruction& instruction) {
    const Row& row = *instruction.row;
    if (row.form == Form::kEach &&
        module_.kind(instruction.type) == Op::kTypeCooperativeMatrixKHR) {
        return Expand(row.format, instruction, 0);
    }
    if (row.form == Form::kEach) return Each(row.format, instruction);
    if (row.form == Form::kWhole) return Expand(row.format, instruction, 0);
    switch (row.op) {
        case Op::kLoad: return Load(instruction);
        case Op::kCompositeConstruct: return Construct(instruction);
        case Op::kCompositeExtract: return Extract(instruction);
        case Op::kVectorShuffle: return Shuffle(instruction);
        case Op::kDot:
        case Op::kAny:
        case Op::kAll: return Joined(instruction);
        case Op::kExtInst: {
            const char* format = FindGlsl(instruction.args[1]);
            if (format == nullptr) {
                Fail(fmt::format("GLSL.std.450 {}", instruction.args[1]));
                return "";
            }
            Instruction call = instruction;
            call.args = instruction.args.subspan(2);
            const bool whole = std::string_view(format).find("$w") != std::string_view::npos;
            return whole ? Expand(format, call, 0) : Each(format, call);
        }
        default: Fail(std::string(row.name)); return "";  // NOLINT: the enum is a table
    }
}

std::string Expressions::Statement(const Instruction& instruction, bool declare) {
    const Row& row = *instruction.row;
    if (instruction.id != 0) made_[instruction.id] = &instruction;
    if (row.form == Form::kStatement) {
        if (row.op == Op::kControlBarrier || row.op == Op::kMemoryBarrier) {
            const auto scope = module_.constants.at(instruction.args[0]).bits;
            return fmt::format("{}<{}>();", row.op == Op::kMemoryBarrier ? "fence" : "barrier",
                               scope);
        }
        return Expand(row.format, instruction, 0);
    }
    if (row.op == Op::kStore) return Store(instruction);
    if (row.op == Op::kCompositeInsert || row.op == Op::kVectorInsertDynamic) {
        return Insert(instruction, declare);
    }
    std::string text;
    if (row.op == Op::kAccessChain || row.op == Op::kInBoundsAccessChain) {
        text = Chain(instruction);
        if (text.empty()) return text;
    } else if (row.op == Op::kLoad && text_.count(instruction.args[0]) && declare &&
               module_.type(module_.type_of.at(instruction.args[0])).args[0] == kInput) {
        SetText(instruction.id, Value(instruction.args[0]));
        return "";
    } else {
        text = Expression(instruction);
    }
    return fmt::format("{}v{} = {};", declare ? "const " + TypeName(instruction.type) + " " : "",
                       instruction.id, text);
}

}  // namespace weft::gpu::spirv
