#include "cli/models/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/memory_plan.h"
#include "cli/terminal/output.h"
#include "shaders/shaders.h"

namespace weft::cli {
namespace {

std::vector<std::string> GpuFeatures(const gpu::Description& one) {
    std::vector<std::string> names;
    if (one.integer_dot) names.emplace_back("integer_dot");
    if (one.fast_integer_dot) names.emplace_back("fast_integer_dot");
    if (one.cooperative_matrix) names.emplace_back("cooperative_matrix");
    if (one.host_import) names.emplace_back("host_import");
    if (one.unified) names.emplace_back("unified_memory");
    if (one.timestamp_ns > 0) names.emplace_back("timestamps");
    return names;
}

std::string ProductsText(const gpu::Description& one) {
    const bool unused = one.cooperative_matrix && !shaders::FeaturesLacking().empty();
    return backend::ProductsOf(one) +
           (unused ? "; no matrix units: this build lacks their kernels (docs/gpu.md)" : "");
}

uint64_t KernelBytes(const gpu::Description& one) {
    uint64_t bytes = 0;
    for (const gpu::Heap& heap : one.heaps) {
        if (heap.for_kernels) bytes += heap.total_bytes;
    }
    return bytes;
}

std::string ShadersText() {
    const size_t count = shaders::Names().size();
    if (count == 0) return "none (built without glslc, Vulkan's headers or -DWEFT_VULKAN=ON)";
    const std::vector<std::string_view> lacking = shaders::FeaturesLacking();
    if (lacking.empty()) return fmt::format("{}", count);
    return fmt::format("{}, without those for matrix units (glslc lacked {}; docs/gpu.md)", count,
                       fmt::join(lacking, ", "));
}

}  // namespace

GpuList FindGpus() {
    GpuList list;
    Result<std::vector<gpu::Description>> found = gpu::ListDevices();
    if (!found.ok()) {
        list.none = found.error().message;
    } else if (found->empty()) {
        list.none =
            "Vulkan: no device. Is a driver installed (mesa-vulkan-drivers), and may this user "
            "open /dev/dri/renderD*?";
    } else {
        list.gpus = *std::move(found);
    }
    return list;
}

Json GpusJson(const GpuList& list) {
    Json gpus = Json::array();
    for (const gpu::Description& one : list.gpus) {
        Json heaps = Json::array();
        for (const gpu::Heap& heap : one.heaps) {
            heaps.push_back({{"total_bytes", heap.total_bytes},
                             {"free_bytes", heap.free_bytes},
                             {"device_local", heap.device_local},
                             {"for_kernels", heap.for_kernels}});
        }
        gpus.push_back({{"index", one.index},
                        {"name", one.name},
                        {"kind", gpu::KindName(one.kind)},
                        {"driver", one.driver},
                        {"api", one.api},
                        {"vendor_id", one.vendor_id},
                        {"device_id", one.device_id},
                        {"driver_version", one.driver_version},
                        {"heaps", heaps},
                        {"features", GpuFeatures(one)},
                        {"products", ProductsText(one)},
                        {"tiles", backend::TilesOf(one)},
                        {"subgroup", one.subgroup},
                        {"subgroup_least", one.least_subgroup},
                        {"subgroup_most", one.most_subgroup},
                        {"shared_bytes", one.shared_bytes},
                        {"workgroup_most", one.most_invocations},
                        {"timestamp_ns", one.timestamp_ns},
                        {"unusable", one.unusable}});
    }
    return gpus;
}

Json ShadersJson() {
    return {{"count", shaders::Names().size()}, {"lacking", shaders::FeaturesLacking()}};
}

void PrintGpuLines(const GpuList& list) {
    if (list.gpus.empty()) PrintOut("gpus           none: {}\n", list.none);
    for (const gpu::Description& one : list.gpus) {
        PrintOut("{:<15}{} ({}, {}, {}){}{}\n", fmt::format("gpu {}", one.index), one.name,
                 one.driver, gpu::KindName(one.kind), BytesText(KernelBytes(one)),
                 one.unusable.empty() ? "" : ": can't be used: ", one.unusable);
    }
    PrintOut("shaders        {}\n", ShadersText());
}

void PrintGpus(const GpuList& list) {
    if (list.gpus.empty()) PrintOut("no gpu: {}\n", list.none);
    for (const gpu::Description& one : list.gpus) {
        PrintOut("gpu {}: {}\n", one.index, one.name);
        PrintOut("  driver      {} (version {:#x})\n", one.driver, one.driver_version);
        PrintOut("  vulkan      {}, {:04x}:{:04x}, {}\n", one.api, one.vendor_id, one.device_id,
                 gpu::KindName(one.kind));
        for (const gpu::Heap& heap : one.heaps) {
            PrintOut("  heap        {} free of {}{}\n", BytesText(heap.free_bytes),
                     BytesText(heap.total_bytes),
                     heap.device_local  ? ", the device's own"
                     : heap.for_kernels ? ", the host's, for kernels too"
                                        : ", the host's");
        }
        PrintOut("  features    {}\n", fmt::join(GpuFeatures(one), " "));
        PrintOut("  products    {}\n", ProductsText(one));
        const std::string tiles = backend::TilesOf(one);
        if (!tiles.empty()) PrintOut("  tiles       {}\n", tiles);
        PrintOut("  subgroups   {} invocations ({} to {})\n", one.subgroup, one.least_subgroup,
                 one.most_subgroup);
        PrintOut("  workgroups  {} invocations, {} of shared memory\n", one.most_invocations,
                 BytesText(one.shared_bytes));
        if (!one.unusable.empty()) PrintOut("  can't be used: {}\n", one.unusable);
    }
    PrintOut("shaders: {}\n", ShadersText());
}

}  // namespace weft::cli
