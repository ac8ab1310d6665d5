// AMD's HIP (libamdhip64) and its compiler (hiprtc): names, versions and properties, of ROCm 5 to
// 7.
#include <algorithm>
#include <array>

#include "gpu/drivers.h"
#include "gpu/native/interface.h"

namespace weft::gpu::hip {
namespace {

using native::Calls;
using native::Code;

// Old versions are tried last. Version 5 of some distributions has hiprtc within libamdhip64.
constexpr const char* kLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
constexpr const char* kCompilers[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5",
                                      "libamdhip64.so.5"};

constexpr native::CallNames kNames{
    .Init = "hipInit",
    .GetDriverVersion = "hipRuntimeGetVersion",
    .ErrorName = "hipGetErrorName",
    .GetDeviceCount = "hipGetDeviceCount",
    .GetDevice = "hipDeviceGet",
    .GetName = "hipDeviceGetName",
    .GetAttribute = "hipDeviceGetAttribute",
    .GetProperties = "hipGetDeviceProperties",
    .GetPciBusId = "hipDeviceGetPCIBusId",
    .GetTotalMemory = "hipDeviceTotalMem",
    .SetDevice = "hipSetDevice",
    .GetMemory = "hipMemGetInfo",
    .Allocate = "hipMalloc",
    .AllocateFlagged = "hipExtMallocWithFlags",
    .Free = "hipFree",
    .AllocateHost = "hipHostMalloc",
    .FreeHost = "hipHostFree",
    .GetHostAddress = "hipHostGetDevicePointer",
    .GetDeviceByPciBusId = "hipDeviceGetByPCIBusId",
    .CanAccessPeer = "hipDeviceCanAccessPeer",
    .GetSharedHandle = "hipIpcGetMemHandle",
    .OpenSharedHandle = "hipIpcOpenMemHandle",
    .CloseSharedHandle = "hipIpcCloseMemHandle",
    .CreateStream = "hipStreamCreateWithFlags",
    .DestroyStream = "hipStreamDestroy",
    .CreateEvent = "hipEventCreateWithFlags",
    .DestroyEvent = "hipEventDestroy",
    .RecordEvent = "hipEventRecord",
    .QueryEvent = "hipEventQuery",
    .GetElapsed = "hipEventElapsedTime",
    .CopyOfKind = "hipMemcpyAsync",
    .Fill = "hipMemsetD32Async",
    .LoadModule = "hipModuleLoadData",
    .UnloadModule = "hipModuleUnload",
    .GetFunction = "hipModuleGetFunction",
    .Launch = "hipModuleLaunchKernel",
    .BeginCapture = "hipStreamBeginCapture",
    .EndCapture = "hipStreamEndCapture",
    .Instantiate = "hipGraphInstantiateWithFlags",
    .DestroyGraph = "hipGraphDestroy",
    .LaunchGraph = "hipGraphLaunch",
    .DestroyInstance = "hipGraphExecDestroy",
};
constexpr native::CompilerNames kCompilerNames{
    .GetVersion = "hiprtcVersion",
    .GetErrorString = "hiprtcGetErrorString",
    .CreateProgram = "hiprtcCreateProgram",
    .DestroyProgram = "hiprtcDestroyProgram",
    .CompileProgram = "hiprtcCompileProgram",
    .GetLogSize = "hiprtcGetProgramLogSize",
    .GetLog = "hiprtcGetProgramLog",
    .GetCodeSize = "hiprtcGetCodeSize",
    .GetCode = "hiprtcGetCode",
};

constexpr int kIntegrated = 16;  // hipDeviceAttributeIntegrated

// Limits of all GPUs below; a grid has at most 2^32 - 1 invocations in x.
constexpr uint32_t kInvocations = 1024, kSharedBytes = 64 << 10;
constexpr std::array<uint32_t, 3> kGroups = {~0u / kInvocations, 65'535, 65'535};

// Architectures that kernels are compiled for: a name's beginning, its subgroup size, whether its
// matrix units have the shape that kernels use, and the first version of HIP whose compiler
// supports it. (An older compiler ends the process.)
struct Family {
    std::string_view prefix;
    uint32_t subgroup;
    bool matrices;
    uint32_t least_version = 0;
};
constexpr Family kFamilies[] = {
    {"gfx908", 64, true},              // MI100
    {"gfx90a", 64, true},              // MI200
    {"gfx942", 64, true},              // MI300
    {"gfx950", 64, true, 70'000'000},  // MI350
    {"gfx103", 32, false},
    {"gfx11", 32, true},
    {"gfx12", 32, true, 60'300'000},
};

std::string Version(int number) {
    return fmt::format("{}.{}", number / 10'000'000, number / 100'000 % 100);
}

// The layout of hipDeviceProp_t differs between versions. All begin with the name, of 256 bytes,
// and have the architecture as the only text "gfx..." after it.
Code Architecture(const Calls& calls, int device, std::string& architecture) {
    constexpr size_t kNameBytes = 256, kMostBytes = 16 << 10;
    std::vector<char> properties(kMostBytes);
    if (const Code code = calls.GetProperties(properties.data(), device); code != 0) return code;
    constexpr std::string_view kBegin = "gfx";
    const auto at = std::search(properties.begin() + kNameBytes, properties.end(), kBegin.begin(),
                                kBegin.end());
    architecture.assign(at, std::find(at, properties.end(), '\0'));
    return 0;
}

Code Describe(const Calls& calls, native::Found& found) {
    Description& described = found.description;
    if (const Code code = Architecture(calls, found.device, found.architecture); code != 0)
        return code;
    int integrated = 0;
    if (const Code code = calls.GetAttribute(&integrated, kIntegrated, found.device); code != 0)
        return code;
    described.kind = integrated != 0 ? Kind::kIntegrated : Kind::kDiscrete;
    described.shared_bytes = kSharedBytes;
    described.most_invocations = kInvocations;
    described.most_groups = kGroups;
    const auto* const family = std::ranges::find_if(
        kFamilies, [&](const Family& one) { return found.architecture.starts_with(one.prefix); });
    if (family == std::end(kFamilies)) {
        described.subgroup = 64;
        described.unusable =
            fmt::format("kernels are not compiled for its architecture '{}'", found.architecture);
        return 0;
    }
    if (described.driver_version < family->least_version) {
        described.unusable = fmt::format(
            "its architecture '{}' needs ROCm {} or later; this is {}", found.architecture,
            Version(static_cast<int>(family->least_version)), described.api_version);
    }
    described.subgroup = family->subgroup;
    described.integer_dot = true;
    if (family->matrices) described.matrix_unit = {16, 16, 16};
    return 0;
}

// From hip_runtime_api.h: results of hipInit that a user can do something about.
constexpr native::Advice kAdvice[] = {
    {3, "May this user open /dev/kfd and /dev/dri/renderD* (groups render and video)?"},
    {35,
     "The kernel module amdgpu is too old for this version of ROCm: update the kernel or "
     "amdgpu-dkms, or install an older ROCm"},
};

constexpr native::Interface kHip{
    .api = Api::kHip,
    .libraries = kLibraries,
    .compilers = kCompilers,
    .packages =
        "Install ROCm's HIP runtime, version 5 to 7: libamdhip64-5 (Debian 13, Ubuntu), "
        "hip-runtime-amd (AMD's packages), rocm-hip (Fedora), hip-runtime-amd (Arch)",
    .compiler_packages =
        "Install ROCm's run-time compiler: libhiprtc-builtins5 (Debian 13, "
        "Ubuntu), hip-runtime-amd (AMD's packages, Arch), rocm-hip (Fedora)",
    .names = kNames,
    .compiler_names = kCompilerNames,
    .host_flags = 1 | 2 | 0x40000000,  // hipHostMallocPortable, Mapped, Coherent
    .architecture_option = "--offload-arch=",
    .options = spirv::kHipOptions,
    .roomy_option = nullptr,
    .language = spirv::Language::kHip,
    .vendor_id = 0x1002,
    .version = Version,
    .unfit = nullptr,
    .advice = kAdvice,
    .describe = Describe,
};

}  // namespace

Result<std::vector<Description>> ListDevices() {
    return native::ListDevicesOf(kHip);
}

Result<std::shared_ptr<Device>> OpenDevice(int index, const OpenOptions& options) {
    return native::OpenDeviceOf(kHip, index, options);
}

}  // namespace weft::gpu::hip
