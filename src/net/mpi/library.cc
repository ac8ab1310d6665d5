#include "net/mpi/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/hash.h"
#include "base/log.h"
#include "base/standard_error.h"
#include "base/start_thread.h"

namespace weft::net {
namespace {

// MPI guarantees tags up to 32767; tag 0 is for ordinary messages.
constexpr uint32_t kMostTag = 32'767;
constexpr const char* kPrefix = "weft_mpi_";
constexpr const char* kSuffix = ".so";
constexpr size_t kJobIdBytes = 8;

std::vector<std::string> PluginFolders() {
    if (const char* folder = std::getenv("WEFT_PLUGIN_DIR"); folder != nullptr) return {folder};
    std::error_code error;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return {};
    const auto folder = program.parent_path();
    // Next to a program in a build tree; where this build installs them; relative to a copied
    // program.
    std::vector<std::string> folders = {folder.string()};
#ifdef WEFT_PLUGIN_PLACE
    folders.push_back((folder / WEFT_PLUGIN_PLACE).lexically_normal().string());
#endif
    folders.push_back((folder.parent_path() / "lib" / "weft").string());
    return folders;
}

// When an MPI library loses a peer, it may abort or exit the process before the lost rank is named.
// The control thread is about to name the rank and to end the process itself, so AwaitLastWords
// waits for it. (A signal handler can use only globals.)
constexpr int kLastWordsMs = 2000;
std::atomic<bool> g_in_use{false};

void AwaitLastWords() {
    if (!g_in_use.load()) return;
    const timespec pause{kLastWordsMs / 1000, kLastWordsMs % 1000 * 1'000'000};
    ::nanosleep(&pause, nullptr);
}

void OnAbort(int) {
    AwaitLastWords();
}

void GuardLastWords() {
    if (g_in_use.exchange(true)) return;
    ::signal(SIGABRT, OnAbort);
    std::atexit(AwaitLastWords);
}

// Ends this process if a blocking call does not return in time, so that no process hangs.
class Watchdog {
  public:
    Watchdog(const Deadline& deadline, std::string words) {
        started_ = StartThread(thread_, [this, deadline, words = std::move(words)] {
            std::unique_lock lock(mutex_);
            const auto at = Clock::time_point(std::chrono::nanoseconds(deadline.at_ns()));
            if (changed_.wait_until(lock, at, [this] { return returned_; })) return;
            LogLine(LogLevel::kError, words);
            FlushErr();
            ::_exit(ExitStatus(ErrorCode::kPeerLost));
        });
    }
    ~Watchdog() {
        {
            const std::lock_guard lock(mutex_);
            returned_ = true;
        }
        changed_.notify_one();
        if (thread_.joinable()) thread_.join();
    }
    // The caller may begin the blocking call only if this is ok.
    const Status& started() const { return started_; }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool returned_ = false;
    Status started_;
    std::thread thread_;
};

}  // namespace

std::vector<MpiPlugin> FindMpiPlugins() {
    std::vector<MpiPlugin> found;
    for (const std::string& folder : PluginFolders()) {
        for (const char* flavour : {"openmpi", "mpich"}) {
            const std::string path = folder + "/" + kPrefix + flavour + kSuffix;
            if (::access(path.c_str(), R_OK) == 0) found.push_back({flavour, path});
        }
        if (!found.empty()) break;
    }
    return found;
}

Result<std::unique_ptr<MpiLibrary>> MpiLibrary::Load(std::string_view flavour) {
    std::string path;
    for (const MpiPlugin& plugin : FindMpiPlugins()) {
        if (plugin.flavour == flavour) path = plugin.path;
    }
    if (path.empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "no plug-in {}{}{} beside the weft program (or in WEFT_PLUGIN_DIR): this "
                         "weft was built without {}. Install its development package and build "
                         "again ('weft --version' lists the plug-ins it finds)",
                         kPrefix, flavour, kSuffix, flavour);
    }
    // UCX, which many MPI libraries use, would log to standard output, which is for the answer.
    ::setenv("UCX_LOG_FILE", "stderr", 0);
    // Global: MPI libraries load parts that look for their symbols.
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) {
        const char* why = ::dlerror();
        return MakeError(ErrorCode::kUnsupported,
                         "cannot load {}: {}. Is the MPI library of the launcher installed?", path,
                         why == nullptr ? "no reason given" : why);
    }
    const auto entry = reinterpret_cast<WeftMpiEntry>(::dlsym(handle, WEFT_MPI_SYMBOL));
    const WeftMpiApi* api = entry == nullptr ? nullptr : entry();
    if (api == nullptr || api->abi != WEFT_MPI_ABI || api->bytes != sizeof(WeftMpiApi)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} is not a plug-in of this weft (interface {}, expected {}). Build both "
                         "from the same source",
                         path, api == nullptr ? 0 : api->abi, WEFT_MPI_ABI);
    }
    std::unique_ptr<MpiLibrary> library(new MpiLibrary());
    library->api_ = api;
    return library;  // the handle stays open: MPI libraries can't be unloaded
}

MpiLibrary::~MpiLibrary() {
    if (started_) Abandon();
    // Memory that the library may still write to lives as long as the process.
    if (!kept_.empty()) new std::vector<std::shared_ptr<void>>(std::move(kept_));
}

Status MpiLibrary::Start(const Deadline& deadline) {
    char library[128] = "";
    int error;
    {
        const Watchdog watchdog(
            deadline, fmt::format("MPI_Init did not return within {} ms: a rank of the launcher "
                                  "did not start, or the hosts do not reach each other. Does "
                                  "'mpirun hostname' with the same flags work?",
                                  deadline.length_ms()));
        WEFT_TRY(watchdog.started());
        error = api_->init(&rank_, &size_, library, sizeof library);
    }
    if (error != 0) {
        return MakeError(ErrorCode::kIo, "MPI_Init failed ({}). Does 'mpirun hostname' work?",
                         ErrorText(error));
    }
    started_ = true;
    GuardLastWords();
    name_ = library;
    std::array<std::byte, kJobIdBytes> id;
    RandomBytes(id);
    WEFT_TRY(Broadcast(id, 0, deadline));
    std::array<uint8_t, kJobIdBytes> digits;
    std::memcpy(digits.data(), id.data(), id.size());
    job_id_ = Hex(digits);
    return {};
}

Status MpiLibrary::Finish(const Deadline& deadline) {
    if (!started_) return {};
    started_ = false;
    g_in_use = false;
    const Watchdog watchdog(
        deadline, fmt::format("MPI_Finalize did not return within {} ms: another rank did not end",
                              deadline.length_ms()));
    WEFT_TRY(watchdog.started());
    if (const int error = api_->finalize(); error != 0) {
        return MakeError(ErrorCode::kIo, "MPI_Finalize failed ({})", ErrorText(error));
    }
    return {};
}

void MpiLibrary::Abandon() {
    started_ = false;
}

std::string MpiLibrary::ErrorText(int error) const {
    if (error == kGone) return "MPI was given up after a fault";
    char text[256] = "";
    api_->error_text(error, text, sizeof text);
    return text;
}

uint32_t MpiLibrary::NextBulkTag() {
    bulk_tag_ = bulk_tag_ % (kMostTag - 1) + 1;
    return bulk_tag_;
}

Status MpiLibrary::Broadcast(std::span<std::byte> data, int root, const Deadline& deadline) {
    WeftMpiRequest request{};
    const int error = started_ ? api_->ibcast(data.data(), data.size(), root, &request) : kGone;
    if (error != 0) return MakeError(ErrorCode::kIo, "MPI_Ibcast: {}", ErrorText(error));
    return Await(request, "MPI_Ibcast", deadline);
}

Status MpiLibrary::AllGather(std::span<const std::byte> mine, std::span<std::byte> all,
                             const Deadline& deadline) {
    WEFT_CHECK(all.size() == mine.size() * static_cast<size_t>(size_));
    WeftMpiRequest request{};
    const int error =
        started_ ? api_->iallgather(mine.data(), all.data(), mine.size(), &request) : kGone;
    if (error != 0) return MakeError(ErrorCode::kIo, "MPI_Iallgather: {}", ErrorText(error));
    return Await(request, "MPI_Iallgather", deadline);
}

Status MpiLibrary::Await(WeftMpiRequest& request, const char* what, const Deadline& deadline) {
    for (;;) {
        bool done = false;
        size_t bytes = 0;
        const int error = Test(request, done, bytes);
        if (error != 0) return MakeError(ErrorCode::kIo, "{}: {}", what, ErrorText(error));
        if (done) return {};
        if (deadline.expired()) {
            Abandon();  // the library still writes to the caller's memory: the process must end
            return MakeError(ErrorCode::kTimeout,
                             "{} did not end within {} ms: a rank of the launcher is missing", what,
                             deadline.length_ms());
        }
        ::usleep(100);
    }
}

}  // namespace weft::net
