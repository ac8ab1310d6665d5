#include "gpu/spirv/module.h"

#include <algorithm>
#include <unordered_set>

namespace weft::gpu::spirv {
namespace {

constexpr uint32_t kFirstWord = 5;  // after the header
constexpr uint32_t kLocalSizeMode = 17;

// Shader, Float16, Int64, Int16, Int8, GroupNonUniform, GroupNonUniformArithmetic, storage of 16
// and 8 bits, memory model and its device scope, PhysicalStorageBufferAddresses, dot products of
// packed int8, CooperativeMatrixKHR.
constexpr uint32_t kCapabilities[] = {1,    9,    11,   22,   39,   61,   63,   4433, 4434,
                                      4448, 4449, 5345, 5346, 5347, 6018, 6019, 6022};

bool IsConstant(Op op) {
    return (op >= Op::kConstantTrue && op <= Op::kSpecConstantOp) || op == Op::kUndef;
}
bool HasNoResult(Op op) {
    switch (op) {
        case Op::kStore:
        case Op::kControlBarrier:
        case Op::kMemoryBarrier:
        case Op::kAtomicStore:
        case Op::kCooperativeMatrixStoreKHR:
        case Op::kLoopMerge:
        case Op::kSelectionMerge:
        case Op::kBranch:
        case Op::kBranchConditional:
        case Op::kSwitch:
        case Op::kReturn:
        case Op::kUnreachable: return true;
        default: return false;  // NOLINT: the enum is a table
    }
}

class Parser {
  public:
    explicit Parser(const Request& request) : request_(request) {}

    Result<Module> Run() {
        const Words words = request_.spirv;
        for (size_t at = kFirstWord; at < words.size();) {
            const uint32_t size = words[at] >> 16, opcode = words[at] & 0xffff;
            if (size == 0 || size > words.size() - at) {
                return MakeError(ErrorCode::kCorrupt, "kernel {}: the SPIR-V ends in word {}",
                                 request_.name, at);
            }
            const Row* row = FindRow(opcode);
            if (row == nullptr) return Unknown(fmt::format("instruction {}", opcode));
            WEFT_TRY(Read(*row, words.subspan(at + 1, size - 1)));
            at += size;
        }
        return std::move(module_);
    }

  private:
    Error Unknown(const std::string& what) const {
        return MakeError(ErrorCode::kUnsupported,
                         "kernel {}: the translator of SPIR-V does not know {}; add it to "
                         "src/gpu/spirv/instructions.inc",
                         request_.name, what);
    }

    Status Read(const Row& row, Words args) {
        if (row.form == Form::kSkip) return {};
        if (IsConstant(row.op) && block_ == 0) return ReadConstant(row.op, args);
        if (row.form == Form::kModule) return ReadModule(row, args);
        if (row.op == Op::kLabel) {
            block_ = args[0];
            module_.order.push_back(block_);
            module_.blocks[block_];
            return {};
        }
        Instruction instruction{&row, 0, 0, {}};
        if (HasNoResult(row.op)) {
            instruction.args = args;
        } else {
            instruction = {&row, args[0], args[1], args.subspan(2)};
            module_.type_of[args[1]] = args[0];
        }
        if (row.op == Op::kAtomicLoad || row.op == Op::kAtomicStore) module_.meets_host = true;
        module_.blocks[block_].push_back(instruction);
        return {};
    }

    Status ReadModule(const Row& row, Words args) {
        if (row.op == Op::kCapability) {
            if (std::ranges::find(kCapabilities, args[0]) == std::end(kCapabilities)) {
                return Unknown(fmt::format("capability {}", args[0]));
            }
        } else if (row.op == Op::kExecutionMode) {
            if (args[1] == kLocalSizeMode) module_.local_size = {args[2], args[3], args[4]};
        } else if (row.op == Op::kDecorate) {
            module_.decorations[args[0]][args[1]] = args.subspan(2);
        } else if (row.op == Op::kMemberDecorate) {
            module_.member_decorations[{args[0], args[1]}][args[2]] = args.subspan(3);
        } else if (row.op == Op::kVariable) {
            module_.type_of[args[1]] = args[0];
            module_.variables.push_back({&row, args[0], args[1], args.subspan(2)});
        } else if (row.op == Op::kFunction) {
            if (!module_.order.empty()) return Unknown("a second function");
        } else if (row.op == Op::kFunctionEnd) {
            block_ = 0;
        } else {
            module_.types[args[0]] = {row.op, args.subspan(1)};
            if (row.op == Op::kTypeCooperativeMatrixKHR) module_.has_matrices = true;
        }
        return {};
    }

    Status ReadConstant(Op op, Words args) {
        const Id type = args[0], id = args[1];
        args = args.subspan(2);
        Constant constant{type};
        if (op == Op::kConstantComposite || op == Op::kSpecConstantComposite) {
            for (const Id part : args) constant.parts.push_back(module_.constants.at(part));
            if (module_.Decorated(id, kBuiltIn) == kBuiltInWorkgroupSize) {
                for (int i = 0; i < 3; ++i) {
                    module_.local_size[i] = uint32_t(constant.parts[i].bits);
                }
            }
        } else if (op == Op::kSpecConstantOp) {
            auto folded = Fold(module_, type, args);
            if (!folded.ok()) return Unknown(folded.error().message);
            constant = std::move(*folded);
        } else if (op == Op::kConstantNull || op == Op::kUndef) {
            constant = Zero(type);
        } else {
            constant.bits = op == Op::kConstantTrue || op == Op::kSpecConstantTrue ? 1 : 0;
            if (!args.empty()) constant.bits = args[0];
            if (args.size() > 1) constant.bits |= uint64_t(args[1]) << 32;
            if (const auto number = module_.Decorated(id, kSpecId)) {
                constant.bits = Specialized(*number, constant.bits);
            }
            if (module_.Width(type) < 64) constant.bits &= (1ull << module_.Width(type)) - 1;
        }
        module_.type_of[id] = type;
        module_.constants[id] = std::move(constant);
        return {};
    }

    uint64_t Specialized(uint32_t number, uint64_t value) const {
        for (const Specialization& given : request_.constants) {
            if (given.id == number) return given.value;
        }
        return value;
    }

    Constant Zero(Id type) const {
        Constant zero{type};
        const Op kind = module_.kind(type);
        uint32_t parts = module_.Lanes(type);
        if (kind == Op::kTypeStruct) parts = uint32_t(module_.type(type).args.size());
        if (kind == Op::kTypeArray) {
            parts = uint32_t(module_.constants.at(module_.type(type).args[1]).bits);
        }
        for (uint32_t i = 0; i < parts; ++i) zero.parts.push_back(Zero(module_.Element(type, i)));
        return zero;
    }

    const Request& request_;
    Module module_;
    Id block_ = 0;
};

}  // namespace

Result<Module> Parse(const Request& request) {
    return Parser(request).Run();
}

uint32_t Module::Width(Id id) const {
    const Type& found = type(id);
    if (found.op == Op::kTypeBool) return 1;
    if (found.op == Op::kTypePointer) return 64;
    return found.op == Op::kTypeInt || found.op == Op::kTypeFloat ? found.args[0] : 0;
}

uint32_t Module::Lanes(Id id) const {
    return kind(id) == Op::kTypeVector ? type(id).args[1] : 0;
}

Id Module::Element(Id id, uint32_t index) const {
    const Type& found = type(id);
    return found.args[found.op == Op::kTypeStruct ? index : 0];
}

uint32_t Module::AlignBytes(Id id) const {
    const Type& found = type(id);
    uint32_t most = 1;
    if (found.op == Op::kTypeStruct) {
        for (const Id member : found.args) most = std::max(most, AlignBytes(member));
        return most;
    }
    if (found.op == Op::kTypeVector || found.op == Op::kTypeArray) return AlignBytes(found.args[0]);
    return std::max(Width(id) / 8, 1u);
}

uint32_t Module::SizeBytes(Id id) const {
    const Type& found = type(id);
    if (found.op == Op::kTypeVector) return found.args[1] * SizeBytes(found.args[0]);
    if (found.op == Op::kTypeArray) {
        return uint32_t(constants.at(found.args[1]).bits) * SizeBytes(found.args[0]);
    }
    if (found.op != Op::kTypeStruct) return std::max(Width(id) / 8, 1u);
    const auto aligned = [](uint32_t at, uint32_t to) { return (at + to - 1) / to * to; };
    uint32_t end = 0;
    for (const Id member : found.args) {
        end = aligned(end, AlignBytes(member)) + SizeBytes(member);
    }
    return aligned(end, AlignBytes(id));
}

const Constant* Module::FindConstant(Id id) const {
    const auto found = constants.find(id);
    return found == constants.end() ? nullptr : &found->second;
}

Id Module::OnlyValue(const Instruction& variable) const {
    Id value = variable.args.size() > 1 ? variable.args[1] : 0;
    std::unordered_set<Id> parts{variable.id};  // and the pointers into it
    for (const Id block : order) {
        for (const Instruction& i : blocks.at(block)) {
            const bool chain =
                i.row->op == Op::kAccessChain || i.row->op == Op::kInBoundsAccessChain;
            if (chain && parts.contains(i.args[0])) parts.insert(i.id);
            if (chain || i.row->op == Op::kLoad || i.row->form == Form::kFlow) continue;
            if (i.row->op == Op::kStore && i.args[0] == variable.id &&
                FindConstant(i.args[1]) != nullptr && (value == 0 || value == i.args[1])) {
                value = i.args[1];
            } else if (std::ranges::any_of(i.args, [&](Id id) { return parts.contains(id); })) {
                return 0;
            }
        }
    }
    return value;
}

std::optional<uint32_t> Module::Decorated(Id id, Decoration decoration) const {
    const auto all = decorations.find(id);
    if (all == decorations.end()) return std::nullopt;
    const auto found = all->second.find(decoration);
    if (found == all->second.end()) return std::nullopt;
    return found->second.empty() ? 1 : found->second[0];
}

std::optional<uint32_t> Module::Decorated(Id id, uint32_t member, Decoration decoration) const {
    const auto all = member_decorations.find({id, member});
    if (all == member_decorations.end()) return std::nullopt;
    const auto found = all->second.find(decoration);
    if (found == all->second.end()) return std::nullopt;
    return found->second.empty() ? 1 : found->second[0];
}

}  // namespace weft::gpu::spirv
