#include "cli/models/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/memory_plan.h"
#include "cli/terminal/output.h"
#include "shaders/shaders.h"

namespace weft::cli {
namespace {

std::string NameOf(const gpu::Description& one) {
    return fmt::format("{}:{}", gpu::ApiName(one.api), one.index);
}

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
    if (count == 0) return "none (built without glslc or -DWEFT_GPU=ON)";
    const std::vector<std::string_view> lacking = shaders::FeaturesLacking();
    if (lacking.empty()) return fmt::format("{}", count);
    return fmt::format("{}, without those for matrix units (glslc lacked {}; docs/gpu.md)", count,
                       fmt::join(lacking, ", "));
}

// Prints `text` behind a head of 14 columns, in lines of 100 columns. Breaks at spaces.
void PrintWrapped(std::string_view head, std::string_view text) {
    constexpr size_t kIndent = 14, kColumns = 100 - kIndent;
    for (; !text.empty(); head = {}) {
        size_t end = text.size() <= kColumns ? text.npos : text.rfind(' ', kColumns);
        if (end == text.npos && text.size() > kColumns) end = text.find(' ');  // a long word
        end = std::min(end, text.size());
        PrintOut("{:<{}}{}\n", head, kIndent, text.substr(0, end));
        text.remove_prefix(std::min(text.size(), end + 1));
    }
}

}  // namespace

Json GpusJson(const gpu::Cards& list) {
    Json gpus = Json::array();
    for (const gpu::Card& card : list.cards) {
        const gpu::Description& one = card.best();
        Json heaps = Json::array();
        for (const gpu::Heap& heap : one.heaps) {
            heaps.push_back({{"total_bytes", heap.total_bytes},
                             {"free_bytes", heap.free_bytes},
                             {"device_local", heap.device_local},
                             {"for_kernels", heap.for_kernels}});
        }
        Json devices = Json::array();
        for (const gpu::Description& device : card.devices) {
            devices.push_back({{"device", NameOf(device)}, {"unusable", device.unusable}});
        }
        gpus.push_back({{"device", NameOf(one)},
                        {"devices", devices},
                        {"missing", card.missing},
                        {"index", one.index},
                        {"name", one.name},
                        {"kind", gpu::KindName(one.kind)},
                        {"driver", one.driver},
                        {"api", one.api_version},
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

std::string NoGpuText(const gpu::Cards& list) {
    return fmt::format("{}", fmt::join(list.none, "; "));
}

Json ShadersJson() {
    return {{"count", shaders::Names().size()}, {"lacking", shaders::FeaturesLacking()}};
}

void PrintGpuLines(const gpu::Cards& list) {
    if (list.cards.empty()) PrintOut("gpus           none: {}\n", NoGpuText(list));
    for (const gpu::Card& card : list.cards) {
        const gpu::Description& one = card.best();
        PrintOut("{:<14} {} ({}, {}, {}){}{}\n", NameOf(one), one.name, one.driver,
                 gpu::KindName(one.kind), BytesText(KernelBytes(one)),
                 one.unusable.empty() ? "" : ": can't be used: ", one.unusable);
    }
    PrintOut("shaders        {}\n", ShadersText());
}

void PrintGpus(const gpu::Cards& list) {
    if (list.cards.empty()) PrintOut("no gpu\n");
    for (const std::string& reason : list.none) PrintWrapped("  because", reason);
    for (const gpu::Card& card : list.cards) {
        const gpu::Description& one = card.best();
        PrintOut("{}: {}\n", NameOf(one), one.name);
        for (const gpu::Description& device : card.devices) {
            if (device.api == one.api) continue;
            PrintOut("  also        {}{}{}\n", NameOf(device),
                     device.unusable.empty() ? "" : ", which can't be used: ", device.unusable);
        }
        for (const std::string& reason : card.missing) PrintWrapped("  not", reason);
        PrintOut("  driver      {} (version {:#x})\n", one.driver, one.driver_version);
        PrintOut("  {:<12}{}, {:04x}:{:04x}, {}\n", gpu::ApiName(one.api), one.api_version,
                 one.vendor_id, one.device_id, gpu::KindName(one.kind));
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
