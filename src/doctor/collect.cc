#include "doctor/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "base/shell_word.h"
#include "cluster/socket.h"
#include "doctor/path.h"
#include "doctor/program.h"
#include "doctor/reach.h"
#include "doctor/snapshot.h"
#include "doctor/ssh_path.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostBytes = 64 << 20;
// The usual range from which the system chooses ports.
constexpr int64_t kFirstDataPort = 32768, kDataPorts = 28232;
constexpr size_t kTarBlock = 512, kTarMagicAt = 257;

std::vector<std::string> Ssh(const std::string& name) {
    return {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-T", "--", name};
}

int64_t WallNs() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// Records the other host's clock between two readings of this one, for clock-difference.
void AskClock(const std::string& name, const Deadline& deadline, SnapshotFiles& files) {
    std::vector<std::string> words = Ssh(name);
    words.emplace_back("date +%s%N");
    const int64_t before = WallNs();
    const Result<Ran> ran = RunProgram(words, deadline, 1024);
    const int64_t after = WallNs();
    if (!ran.ok() || !Integer(ran->out)) return;
    files["probe/clock"] = ran->out;
    files["probe/clock_asked"] = fmt::format("{} {}\n", before, after);
}

// The block is the header of a file in a tar (POSIX ustar): checks the magic and the checksum,
// which counts its own field as blanks.
bool IsTarHeader(std::string_view block) {
    constexpr size_t kSumAt = 148, kSumBytes = 8;
    if (block.substr(kTarMagicAt, 5) != "ustar") return false;
    std::string_view told = block.substr(kSumAt, kSumBytes);
    told = told.substr(0, told.find_last_of("01234567") + 1);
    int64_t sum = 0;
    for (size_t i = 0; i < block.size(); ++i) {
        const bool own = i >= kSumAt && i < kSumAt + kSumBytes;
        sum += own ? ' ' : static_cast<unsigned char>(block[i]);
    }
    return Integer(told, 8) == sum;
}

// Skips output of login scripts. The archive begins with its first header; "": no header.
std::string_view WithoutGreeting(std::string_view out) {
    for (size_t magic = out.find("ustar", kTarMagicAt); magic != out.npos;
         magic = out.find("ustar", magic + 1)) {
        const std::string_view archive = out.substr(magic - kTarMagicAt);
        if (archive.size() < kTarBlock) break;
        if (IsTarHeader(archive.substr(0, kTarBlock))) return archive;
    }
    return {};
}

// Text to show if the output is not an archive.
std::string FirstLine(std::string_view out) {
    constexpr size_t kMost = 80;
    for (std::string_view line : Lines(out.substr(0, 4096))) {
        line = Trim(line);
        if (!line.empty()) return fmt::format("it says '{}'", Printable(line.substr(0, kMost)));
    }
    return "it is empty";
}

Error NotReached(const std::string& name, const std::string& command, const Result<Ran>& ran) {
    if (!ran.ok()) {
        return MakeError(ran.error().code, "{}. Does 'ssh {} true' answer without a password?",
                         ran.error().message, name);
    }
    if (ran->status == 0) {
        return MakeError(ErrorCode::kCorrupt,
                         "what '{}' printed over ssh is no snapshot, {}: 'ssh {} weft --version' "
                         "must name this version",
                         command, FirstLine(ran->out), name);
    }
    const std::string_view said = Trim(ran->err);
    return MakeError(ErrorCode::kIo,
                     "'{}' over ssh ended with status {}: {}. 'ssh {} true' must answer without a "
                     "password, and weft be there on PATH (or --remote PATH)",
                     command, ran->status, said.empty() ? "it said nothing" : Lines(said).back(),
                     name);
}

// lost: the likely reason if ssh hung or broke off.
Result<SnapshotFiles> CollectHost(const std::string& name, const CollectOptions& options,
                                  std::optional<LostPackets>* lost) {
    constexpr int kStatusOfSsh = 255;
    const Deadline deadline = Deadline::In(options.timeout_ms);
    std::vector<std::string> words = Ssh(name);
    words.push_back(options.program + " doctor --save - --real-names" +
                    (options.measure ? "" : " --no-measure"));
    const Result<Ran> ran = RunProgram(words, deadline, kMostBytes);
    const std::string_view archive =
        ran.ok() && ran->status == 0 ? WithoutGreeting(ran->out) : std::string_view();
    if (archive.empty()) {
        const bool hung =
            ran.ok() ? ran->status == kStatusOfSsh : ran.error().code == ErrorCode::kTimeout;
        if (hung) *lost = FindLostPackets(name);
        return NotReached(name, words.back(), ran);
    }
    WEFT_ASSIGN(SnapshotFiles files,
                ParseTar(std::as_bytes(std::span(archive)), "what came over ssh"));
    AskClock(name, deadline, files);
    return files;
}

Finding Unreachable(const std::string& host, const Error& error,
                    const std::optional<LostPackets>& lost) {
    if (!lost) {
        return {"reachable",
                Severity::kFail,
                host,
                fmt::format("{}: {}", host, error.message),
                "a snapshot of the host over ssh",
                "nothing is known of this host",
                fmt::format("ssh {} weft doctor", ShellWord(host.substr(0, host.find(':'))))};
    }
    const std::string by = lost->device.empty() ? "" : " by " + lost->device;
    const int mtu = lost->mtu > 1500 ? 1500 : 1280;
    return {
        "reachable",
        Severity::kFail,
        host,
        fmt::format("{} ({}{}): packets of {} bytes do not arrive there, those of {} do; ssh: {}",
                    host, lost->address, by, lost->mtu, kSmallPacket, error.message),
        fmt::format("packets of {} bytes arrive whole", lost->mtu),
        "something on the way (a switch or an end without jumbo frames, a tunnel) drops large "
        "packets without a word: connections open, and hang with the first large packet",
        "jumbo frames on the switch's ports and both ends, or on both ends " +
            (lost->device.empty() ? fmt::format("an MTU of {}", mtu)
                                  : fmt::format("this MTU: sudo ip link set dev {} mtu {}",
                                                ShellWord(lost->device), mtu))};
}

// Pings the other hosts with full-size packets; stores the output of ping as a snapshot does.
void TryPaths(const std::string& host, const std::vector<Path>& paths, int64_t timeout_ms,
              SnapshotFiles& files) {
    const Result<std::string> name = SshName(host);
    if (paths.empty() || !name.ok()) return;
    std::string script;
    for (const Path& path : paths) {
        for (int bytes : {path.mtu, kSmallPacket}) {
            const std::string ping = PingCommand(path, bytes);
            script += fmt::format("echo '==> {} <=='; {}; echo; ", CommandPath(ping), ping);
        }
    }
    std::vector<std::string> words = Ssh(*name);
    words.push_back(script);
    const Result<Ran> ran = RunProgram(words, Deadline::In(timeout_ms));
    if (!ran.ok()) return;
    Result<SnapshotFiles> answers = ParseTextSnapshot(ran->out, host);
    if (!answers.ok()) return;
    for (auto& [path, text] : *answers) {
        if (path.starts_with("cmd/ping_")) files[path] = std::move(text);
    }
}

// Connects from the host to the others' ports while all of them listen: probe/reach. An older weft
// on the host does not know --reach and returns nothing.
void TryPorts(const std::string& host, const std::vector<Path>& paths, size_t peers,
              const std::vector<uint16_t>& ports, const CollectOptions& options,
              SnapshotFiles& files) {
    const Result<std::string> name = SshName(host);
    if (!name.ok()) return;
    ReachOptions reach{.addresses = {}, .ports = ports, .peers = peers};
    for (const Path& path : paths) reach.addresses.push_back(path.address);
    if (reach.addresses.empty()) return;
    std::vector<std::string> words = Ssh(*name);
    words.push_back(fmt::format("{} doctor --reach '{}'", options.program, ReachText(reach)));
    const Result<Ran> ran = RunProgram(words, Deadline::In(options.timeout_ms), 1 << 16);
    if (!ran.ok() || ran->status != 0) return;
    for (std::string_view line : Lines(ran->out)) {
        const auto said = Words(line);
        if (said.size() < 3 || !ParseIpv4(said[0]) || !Integer(said[1])) continue;
        files["probe/reach"] += std::string(line) + "\n";
    }
}

using Answers = std::vector<std::optional<Result<SnapshotFiles>>>;

// Second round, after all addresses are known.
void TryAllPaths(const std::vector<std::string>& hosts, const CollectOptions& options,
                 Answers& collected) {
    std::vector<std::unique_ptr<HostView>> views;
    std::vector<size_t> reached;
    for (size_t i = 0; i < hosts.size(); ++i) {
        if (!(*collected[i]).ok()) continue;
        views.push_back(MakeSnapshotView(**collected[i], hosts[i]));
        reached.push_back(i);
    }
    std::vector<std::vector<Path>> paths(views.size());
    std::map<std::string, size_t> dialed;  // number of connections to each host, by name
    for (size_t v = 0; v < views.size(); ++v) {
        paths[v] = PathsFrom(*views[v], views);
        dialed[views[v]->host()];
        for (const Path& path : paths[v]) ++dialed[path.peer];
    }
    const auto data_port = static_cast<uint16_t>(kFirstDataPort + WallNs() / 1000 % kDataPorts);
    const auto on_all = [&](auto&& work) {
        std::vector<std::thread> threads;
        for (size_t v = 0; v < views.size(); ++v) threads.emplace_back([&, v] { work(v); });
        for (std::thread& thread : threads) thread.join();
    };
    on_all([&](size_t v) {
        TryPaths(hosts[reached[v]], paths[v], options.timeout_ms, **collected[reached[v]]);
    });
    on_all([&](size_t v) {  // all at the same time, because each host listens for the others
        TryPorts(hosts[reached[v]], paths[v], dialed.at(views[v]->host()),
                 {cluster::kWorkerPort, data_port}, options, **collected[reached[v]]);
    });
}

}  // namespace

Result<std::string> SshName(const std::string& host) {
    const std::string name = host.substr(0, host.find(':'));
    const auto plain = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '@';
    };
    if (name.empty() || name.starts_with('-') || !std::ranges::all_of(name, plain)) {
        return MakeError(ErrorCode::kUsage, "--hosts: '{}' is not a host's name", host);
    }
    return name;
}

Result<Collected> CollectHosts(const std::vector<std::string>& hosts,
                               const CollectOptions& options) {
    std::vector<std::string> names;
    for (const std::string& host : hosts) {
        WEFT_ASSIGN(names.emplace_back(), SshName(host));
    }
    Answers answers(hosts.size());
    std::vector<std::optional<LostPackets>> lost(hosts.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < hosts.size(); ++i) {
        threads.emplace_back(
            [&, i] { answers[i].emplace(CollectHost(names[i], options, &lost[i])); });
    }
    for (std::thread& thread : threads) thread.join();
    TryAllPaths(hosts, options, answers);
    Collected collected;
    for (size_t i = 0; i < hosts.size(); ++i) {
        Result<SnapshotFiles>& one = *answers[i];
        if (one.ok()) {
            collected.hosts.push_back(MakeSnapshotView(std::move(*one), hosts[i]));
            collected.names.push_back(hosts[i]);
        } else {
            collected.unreachable.push_back(Unreachable(hosts[i], one.error(), lost[i]));
        }
    }
    return collected;
}

}  // namespace weft::doctor
