// Compiles the text of kernels by nvrtc or hiprtc. Compiled kernels are stored in files named by a
// hash of all their inputs: text, options, architecture, and the versions of compiler and driver.
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/on_threads.h"
#include "gpu/cache_file.h"
#include "gpu/native/core.h"

namespace weft::gpu::native {
namespace {

constexpr size_t kMostLogCharacters = 2000;
constexpr size_t kMostThreads = 16;
constexpr int64_t kTellNs = 5'000'000'000;  // between lines of progress

// The compiler's program, destroyed at the end.
struct Program {
    explicit Program(const CompilerCalls& of) : calls(of) {}
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        if (handle != nullptr) static_cast<void>(calls.DestroyProgram(&handle));
    }
    std::string Log() const {
        size_t bytes = 0;
        if (calls.GetLogSize(handle, &bytes) != 0 || bytes == 0) return "it gave no reason";
        std::string log(bytes, '\0');
        if (calls.GetLog(handle, log.data()) != 0) return "it gave no reason";
        return log.substr(0, std::min(log.find('\0'), kMostLogCharacters));
    }
    const CompilerCalls& calls;
    Handle handle = nullptr;
};

}  // namespace

Status Compiler::Open() {
    if (opened_) return {};
    WEFT_ASSIGN(calls_, OpenCompiler(core_.interface, core_.found));
    options_.push_back(core_.interface.architecture_option + core_.found.architecture);
    for (const char* option : core_.interface.options) options_.emplace_back(option);
    opened_ = true;
    return {};
}

// Processes that start at the same time begin with different kernels, and find each other's kernels
// in the folder.
void Compiler::LoadAll() {
    const std::vector<Waiting*> all = std::exchange(waiting_, {});
    const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
    const auto first = static_cast<size_t>(::getpid());
    const int64_t begin_ns = told_ns_ = NowNs();
    std::atomic<size_t> done = 0;
    compiled_ = 0;
    static_cast<void>(OnThreads(threads, all.size(), [&](size_t i) -> Status {
        all[(first + i) % all.size()]->Load();
        Tell(++done, all.size());
        return {};
    }));
    if (compiled_ == 0) return;
    Log(LogLevel::kDebug, "{}: compiled {} kernels in {:.1f} s", core_.Who(), compiled_.load(),
        SecondsSince(begin_ns));
}

Status Compiler::CheckStop() const {
    if (!stopped_ || !stopped_()) return {};
    return MakeError(ErrorCode::kCancelled, "stopped by the user");
}

void Compiler::Tell(size_t done, size_t count) {
    int64_t told_ns = told_ns_;
    const int64_t now_ns = NowNs();
    if (compiled_ == 0 || now_ns - told_ns < kTellNs) return;
    if (!told_ns_.compare_exchange_strong(told_ns, now_ns)) return;  // another thread logs
    Log(LogLevel::kInfo, "{}: {} of {} kernels are compiled", core_.Who(), done, count);
}

Result<std::vector<std::byte>> Compiler::Run(const spirv::Text& text,
                                             const std::vector<std::string>& words) {
    if (!announced_.exchange(true)) {
        Log(LogLevel::kInfo, "{}: compiling kernels for {}, which may take minutes{}", core_.Who(),
            core_.found.architecture,
            folder_.empty() ? "" : "; later starts read them from " + folder_);
    }
    const auto failed = [&](std::string_view call, Code code) {
        return MakeError(ErrorCode::kIo, "{}: kernel {}: {} failed: {}", core_.Who(), text.entry,
                         call, calls_.GetErrorString(code));
    };
    Program program(calls_);
    Code code = calls_.CreateProgram(&program.handle, text.source.c_str(), text.entry.c_str(), 0,
                                     nullptr, nullptr);
    if (code != 0) return failed("CreateProgram", code);
    std::vector<const char*> options;
    for (const std::string& word : words) options.push_back(word.c_str());
    code = calls_.CompileProgram(program.handle, static_cast<int>(options.size()), options.data());
    if (code != 0) {
        return MakeError(ErrorCode::kIo, "{}: kernel {} does not compile for {}: {}: {}",
                         core_.Who(), text.entry, core_.found.architecture,
                         calls_.GetErrorString(code), program.Log());
    }
    size_t bytes = 0;
    code = calls_.GetCodeSize(program.handle, &bytes);
    if (code != 0) return failed("GetCodeSize", code);
    std::vector<std::byte> file(bytes);
    code = calls_.GetCode(program.handle, reinterpret_cast<char*>(file.data()));
    if (code != 0) return failed("GetCode", code);
    ++compiled_;
    return file;
}

Result<Compiler::Compiled> Compiler::Compile(const spirv::Text& text, const char* option,
                                             bool fresh) {
    Compiled compiled;
    std::vector<std::string> options = options_;
    if (option != nullptr) options.emplace_back(option);
    if (folder_.empty()) {
        WEFT_ASSIGN(compiled.file, Run(text, options));
        return compiled;
    }
    int major = 0, minor = 0;
    static_cast<void>(calls_.GetVersion(&major, &minor));
    // (hiprtc has one version number for all versions of ROCm, so the driver's counts, too.)
    std::string all =
        fmt::format("{}.{} {}\n", major, minor, core_.found.description.driver_version);
    for (const std::string& word : options) all += word + "\n";
    all += text.source;
    const std::string path = fmt::format("{}/{}-{}.bin", folder_, ApiName(core_.interface.api),
                                         Hex(Sha256(std::as_bytes(std::span(all)))).substr(0, 32));
    if (!fresh) compiled.file = ReadCacheFile(path);
    compiled.kept = !compiled.file.empty();
    if (compiled.kept) return compiled;
    WEFT_ASSIGN(compiled.file, Run(text, options));
    WarnNotStored(WriteCacheFile(path, compiled.file), not_stored_told_);
    return compiled;
}

}  // namespace weft::gpu::native
