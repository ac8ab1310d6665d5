// weft --version.
#include "backend/device.h"
#include "cli/commands.h"
#include "cli/models/devices.h"
#include "cluster/join/build.h"
#include "hw/cpu.h"
#include "model/model.h"
#include "net/mpi/library.h"
#include "net/verbs_end.h"
#include "tensor/dtype.h"

namespace weft::cli {
namespace {

std::string Compiler() {
#if defined(__clang__)
    return fmt::format("Clang {}", __clang_version__);
#else
    return fmt::format("GCC {}", __VERSION__);
#endif
}

std::vector<std::string> FeatureNames(const CpuFeatures& cpu) {
    std::vector<std::string> names;
    if (cpu.avx2) names.push_back("avx2");
    if (cpu.avx_vnni) names.push_back("avx_vnni");
    if (cpu.avx512) names.push_back("avx512");
    if (cpu.avx512_vnni) names.push_back("avx512_vnni");
    if (cpu.avx512_bf16) names.push_back("avx512_bf16");
    if (cpu.amx) names.push_back("amx");
    if (cpu.dotprod) names.push_back("dotprod");
    if (cpu.i8mm) names.push_back("i8mm");
    return names;
}

}  // namespace

void PrintVersion(bool json) {
    const CpuFeatures cpu = DetectCpu();
    const backend::DeviceInfo device = backend::DescribeDevice("cpu").value();
    std::vector<std::string> dtypes;
    for (const DTypeInfo& info : kFileDTypes) {
        if (info.dtype != DType::kI32) dtypes.emplace_back(info.name);
    }
    std::vector<std::string> transports = {"shm", "tcp"};
    if (net::VerbsBuilt()) transports.emplace_back("verbs");
    std::vector<std::string> plugins;
    for (const net::MpiPlugin& plugin : net::FindMpiPlugins()) plugins.push_back(plugin.flavour);
    if (!plugins.empty()) transports.emplace_back("mpi");
    const gpu::Cards gpus = gpu::ListCards();
    if (json) {
        PrintJson({{"version", WEFT_VERSION},
                   {"commit", cluster::Commit()},
                   {"protocol_hash", cluster::ProtocolHash()},
                   {"compiler", Compiler()},
                   {"cpu", cpu.model},
                   {"cpu_features", FeatureNames(cpu)},
                   {"kernels", device.kernels},
                   {"kernels_built", device.kernels_built},
                   {"gpus", GpusJson(gpus)},
                   {"gpus_none", NoGpuText(gpus)},
                   {"shaders", ShadersJson()},
                   {"transports", transports},
                   {"mpi_plugins", plugins},
                   {"architectures", model::SupportedArchitectures()},
                   {"dtypes", dtypes}});
        return;
    }
    PrintOut("{}\n", cluster::BuildText({}));
    PrintOut("compiler       {}\n", Compiler());
    PrintOut("cpu            {} ({})\n", cpu.model, fmt::join(FeatureNames(cpu), " "));
    PrintOut("kernels        {} (built in: {})\n", device.kernels,
             fmt::join(device.kernels_built, ", "));
    PrintGpuLines(gpus);
    PrintOut("transports     {}\n", fmt::join(transports, ", "));
    PrintOut("mpi plug-ins   {}\n",
             plugins.empty() ? "none" : fmt::format("{}", fmt::join(plugins, ", ")));
    PrintOut("architectures  {}\n", model::SupportedArchitectures());
    PrintOut("tensor types   {}\n", fmt::join(dtypes, ", "));
}

}  // namespace weft::cli
