#include "cluster/cluster.h"

#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <set>

#include "base/log.h"
#include "base/process_work.h"
#include "cluster/cluster_impl.h"
#include "cluster/join/dial.h"
#include "cluster/join/launched.h"
#include "cluster/join/spawn.h"
#include "cluster/worker/link_windows.h"
#include "cluster/worker/stop_signals.h"
#include "net/reach.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostJob = kMostAfterAuth / 2;
constexpr int64_t kLeastTimeoutMs = 200;
constexpr int64_t kMostTimeoutMs = 3'600'000;
constexpr int64_t kMostRejoinMs = 3'600'000;
// For a host to answer, before it joins: the kernel needs 3 s to detect that no device has an
// address.
constexpr int64_t kReachMs = 4000;

// ---- Launch -------------------------------------------------------------------------------------

// One name per rank: the host as the user wrote it, with its port if two ranks share a host.
Result<std::vector<std::string>> HostNames(const ClusterOptions& options, int size) {
    if (options.hosts.empty()) {  // ranks that dial in bring their names
        return std::vector<std::string>(static_cast<size_t>(size), SystemHostName());
    }
    std::vector<std::string> names = {SystemHostName()};
    if (options.host_names.size() == options.hosts.size()) {
        for (size_t i = 0; i < options.hosts.size(); ++i) {
            const std::string& name = options.host_names[i];
            const bool several = std::ranges::count(options.host_names, name) > 1;
            names.push_back(several ? name + " at " + options.hosts[i] : name);
        }
        return names;
    }
    for (const std::string& text : options.hosts) {
        const WorkerPath path = PathOf(text);
        WEFT_ASSIGN(const Address address, ParseAddress(path.first));
        if (!path.names.empty()) {
            names.push_back(path.names.back());
            continue;
        }
        const auto same = [&](const std::string& other) {
            auto parsed = ParseAddress(other);
            return parsed.ok() && parsed->host == address.host;
        };
        const auto count = std::count_if(options.hosts.begin(), options.hosts.end(), same);
        names.push_back(count > 1 ? text : address.host);
    }
    return names;
}

// names: as HostNames.
std::vector<NamedHost> HostsOf(const ClusterOptions& options,
                               const std::vector<std::string>& names) {
    std::vector<NamedHost> hosts;
    if (options.hosts.empty()) return hosts;
    hosts.push_back({names[0], "", ""});
    for (size_t i = 0; i < options.hosts.size(); ++i) {
        const bool named = i < options.host_names.size();
        hosts.push_back({names[i + 1], named ? options.host_names[i] : "", options.hosts[i]});
    }
    return hosts;
}

Status AddLocalRanks(Control& control, const ClusterOptions& options, int size) {
    for (int rank = 1; rank < size; ++rank) {
        WEFT_ASSIGN(LocalRank started, StartLocalRank(options, AllowedCores()));
        control.AddPeer(rank, std::move(started.control), started.session, started.pid);
    }
    return {};
}

// The options of the wait for all ranks of other hosts.
Gathering GatheringOf(const ClusterOptions& options, uint64_t ticket = 0) {
    int64_t wait_ms = options.wait_ms;
    if (wait_ms == 0) wait_ms = options.wait_for > 0 ? kWaitForMs : options.timeout_ms * 3 / 4;
    Gathering gathering{options.timeout_ms, Deadline::In(wait_ms), options.stop};
    gathering.ticket = ticket;
    gathering.calls_back = options.rejoin_ms > 0;
    return gathering;
}

// Starts `control`, and connects all ranks to it. names: names of the hosts; ranks that dial in
// bring their own names.
Status Gather(Control& control, const ClusterOptions& options, const Bytes& key, DialIn* dial_in,
              uint64_t ticket, std::vector<std::string>& names) {
    const int size = static_cast<int>(names.size());
    control.SetHosts(names);
    const bool alone = options.launched == nullptr && !NamesHosts(options);
    if (alone) WEFT_TRY(AddLocalRanks(control, options, size));
    WEFT_TRY(control.Start());
    if (options.launched != nullptr) {
        WEFT_TRY(options.launched->Gather(control, options.timeout_ms, options.stop));
    } else if (dial_in != nullptr) {
        WEFT_TRY(GatherWorkers(*dial_in, size, control, GatheringOf(options)));
    } else if (!alone) {
        WEFT_TRY(GatherHosts(options.hosts, key, options.wait_ms > 0, control,
                             GatheringOf(options, ticket)));
    }
    names = control.hosts();
    return {};
}

// How long a survivor may wait for the next epoch after it left the old one: the time of all
// attempts, each of which may start lost ranks again. (The wait also ends when rank 0 ends or
// reports that there is no next epoch.)
int64_t RecoverMs(const ClusterOptions& options) {
    if (options.rejoin_ms == 0 && !options.elastic) return 0;
    const int64_t attempt_ms = options.rejoin_ms + 3 * options.timeout_ms + 5000;
    return std::min(kMostAttempts * attempt_ms, kMostRecoverMs);
}

// The assignment that all ranks get, without the job.
Result<AssignMessage> AssignmentOf(const ClusterOptions& options, int size) {
    AssignMessage assignment;
    WEFT_ASSIGN(assignment.hosts, HostNames(options, size));
    assignment.epoch = kFirstEpoch;
    assignment.window_bytes = options.window_bytes;
    assignment.transport = options.transport;
    assignment.rdma_device = options.rdma_device;
    assignment.data_net = options.data_net;
    assignment.data_ports = options.data.ports;
    assignment.gid_index = options.gid_index;
    assignment.checksum = options.checksum;
    assignment.plain_links = options.plain_links;
    assignment.recover_ms = RecoverMs(options);
    return assignment;
}

// ---- Join ---------------------------------------------------------------------------------------

Result<std::unique_ptr<Cluster>> Report(const Control& control, Error error) {
    if (control.ShouldReport()) LogLine(LogLevel::kError, error.message);
    return error;
}

// Checks that this host may reach one address of each rank (ExamineMessage::reach). Errors:
// kTimeout.
Status CheckReach(const std::vector<std::string>& reach) {
    std::vector<std::string> ranks, hosts;
    for (const std::string& packed : reach) {
        WEFT_ASSIGN(std::vector<std::string> words, UnpackStrings(packed));
        if (words.size() != 2)
            return MakeError(ErrorCode::kCorrupt, "a malformed address to reach");
        ranks.push_back(std::move(words[0]));
        hosts.push_back(std::move(words[1]));
    }
    const std::vector<net::Reach> found = net::KnockAt(hosts, Deadline::In(kReachMs));
    std::map<std::string, std::string> missing;  // addresses by rank
    for (size_t i = 0; i < found.size(); ++i) {
        if (found[i] != net::Reach::kNone) continue;
        std::string& tried = missing[ranks[i]];
        tried += (tried.empty() ? "" : ", ") + hosts[i];
    }
    for (size_t i = 0; i < found.size(); ++i) {
        if (found[i] != net::Reach::kNone) missing.erase(ranks[i]);
    }
    if (missing.empty()) return {};
    const auto& [rank, tried] = *missing.begin();
    return MakeError(ErrorCode::kTimeout,
                     "its host does not reach {} at {}. Is the cable between them plugged in?",
                     rank, tried);
}

// Until there is an assignment, rank 0 may check whether this process could be a rank.
Result<AssignMessage> AwaitFirstAssignment(Control& control, const JoinValidator& validator,
                                           const FolderLimit& folders) {
    // While rank 0 sends heartbeats, it may be waiting for other ranks.
    const Deadline deadline = Deadline::In(2 * kMostWaitMs);
    while (true) {
        WEFT_ASSIGN(const std::optional<ExamineMessage> asked,
                    control.WaitForJoinRequest(deadline));
        if (!asked.has_value()) return control.WaitForAssignment(deadline);
        Status fit = CheckReach(asked->reach);
        control.SetProgress(ProcessWork);  // (the check may read for hours)
        if (fit.ok() && validator) {
            fit = validator({asked->rank, asked->size, asked->job, asked->terms, folders});
        }
        control.SetProgress(nullptr);
        control.AnswerJoinRequest(*asked, fit);
    }
}

// launched: null if weft itself started this process.
Result<std::unique_ptr<Cluster>> JoinAs(Inheritance inherited, Launched* launched,
                                        const DataPortOptions& data, const JoinValidator& validator,
                                        const FolderLimit& folders) {
    const std::string root_host = PeerHost(inherited.control.get());
    const std::string own_host = LocalHost(inherited.control.get());
    const int64_t timeout_ms = std::max(inherited.session.timeout_ms, kLeastTimeoutMs);
    Control::Options options;
    options.rank = -1;
    options.timeout_ms = timeout_ms;
    options.local = inherited.local;
    options.child = inherited.local && launched == nullptr;
    options.leave_on_term = !inherited.local && launched == nullptr;
    if (options.leave_on_term) GiveTermToControl();
    auto control = std::make_unique<Control>(options);
    Control& words = *control;
    control->AddPeer(0, std::move(inherited.control), inherited.session, 0);
    WEFT_TRY(control->Start());
    // From here on the control thread ends this process soon after rank 0 does, with the reason.
    // SIGCONT makes a stopped process run again, so that it notices.
    if (inherited.local && launched == nullptr) ::prctl(PR_SET_PDEATHSIG, SIGCONT);
    auto assignment = AwaitFirstAssignment(*control, validator, folders);
    if (!assignment.ok()) return Report(words, assignment.error());
    const int size = static_cast<int>(assignment->hosts.size());
    if (launched != nullptr && assignment->rank != launched->rank()) {
        return Report(
            words,
            MakeError(ErrorCode::kDenied,
                      "rank 0 counts this process as rank {}, its launcher counts it as rank {}",
                      assignment->rank, launched->rank()));
    }
    auto cluster =
        std::make_unique<ClusterImpl>(assignment->rank, size, assignment->job, timeout_ms);
    if (launched != nullptr) cluster->SetMpi(launched->mpi());
    cluster->SetControl(std::move(control));
    cluster->SetOwnHost(own_host, root_host, data);
    cluster->SetFolders(folders);
    Status met = cluster->Rendezvous(*assignment);
    if (!met.ok() && cluster->recovers()) {
        auto next = cluster->NextEpoch(met.error(), nullptr);
        met = next.ok() ? Status() : Status(next.error());
    }
    if (!met.ok()) return Report(words, words.ReportFailure(met.error()));
    return std::unique_ptr<Cluster>(std::move(cluster));
}

Status CheckWaiting(const ClusterOptions& options) {
    const auto most = static_cast<int>(kMostRanks);
    if (options.wait_for > 0 && (options.local > 1 || !options.hosts.empty())) {
        return MakeError(ErrorCode::kUsage,
                         "--expect-workers {}: all ranks but this one are workers that connect to "
                         "it; remove --local, --hosts and --hostfile",
                         options.wait_for);
    }
    if (options.wait_for < 0 || options.wait_for >= most) {
        return MakeError(ErrorCode::kUsage, "--expect-workers {}: 1 to {} workers",
                         options.wait_for, most - 1);
    }
    if (options.wait_ms < 0 || options.wait_ms > kMostWaitMs) {
        return MakeError(ErrorCode::kUsage, "--wait: at most 7d");
    }
    if (!options.listen.empty()) {
        if (options.wait_for == 0) {
            return MakeError(
                ErrorCode::kUsage,
                "--listen {} is the address to which workers connect: it needs --expect-workers N",
                options.listen);
        }
        WEFT_TRY(ParseAddress(options.listen));
    }
    return {};
}

}  // namespace

size_t WindowBytesFor(const LinkNeeds& links, int ranks, bool local) {
    std::vector<int> counts(static_cast<size_t>(ranks), 0);
    for (const LinkNeeds::Pair& pair : links.pairs) {
        ++counts[static_cast<size_t>(pair.a)];
        ++counts[static_cast<size_t>(pair.b)];
    }
    const bool all = links.pairs.empty() || links.spare;
    return WindowBytesOf(all ? ranks - 1 : std::ranges::max(counts), local ? ranks : 1);
}

Status CheckOptions(const ClusterOptions& options) {
    const auto most = static_cast<int>(kMostRanks);
    if (options.local < 1 || options.local > most) {
        return MakeError(ErrorCode::kUsage, "--local {}: 1 to {} ranks", options.local, most);
    }
    if (options.local > 1 && !options.hosts.empty()) {
        return MakeError(
            ErrorCode::kUsage,
            "--local {} and --hosts exclude each other: start one worker for each rank of a host",
            options.local);
    }
    WEFT_TRY(CheckWaiting(options));
    if (options.hosts.size() >= kMostRanks) {
        return MakeError(ErrorCode::kUsage, "--hosts: {} hosts; at most {}", options.hosts.size(),
                         most - 1);
    }
    std::set<std::string> seen;
    for (const std::string& host : options.hosts) {
        const WorkerPath path = PathOf(host);
        WEFT_ASSIGN(const Address address, ParseAddress(path.first));
        if (!seen.insert(path.names.empty() ? address.Text() : host).second) {
            return MakeError(ErrorCode::kUsage, "--hosts names {} twice: a worker runs one rank",
                             host);
        }
    }
    if (NamesHosts(options) && options.key_file.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "{} needs --key-file with the key of the workers. Make one with: (umask "
                         "077; head -c 32 /dev/urandom | base64 > FILE)",
                         options.wait_for > 0 ? "--expect-workers" : "--hosts");
    }
    WEFT_ASSIGN(const net::Transport transport, net::ParseTransport(options.transport));
    if (transport == net::Transport::kMpi && options.launched == nullptr) {
        return MakeError(ErrorCode::kUsage,
                         "--transport mpi joins ranks that an MPI launcher started, as in: "
                         "mpirun -n 2 weft run MODEL --transport mpi");
    }
    const bool mpi = transport == net::Transport::kMpi;
    if (options.launched != nullptr && (options.rejoin_ms > 0 || (options.elastic && mpi))) {
        return MakeError(ErrorCode::kUsage,
                         "--restart-timeout-ms and --elastic: weft cannot restart ranks that a "
                         "launcher started, and MPI cannot continue after it lost a rank. Use "
                         "--hosts, or --elastic with another --transport");
    }
    WEFT_TRY(net::CheckDataNet(options.data_net));
    WEFT_TRY(CheckDataPortOptions(options.data));
    if (options.timeout_ms < kLeastTimeoutMs || options.timeout_ms > kMostTimeoutMs) {
        return MakeError(ErrorCode::kUsage, "--timeout-ms {}: {} to {}", options.timeout_ms,
                         kLeastTimeoutMs, kMostTimeoutMs);
    }
    if (options.rejoin_ms < 0 || options.rejoin_ms > kMostRejoinMs) {
        return MakeError(ErrorCode::kUsage, "--restart-timeout-ms {}: 0 to {}", options.rejoin_ms,
                         kMostRejoinMs);
    }
    return {};
}

Status CheckDataPortOptions(const DataPortOptions& words) {
    WEFT_TRY(net::ParsePorts(words.ports));
    WEFT_TRY(net::ParseNeighbours(words.neighbours));
    const std::string& host = words.advertise;
    if (host.size() <= 200 && host.find_first_of(" \t/%") == host.npos) return {};
    return MakeError(ErrorCode::kUsage,
                     "--advertise {}: expected an address or name by which other hosts reach this "
                     "one, without a port",
                     host);
}

int RanksOf(const ClusterOptions& options) {
    if (options.launched != nullptr) return options.launched->size();
    if (options.wait_for > 0) return options.wait_for + 1;
    return options.hosts.empty() ? options.local : static_cast<int>(options.hosts.size()) + 1;
}

Result<LocalRank> StartLocalRank(const ClusterOptions& options, std::span<const int> cores) {
    WEFT_ASSIGN(auto ends, MakeSocketPair());
    const auto sessions = MakeSessionPair(options.timeout_ms);
    WEFT_ASSIGN(const pid_t pid, SpawnRank(options.worker_arguments, std::move(ends.second),
                                           sessions.second, true, cores));
    return LocalRank{std::move(ends.first), sessions.first, pid};
}

Result<std::unique_ptr<Cluster>> Cluster::Launch(const ClusterOptions& options, std::string job) {
    WEFT_TRY(CheckOptions(options));
    if (job.size() > kMostJob) {
        return MakeError(ErrorCode::kUnsupported, "a job description of {} bytes; at most {}",
                         job.size(), kMostJob);
    }
    const int size = RanksOf(options);
    AllowDescriptors(size);
    WEFT_TRY(RdmaDeviceOf(options.rdma_device, 0, size));
    auto cluster = std::make_unique<ClusterImpl>(0, size, job, options.timeout_ms);
    Bytes key;
    if (NamesHosts(options)) {
        WEFT_ASSIGN(key, ReadKeyFile(options.key_file));
    }
    cluster->SetOptions(options, key);
    if (options.launched != nullptr) cluster->SetMpi(options.launched->mpi());
    if (size == 1) {
        cluster->BeAlone();
        return std::unique_ptr<Cluster>(std::move(cluster));
    }
    WEFT_ASSIGN(AssignMessage assignment, AssignmentOf(options, size));
    assignment.job = std::move(job);
    if (options.links_of) assignment.links = options.links_of(assignment.job, size);
    if (options.window_bytes == 0) {
        assignment.window_bytes = WindowBytesFor(assignment.links, size, options.local > 1);
    }
    std::unique_ptr<DialIn> dial_in;
    if (options.wait_for > 0) {
        const int most_rank = options.elastic ? static_cast<int>(kMostRanks) - 1 : size - 1;
        WEFT_ASSIGN(dial_in, DialIn::Open(options.listen, key, options.timeout_ms, most_rank));
    }
    Control::Options root{0,
                          options.timeout_ms,
                          options.watchdog_ms,
                          !NamesHosts(options),
                          options.stop,
                          assignment.recover_ms > 0};
    root.loaded = options.loaded;
    root.gathers = options.launched != nullptr || NamesHosts(options);
    auto control = std::make_unique<Control>(root);
    Control& words = *control;
    const Status gathered =
        Gather(words, options, key, dial_in.get(), cluster->ticket(), assignment.hosts);
    if (!gathered.ok()) return words.ReportFailure(gathered.error());
    words.Assign(assignment);
    cluster->SetControl(std::move(control));
    cluster->SetHosts(HostsOf(options, assignment.hosts));
    const Status joinable = cluster->SetDialIn(std::move(dial_in));
    if (!joinable.ok()) return words.ReportFailure(joinable.error());
    // Before the first complete rendezvous, recovery handles only missing paths, not losses.
    Status met = cluster->Rendezvous(assignment);
    if (!met.ok()) met = cluster->BeginSmaller(met.error());
    if (!met.ok()) return cluster->WithLayouts(words.ReportFailure(met.error()));
    return std::unique_ptr<Cluster>(std::move(cluster));
}

Result<std::unique_ptr<Cluster>> Cluster::Join(const std::string& handle,
                                               const DataPortOptions& data,
                                               const JoinValidator& validator,
                                               const FolderLimit& folders) {
    HoldStops();
    auto inherited = ReadHandle(handle);
    if (!inherited.ok()) {
        LogLine(LogLevel::kError, inherited.error().message);
        return inherited.error();
    }
    return JoinAs(std::move(*inherited), nullptr, data, validator, folders);
}

Result<std::unique_ptr<Cluster>> Cluster::JoinLaunched(Launched& launched,
                                                       const DataPortOptions& data) {
    ::signal(SIGUSR1, SIG_IGN);  // (it does not end the process)
    auto arrival = launched.Arrive();
    // Once there is a job, rank 0 ends it; a rank without a job simply ends.
    HoldStops();
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGTERM, SIG_IGN);
    if (!arrival.ok()) {
        // If all ranks share one output, a rank 0 that ended has printed the reason.
        const bool said = arrival.error().code == ErrorCode::kPeerLost && launched.shares_output();
        if (!said) LogLine(LogLevel::kError, arrival.error().message);
        return arrival.error();
    }
    if (!arrival->has_value()) return std::unique_ptr<Cluster>();
    Inheritance inherited;
    inherited.control = std::move((*arrival)->fd);
    inherited.session = (*arrival)->session;
    inherited.local = launched.shares_output();
    return JoinAs(std::move(inherited), &launched, data, nullptr, {});
}

}  // namespace weft::cluster
