// Compute pipelines.
#include <utility>
#include <vector>

#include "gpu/vulkan/core.h"

namespace weft::gpu {
namespace {

// Same as in shaders/guard.glsl.
constexpr uint32_t kGuardedConstant = 30;
constexpr uint32_t kUnitConstants = 31;  // of units.glsl

class KernelOfCore : public Kernel {
  public:
    KernelOfCore(std::shared_ptr<Core> core, uint32_t size_of_subgroup)
        : core_(std::move(core)), subgroup_(size_of_subgroup) {}
    KernelOfCore(const KernelOfCore&) = delete;
    KernelOfCore& operator=(const KernelOfCore&) = delete;
    ~KernelOfCore() override {
        if (!core_->Settled()) return;
        if (handles_.pipeline != VK_NULL_HANDLE)
            core_->calls.DestroyPipeline(core_->device, handles_.pipeline, nullptr);
        if (handles_.layout != VK_NULL_HANDLE)
            core_->calls.DestroyPipelineLayout(core_->device, handles_.layout, nullptr);
    }
    uint32_t subgroup() const override { return subgroup_; }
    const KernelHandles& handles() const { return handles_; }
    Status Create(VkPipelineCache cache, const KernelCode& code);

  private:
    Status CreateLayout(const KernelCode& code);
    Status CreatePipeline(VkPipelineCache cache, const KernelCode& code, VkShaderModule shader,
                          bool keeps_small_halves);
    std::shared_ptr<Core> core_;
    const uint32_t subgroup_;
    KernelHandles handles_;
};

Status KernelOfCore::CreateLayout(const KernelCode& code) {
    const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, code.args_bytes};
    VkPipelineLayoutCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
    info.setLayoutCount = 1;
    info.pSetLayouts = &core_->guard.layout;
    info.pushConstantRangeCount = code.args_bytes > 0 ? 1 : 0;
    info.pPushConstantRanges = &range;
    const VkResult result =
        core_->calls.CreatePipelineLayout(core_->device, &info, nullptr, &handles_.layout);
    if (result == VK_SUCCESS) return {};
    handles_.layout = VK_NULL_HANDLE;
    return core_->Fail(fmt::format("vkCreatePipelineLayout of kernel {}", code.name), result);
}

Status KernelOfCore::CreatePipeline(VkPipelineCache cache, const KernelCode& code,
                                    VkShaderModule shader, bool keeps_small_halves) {
    std::vector<uint32_t> values;
    std::vector<VkSpecializationMapEntry> entries;
    const auto set = [&](uint32_t id, uint32_t value) {
        entries.push_back({id, static_cast<uint32_t>(values.size() * sizeof value), sizeof value});
        values.push_back(value);
    };
    for (uint32_t i = 0; i < code.constants.size(); ++i) set(i, code.constants[i]);
    if (code.guarded) set(kGuardedConstant, 1);
    if (keeps_small_halves) set(kSmallHalvesConstant, 1);
    if (const Description& gpu = core_->physical.description; gpu.cooperative_matrix) {
        set(kUnitConstants, gpu.matrix_unit.m);
        set(kUnitConstants + 1, gpu.matrix_unit.n);
        set(kUnitConstants + 2, gpu.matrix_unit.k);
    }
    const VkSpecializationInfo constants{static_cast<uint32_t>(entries.size()), entries.data(),
                                         values.size() * sizeof values[0], values.data()};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT size{};
    size.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT;
    size.requiredSubgroupSize = code.subgroup;
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = shader;
    info.stage.pName = "main";
    info.stage.pSpecializationInfo = &constants;
    if (code.subgroup != 0 && core_->physical.subgroup_control) {
        info.stage.pNext = &size;
        const bool whole = !code.constants.empty() && code.constants[0] % code.subgroup == 0;
        if (whole && core_->physical.full_subgroups)
            info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT;
    }
    info.flags = VK_PIPELINE_CREATE_DISPATCH_BASE;
    info.layout = handles_.layout;
    info.basePipelineIndex = -1;
    const VkResult result = core_->calls.CreateComputePipelines(core_->device, cache, 1, &info,
                                                                nullptr, &handles_.pipeline);
    if (result == VK_SUCCESS) return {};
    handles_.pipeline = VK_NULL_HANDLE;
    return core_->Fail(fmt::format("vkCreateComputePipelines of kernel {}", code.name), result);
}

Status KernelOfCore::Create(VkPipelineCache cache, const KernelCode& code) {
    handles_.args_bytes = code.args_bytes;
    WEFT_TRY(CreateLayout(code));
    const std::vector<uint32_t> kept = KeepSmallHalves(code.spirv, core_->physical.small_halves);
    const std::span<const uint32_t> spirv = kept.empty() ? code.spirv : std::span(kept);
    VkShaderModuleCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    info.codeSize = spirv.size_bytes();
    info.pCode = spirv.data();
    VkShaderModule shader = VK_NULL_HANDLE;
    const VkResult result = core_->calls.CreateShaderModule(core_->device, &info, nullptr, &shader);
    if (result != VK_SUCCESS)
        return core_->Fail(fmt::format("vkCreateShaderModule of kernel {}", code.name), result);
    const Status made = CreatePipeline(cache, code, shader, !kept.empty());
    core_->calls.DestroyShaderModule(core_->device, shader, nullptr);
    return made;
}

Status CheckCode(const Core& core, const KernelCode& code) {
    WEFT_CHECK(code.args_bytes <= kMostArgsBytes && code.args_bytes % 4 == 0);
    const Description& gpu = core.physical.description;
    if (code.spirv.empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: kernel {} is not in this build: it was built without glslc, or with "
                         "a glslc that lacks a feature of the kernel",
                         core.Who(), code.name);
    }
    if (!code.constants.empty() && code.constants[0] > gpu.most_invocations) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: kernel {} needs workgroups of {} invocations; the device supports at "
                         "most {}",
                         core.Who(), code.name, code.constants[0], gpu.most_invocations);
    }
    const bool fits = (code.subgroup & (code.subgroup - 1)) == 0 &&
                      code.subgroup >= gpu.least_subgroup && code.subgroup <= gpu.most_subgroup;
    if (code.subgroup != 0 && !fits) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: kernel {} needs subgroups of {}; the device supports {} to {}",
                         core.Who(), code.name, code.subgroup, gpu.least_subgroup,
                         gpu.most_subgroup);
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeKernelOn(std::shared_ptr<Core> core, PipelineCache& cache,
                                             const KernelCode& code) {
    WEFT_TRY(CheckCode(*core, code));
    const uint32_t subgroup =
        code.subgroup != 0 ? code.subgroup : core->physical.description.subgroup;
    auto kernel = std::make_unique<KernelOfCore>(std::move(core), subgroup);
    WEFT_TRY(kernel->Create(cache.handle(), code));
    cache.Grew();
    return std::unique_ptr<Kernel>(std::move(kernel));
}

KernelHandles HandlesOf(const Kernel& kernel) {
    return static_cast<const KernelOfCore&>(kernel).handles();
}

}  // namespace weft::gpu
