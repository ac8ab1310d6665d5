#include "doctor/probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/on_threads.h"
#include "coll/comm.h"
#include "coll/link_probe.h"
#include "coll/measure.h"
#include "hw/cpu.h"
#include "net/local.h"
#include "net/verbs_trial.h"

namespace weft::doctor {
namespace {

constexpr size_t kLockedBytes = size_t{64} << 20;
constexpr size_t kMeasureWindow = size_t{2} << 20;

std::string ProbeHostName() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
    return name.data();
}

std::string LimitText(rlim_t limit) {
    return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

Reading MemlockLimit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return {ReadState::kRefused, std::strerror(errno)};
    return {ReadState::kFound,
            fmt::format("soft {} hard {}\n", LimitText(limit.rlim_cur), LimitText(limit.rlim_max))};
}

// Locks as much memory as RDMA windows of a few peers need. The pages are not written, but mlock
// faults them in, as memory registration does.
Reading LockMemory() {
    void* memory =
        ::mmap(nullptr, kLockedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return {ReadState::kRefused, std::strerror(errno)};
    Reading reading{ReadState::kFound, ""};
    if (::mlock(memory, kLockedBytes) == 0) {
        reading.text = fmt::format("locked {}\n", kLockedBytes);
    } else {
        reading.text = fmt::format("refused at {}: {}\n", kLockedBytes, std::strerror(errno));
    }
    ::munmap(memory, kLockedBytes);
    return reading;
}

Reading RegisterMemory(const std::string& device) {
    const Status tried = net::TryRegisterMemory(device, kLockedBytes);
    if (tried.ok()) return {ReadState::kFound, fmt::format("registered {}\n", kLockedBytes)};
    if (tried.error().code == ErrorCode::kUnsupported) return {};
    return {ReadState::kFound, fmt::format("refused: {}\n", tried.error().message)};
}

Reading Access(const std::string& path) {
    if (::access(("/" + path).c_str(), R_OK | W_OK) == 0) return {ReadState::kFound, "rw\n"};
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return {ReadState::kFound, std::string(std::strerror(errno)) + "\n"};
}

// The version of a library that programs of this host find, from its file's name
// ("libcuda.so.580.95.05"); "0": they find none.
std::string LibraryVersion(const std::string& name) {
    void* const library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return "0\n";
    const link_map* map = nullptr;
    std::error_code failed;
    std::string file = name;
    if (::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
        file = std::filesystem::canonical(map->l_name, failed).filename();
    ::dlclose(library);
    const size_t at = file.find(".so.");
    return (at == file.npos ? "1" : file.substr(at + 4)) + "\n";
}

std::string ProbeClock() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return fmt::format("{}\n", std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Reading Processors() {
    int error = 0;
    const std::vector<int> cores = AllowedCores([&](size_t bytes, cpu_set_t* set) {
        error = ::sched_getaffinity(0, bytes, set) == 0 ? 0 : errno;
        return error == 0;
    });
    if (error != 0) return {ReadState::kRefused, std::strerror(error)};
    return {ReadState::kFound, fmt::format("{}\n", cores.size())};
}

std::string FirstBytes(const char* path) {
    std::array<char, 256> bytes{};
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    const ssize_t got = ::read(file, bytes.data(), bytes.size());
    ::close(file);
    return {bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))};
}

bool IsThere(const char* path) {
    return ::access(path, F_OK) == 0;
}

// Container, its kind, its confinement, and the boot loader, as words of SystemTags.
std::string System() {
    std::string words = FirstBytes("/run/systemd/container");
    if (IsThere("/run/.containerenv")) words += " podman";
    if (IsThere("/.dockerenv")) words += " docker";
    if (IsThere("/var/run/secrets/kubernetes.io")) words += " kubernetes";
    if (IsThere("/dev/.lxc") || IsThere("/dev/lxd")) words += " lxc";
    // The type of SELinux for programs in containers.
    if (FirstBytes("/proc/self/attr/current").find(":container_t:") != words.npos)
        words += " confined";
    if (IsThere("/run/ostree-booted")) words += " ostree";
    if (IsThere("/etc/default/limine")) words += " limine";
    // The loader writes its name in UTF-16 after four bytes of attributes.
    std::string loader =
        FirstBytes("/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f");
    std::erase(loader, '\0');
    for (const auto& [name, word] : {std::pair("systemd-boot", " systemd-boot"),
                                     std::pair("GRUB", " grub"), std::pair("Limine", " limine")}) {
        if (loader.find(name) != loader.npos) words += word;
    }
    return words + "\n";
}

std::string TimesLine(const char* op, size_t bytes, const coll::Timings& times) {
    return fmt::format("{} {} {:.2f} {:.2f}\n", op, bytes, times.typical_us, times.p99_us);
}

// Runs the measurement on one of two ranks. pair, group: this rank's ends of two fabrics, because a
// LinkProbe needs a link of its own.
Result<std::string> MeasureRank(net::Fabric& pair, net::Fabric& group) {
    constexpr coll::Budget kBudget{.seconds = 0.06};
    constexpr int64_t kTimeoutMs = 3000;
    constexpr size_t kReduceBytes = 8192;
    std::string lines;
    coll::LinkProbe probe(*pair.links[static_cast<size_t>(1 - pair.rank)], nullptr, kTimeoutMs);
    for (const size_t bytes : {64, 8192}) {
        WEFT_ASSIGN(const coll::Timings times, probe.Latency(bytes, kBudget, pair.rank == 0));
        lines += TimesLine("one_way", bytes, times);
    }
    WEFT_ASSIGN(const auto comm,
                coll::Comm::Make(group, {0, 1}, {0, kMeasureWindow, 0, 4}, kTimeoutMs));
    WEFT_ASSIGN(
        const coll::Figures sums,
        coll::Measure(*comm, {coll::Collective::kAllReduce, kReduceBytes, {}}, kBudget, nullptr));
    return lines + TimesLine("all_reduce", kReduceBytes, sums.timings);
}

Result<std::string> MeasureLocal(net::Transport transport) {
    WEFT_ASSIGN(auto pair, net::MakeLocalFabrics(2, transport, kMeasureWindow));
    WEFT_ASSIGN(auto group, net::MakeLocalFabrics(2, transport, kMeasureWindow));
    Result<std::string> own = std::string(), other = std::string();
    WEFT_TRY(AllAtOnce(
        2, [&](size_t rank) { (rank == 0 ? own : other) = MeasureRank(pair[rank], group[rank]); }));
    return own.ok() && !other.ok() ? std::move(other) : std::move(own);
}

Reading Measure(net::Transport transport) {
    const Result<std::string> measured = MeasureLocal(transport);
    if (!measured.ok()) return {ReadState::kRefused, measured.error().message};
    return {ReadState::kFound, *measured};
}

}  // namespace

Reading RunProbe(const std::string& name) {
    if (name == "hostname") return {ReadState::kFound, ProbeHostName()};
    if (name == "clock") return {ReadState::kFound, ProbeClock()};
    if (name == "memlock") return MemlockLimit();
    if (name == "lock_memory") return LockMemory();
    if (name == "cpus") return Processors();
    if (name == "system") return {ReadState::kFound, System()};
    if (name == "measure/shm") return Measure(net::Transport::kShm);
    if (name == "measure/tcp") return Measure(net::Transport::kTcp);
    if (name.starts_with("register_memory/")) return RegisterMemory(name.substr(16));
    if (name.starts_with("library/")) return {ReadState::kFound, LibraryVersion(name.substr(8))};
    if (name.starts_with("access/")) return Access(name.substr(7));
    return {};
}

}  // namespace weft::doctor
