#include "doctor/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>
#include <thread>

#include "doctor/path.h"
#include "doctor/program.h"
#include "doctor/snapshot.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostBytes = 64 << 20;

std::vector<std::string> Ssh(const std::string& name) {
    return {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-T", "--", name};
}

int64_t WallNs() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// What the other host's clock shows, between two readings of ours: files for clock-difference.
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

// Login scripts may print before the program does. The archive begins where its first header has
// its magic (POSIX ustar).
std::string_view WithoutGreeting(std::string_view out) {
    constexpr size_t kMagicAt = 257;
    const size_t magic = out.find("ustar");
    return magic == out.npos || magic < kMagicAt ? out : out.substr(magic - kMagicAt);
}

Result<SnapshotFiles> CollectHost(const std::string& host, const CollectOptions& options) {
    WEFT_ASSIGN(const std::string name, SshName(host));
    const Deadline deadline = Deadline::In(options.timeout_ms);
    std::vector<std::string> words = Ssh(name);
    words.push_back(options.program + " doctor --save - --real-names" +
                    (options.measure ? "" : " --no-measure"));
    const Result<Ran> ran = RunProgram(words, deadline, kMostBytes);
    if (!ran.ok()) {
        return MakeError(ran.error().code, "{}: {}. Does 'ssh {} true' answer without a password?",
                         host, ran.error().message, name);
    }
    if (ran->status != 0) {
        const std::string_view said = Trim(ran->err);
        return MakeError(ErrorCode::kIo,
                         "{}: '{}' over ssh ended with status {}: {}. 'ssh {} true' must answer "
                         "without a password, and weft be there on PATH (or --remote PATH)",
                         host, words.back(), ran->status,
                         said.empty() ? "it said nothing" : Lines(said).back(), name);
    }
    const std::string_view archive = WithoutGreeting(ran->out);
    WEFT_ASSIGN(SnapshotFiles files,
                ParseTar(std::as_bytes(std::span(archive)), "what came from " + host));
    AskClock(name, deadline, files);
    return files;
}

// Tries the ways to the other hosts with whole packets: answers of ping, as a snapshot has them.
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

using Collected = std::vector<std::optional<Result<SnapshotFiles>>>;

// The second round, once all addresses are known.
void TryAllPaths(const std::vector<std::string>& hosts, const CollectOptions& options,
                 Collected& collected) {
    std::vector<std::unique_ptr<HostView>> views;
    std::vector<size_t> reached;
    for (size_t i = 0; i < hosts.size(); ++i) {
        if (!(*collected[i]).ok()) continue;
        views.push_back(MakeSnapshotView(**collected[i], hosts[i]));
        reached.push_back(i);
    }
    std::vector<std::thread> threads;
    for (size_t v = 0; v < views.size(); ++v) {
        const size_t i = reached[v];
        threads.emplace_back([&, i, paths = PathsFrom(*views[v], views)] {
            TryPaths(hosts[i], paths, options.timeout_ms, **collected[i]);
        });
    }
    for (std::thread& thread : threads) thread.join();
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

std::vector<Result<std::unique_ptr<HostView>>> CollectHosts(const std::vector<std::string>& hosts,
                                                            const CollectOptions& options) {
    Collected collected(hosts.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < hosts.size(); ++i) {
        threads.emplace_back([&, i] { collected[i].emplace(CollectHost(hosts[i], options)); });
    }
    for (std::thread& thread : threads) thread.join();
    TryAllPaths(hosts, options, collected);
    std::vector<Result<std::unique_ptr<HostView>>> results;
    for (size_t i = 0; i < hosts.size(); ++i) {
        Result<SnapshotFiles>& one = *collected[i];
        if (one.ok()) {
            results.push_back(MakeSnapshotView(std::move(*one), hosts[i]));
        } else {
            results.push_back(one.error());
        }
    }
    return results;
}

}  // namespace weft::doctor
