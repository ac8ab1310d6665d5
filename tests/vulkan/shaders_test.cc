// Rules that compiled shaders obey (shaders/shaders.h), as far as their SPIR-V shows.
#include "shaders/shaders.h"

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "backend/gpu/lower/products.h"
#include "tensor/dtype.h"

namespace weft::shaders {
namespace {

// Numbers from the SPIR-V specification.
constexpr uint32_t kHeadWords = 5, kOpExtInst = 12, kOpDecorate = 71;
constexpr uint32_t kBuiltIn = 11, kSubgroupSize = 36, kUnpackHalf2x16 = 62;

// Whether the code has an instruction for which `test`, given its words, is true.
bool HasInstruction(std::span<const uint32_t> code,
                    const std::function<bool(std::span<const uint32_t>)>& test) {
    for (size_t at = kHeadWords; at < code.size();) {
        const size_t words = code[at] >> 16;
        if (words == 0 || at + words > code.size()) {
            ADD_FAILURE() << "no SPIR-V at word " << at;
            return false;
        }
        if (test(code.subspan(at, words))) return true;
        at += words;
    }
    return false;
}

bool UnpacksHalves(std::span<const uint32_t> code) {
    return HasInstruction(code, [](std::span<const uint32_t> words) {
        return (words[0] & 0xffff) == kOpExtInst && words[4] == kUnpackHalf2x16;
    });
}
bool ReadsSubgroupSize(std::span<const uint32_t> code) {
    return HasInstruction(code, [](std::span<const uint32_t> words) {
        return (words[0] & 0xffff) == kOpDecorate && words.size() > 3 && words[2] == kBuiltIn &&
               words[3] == kSubgroupSize;
    });
}

TEST(VulkanShaders, ScalesOfBlocksMayBeSubnormalHalves) {
    if (Names().empty()) GTEST_SKIP() << "this weft has no shaders";
    EXPECT_TRUE(UnpacksHalves(Find("matvec_f16")));  // elements: the lost values are below 2^-14
    size_t seen = 0;
    for (const DTypeInfo& info : kDTypes) {
        for (const char* family : {"matvec", "matvec_dot", "tile", "tile_dot", "tile_matrix",
                                   "tile_matrix_emulated", "embedding"}) {
            const auto code = Find(backend::on_gpu::ShaderOf(family, info.dtype));
            if (!info.quantized || code.empty()) continue;
            ++seen;
            EXPECT_FALSE(UnpacksHalves(code)) << family << " of " << info.name;
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
