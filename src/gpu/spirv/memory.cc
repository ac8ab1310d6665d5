// Access to memory: addresses of device memory, and lvalues of other memory.
#include "gpu/spirv/writer.h"

namespace weft::gpu::spirv {
namespace {

// Bits of a memory access operand.
constexpr uint32_t kAccessVolatile = 1, kAccessAligned = 2;

}  // namespace

bool Expressions::IsPhysical(Id pointer) const {
    return module_.type(module_.type_of.at(pointer)).args[0] == kPhysical;
}

// The address after a chain of indices. Indices are signed numbers.
std::string Expressions::ChainAddress(const Instruction& chain) {
    const Id base = chain.args[0];
    Id type = module_.type(module_.type_of.at(base)).args[1];
    std::string text = Value(base);
    uint64_t offset = 0;
    for (const Id index : chain.args.subspan(1)) {
        const Constant* constant = module_.FindConstant(index);
        if (module_.kind(type) == Op::kTypeStruct) {
            const uint32_t member = uint32_t(constant->bits);
            for (const Decoration sharing : {kCoherent, kVolatile}) {
                if (module_.Decorated(type, member, sharing)) sharing_[chain.id] = sharing;
            }
            offset += module_.Decorated(type, member, kOffset).value_or(0);
            type = module_.Element(type, member);
            continue;
        }
        const Id element = module_.Element(type, 0);
        const uint64_t stride =
            module_.Decorated(type, kArrayStride).value_or(module_.SizeBytes(element));
        if (constant != nullptr) {
            offset += stride * constant->bits;
        } else {
            text += fmt::format(" + (i64){} * {}", Cast(index, 0, true), stride);
        }
        type = element;
    }
    return offset == 0 ? text : fmt::format("{} + {}", text, offset);
}

// Empty for an lvalue, which needs no variable.
std::string Expressions::Chain(const Instruction& chain) {
    const Id base = chain.args[0];
    if (const auto shared = sharing_.find(base); shared != sharing_.end()) {
        sharing_[chain.id] = shared->second;
    }
    if (IsPhysical(base)) return ChainAddress(chain);
    Id type = module_.type(module_.type_of.at(base)).args[1];
    const uint32_t storage = module_.type(chain.type).args[0];
    std::string text = Value(base);
    for (const Id index : chain.args.subspan(1)) {
        const Constant* constant = module_.FindConstant(index);
        if (module_.Lanes(type) > 0 && constant == nullptr &&
            (storage == kFunction || storage == kPrivate)) {
            picked_[chain.id] = fmt::format("{}, {}", text, Value(index));
        }
        if (module_.kind(type) == Op::kTypeStruct) {
            text += fmt::format(".m{}", constant->bits);
            type = module_.Element(type, uint32_t(constant->bits));
        } else {
            text += fmt::format(".at[{}]", Value(index));
            type = module_.Element(type, 0);
        }
    }
    SetText(chain.id, text);
    return "";
}

std::string Expressions::Sharing(Id pointer) const {
    const auto found = sharing_.find(pointer);
    if (found == sharing_.end()) return "";
    return found->second == kVolatile ? "_volatile" : "_coherent";
}

// The template arguments of load and store: the type, and the alignment if the access states it.
std::string Expressions::AlignmentOf(Id type, Words access) {
    uint32_t align = module_.AlignBytes(type);
    if (access.size() > 1 && (access[0] & kAccessAligned)) align = access[1];
    return fmt::format("{}, {}", TypeName(type), align);
}

std::string Expressions::Load(const Instruction& load) {
    const Id pointer = load.args[0];
    const auto picked = picked_.find(pointer);
    if (picked != picked_.end()) return fmt::format("pick({})", picked->second);
    if (!IsPhysical(pointer)) return Value(pointer);
    const Words access = load.args.subspan(1);
    std::string sharing = Sharing(pointer);
    if (!access.empty() && (access[0] & kAccessVolatile)) sharing = "_volatile";
    return fmt::format("load{}<{}>({})", sharing, AlignmentOf(load.type, access), Value(pointer));
}

std::string Expressions::Store(const Instruction& store) {
    const Id pointer = store.args[0], value = store.args[1];
    const auto picked = picked_.find(pointer);
    if (picked != picked_.end()) return fmt::format("put({}, {});", picked->second, Value(value));
    if (Value(pointer) == Value(value)) return "";  // Module::OnlyValue
    if (!IsPhysical(pointer)) return fmt::format("{} = {};", Value(pointer), Value(value));
    const Words access = store.args.subspan(2);
    std::string sharing = Sharing(pointer);
    if (!access.empty() && (access[0] & kAccessVolatile)) sharing = "_volatile";
    return fmt::format("store{}<{}>({}, {});", sharing,
                       AlignmentOf(module_.type_of.at(value), access), Value(pointer),
                       Value(value));
}

std::string Expressions::Place(Id pointer) {
    if (!IsPhysical(pointer)) return "&" + Value(pointer);
    const Id type = module_.type(module_.type_of.at(pointer)).args[1];
    return fmt::format("global<{}>({})", TypeName(type), Value(pointer));
}

}  // namespace weft::gpu::spirv
