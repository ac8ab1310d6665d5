#include "gpu/vulkan/small_halves.h"

namespace weft::gpu {
namespace {

// From the SPIR-V specification.
constexpr size_t kHeaderWords = 5;
constexpr uint32_t kOpEntryPoint = 15, kOpExecutionMode = 16, kOpCapability = 17, kOpDecorate = 71;
constexpr uint32_t kSpecId = 1, kDenormPreserve = 4459, kDenormPreserveCapability = 4464;

uint32_t Instruction(uint32_t op, uint32_t words) {
    return words << 16 | op;
}

}  // namespace

std::vector<uint32_t> KeepSmallHalves(std::span<const uint32_t> spirv, SmallHalves keeps) {
    if (keeps == SmallHalves::kNo) return {};
    std::vector<uint32_t> kept;
    bool has_constant = false;
    for (size_t at = 0; at < spirv.size();) {
        const uint32_t word = spirv[at], op = word & 0xffff;
        const size_t count = at == 0 ? kHeaderWords : word >> 16;
        if (count == 0 || count > spirv.size() - at) return {};
        const auto words = spirv.subspan(at, count);
        kept.insert(kept.end(), words.begin(), words.end());
        if (at == 0) {
            kept.insert(kept.end(), {Instruction(kOpCapability, 2), kDenormPreserveCapability});
        } else if (op == kOpEntryPoint) {
            const uint32_t mode = Instruction(kOpExecutionMode, 4);
            kept.insert(kept.end(), {mode, words[2], kDenormPreserve, 16});
            if (keeps == SmallHalves::kHalvesAndDoubles) {
                kept.insert(kept.end(), {mode, words[2], kDenormPreserve, 64});
            }
        } else if (op == kOpDecorate && count == 4 && words[2] == kSpecId) {
            has_constant = has_constant || words[3] == kSmallHalvesConstant;
        }
        at += count;
    }
    return has_constant ? kept : std::vector<uint32_t>();
}

}  // namespace weft::gpu
