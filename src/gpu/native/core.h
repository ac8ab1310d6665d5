// State that a device and all objects made from it share: the driver's functions, the context, the
// stream and the count of submissions. The state is destroyed with the last of these objects.
//
// Thread: any thread may call Enter, Settled and Fail and read `lost`; only the caller of the
// Device may use the rest.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu/native/interface.h"

namespace weft::gpu::native {

struct Core {
    Core(const Interface& of, const Calls& functions, Found what)
        : interface(of), calls(functions), found(std::move(what)) {}
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;
    ~Core();
    Status Create();  // makes the context and the stream

    std::string Who() const;  // "cuda:0 (NVIDIA H200)", for errors
    // The error of a failed call. Sets `lost` if the result is that the device was lost.
    Error Fail(std::string_view call, Code code);
    Status Check(std::string_view call, Code code) {
        if (code == 0) return {};
        return Fail(call, code);
    }
    Status status() const;
    // Makes the device current for the calling thread. Must precede the calls below and all others.
    Status Enter();
    std::vector<Heap> Heaps();
    Result<Handle> TakeEvent(bool timed);
    // Ends a submission by an event taken before it: all work given to the stream so far is
    // submission `submitted` + 1. places: the entries of the driver's queue that the submission
    // uses. After an error, the end of that work is unknown.
    Status EndSubmission(Handle event, size_t places);
    // The sum of `places` of the submissions that Done() has not counted.
    size_t QueuedPlaces();
    // The number of completed submissions.
    Result<uint64_t> Done();
    // Called before an object that submissions up to `last` may use is destroyed. Waits, for a
    // limited time, until these are done. Returns false if they are not done; then the object must
    // be leaked. Without an argument: all submissions so far.
    bool Settled(uint64_t last);
    bool Settled() { return Settled(submitted); }

    const Interface& interface;
    const Calls calls;
    const Found found;
    Handle context = nullptr, stream = nullptr;
    std::atomic<uint64_t> submitted{0}, done{0};
    std::atomic<bool> lost{false};
    std::atomic<bool> abandoned{false};  // some object was leaked, so the rest must be, too

  private:
    struct Running {
        uint64_t number;
        Handle end;
        size_t places;
    };
    std::mutex mutex_;  // for the members below
    std::deque<Running> running_;
    std::vector<Handle> events_;  // not in use
};

// Text of a result: "CUDA_ERROR_OUT_OF_MEMORY".
std::string CodeName(const Calls& calls, Code code);

struct Memory : Buffer::Held {
    explicit Memory(std::shared_ptr<Core> of) : core(std::move(of)) {}
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() override;
    std::shared_ptr<Core> core;
    Address device = 0;   // one of the two is set
    bool opened = false;  // `device` is of another process
    void* host = nullptr;
};
Result<Buffer> AllocateOn(std::shared_ptr<Core> core, uint64_t bytes, Place place);
Result<Buffer> AllocateSharedOn(std::shared_ptr<Core> core, uint64_t bytes, SharedHandle& handle);
Result<Buffer> OpenSharedOn(std::shared_ptr<Core> core, const SharedHandle& handle,
                            const std::string& pci, uint64_t bytes);

// Compiles kernels, and keeps compiled ones in a folder. Kernels wait until one of them is needed;
// then all of them are compiled, on the host's threads.
//
// Thread: one caller, except for Compile.
class Compiler {
  public:
    Compiler(const Core& core, const OpenOptions& options)
        : core_(core), folder_(options.cache_folder), stopped_(options.stopped) {}
    // Opens the compiler's library. Must precede all others.
    Status Open();

    struct Waiting {
        virtual ~Waiting() = default;
        virtual void Load() = 0;  // calls Compile; several run at the same time
    };
    void Wait(Waiting& kernel) { waiting_.push_back(&kernel); }
    void Forget(Waiting& kernel) { std::erase(waiting_, &kernel); }
    void LoadAll();
    // Errors: kCancelled (OpenOptions::stopped). Thread: any.
    Status CheckStop() const;

    struct Compiled {
        std::vector<std::byte> file;  // for Calls::LoadModule
        bool kept = false;            // whether it was read from the folder
    };
    // option: an additional option of the compiler; null: none. fresh: compiles even if the folder
    // has the kernel.
    Result<Compiled> Compile(const spirv::Text& text, const char* option, bool fresh = false);

  private:
    Result<std::vector<std::byte>> Run(const spirv::Text& text,
                                       const std::vector<std::string>& options);
    void Tell(size_t done, size_t count);
    const Core& core_;
    const std::string folder_;
    const std::function<bool()> stopped_;
    CompilerCalls calls_;
    std::vector<std::string> options_;
    std::vector<Waiting*> waiting_;
    bool opened_ = false;
    std::atomic<size_t> compiled_{0};     // since LoadAll began
    std::atomic<int64_t> told_ns_{0};     // when the log had the last line about this
    std::atomic<bool> announced_{false};  // whether the log had the first line
    std::atomic<bool> not_stored_told_{false};
};

Result<std::unique_ptr<Kernel>> MakeKernelOn(std::shared_ptr<Core> core,
                                             std::shared_ptr<Compiler> compiler,
                                             const KernelCode& code);
struct KernelHandles {
    Handle function = nullptr;  // of a loaded kernel
    uint32_t args_bytes = 0, invocations = 0;
};
KernelHandles HandlesOf(const Kernel& kernel);
// Compiles and loads the kernel if that has not been done, with all others that wait.
Status LoadKernel(const Kernel& kernel);

// stop_word: the address that guarded kernels get.
std::unique_ptr<Commands> RecordOn(std::shared_ptr<Core> core, Address stop_word);
Status SubmitOn(const Commands& commands);
std::vector<int64_t> TimesOf(const Commands& commands, uint32_t count);

// The pause before the next poll of a wait that has lasted so long; 0: none. A wait returns half a
// pause late in the median.
int64_t PollPauseNs(int64_t waited_ns);

}  // namespace weft::gpu::native
