// NVIDIA's driver interface (libcuda) and its compiler (nvrtc): names, versions and attributes, of
// CUDA 12 and 13.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "gpu/drivers.h"
#include "gpu/native/interface.h"

namespace weft::gpu::cuda {
namespace {

using native::Calls;
using native::Code;
using native::CompilerCalls;

constexpr const char* kLibraries[] = {"libcuda.so.1"};
constexpr const char* kCompilers[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

constexpr native::CallNames kNames{
    .Init = "cuInit",
    .GetDriverVersion = "cuDriverGetVersion",
    .GetErrorName = "cuGetErrorName",
    .GetDeviceCount = "cuDeviceGetCount",
    .GetDevice = "cuDeviceGet",
    .GetName = "cuDeviceGetName",
    .GetAttribute = "cuDeviceGetAttribute",
    .GetPciBusId = "cuDeviceGetPCIBusId",
    .GetTotalMemory = "cuDeviceTotalMem_v2",
    .RetainContext = "cuDevicePrimaryCtxRetain",
    .ReleaseContext = "cuDevicePrimaryCtxRelease_v2",
    .SetContext = "cuCtxSetCurrent",
    .GetMemory = "cuMemGetInfo_v2",
    .Allocate = "cuMemAlloc_v2",
    .Free = "cuMemFree_v2",
    .AllocateHost = "cuMemHostAlloc",
    .FreeHost = "cuMemFreeHost",
    .GetHostAddress = "cuMemHostGetDevicePointer_v2",
    .GetDeviceByPciBusId = "cuDeviceGetByPCIBusId",
    .CanAccessPeer = "cuDeviceCanAccessPeer",
    .GetSharedHandle = "cuIpcGetMemHandle",
    .OpenSharedHandle = "cuIpcOpenMemHandle_v2",
    .CloseSharedHandle = "cuIpcCloseMemHandle",
    .CreateStream = "cuStreamCreate",
    .DestroyStream = "cuStreamDestroy_v2",
    .CreateEvent = "cuEventCreate",
    .DestroyEvent = "cuEventDestroy_v2",
    .RecordEvent = "cuEventRecord",
    .QueryEvent = "cuEventQuery",
    .GetElapsed = "cuEventElapsedTime",
    .Copy = "cuMemcpyAsync",
    .Fill = "cuMemsetD32Async",
    .LoadModule = "cuModuleLoadData",
    .UnloadModule = "cuModuleUnload",
    .GetFunction = "cuModuleGetFunction",
    .GetFunctionAttribute = "cuFuncGetAttribute",
    .Launch = "cuLaunchKernel",
    .BeginCapture = "cuStreamBeginCapture_v2",
    .EndCapture = "cuStreamEndCapture",
    .Instantiate = "cuGraphInstantiateWithFlags",
    .DestroyGraph = "cuGraphDestroy",
    .LaunchGraph = "cuGraphLaunch",
    .DestroyInstance = "cuGraphExecDestroy",
};
constexpr native::CompilerNames kCompilerNames{
    .GetVersion = "nvrtcVersion",
    .GetErrorString = "nvrtcGetErrorString",
    .GetArchitectureCount = "nvrtcGetNumSupportedArchs",
    .GetArchitectures = "nvrtcGetSupportedArchs",
    .CreateProgram = "nvrtcCreateProgram",
    .DestroyProgram = "nvrtcDestroyProgram",
    .CompileProgram = "nvrtcCompileProgram",
    .GetLogSize = "nvrtcGetProgramLogSize",
    .GetLog = "nvrtcGetProgramLog",
    .GetCodeSize = "nvrtcGetCUBINSize",
    .GetCode = "nvrtcGetCUBIN",
};

// CUdevice_attribute.
enum Attribute {
    kThreadsPerBlock = 1,
    kGridX = 5,
    kGridY = 6,
    kGridZ = 7,
    kSharedPerBlock = 8,
    kWarp = 10,
    kIntegrated = 18,
    kMajor = 75,
    kMinor = 76,
};
// Kernels are compiled for compute capabilities from this one on, which has matrix units.
constexpr int kLeast = 75;

std::string Version(int number) {
    return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

Code Describe(const Calls& calls, native::Found& found) {
    Description& described = found.description;
    Code failed = 0;
    const auto get = [&](Attribute attribute) {
        int value = 0;
        const Code code = calls.GetAttribute(&value, attribute, found.device);
        if (code != 0) failed = code;
        return static_cast<uint32_t>(value);
    };
    described.kind = get(kIntegrated) != 0 ? Kind::kIntegrated : Kind::kDiscrete;
    described.subgroup = get(kWarp);
    described.shared_bytes = get(kSharedPerBlock);
    described.most_invocations = get(kThreadsPerBlock);
    described.most_groups = {get(kGridX), get(kGridY), get(kGridZ)};
    const int capability = static_cast<int>(10 * get(kMajor) + get(kMinor));
    found.architecture = fmt::format("sm_{}", capability);
    described.integer_dot = true;
    described.matrix_unit = {16, 16, 16};
    if (failed == 0 && capability < kLeast) {
        described.unusable =
            fmt::format("its compute capability is {}.{}; kernels need {}.{}", capability / 10,
                        capability % 10, kLeast / 10, kLeast % 10);
    }
    return failed;
}

// The first version of nvrtc that compiles for an architecture, since version 12.
constexpr std::pair<int, const char*> kFirstVersions[] = {
    {100, "12.8"}, {101, "12.8"}, {120, "12.8"}, {103, "12.9"},
    {121, "12.9"}, {88, "13.0"},  {110, "13.0"},
};

std::string Unfit(const CompilerCalls& calls, const native::Found& found) {
    int major = 0, minor = 0, count = 0;
    if (calls.GetVersion(&major, &minor) != 0 || calls.GetArchitectureCount(&count) != 0) return "";
    std::vector<int> known(static_cast<size_t>(std::max(count, 0)));
    if (calls.GetArchitectures(known.data()) != 0) return "";
    const int wanted = std::atoi(found.architecture.c_str() + 3);  // after "sm_"
    if (std::ranges::count(known, wanted) > 0) return "";
    const auto* const first =
        std::ranges::find(kFirstVersions, wanted, &std::pair<int, const char*>::first);
    const bool listed = first != std::end(kFirstVersions);
    return fmt::format("version {}.{} does not compile for {}; {} does", major, minor,
                       found.architecture,
                       listed ? fmt::format("version {}", first->second) : "a newer version");
}

// From cuda.h: results of cuInit that a user can do something about.
constexpr native::Advice kAdvice[] = {
    {34,
     "The libcuda.so.1 found first is a stub of the toolkit: remove the folder lib64/stubs from "
     "LD_LIBRARY_PATH"},
    {35,
     "NVIDIA's kernel module is older than libcuda.so.1: install one driver version, and restart "
     "the machine"},
    {46, "Another process uses the GPU exclusively, or a reset is pending: nvidia-smi shows both"},
    {304, "May this user open /dev/nvidia*? A container needs NVIDIA's container toolkit"},
    {802,
     "The switches of NVLink are not set up: start the fabric manager "
     "(systemctl start nvidia-fabricmanager) of the driver's version, and wait until it is "
     "ready"},
    {803,
     "NVIDIA's kernel module and libcuda.so.1 have different versions: restart the machine "
     "after an update of the driver; in a container, remove other versions of libcuda.so.1 "
     "from LD_LIBRARY_PATH"},
    {804,
     "The libcuda.so.1 of a package cuda-compat does not support this GPU: remove its folder "
     "from LD_LIBRARY_PATH, or update NVIDIA's driver"},
    {805,
     "The MPS server does not answer: start it (nvidia-cuda-mps-control -d), or unset "
     "CUDA_MPS_PIPE_DIRECTORY"},
    {999,
     "Load the module nvidia_uvm (modprobe nvidia_uvm; after a suspend, first modprobe -r "
     "nvidia_uvm); may this user open /dev/nvidia-uvm?"},
};

constexpr native::Interface kCuda{
    .api = Api::kCuda,
    .libraries = kLibraries,
    .compilers = kCompilers,
    .packages =
        "It comes with NVIDIA's driver: libcuda1 (Debian), libnvidia-compute-* (Ubuntu), "
        "nvidia-driver-cuda-libs (Fedora, RHEL), nvidia-utils (Arch); a container needs "
        "NVIDIA's container toolkit and NVIDIA_DRIVER_CAPABILITIES=compute",
    .compiler_packages =
        "Install CUDA's run-time compiler, version 12 or 13: libnvrtc12 (Debian), "
        "cuda-nvrtc-12-8 or later (NVIDIA's packages), cuda (Arch), "
        "nvidia-cuda-nvrtc (PyPI; then set LD_LIBRARY_PATH)",
    .names = kNames,
    .compiler_names = kCompilerNames,
    .host_flags = 1 | 2,  // CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP
    .architecture_option = "--gpu-architecture=",
    .options = spirv::kCudaOptions,
    .roomy_option = spirv::kCudaRoomyOption,
    .language = spirv::Language::kCuda,
    .vendor_id = 0x10de,
    .version = Version,
    .unfit = Unfit,
    .advice = kAdvice,
    .describe = Describe,
};

}  // namespace

Result<std::vector<Description>> ListDevices() {
    return native::ListDevicesOf(kCuda);
}

Result<std::shared_ptr<Device>> OpenDevice(int index, const OpenOptions& options) {
    return native::OpenDeviceOf(kCuda, index, options);
}

}  // namespace weft::gpu::cuda
