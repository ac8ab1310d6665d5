// kernel_statistics MODEL...: compiles every kernel that these models use on an AMD GPU with the
// first Vulkan device's driver, and prints one JSON object a line: the kernel, its constants, and
// the driver's statistics and machine code. bench/kernels.py runs it with RADV, which needs no GPU
// for this (RADV_FORCE_FAMILY), and reads the lines.
//
// The list of kernels comes from the lowering, for steps of 1 to 2,048 rows, with each tile shape
// that the tuner may choose.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "backend/gpu/dry_run.h"
#include "backend/gpu/gpu_device.h"
#include "gpu/vulkan/features.h"
#include "gpu/vulkan/small_halves.h"
#include "model/model.h"
#include "model_files/model_file.h"
#include "shaders/shaders.h"

namespace {

using weft::Result;
using weft::Status;
namespace gpu = weft::gpu;
namespace on_gpu = weft::backend::on_gpu;
using on_gpu::KernelUse;

constexpr unsigned kMostSeconds = 300;  // to compile a kernel

// ---- The kernels of a model ---------------------------------------------------------------------

// An APU with RADV. (A discrete card has other default tiles, which are among the candidates.)
gpu::Description Apu() {
    gpu::Description gpu = on_gpu::CommonGpu();
    gpu.kind = gpu::Kind::kIntegrated;
    gpu.subgroup = gpu.most_subgroup = 64;
    gpu.least_subgroup = 32;
    gpu.shared_bytes = 64 << 10;
    gpu.integer_dot = gpu.fast_integer_dot = gpu.cooperative_matrix = true;
    gpu.matrix_unit = {16, 16, 16};
    return gpu;
}

std::vector<on_gpu::StepShape> Shapes() {
    std::vector<on_gpu::StepShape> shapes;
    for (const int32_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 2048}) {
        on_gpu::StepShape shape;
        shape.rows = rows;
        shape.outputs = shape.sequences = rows <= 8 ? rows : 1;
        shape.blocks = rows <= 8 ? rows : rows / on_gpu::kBlockRows;
        shape.positions = 4096;
        shapes.push_back(shape);
    }
    return shapes;
}

Status AddKernels(const std::string& word, std::set<KernelUse>& kernels) {
    WEFT_ASSIGN(const auto source, weft::model_files::OpenModel(word));
    WEFT_ASSIGN(const weft::model::Hyper hyper, weft::model::ReadHyper(*source));
    WEFT_ASSIGN(const auto layout, weft::model::MakeLayout(1, 1, 1, {}));
    WEFT_ASSIGN(const auto plan, weft::model::PlanShards(hyper, *source, layout));
    weft::model::BuildOptions options;
    options.target = on_gpu::TargetOfGpus();
    WEFT_ASSIGN(const auto program,
                weft::model::BuildProgram(hyper, plan.shards[0], *source, options));
    const on_gpu::Fusion fusion(program, {});
    const gpu::Description gpu = Apu();
    const on_gpu::Arithmetic usual = on_gpu::ArithmeticOf(gpu, {});
    const auto add = [&](const on_gpu::Arithmetic& arithmetic) -> Status {
        WEFT_ASSIGN(const auto found,
                    on_gpu::KernelsOf(program, fusion, gpu, Shapes(), {arithmetic}));
        kernels.insert(found.begin(), found.end());
        return {};
    };
    WEFT_TRY(add(usual));
    for (const on_gpu::TileClass rows : on_gpu::kTileClasses) {
        for (const auto& shape : on_gpu::TileCandidates(gpu, rows, on_gpu::MatrixUnits::kOwn)) {
            on_gpu::Arithmetic tuned = usual;
            for (const on_gpu::Decoding decoding : on_gpu::kDecodings) {
                tuned.shapes.at(decoding, rows) = shape;
            }
            WEFT_TRY(add(tuned));
        }
    }
    return {};
}

// ---- The driver ---------------------------------------------------------------------------------

[[noreturn]] void Fail(const char* call, int result) {
    std::fprintf(stderr, "%s failed: %d\n", call, result);
    std::exit(1);
}
#define MUST(call)                                              \
    if (const VkResult result = (call); result != VK_SUCCESS) { \
        Fail(#call, result);                                    \
    }

PFN_vkGetInstanceProcAddr get_proc = nullptr;
VkInstance instance = VK_NULL_HANDLE;

template <typename Function>
Function Call(const char* name) {
    const auto found = reinterpret_cast<Function>(get_proc(instance, name));
    if (found == nullptr) Fail(name, 0);
    return found;
}
#define CALL(name) Call<PFN_##name>(#name)

struct Compiler {
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice device = VK_NULL_HANDLE;
    VkPipelineLayout layout = VK_NULL_HANDLE;
};

void OpenInstance() {
    void* const library = dlopen("libvulkan.so.1", RTLD_NOW);
    if (library == nullptr) Fail(dlerror(), 0);
    get_proc = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
    VkApplicationInfo app{};
    app.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    app.apiVersion = VK_API_VERSION_1_3;
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &app;
    MUST(CALL(vkCreateInstance)(&info, nullptr, &instance));
}

// Opens the first device with all of its features.
Compiler Open() {
    OpenInstance();
    Compiler compiler;
    uint32_t count = 1;
    CALL(vkEnumeratePhysicalDevices)(instance, &count, &compiler.physical);
    if (count == 0) Fail("vkEnumeratePhysicalDevices: no device", 0);
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix{};
    matrix.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables{};
    executables.sType =
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR;
    executables.pNext = &matrix;
    VkPhysicalDeviceVulkan13Features v13{};
    v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    v13.pNext = &executables;
    VkPhysicalDeviceVulkan12Features v12{};
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    v12.pNext = &v13;
    VkPhysicalDeviceVulkan11Features v11{};
    v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    v11.pNext = &v12;
    VkPhysicalDeviceFeatures2 features{};
    features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    features.pNext = &v11;
    CALL(vkGetPhysicalDeviceFeatures2)(compiler.physical, &features);
    std::vector<const char*> extensions = {VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME};
    if (matrix.cooperativeMatrix == VK_TRUE) {
        extensions.push_back(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
    }
    const float priority = 1;
    VkDeviceQueueCreateInfo queue{};
    queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = &features;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    MUST(CALL(vkCreateDevice)(compiler.physical, &info, nullptr, &compiler.device));
    const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, gpu::kMostArgsBytes};
    VkPipelineLayoutCreateInfo layout{};
    layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
    layout.pushConstantRangeCount = 1;
    layout.pPushConstantRanges = &range;
    MUST(CALL(vkCreatePipelineLayout)(compiler.device, &layout, nullptr, &compiler.layout));
    return compiler;
}

VkPipeline MakePipeline(const Compiler& compiler, const KernelUse& use) {
    const auto found = weft::shaders::Find(use.shader);
    const auto kept = gpu::KeepSmallHalves(found, gpu::SmallHalves::kHalvesAndDoubles);
    const auto spirv = kept.empty() ? found : std::span(kept);
    VkShaderModuleCreateInfo code{};
    code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    code.codeSize = spirv.size_bytes();
    code.pCode = spirv.data();
    VkShaderModule shader = VK_NULL_HANDLE;
    MUST(CALL(vkCreateShaderModule)(compiler.device, &code, nullptr, &shader));
    std::vector<VkSpecializationMapEntry> entries;
    for (uint32_t i = 0; i < use.constants.size(); ++i) entries.push_back({i, 4 * i, 4});
    std::vector<uint32_t> values = use.constants;
    if (!kept.empty()) {
        entries.push_back({gpu::kSmallHalvesConstant, static_cast<uint32_t>(4 * values.size()), 4});
        values.push_back(1);
    }
    const VkSpecializationInfo constants{static_cast<uint32_t>(entries.size()), entries.data(),
                                         4 * values.size(), values.data()};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size{};
    size.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO;
    size.requiredSubgroupSize = use.subgroup;
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                 VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    if (use.subgroup != 0) info.stage.pNext = &size;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = shader;
    info.stage.pName = "main";
    info.stage.pSpecializationInfo = &constants;
    info.layout = compiler.layout;
    VkPipeline pipeline = VK_NULL_HANDLE;
    MUST(CALL(vkCreateComputePipelines)(compiler.device, VK_NULL_HANDLE, 1, &info, nullptr,
                                        &pipeline));
    return pipeline;
}

// The machine code; "" if the driver has no disassembler.
std::string CodeOf(const Compiler& compiler, const VkPipelineExecutableInfoKHR& which) {
    const auto get = CALL(vkGetPipelineExecutableInternalRepresentationsKHR);
    uint32_t count = 0;
    MUST(get(compiler.device, &which, &count, nullptr));
    VkPipelineExecutableInternalRepresentationKHR blank{};
    blank.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
    std::vector<VkPipelineExecutableInternalRepresentationKHR> all(count, blank);
    MUST(get(compiler.device, &which, &count, all.data()));
    std::vector<std::string> texts(count);
    for (uint32_t i = 0; i < count; ++i) {
        texts[i].resize(all[i].dataSize);
        all[i].pData = texts[i].data();
    }
    MUST(get(compiler.device, &which, &count, all.data()));
    for (uint32_t i = 0; i < count; ++i) {
        if (std::string_view(all[i].name) == "Assembly") return texts[i].c_str();
    }
    return "";
}

void Print(const Compiler& compiler, const KernelUse& use) {
    const VkPipeline pipeline = MakePipeline(compiler, use);
    VkPipelineInfoKHR info{};
    info.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR;
    info.pipeline = pipeline;
    VkPipelineExecutablePropertiesKHR properties{};
    properties.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR;
    uint32_t count = 1;
    MUST(CALL(vkGetPipelineExecutablePropertiesKHR)(compiler.device, &info, &count, &properties));
    VkPipelineExecutableInfoKHR which{};
    which.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR;
    which.pipeline = pipeline;
    VkPipelineExecutableStatisticKHR blank{};
    blank.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    std::vector<VkPipelineExecutableStatisticKHR> all(64, blank);
    count = static_cast<uint32_t>(all.size());
    MUST(CALL(vkGetPipelineExecutableStatisticsKHR)(compiler.device, &which, &count, all.data()));
    nlohmann::json line{{"kernel", use.shader},
                        {"constants", use.constants},
                        {"subgroup", properties.subgroupSize},
                        {"code", CodeOf(compiler, which)}};
    for (uint32_t i = 0; i < count; ++i) line["statistics"][all[i].name] = all[i].value.u64;
    std::puts(line.dump().c_str());
}

// Compiles each kernel in a process of its own: the compiler may crash or take very long.
int PrintAll(const std::set<KernelUse>& kernels) {
    const Compiler compiler = Open();
    int failed = 0;
    for (const KernelUse& use : kernels) {
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            alarm(kMostSeconds);
            Print(compiler, use);
            std::fflush(stdout);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status == 0) continue;
        ++failed;
        std::fprintf(stderr, "%s: the driver failed (wait status %d)\n", use.shader.c_str(),
                     status);
    }
    return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
    std::set<KernelUse> kernels;
    for (int i = 1; i < count; ++i) {
        if (const Status status = AddKernels(words[i], kernels); !status.ok()) {
            std::fprintf(stderr, "%s: %s\n", words[i], status.error().message.c_str());
            return 1;
        }
    }
    return PrintAll(kernels);
}
