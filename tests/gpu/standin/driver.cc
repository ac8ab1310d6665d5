// A stand-in for libcuda (or, with STANDIN_HIP, for libamdhip64), for tests: it executes kernels
// that compiler.cc compiled for the processor. A stream is a thread; device memory is memory of
// the process.
//
// The environment sets, when the library is loaded: WEFT_STANDIN_DEVICES (1), WEFT_STANDIN_ARCH
// ("sm_90", "gfx90a:sramecc+"), WEFT_STANDIN_MIB (of device memory, 4096), WEFT_STANDIN_QUEUE
// (calls that a stream holds before the next one blocks, 1024), CUDA_VISIBLE_DEVICES or
// HIP_VISIBLE_DEVICES (numbers), WEFT_STANDIN_INIT (the result of the first call),
// WEFT_STANDIN_VERSION (of the driver), and faults, counted from 1:
// WEFT_STANDIN_LOST and WEFT_STANDIN_HANGS, the launch that loses the device or never ends.
// WEFT_STANDIN_PEERS=0: devices do not access each other; WEFT_STANDIN_IPC=0: memory is not shared.
// Tests in the same process use the functions weft_standin_*.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef STANDIN_HIP
#define NAME(cuda, hip) hip
#else
#define NAME(cuda, hip) cuda
#endif
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Code = int;
constexpr Code kInvalid = 1, kNoMemory = 2, kDeinitialized = 4, kNotFound = 500, kNotReady = 600,
               kLaunchFailed = 719, kNotSupported = 801;
using Launch = void (*)(void** params, const unsigned* grid, const unsigned* block);

int64_t Number(const char* name, int64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoll(text);
}
std::string Text(const char* name, const char* otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : text;
}

// The numbers of the devices that the caller sees.
std::vector<int> Shown() {
    const auto all = static_cast<int>(Number("WEFT_STANDIN_DEVICES", 1));
    std::vector<int> shown;
    const char* named = std::getenv(NAME("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"));
    for (int i = 0; named == nullptr && i < all; ++i) shown.push_back(i);
    for (char* end = nullptr; named != nullptr && *named != '\0'; named = end + (*end == ',')) {
        const auto number = static_cast<int>(std::strtol(named, &end, 10));
        if (end == named || number < 0 || number >= all) break;
        shown.push_back(number);
    }
    return shown;
}

const std::vector<int> g_shown = Shown();
const auto g_devices = static_cast<int>(g_shown.size());
const std::string g_architecture = Text("WEFT_STANDIN_ARCH", NAME("sm_90", "gfx90a:sramecc+"));
const auto g_memory_bytes = static_cast<size_t>(Number("WEFT_STANDIN_MIB", 4096)) << 20;
const auto g_most_queued = static_cast<size_t>(Number("WEFT_STANDIN_QUEUE", 1024));
std::atomic<int64_t> g_lost_launch = Number("WEFT_STANDIN_LOST", 0);
std::atomic<int64_t> g_hanging_launch = Number("WEFT_STANDIN_HANGS", 0);
std::atomic<int64_t> g_calls = 0, g_fail_at = 0;
// Launches, counted when they are given: those before a reset may run after it.
std::atomic<int64_t> g_launches = 0, g_launches_at_reset = 0;
std::atomic<Code> g_fail_with = 0;
std::atomic<bool> g_lost = false;
std::atomic<int> g_slack_ns = 0;  // how late a sleep of the last thread that polled may end
std::atomic<int> g_alive = 0;     // objects and memory that the caller has not released
std::atomic<size_t> g_used_bytes = 0;
std::mutex g_mutex;  // for the maps
std::map<void*, size_t> g_sizes, g_opened;
std::map<void*, int> g_files;  // of shared memory

// The result of a call that may fail. Each exported function that may begins with it.
#define TURN() \
    if (const Code turn = Turn(__func__); turn != 0) return turn
const char* g_failed = "";
Code Turn(const char* name) {
    if (g_lost) return kLaunchFailed;
    const int64_t call = ++g_calls, at = g_fail_at;
    const bool stays = g_fail_with == kDeinitialized && at != 0 && call > at;
    if (call != at && !stays) return 0;
    g_failed = name;
    if (g_fail_with == kLaunchFailed) g_lost = true;
    return g_fail_with;
}

int64_t NowNs() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

struct Event {
    std::atomic<int64_t> recorded{0}, passed{0}, time_ns{0};
};

// A call for a stream. It gets its number among the launches; 0: it is none.
struct Work {
    std::function<void(int64_t number)> run;
    bool launches = false;
    int64_t Number() const { return launches ? ++g_launches : 0; }
};
using Graph = std::vector<Work>;

class Stream {
  public:
    Stream() : thread_([this] { Run(); }) {}
    ~Stream() {
        Queue(nullptr);
        thread_.join();
    }
    void Give(Work work) {
        if (capturing_) return captured_.push_back(std::move(work));
        Queue([work, number = work.Number()] { work.run(number); });
    }
    void Give(std::function<void()> work) {
        Give(Work{[work](int64_t) { work(); }});
    }
    // Takes one place in the queue.
    void Give(const Graph& graph) {
        std::vector<int64_t> numbers;
        for (const Work& work : graph) numbers.push_back(work.Number());
        Queue([graph, numbers] {
            for (size_t i = 0; i < graph.size() && !g_lost; ++i) graph[i].run(numbers[i]);
        });
    }
    void BeginCapture() { capturing_ = true; }
    Graph EndCapture() {
        capturing_ = false;
        return std::exchange(captured_, {});
    }

  private:
    // Blocks while the queue is full.
    void Queue(std::function<void()> work) {
        std::unique_lock lock(mutex_);
        less_.wait(lock, [&] { return work_.size() < g_most_queued; });
        work_.push_back(std::move(work));
        more_.notify_one();
    }
    void Run() {
        while (true) {
            std::unique_lock lock(mutex_);
            more_.wait(lock, [&] { return !work_.empty(); });
            const std::function<void()> work = std::move(work_.front());
            work_.pop_front();
            less_.notify_one();
            lock.unlock();
            if (!work) return;
            if (!g_lost) work();
        }
    }
    bool capturing_ = false;
    Graph captured_;
    std::mutex mutex_;
    std::condition_variable more_, less_;
    std::deque<std::function<void()>> work_;
    std::thread thread_;
};

struct Module {
    void* library = nullptr;
    std::mutex mutex;  // a library runs one launch at a time
};
struct Kernel {
    Module* module;
    Launch launch;
};
struct Image {  // what compiler.cc makes: this, then the bytes of a shared library
    char magic[8];
    uint64_t bytes;
};

// Memory of whole blocks can be shared: it is a file without a name.
constexpr size_t kSharedBlock = 2 << 20;
Code Allocate(void** out, size_t bytes) {
    if (bytes > g_memory_bytes - g_used_bytes) return kNoMemory;
    int file = -1;
    if (bytes % kSharedBlock == 0) {
        file = ::memfd_create("standin", MFD_CLOEXEC);
        if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return kNoMemory;
        *out = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (*out == MAP_FAILED) return kNoMemory;
    } else if (::posix_memalign(out, 256, bytes) != 0) {
        return kNoMemory;
    }
    std::memset(*out, 0xcd, bytes);  // memory is not initialized
    const std::lock_guard lock(g_mutex);
    g_sizes[*out] = bytes;
    if (file >= 0) g_files[*out] = file;
    g_used_bytes += bytes;
    ++g_alive;
    return 0;
}
Code Release(void* memory) {
    const std::lock_guard lock(g_mutex);
    const auto found = g_sizes.find(memory);
    if (found == g_sizes.end()) return kInvalid;
    g_used_bytes -= found->second;
    if (const auto file = g_files.find(memory); file != g_files.end()) {
        ::munmap(memory, found->second);
        ::close(file->second);
        g_files.erase(file);
    } else {
        std::free(memory);
    }
    g_sizes.erase(found);
    --g_alive;
    return 0;
}

}  // namespace

// ---- For tests
EXPORT void weft_standin_reset() {
    g_lost_launch = g_hanging_launch = g_calls = g_fail_at = 0;
    g_launches_at_reset = g_launches.load();
    g_lost = false;
    g_failed = "";
    g_hanging_launch.notify_all();
}
// The call with this number, from 1, returns `code`; with kDeinitialized, all later ones do, too.
EXPORT void weft_standin_fail(int64_t at, Code code) {
    g_fail_with = code;
    g_fail_at = at;
}
EXPORT void weft_standin_hang(int64_t launch) {
    g_hanging_launch = launch == 0 ? 0 : g_launches_at_reset + launch;
    g_hanging_launch.notify_all();
}
EXPORT int64_t weft_standin_calls() {
    return g_calls;
}
EXPORT const char* weft_standin_failed() {
    return g_failed;
}
EXPORT int weft_standin_alive() {
    return g_alive;
}
EXPORT int weft_standin_slack_ns() {
    return g_slack_ns;
}

// ---- Devices
EXPORT Code NAME(cuInit, hipInit)(unsigned) {
    TURN();
    return static_cast<Code>(Number("WEFT_STANDIN_INIT", 0));
}
EXPORT Code NAME(cuDriverGetVersion, hipRuntimeGetVersion)(int* version) {
    TURN();
    *version = static_cast<int>(Number("WEFT_STANDIN_VERSION", NAME(12'080, 60'100'000)));
    return 0;
}
EXPORT Code NAME(cuDeviceGetCount, hipGetDeviceCount)(int* count) {
    TURN();
    *count = g_devices;
    return 0;
}
EXPORT Code NAME(cuDeviceGet, hipDeviceGet)(int* device, int index) {
    TURN();
    *device = g_shown.at(static_cast<size_t>(index));
    return 0;
}
EXPORT Code NAME(cuDeviceGetName, hipDeviceGetName)(char* name, int bytes, int) {
    TURN();
    std::strncpy(name, "Stand-in", static_cast<size_t>(bytes));
    return 0;
}
EXPORT Code NAME(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char* id, int bytes, int device) {
    TURN();
    std::snprintf(id, static_cast<size_t>(bytes), "0000:%02X:00.0", NAME(0xa0, 0xb0) + device);
    return 0;
}
EXPORT Code NAME(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t* bytes, int) {
    TURN();
    *bytes = g_memory_bytes;
    return 0;
}
EXPORT Code NAME(cuMemGetInfo_v2, hipMemGetInfo)(size_t* free_bytes, size_t* total_bytes) {
    TURN();
    *total_bytes = g_memory_bytes;
    *free_bytes = g_memory_bytes - g_used_bytes;
    return 0;
}
#ifdef STANDIN_HIP
EXPORT const char* hipGetErrorName(Code code) {
    return code == kNoMemory ? "hipErrorOutOfMemory"
                             : (code == kLaunchFailed ? "hipErrorLaunchFailure" : "hipErrorOther");
}
EXPORT Code hipGetDeviceProperties(void* properties, int) {
    TURN();
    std::strcpy(static_cast<char*>(properties), "Stand-in (gfx)");
    std::strcpy(static_cast<char*>(properties) + 396, g_architecture.c_str());
    return 0;
}
EXPORT Code hipDeviceGetAttribute(int* value, int, int) {
    TURN();
    *value = 0;
    return 0;
}
EXPORT Code hipSetDevice(int) {
    TURN();
    return 0;
}
#else
EXPORT Code cuGetErrorName(Code code, const char** name) {
    *name = code == kNoMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
                              : (code == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED" : nullptr);
    return *name == nullptr ? kInvalid : 0;
}
EXPORT Code cuDeviceGetAttribute(int* value, int attribute, int) {
    TURN();
    const int capability = std::atoi(g_architecture.c_str() + 3);
    const std::map<int, int> values = {{1, 1024},   {5, 0x7fffffff},       {6, 65'535},
                                       {7, 65'535}, {8, 48 << 10},         {10, 32},
                                       {18, 0},     {75, capability / 10}, {76, capability % 10}};
    const auto found = values.find(attribute);
    if (found == values.end()) return kInvalid;
    *value = found->second;
    return 0;
}
EXPORT Code cuDevicePrimaryCtxRetain(void** context, int) {
    TURN();
    *context = context;
    ++g_alive;
    return 0;
}
EXPORT Code cuDevicePrimaryCtxRelease_v2(int) {
    --g_alive;
    return 0;
}
EXPORT Code cuCtxSetCurrent(void*) {
    TURN();
    return 0;
}
#endif

// ---- Memory
EXPORT Code NAME(cuMemAlloc_v2, hipMalloc)(void** out, size_t bytes) {
    TURN();
    return Allocate(out, bytes);
}
EXPORT Code NAME(cuMemFree_v2, hipFree)(void* memory) {
    return Release(memory);
}
EXPORT Code NAME(cuMemHostAlloc, hipHostMalloc)(void** out, size_t bytes, unsigned) {
    TURN();
    return Allocate(out, bytes);
}
EXPORT Code NAME(cuMemFreeHost, hipHostFree)(void* memory) {
    return Release(memory);
}
EXPORT Code NAME(cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer)(void** device, void* host,
                                                                        unsigned) {
    TURN();
    *device = host;
    return 0;
}

#ifdef STANDIN_HIP
EXPORT Code hipExtMallocWithFlags(void** out, size_t bytes, unsigned) {
    TURN();
    return Allocate(out, bytes);
}
#endif
EXPORT Code NAME(cuDeviceGetByPCIBusId, hipDeviceGetByPCIBusId)(int* device, const char* pci) {
    TURN();
    unsigned number = 0;
    if (std::sscanf(pci, "0000:%x:00.0", &number) != 1) return kInvalid;
    *device = static_cast<int>(number) - NAME(0xa0, 0xb0);
    return *device >= 0 && *device < g_devices ? 0 : kInvalid;
}
EXPORT Code NAME(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)(int* can, int, int) {
    TURN();
    *can = Number("WEFT_STANDIN_PEERS", 1) != 0;
    return 0;
}
struct SharedName {
    char file[56];
    uint64_t bytes;
};
EXPORT Code NAME(cuIpcGetMemHandle, hipIpcGetMemHandle)(SharedName* name, void* memory) {
    TURN();
    const std::lock_guard lock(g_mutex);
    const auto file = g_files.find(memory);
    if (file == g_files.end() || Number("WEFT_STANDIN_IPC", 1) == 0) return kNotSupported;
    std::snprintf(name->file, sizeof name->file, "/proc/%d/fd/%d", ::getpid(), file->second);
    name->bytes = g_sizes[memory];
    return 0;
}
EXPORT Code NAME(cuIpcOpenMemHandle_v2, hipIpcOpenMemHandle)(void** out, SharedName name,
                                                             unsigned) {
    TURN();
    const int file = ::open(name.file, O_RDWR | O_CLOEXEC);
    if (file < 0) return kInvalid;
    *out = ::mmap(nullptr, name.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (*out == MAP_FAILED) return kInvalid;
    const std::lock_guard lock(g_mutex);
    g_opened[*out] = name.bytes;
    ++g_alive;
    return 0;
}
EXPORT Code NAME(cuIpcCloseMemHandle, hipIpcCloseMemHandle)(void* memory) {
    const std::lock_guard lock(g_mutex);
    const auto found = g_opened.find(memory);
    if (found == g_opened.end()) return kInvalid;
    ::munmap(memory, found->second);
    g_opened.erase(found);
    --g_alive;
    return 0;
}

// ---- Streams and events
EXPORT Code NAME(cuStreamCreate, hipStreamCreateWithFlags)(void** out, unsigned) {
    TURN();
    *out = new Stream;
    ++g_alive;
    return 0;
}
EXPORT Code NAME(cuStreamDestroy_v2, hipStreamDestroy)(void* stream) {
    delete static_cast<Stream*>(stream);
    --g_alive;
    return 0;
}
EXPORT Code NAME(cuEventCreate, hipEventCreateWithFlags)(void** out, unsigned) {
    TURN();
    *out = new Event;
    ++g_alive;
    return 0;
}
EXPORT Code NAME(cuEventDestroy_v2, hipEventDestroy)(void* event) {
    delete static_cast<Event*>(event);
    --g_alive;
    return 0;
}
EXPORT Code NAME(cuEventRecord, hipEventRecord)(void* event, void* stream) {
    TURN();
    auto* const own = static_cast<Event*>(event);
    ++own->recorded;
    static_cast<Stream*>(stream)->Give([own] {
        own->time_ns = NowNs();
        ++own->passed;
    });
    return 0;
}
EXPORT Code NAME(cuEventQuery, hipEventQuery)(void* event) {
    TURN();
    const auto* const own = static_cast<const Event*>(event);
    g_slack_ns = ::prctl(PR_GET_TIMERSLACK);
    return own->passed == own->recorded ? 0 : kNotReady;
}
EXPORT Code NAME(cuEventElapsedTime, hipEventElapsedTime)(float* ms, void* from, void* to) {
    TURN();
    *ms = static_cast<float>(static_cast<const Event*>(to)->time_ns -
                             static_cast<const Event*>(from)->time_ns) *
          1e-6f;
    return 0;
}

// ---- Work
#ifdef STANDIN_HIP
EXPORT Code hipMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
#else
EXPORT Code cuMemcpyAsync(void* to, const void* from, size_t bytes, void* stream) {
#endif
    TURN();
    static_cast<Stream*>(stream)->Give([=] { std::memcpy(to, from, bytes); });
    return 0;
}
EXPORT Code NAME(cuMemsetD32Async, hipMemsetD32Async)(uint32_t* to, uint32_t word, size_t count,
                                                      void* stream) {
    TURN();
    static_cast<Stream*>(stream)->Give([=] { std::fill_n(to, count, word); });
    return 0;
}
EXPORT Code NAME(cuModuleLoadData, hipModuleLoadData)(void** out, const void* data) {
    TURN();
    Image image;
    std::memcpy(&image, data, sizeof image);
    if (std::memcmp(image.magic, "standin", 8) != 0) return kInvalid;
    char path[] = "/tmp/weft-standin-XXXXXX";
    const int file = ::mkstemp(path);
    if (file < 0) return kInvalid;
    const auto* bytes = static_cast<const char*>(data) + sizeof image;
    const bool written = ::write(file, bytes, image.bytes) == static_cast<ssize_t>(image.bytes);
    ::close(file);
    auto module = std::make_unique<Module>();
    if (written) module->library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ::unlink(path);
    if (module->library == nullptr) return kInvalid;
    *out = module.release();
    ++g_alive;
    return 0;
}
EXPORT Code NAME(cuModuleUnload, hipModuleUnload)(void* module) {
    auto* const own = static_cast<Module*>(module);
    ::dlclose(own->library);
    delete own;
    --g_alive;
    return 0;
}
EXPORT Code NAME(cuModuleGetFunction, hipModuleGetFunction)(void** out, void* module,
                                                            const char* name) {
    TURN();
    auto* const own = static_cast<Module*>(module);
    void* const found = ::dlsym(own->library, (std::string(name) + "_launch").c_str());
    if (found == nullptr) return kNotFound;
    static std::deque<Kernel> kernels;  // a function lives as long as its module, or longer
    const std::lock_guard lock(g_mutex);
    *out = &kernels.emplace_back(Kernel{own, reinterpret_cast<Launch>(found)});
    return 0;
}
#ifndef STANDIN_HIP
EXPORT Code cuFuncGetAttribute(int* value, int, void*) {
    TURN();
    *value = 0;
    return 0;
}
#endif
EXPORT Code NAME(cuLaunchKernel,
                 hipModuleLaunchKernel)(void* function, unsigned x, unsigned y, unsigned z,
                                        unsigned block_x, unsigned block_y, unsigned block_z,
                                        unsigned, void* stream, void** params, void**) {
    TURN();
    const Kernel kernel = *static_cast<Kernel*>(function);
    struct Call {
        alignas(16) char args[128];
        unsigned first[3], grid[3], block[3];
        const void* stop_word;
    };
    auto call = std::make_shared<Call>();
    std::memcpy(call->args, params[0], sizeof call->args);
    std::memcpy(call->first, params[1], sizeof call->first);
    std::memcpy(&call->stop_word, params[2], sizeof call->stop_word);
    const unsigned grid[] = {x, y, z}, block[] = {block_x, block_y, block_z};
    std::memcpy(call->grid, grid, sizeof grid);
    std::memcpy(call->block, block, sizeof block);
    const auto run = [kernel, call](int64_t number) {
        if (number == g_lost_launch) g_lost = true;
        g_hanging_launch.wait(number);  // while this launch is the hanging one
        if (g_lost) return;
        void* own_params[] = {call->args, call->first, &call->stop_word};
        const std::lock_guard lock(kernel.module->mutex);
        kernel.launch(own_params, call->grid, call->block);
    };
    static_cast<Stream*>(stream)->Give(Work{run, true});
    return 0;
}
EXPORT Code NAME(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void* stream, int) {
    TURN();
    static_cast<Stream*>(stream)->BeginCapture();
    return 0;
}
EXPORT Code NAME(cuStreamEndCapture, hipStreamEndCapture)(void* stream, void** graph) {
    Graph captured = static_cast<Stream*>(stream)->EndCapture();
    TURN();
    *graph = new Graph(std::move(captured));
    ++g_alive;
    return 0;
}
EXPORT Code NAME(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(void** out, void* graph,
                                                                            unsigned long long) {
    TURN();
    *out = new Graph(*static_cast<Graph*>(graph));
    ++g_alive;
    return 0;
}
EXPORT Code NAME(cuGraphDestroy, hipGraphDestroy)(void* graph) {
    delete static_cast<Graph*>(graph);
    --g_alive;
    return 0;
}
EXPORT Code NAME(cuGraphLaunch, hipGraphLaunch)(void* instance, void* stream) {
    TURN();
    static_cast<Stream*>(stream)->Give(*static_cast<Graph*>(instance));
    return 0;
}
EXPORT Code NAME(cuGraphExecDestroy, hipGraphExecDestroy)(void* instance) {
    delete static_cast<Graph*>(instance);
    --g_alive;
    return 0;
}
