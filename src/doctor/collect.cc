#include "doctor/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <optional>

#include "base/on_threads.h"
#include "base/shell_word.h"
#include "cluster/socket.h"
#include "doctor/network.h"
#include "doctor/program.h"
#include "doctor/reach.h"
#include "doctor/snapshot.h"
#include "doctor/text.h"
#include "net/path_mtu.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostBytes = 64 << 20;
// The usual range from which the system chooses ports.
constexpr int64_t kFirstDataPort = 32768, kDataPorts = 28232;
constexpr int64_t kShortMs = 10'000;  // for ssh -G, which answers at once
// Printed by the host before the archive.
constexpr std::string_view kMark = "==weft-doctor-archive==";

Result<Ran> RunSsh(const std::string& name, const std::string& command, const Deadline& deadline,
                   size_t most_bytes = ChildOptions{}.max_output_bytes) {
    return RunProgram({"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o",
                       "ServerAliveInterval=15", "-T", "--", name, command},
                      deadline, most_bytes);
}

std::string LastLine(std::string_view text) {
    text = Trim(text);
    return std::string(text.empty() ? "it said nothing" : Lines(text).back());
}

int64_t WallNs() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// Reads this machine's clock, the other host's, and this machine's again, for clock-difference.
// A login may be slow (SlowestLoginMs).
void MeasureClock(const std::string& name, int64_t timeout_ms, SnapshotFiles& files) {
    const int64_t before = WallNs();
    const Result<Ran> ran = RunSsh(name, "date +%s%N", Deadline::In(timeout_ms), 1 << 16);
    const int64_t after = WallNs();
    const std::string time = ran.ok() ? LastLine(ran->out) : "";
    if (!Integer(time)) {
        files["unread"] += fmt::format("probe/clock: date +%s%N over ssh printed no time{}\n",
                                       ran.ok() ? "" : ": " + Printable(ran.error().message));
        return;
    }
    files["probe/clock"] = time + "\n";
    files["probe/clock_asked"] = fmt::format("{} {}\n", before, after);
}

// Skips output of login scripts; "": no archive.
std::string_view WithoutGreeting(std::string_view out) {
    const size_t mark = out.find(kMark);
    return mark == out.npos ? std::string_view()
                            : out.substr(std::min(mark + kMark.size() + 1, out.size()));
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
    return MakeError(ErrorCode::kIo,
                     "'{}' over ssh ended with status {}: {}. 'ssh {} true' must answer without a "
                     "password, and weft be there on PATH (or --remote PATH)",
                     command, ran->status, LastLine(ran->err), name);
}

// The path on which ssh hung, if it loses large packets. Small packets pass, so the connection
// opens, but the first large packet (key exchange or archive) never arrives. nullopt: full packets
// arrive, no packets arrive, or ssh uses a jump host or proxy.
std::optional<LossyPath> LossyPathTo(const std::string& name) {
    const Result<Ran> ran = RunProgram({"ssh", "-G", "--", name}, Deadline::In(kShortMs), 1 << 20);
    if (!ran.ok() || ran->status != 0) return {};
    std::string address;
    int64_t port = 0;
    for (std::string_view line : Lines(ran->out)) {
        const auto words = Words(line);
        if (words.size() < 2) continue;
        const bool by_other = words[0] == "proxyjump" || words[0] == "proxycommand";
        if (by_other && words[1] != "none") return {};
        if (words[0] == "hostname") address = words[1];
        if (words[0] == "port") port = Integer(words[1]).value_or(0);
    }
    if (address.empty() || port <= 0 || port > 65535) return {};
    auto path = net::ProbePathMtu(address, static_cast<uint16_t>(port));
    if (!path || path->whole()) return {};
    return LossyPath{std::move(address), *std::move(path)};
}

// lost: the likely reason if ssh hung or broke off.
Result<SnapshotFiles> CollectHost(const std::string& name, const CollectOptions& options,
                                  std::optional<LossyPath>* lost) {
    constexpr int kStatusOfSsh = 255;
    const Deadline deadline = Deadline::In(options.timeout_ms);
    const std::string command =
        fmt::format("{} doctor --save - --real-names --timeout-ms {}{}", options.program,
                    options.timeout_ms, options.measure ? "" : " --no-measure");
    const Result<Ran> ran =
        RunSsh(name, fmt::format("echo {}; {}", kMark, command), deadline, kMostBytes);
    const std::string_view archive =
        ran.ok() && ran->status == 0 ? WithoutGreeting(ran->out) : std::string_view();
    if (archive.empty() && ran.ok() && ran->status == 0) {
        return MakeError(
            ErrorCode::kCorrupt,
            "what '{}' printed over ssh is not a snapshot, {}: 'ssh {} weft --version' "
            "must name this version",
            command, FirstLine(ran->out), name);
    }
    if (archive.empty()) {
        const bool hung =
            ran.ok() ? ran->status == kStatusOfSsh : ran.error().code == ErrorCode::kTimeout;
        if (hung) *lost = LossyPathTo(name);
        return NotReached(name, command, ran);
    }
    WEFT_ASSIGN(SnapshotFiles files,
                ParseTar(std::as_bytes(std::span(archive)), "what came over ssh"));
    MeasureClock(name, options.timeout_ms, files);
    return files;
}

constexpr std::string_view kPingMark = "weft-ping";

// A script for sh that pings over each path with a full packet and, if no answer arrives, with a
// small one, over a few paths at once. It prints a line "weft-ping PAYLOAD ADDRESS OUTPUT" for each
// ping. It begins none after `seconds`.
std::string PingScript(const std::vector<Path>& paths, int64_t seconds) {
    constexpr size_t kPathsAtOnce = 8;
    // Lines are short enough for one write, so that lines of different pings do not mix. No quotes
    // and newlines, because the script is one word for the user's shell, which may be any.
    std::string script = fmt::format(
        "set -f; end=$(($(date +%s)+{})); p() {{ r=$({{ {}; }} 2>&1); s=$?; echo {} $1 $2 $r; "
        "return $s; }}; q() {{ p $1 $3 || p $2 $3; }}; ",
        seconds, PingWords("$1", "$2"), kPingMark);
    for (size_t i = 0; i < paths.size(); ++i) {
        if (i % kPathsAtOnce == 0) script += "[ $(date +%s) -lt $end ] || exit 0; ";
        script += fmt::format("q {} {} {} & ", PingPayload(paths[i].mtu), PingPayload(kSmallPacket),
                              paths[i].address);
        if ((i + 1) % kPathsAtOnce == 0) script += "wait; ";
    }
    return script + "wait";
}

// Pings the other hosts with full-size packets; stores the output of ping as a snapshot does, and
// the reason for each path that was not tested. host: over ssh; "": this machine.
void TryPaths(const std::string& host, const std::vector<Path>& paths, int64_t timeout_ms,
              SnapshotFiles& files) {
    constexpr int64_t kMsForSsh = 5000;  // and for the last pings
    if (paths.empty()) return;
    const int64_t seconds = std::max<int64_t>(2, (timeout_ms - kMsForSsh) / 1000);
    const std::string script = PingScript(paths, seconds);
    const Deadline deadline = Deadline::In(timeout_ms);
    const Result<Ran> ran = host.empty() ? RunProgram({"sh", "-c", script}, deadline)
                                         : RunSsh(host.substr(0, host.find(':')),
                                                  "sh -c " + ShellWord(script), deadline);
    std::map<std::string, std::string> said;
    for (std::string_view line : Lines(ran.ok() ? std::string_view(ran->out) : "")) {
        const auto words = Words(line);
        if (words.size() < 3 || words[0] != kPingMark) continue;
        said[CommandPath(PingWords(words[1], words[2]))] = line;
    }
    const std::string why = !ran.ok()          ? ran.error().message
                            : ran->status != 0 ? LastLine(ran->err)
                                               : "no time was left for it";
    for (const Path& path : paths) {
        const std::string large = CommandPath(PingCommand(path, path.mtu));
        for (const std::string& ping : {large, CommandPath(PingCommand(path, kSmallPacket))}) {
            const auto answer = said.find(ping);
            if (answer != said.end()) files[ping] = answer->second + "\n";
        }
        if (!files.contains(large)) {
            files["unread"] += fmt::format("{}: {}\n", large, Printable(why));
        }
    }
}

// Stores the lines of ReachPeers, or the reason why there are none.
void StoreReach(const Result<Ran>& ran, SnapshotFiles& files) {
    std::string lines;
    if (ran.ok() && ran->status == 0) {
        for (std::string_view line : Lines(ran->out)) {
            const auto words = Words(line);
            if (words.size() < 3 || !ParseIpv4(words[0]) || !Integer(words[1])) continue;
            lines += std::string(line) + "\n";
        }
    }
    if (!lines.empty()) {
        files["probe/reach"] = std::move(lines);
        return;
    }
    const std::string why = ran.ok() ? LastLine(ran->err) : ran.error().message;
    files["unread"] += fmt::format("probe/reach: {}\n", Printable(why));
}

// Connects from the host to the ports of the others while all of them listen. host: over ssh; "":
// this machine.
void TryPorts(const std::string& host, const ReachOptions& reach, const CollectOptions& options,
              SnapshotFiles& files) {
    if (reach.addresses.empty()) {
        // (This machine may be no rank, and then needs no path.)
        if (!host.empty() || options.with_here) files["probe/reach"] = "\n";
        return;
    }
    if (host.empty()) {
        const Result<std::string> outcomes = ReachPeers(reach);
        if (!outcomes.ok()) return StoreReach(outcomes.error(), files);
        return StoreReach(Ran{0, *outcomes, ""}, files);
    }
    const std::string command =
        fmt::format("{} doctor --reach '{}'", options.program, ReachText(reach));
    StoreReach(
        RunSsh(host.substr(0, host.find(':')), command, Deadline::In(options.timeout_ms), 1 << 16),
        files);
}

using Answers = std::vector<std::optional<Result<SnapshotFiles>>>;

// Whether both views show the same machine.
bool IsSameMachine(HostView& a, HostView& b) {
    if (a.host() != b.host()) return false;
    return std::ranges::any_of(NetDevices(b), [&](const NetDevice& device) {
        const NetDevice* same = FindNetDevice(a, device.name);
        return same != nullptr && !device.addresses.empty() && !IsOfContainers(device.name) &&
               same->addresses == device.addresses;
    });
}

// The longest time that a host took to log in and answer (MeasureClock), if it is long: the hosts
// listen that much longer, so that hosts that begin last still reach the others.
int64_t SlowestLoginMs(Hosts views) {
    constexpr int64_t kUsualMs = 1000;
    int64_t slowest_ms = 0;
    for (const auto& view : views) {
        const std::string asked = view->Probe("clock_asked").text;
        const auto words = Words(asked);
        if (words.size() != 2) continue;
        const int64_t took_ns = Integer(words[1]).value_or(0) - Integer(words[0]).value_or(0);
        slowest_ms = std::max(slowest_ms, took_ns / kNsPerMs);
    }
    return slowest_ms > kUsualMs ? slowest_ms : 0;
}

// Second round, after all addresses are known. here: this machine, or null. Returns whether this
// machine took part. It does not if it is one of the hosts. Errors: kIo (threads).
Result<bool> TryAllPaths(const std::vector<std::string>& hosts, const CollectOptions& options,
                         Answers& collected, HostView* here) {
    std::vector<std::unique_ptr<HostView>> views;
    std::vector<std::string> names;
    std::vector<SnapshotFiles*> files;
    for (size_t i = 0; i < hosts.size(); ++i) {
        if (!(*collected[i]).ok()) continue;
        views.push_back(MakeSnapshotView(**collected[i], hosts[i]));
        names.push_back(hosts[i]);
        files.push_back(&**collected[i]);
    }
    SnapshotFiles own;
    const bool separate = here != nullptr && std::ranges::none_of(views, [&](const auto& view) {
                              return IsSameMachine(*here, *view);
                          });
    if (separate) {
        NetDevices(*here);
        views.push_back(MakeSnapshotView(here->Recorded(), "here"));
        names.emplace_back();
        files.push_back(&own);
    }
    std::vector<std::vector<Path>> paths(views.size());
    std::map<std::string, size_t> dialed;  // number of connections to each host, by name
    for (size_t v = 0; v < views.size(); ++v) {
        paths[v] = PathsFrom(*views[v], views);
        dialed[views[v]->host()];
        for (const Path& path : paths[v]) ++dialed[path.peer];
    }
    const auto data_port = static_cast<uint16_t>(kFirstDataPort + WallNs() / 1000 % kDataPorts);
    const int64_t reach_ms = kReachMs + SlowestLoginMs(views);
    WEFT_TRY(OnThreads(views.size(), views.size(), [&](size_t v) {
        const bool pings = !names[v].empty() || options.with_here;
        if (pings) TryPaths(names[v], paths[v], options.timeout_ms, *files[v]);
        return Status();
    }));
    if (views.size() < 2) return separate;
    WEFT_TRY(AllAtOnce(views.size(), [&](size_t v) {  // each host listens for the others
        ReachOptions reach{.addresses = {},
                           .ports = {cluster::kWorkerPort, data_port},
                           .peers = dialed.at(views[v]->host()),
                           .timeout_ms = reach_ms};
        for (const Path& path : paths[v]) reach.addresses.push_back(path.address);
        TryPorts(names[v], reach, options, *files[v]);
    }));
    if (!separate) return false;
    for (std::string_view line : Lines(own["unread"])) {
        const size_t colon = line.find(": ");
        if (colon == line.npos) continue;
        here->Keep(std::string(line.substr(0, colon)),
                   {ReadState::kRefused, std::string(line.substr(colon + 2))});
    }
    own.erase("unread");
    for (auto& [path, text] : own) here->Keep(path, {ReadState::kFound, std::move(text)});
    return separate;
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

Finding Unreachable(const std::string& host, const Error& error,
                    const std::optional<LossyPath>& lost) {
    if (!lost) {
        return {"reachable",
                Severity::kFail,
                host,
                fmt::format("{}: {}", host, error.message),
                "a snapshot of the host over ssh",
                "nothing is known of this host",
                fmt::format("ssh {} weft doctor", ShellWord(host.substr(0, host.find(':'))))};
    }
    const net::PathMtu& path = lost->mtu;
    const std::string by = path.device.empty() ? "" : fmt::format(" by {}", path.device);
    std::string fix = fmt::format(
        "enable jumbo frames on the switch's ports and both hosts, or set this MTU on both hosts: "
        "sudo ip link set dev {} mtu {}",
        path.device.empty() ? "DEVICE" : ShellWord(path.device),
        std::max(path.passed, net::kLeastMtu));
    if (path.passed < net::kLeastMtu) {
        fix += fmt::format(
            "; but this path loses packets of {} bytes or less, too: first repair the tunnel or "
            "device between the hosts that drops them",
            net::kLeastMtu);
    }
    return {"reachable",
            Severity::kFail,
            host,
            fmt::format("{} ({}{}): packets of {} bytes do not arrive there, those of {} do; ssh: "
                        "{}",
                        host, lost->address, by, path.largest, path.passed, error.message),
            fmt::format("packets of {} bytes arrive whole", path.largest),
            "a switch or host without jumbo frames, or a tunnel, silently drops large packets: "
            "connections open, and hang with the first large packet",
            fix};
}

Result<std::string> RunOverSsh(const std::string& name, const std::string& command,
                               const Deadline& deadline, size_t most_bytes) {
    const Result<Ran> ran =
        RunSsh(name, fmt::format("echo {}; {}", kMark, command), deadline, most_bytes);
    if (ran.ok() && ran->status == 0) return std::string(WithoutGreeting(ran->out));
    const std::string_view said = ran.ok() ? Trim(ran->err) : std::string_view();
    if (ran.ok() && ran->status == 1 && !said.empty()) {  // the command's own error
        return MakeError(ErrorCode::kIo, "{}", Lines(said).back());
    }
    return NotReached(name, command, ran);
}

Result<Collected> CollectHosts(const std::vector<std::string>& hosts, const CollectOptions& options,
                               HostView* here) {
    std::vector<std::string> names;
    for (const std::string& host : hosts) {
        WEFT_ASSIGN(names.emplace_back(), SshName(host));
    }
    Answers answers(hosts.size());
    std::vector<std::optional<LossyPath>> lost(hosts.size());
    WEFT_TRY(OnThreads(hosts.size(), hosts.size(), [&](size_t i) {
        answers[i].emplace(CollectHost(names[i], options, &lost[i]));
        return Status();
    }));
    Collected collected;
    WEFT_ASSIGN(collected.tested_here, TryAllPaths(hosts, options, answers, here));
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
