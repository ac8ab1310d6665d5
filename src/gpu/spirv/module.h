// The SPIR-V of one kernel, parsed: types, constants with specialization applied, decorations,
// variables, and the blocks of its only function.
//
// The words of the request must outlive the Module. Ids are the ids of the SPIR-V.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "gpu/spirv/instructions.h"
#include "gpu/spirv/translate.h"

namespace weft::gpu::spirv {

using Id = uint32_t;
using Words = std::span<const uint32_t>;

// Storage classes.
enum Storage : uint32_t {
    kInput = 1,
    kWorkgroup = 4,
    kPrivate = 6,
    kFunction = 7,
    kPushConstant = 9,
    kStorageBuffer = 12,
    kPhysical = 5349,
};
enum Decoration : uint32_t {
    kSpecId = 1,
    kArrayStride = 6,
    kBuiltIn = 11,
    kVolatile = 21,
    kCoherent = 23,
    kOffset = 35,
};
constexpr uint32_t kBuiltInWorkgroupSize = 25;

struct Type {
    Op op = Op::kTypeVoid;
    Words args;  // after the id
};
// A number's bits, or a composite's parts.
struct Constant {
    Id type = 0;
    uint64_t bits = 0;
    std::vector<Constant> parts{};
};
struct Instruction {
    const Row* row = nullptr;
    Id type = 0, id = 0;  // 0: none
    Words args;           // after type and id
};
using Block = std::vector<Instruction>;

struct Module {
    std::unordered_map<Id, Type> types;
    std::unordered_map<Id, Constant> constants;
    std::unordered_map<Id, std::map<uint32_t, Words>> decorations;
    std::map<std::pair<Id, uint32_t>, std::map<uint32_t, Words>> member_decorations;
    std::unordered_map<Id, Id> type_of;  // of values
    std::vector<Instruction> variables;
    std::unordered_map<Id, Block> blocks;
    std::vector<Id> order;  // of blocks
    std::array<uint32_t, 3> local_size{1, 1, 1};
    bool meets_host = false;  // it exchanges data with the host while it runs
    bool has_matrices = false;

    const Type& type(Id id) const { return types.at(id); }
    Op kind(Id type) const { return types.at(type).op; }
    // Bits of a number; 1 for a boolean.
    uint32_t Width(Id type) const;
    // Elements of a vector; 0 for another type.
    uint32_t Lanes(Id type) const;
    // The type of member or element `index`.
    Id Element(Id type, uint32_t index) const;
    uint32_t SizeBytes(Id type) const;
    uint32_t AlignBytes(Id type) const;
    const Constant* FindConstant(Id id) const;
    // The constant that is a variable's only value; 0 if it may have another one.
    Id OnlyValue(const Instruction& variable) const;
    // First word of a decoration.
    std::optional<uint32_t> Decorated(Id id, Decoration decoration) const;
    std::optional<uint32_t> Decorated(Id type, uint32_t member, Decoration decoration) const;
};

Result<Module> Parse(const Request& request);

// The value of an OpSpecConstantOp on constants of `module`.
Result<Constant> Fold(const Module& module, Id type, Words op_and_args);

}  // namespace weft::gpu::spirv
