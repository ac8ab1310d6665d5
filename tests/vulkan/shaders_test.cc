// Rules that compiled shaders obey (shaders/shaders.h), as far as their SPIR-V shows.
#include "shaders/shaders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "backend/gpu/lower/products.h"
#include "gpu/vulkan/small_halves.h"
#include "tensor/dtype.h"

namespace weft::shaders {
namespace {

// Numbers from the SPIR-V specification.
constexpr uint32_t kHeadWords = 5, kOpExtInst = 12, kOpDecorate = 71, kOpLabel = 248,
                   kOpBranchConditional = 250;
constexpr uint32_t kSpecId = 1, kBuiltIn = 11, kSubgroupSize = 36, kUnpackHalf2x16 = 62;

// Calls visit(op, words) for each instruction.
template <typename Visit>
void ForEachInstruction(std::span<const uint32_t> code, const Visit& visit) {
    for (size_t at = kHeadWords; at < code.size();) {
        const size_t words = code[at] >> 16;
        if (words == 0 || at + words > code.size()) {
            ADD_FAILURE() << "no SPIR-V at word " << at;
            return;
        }
        visit(code[at] & 0xffff, code.subspan(at, words));
        at += words;
    }
}

struct Unpacking {
    bool any = false;      // an instruction converts halves
    bool guarded = false;  // and only where kSmallHalvesConstant is true
};
Unpacking UnpacksHalves(std::span<const uint32_t> code) {
    uint32_t constant = 0, block = 0;
    std::set<uint32_t> unpacks, where_true;  // blocks
    ForEachInstruction(code, [&](uint32_t op, std::span<const uint32_t> words) {
        if (op == kOpDecorate && words.size() > 3 && words[2] == kSpecId &&
            words[3] == gpu::kSmallHalvesConstant) {
            constant = words[1];
        }
        if (op == kOpLabel) block = words[1];
        if (op == kOpBranchConditional && words[1] == constant) where_true.insert(words[2]);
        if (op == kOpExtInst && words[4] == kUnpackHalf2x16) unpacks.insert(block);
    });
    return {!unpacks.empty(), std::ranges::includes(where_true, unpacks)};
}
bool ReadsSubgroupSize(std::span<const uint32_t> code) {
    bool reads = false;
    ForEachInstruction(code, [&](uint32_t op, std::span<const uint32_t> words) {
        reads = reads || (op == kOpDecorate && words.size() > 3 && words[2] == kBuiltIn &&
                          words[3] == kSubgroupSize);
    });
    return reads;
}

TEST(VulkanShaders, ScalesOfBlocksMayBeSubnormalHalves) {
    if (Names().empty()) GTEST_SKIP() << "this weft has no shaders";
    // Elements: the lost values are below 2^-14.
    EXPECT_TRUE(UnpacksHalves(Find("matvec_f16")).any);
    EXPECT_FALSE(UnpacksHalves(Find("matvec_f16")).guarded);
    size_t seen = 0;
    for (const DTypeInfo& info : kDTypes) {
        for (const char* family : {"matvec", "matvec_dot", "tile", "tile_dot", "tile_matrix",
                                   "tile_matrix_emulated", "embedding"}) {
            const auto code = Find(backend::on_gpu::ShaderOf(family, info.dtype));
            if (!info.quantized || code.empty()) continue;
            ++seen;
            EXPECT_TRUE(UnpacksHalves(code).guarded) << family << " of " << info.name;
        }
    }
    EXPECT_GT(seen, 100u);
}

// Invocations identify themselves by gl_LocalInvocationIndex. (The emulation of matrix units is for
// tests only.)
TEST(VulkanShaders, DoNotAskForTheSizeOfASubgroup) {
    if (Names().empty()) GTEST_SKIP() << "this weft has no shaders";
    EXPECT_TRUE(ReadsSubgroupSize(Find("tile_matrix_emulated_q8_0")));
    for (const std::string_view name : Names()) {
        if (name.find("emulated") != std::string_view::npos) continue;
        EXPECT_FALSE(ReadsSubgroupSize(Find(name))) << name;
    }
}

}  // namespace
}  // namespace weft::shaders
