// weft submit, weft job: run a command on N nodes of a cluster engine.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <ctime>
#include <sstream>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/on_threads.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/program.h"
#include "fleet/find.h"
#include "serve/keys.h"
#include "submit/client.h"
#include "submit/job.h"
#include "submit/pods.h"
#include "submit/quote.h"

namespace weft::cli {
namespace {

constexpr size_t kMostKeyFile = 512 << 10;  // a Secret holds 1 MiB

constexpr const char* kSubmitFooter =
    "Weft writes one native job file and passes it to the engine's client: a batch script\n"
    "(sbatch), a JobSet, LeaderWorkerSet or RayJob (kubectl), a driver (ray job submit) or a\n"
    "script (ssh). --dry-run prints the file. Each node runs one rank of COMMAND.\n\n"
    "Examples:\n"
    "  weft submit --to slurm -N 4 -- train model.gguf --data qca.jsonl --output-dir tuned\n"
    "  weft submit --to k8s:ml -N 3 --mount models=/models --api-keys keys \\\n"
    "      -- serve /models/model.gguf\n"
    "  weft submit --to ray:http://head:8265 -N 2 -- train model.gguf --data qca.jsonl \\\n"
    "      --output-dir /shared/tuned\n"
    "  weft submit --to ssh -N 2 --hosts a,b -- bench model.gguf\n"
    "  weft submit --to slurm -N 4 --dry-run -- bench model.gguf";

constexpr const char* kJobFooter =
    "Examples:\n"
    "  weft job list\n"
    "  weft job status tune\n"
    "  weft job logs -f tune\n"
    "  weft job cancel tune";

struct SubmitFlags {
    submit::JobSpec job;
    std::string to, hosts, hostfile, api_key_file;
    std::vector<std::string> mounts;
    bool dry_run = false, json = false;
};

struct JobFlags {
    std::string name;
    bool follow = false, forget = false, json = false;
};

// "train-0601-120000-9f3a": unique among this user's jobs, also of one second; messages state it.
std::string NameNow(const std::string& command) {
    std::string name;
    for (const char c : command) {
        if ((c >= 'a' && c <= 'z') || c == '-') name += c;
    }
    std::array<std::byte, 2> bits{};
    RandomBytes(bits);
    return fmt::format("{}-{}-{:02x}{:02x}", name.empty() ? "job" : name,
                       UtcText(std::time(nullptr), "%m%d-%H%M%S"), static_cast<int>(bits[0]),
                       static_cast<int>(bits[1]));
}

// The key in hexadecimal digits, which any file format can hold.
std::string NewKey() {
    std::vector<std::byte> bytes(32);
    RandomBytes(bytes);
    std::string text;
    for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<int>(b));
    return text;
}

Status ResolveMounts(SubmitFlags& flags) {
    for (const std::string& text : flags.mounts) {
        const size_t equals = text.rfind('=');
        if (equals == text.npos) {
            return MakeError(ErrorCode::kUsage,
                             "--mount {}: expected CLAIM=/path, secret/NAME=/path or "
                             "/host/path=/path",
                             text);
        }
        flags.job.mounts.push_back({text.substr(0, equals), text.substr(equals + 1)});
    }
    return {};
}

// The file of API keys holds their hashes, and becomes an entry of the job's Secret.
Status ReadApiKeys(SubmitFlags& flags) {
    if (flags.api_key_file.empty()) return {};
    WEFT_ASSIGN(flags.job.api_keys, ReadTextFile(flags.api_key_file, kMostKeyFile));
    WEFT_ASSIGN(const serve::KeyRing ring,
                serve::KeyRing::Parse(flags.job.api_keys, flags.api_key_file));
    if (!ring.keys().empty()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--api-keys {0}: no key in it. 'weft key new NAME >> {0}' "
                     "makes one",
                     flags.api_key_file);
}

// Parses HOST or USER@HOST, as ssh does: no worker listens there, so there is no port.
Status ResolveSshHosts(SubmitFlags& flags) {
    std::string text = flags.hosts;
    if (!flags.hostfile.empty()) {
        if (!text.empty()) {
            return MakeError(ErrorCode::kUsage, "--hosts and --hostfile exclude each other");
        }
        WEFT_ASSIGN(text, ReadTextFile(flags.hostfile, 1 << 20));
        if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // a byte order mark
    }
    std::ranges::replace(text, ',', '\n');
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::string host;
        std::istringstream(line.substr(0, line.find('#'))) >> host;
        if (!host.empty()) flags.job.hosts.push_back(host);
    }
    const submit::Target& target = flags.job.target;
    if (target.engine == submit::Engine::kSsh && !target.place.empty()) {
        if (!flags.job.hosts.empty()) {
            return MakeError(ErrorCode::kUsage,
                             "--to ssh:{} names the hosts of a cluster: it excludes --hosts and "
                             "--hostfile",
                             target.place);
        }
        WEFT_ASSIGN(flags.job.hosts, fleet::SshHostsOf(target.place));
        // Use the first hosts, as many as the requested nodes.
        const auto nodes = static_cast<size_t>(std::max(0, flags.job.nodes));
        if (flags.job.hosts.size() > nodes) flags.job.hosts.resize(nodes);
    }
    if (flags.job.target.engine == submit::Engine::kSsh || flags.job.hosts.empty()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--hosts and --hostfile need --to ssh; {} chooses its own nodes",
                     submit::EngineName(flags.job.target.engine));
}

// KubeRay's operator restarts a job without telling the job.
void WarnOfRestarts(const submit::JobSpec& job) {
    const bool restarts = job.target.engine == submit::Engine::kKubeRay && job.restarts > 0;
    if (!restarts || !submit::IsCommand(job, "train")) return;
    if (!submit::ValueOf(job, "--output-dir")) return;
    if (submit::ValueOf(job, "--resume") == "auto") return;
    Log(LogLevel::kWarning,
        "--to kuberay restarts the job up to {} times, and a restart fails without '--resume auto' "
        "once --output-dir has checkpoints. Add --resume auto, or --restarts 0",
        job.restarts);
}

// A layout of another number of ranks than one per node would end the job at its start.
Status CheckLayout(const submit::JobSpec& job) {
    for (const char* flag : {"--local", "--hosts", "--hostfile"}) {
        if (!submit::ValueOf(job, flag)) continue;
        return MakeError(ErrorCode::kUsage,
                         "{} in the job's command: the launcher starts one rank on each node. "
                         "Remove it, and give the number of nodes as -N",
                         flag);
    }
    if (!job.command.empty() && (job.command[0] == "submit" || job.command[0] == "up")) {
        return MakeError(ErrorCode::kUsage, "the job's command is '{}', which starts jobs itself",
                         job.command[0]);
    }
    int64_t ranks = 1;
    std::string layout;
    for (const char* flag : {"--tp", "--pp", "--dp"}) {
        const std::string value = submit::ValueOf(job, flag).value_or("");
        int32_t count = 0;
        const char* const end = value.data() + value.size();
        const auto [at, error] = std::from_chars(value.data(), end, count);
        if (error != std::errc() || at != end || count < 1) continue;  // as in bench --tp 1,2
        ranks = std::min<int64_t>(ranks * count, 1 << 20);
        layout += fmt::format("{} {} ", flag, count);
    }
    if (layout.empty() || job.nodes % ranks == 0) return {};
    return MakeError(ErrorCode::kUsage, "{}needs {} ranks: -N {} starts one on each of {} node{}",
                     layout, ranks, job.nodes, job.nodes, job.nodes == 1 ? "" : "s");
}

// Pods run as a user without groups; NVIDIA's devices are open to all users.
void WarnOfGroups(const submit::JobSpec& job) {
    const auto closed = std::ranges::find_if(job.resources, [](const std::string& resource) {
        return resource.starts_with("amd.com/") || resource.starts_with("gpu.intel.com/");
    });
    if (closed == job.resources.end() || !job.groups.empty() || submit::WantsRdma(job)) return;
    PrintErr(
        "--resource {}: the pods may lack access to the device. If they compute on processors, "
        "give --group the number that 'getent group render' prints on a node.\n",
        *closed);
}

Status RunSubmit(SubmitFlags& flags) {
    submit::JobSpec& job = flags.job;
    WEFT_ASSIGN(job.target, submit::ParseTarget(flags.to));
    WEFT_TRY(ResolveMounts(flags));
    WEFT_TRY(ReadApiKeys(flags));
    WEFT_TRY(ResolveSshHosts(flags));
    if (!job.command.empty() && job.command[0] == "weft") job.command.erase(job.command.begin());
    const bool has_command = !job.command.empty() && !job.command[0].starts_with('-');
    if (has_command) {
        WEFT_ASSIGN(ForeignLine line, ReadForeignLine(job.command));
        job.flags = std::move(line.flags);
        job.command[0] = line.command;  // not the name of another program: "server"
    }
    WEFT_TRY(CheckLayout(job));
    if (job.name.empty()) job.name = NameNow(job.command.empty() ? "" : job.command[0]);
    job.key = NewKey();
    WEFT_ASSIGN(const submit::NativeFile file, submit::WriteJob(job));
    WarnOfRestarts(job);
    WarnOfGroups(job);
    if (flags.dry_run) {
        PrintOut("{}", file.text);
        return {};
    }
    WEFT_ASSIGN(const submit::Submitted submitted, submit::Submit(job, file));
    if (flags.json) {
        PrintJson({{"name", submitted.name}, {"to", flags.to}, {"id", submitted.id}});
        return {};
    }
    PrintOut("{}{}\n", submitted.name, submitted.id.empty() ? "" : " (" + submitted.id + ")");
    PrintErr("Its output: weft job logs -f {}\n", submitted.name);
    return {};
}

Status ListJobs(JobFlags& flags) {
    constexpr size_t kAtOnce = 16;
    const Deadline deadline = Deadline::In(10'000);  // of all jobs
    const std::vector<submit::Submitted> jobs = submit::ReadNotes();
    std::vector<std::string> states(jobs.size());
    WEFT_TRY(OnThreads(kAtOnce, jobs.size(), [&](size_t i) -> Status {
        states[i] = submit::StateOf(jobs[i], deadline);
        return {};
    }));
    Json json = Json::array();
    for (size_t i = 0; i < jobs.size(); ++i) {
        const submit::Submitted& job = jobs[i];
        json.push_back({{"name", job.name},
                        {"to", submit::EngineName(job.target.engine)},
                        {"place", job.target.place},
                        {"id", job.id},
                        {"state", states[i]},
                        {"at", job.at_s},
                        {"command", job.command}});
        if (flags.json) continue;
        PrintOut("{:<24} {:<8} {:<10} {:<10} {}  {}\n", job.name,
                 submit::EngineName(job.target.engine), job.id.empty() ? "-" : job.id, states[i],
                 UtcText(job.at_s, "%Y-%m-%d %H:%M"), Printable(submit::ShellWords(job.command)));
    }
    if (flags.json) PrintJson(json);
    return {};
}

// Runs the engine's client, which prints its own messages.
Status Ask(const std::vector<std::string>& words) {
    FlushOut();
    WEFT_ASSIGN(const int status, submit::RunClient(words));
    if (status == 0) return {};
    return MakeError(ErrorCode::kIo, "'{}' ended with status {}", words[0], status);
}

Status ShowStatus(JobFlags& flags) {
    WEFT_ASSIGN(const submit::Submitted job, submit::ReadNote(flags.name));
    return Ask(submit::StatusCommand(job));
}

Status ShowLogs(JobFlags& flags) {
    WEFT_ASSIGN(const submit::Submitted job, submit::ReadNote(flags.name));
    return Ask(submit::LogCommand(job, flags.follow));
}

Status Cancel(JobFlags& flags) {
    WEFT_ASSIGN(const submit::Submitted job, submit::ReadNote(flags.name));
    const Status asked = Ask(submit::CancelCommand(job));
    if (flags.forget) submit::ForgetNote(flags.name);
    return flags.forget ? Status() : asked;
}

Command AddJobCommand(const Command& jobs, const std::shared_ptr<JobFlags>& flags, const char* name,
                      const char* help, int& status, Status (*run)(JobFlags&)) {
    const Command command = jobs.AddCommand(name, help, kJobFooter);
    if (run != ListJobs)
        command.AddOption("NAME", flags->name, "Name of the job, as 'weft job list' prints it")
            .Required();
    SetCallback(command, flags, flags->json, status, run);
    return command;
}

void AddEngineOptions(const Command& command, submit::JobSpec& job, SubmitFlags& flags) {
    const Command slurm = command.Group("Slurm");
    slurm.AddOption("--time", job.time, "Time limit, as for sbatch: 2:00:00");
    slurm.AddOption("--partition", job.partition, "Slurm partition");
    slurm.AddOption("--account", job.account, "Slurm account");
    slurm.AddEach("--slurm --OPTION=VALUE", job.native,
                  "Additional option for sbatch: --constraint=ib");
    const Command pods = command.Group("Kubernetes");
    pods.ShowDefaults().AddOption("--image", job.image, "Container image of the pods");
    const auto several = [&](const char* flag, std::vector<std::string>& values, const char* help) {
        pods.AddEach(flag, values, help);
    };
    several("--pull-secret NAME", job.pull_secrets,
            "Secret with the credentials of the image's registry");
    several("--mount SOURCE=/path", flags.mounts,
            "Volume of the pods: CLAIM=/path, secret/NAME=/path or /host/path=/path");
    several("--resource NAME=AMOUNT", job.resources,
            "Device of a pod: nvidia.com/gpu=1, rdma/hca=1");
    pods.AddEach("--group ID", job.groups,
                 "Further group of the pods' processes: the nodes' render, for AMD's and Intel's "
                 "GPUs ('getent group render' prints its number)");
    several("--env NAME=VALUE", job.environment, "Environment variable of the pods");
    several("--node-selector KEY=VALUE", job.node_labels, "Label that the nodes must have");
    several("--toleration KEY[=VALUE][:EFFECT]", job.tolerations, "Taint that the nodes may have");
    pods.AddOption("--network", job.networks, "Multus networks of the pods");
    pods.AddOption("--queue", job.queue, "Queue of Kueue, or of Volcano with --scheduler volcano");
    pods.AddOption("--scheduler", job.scheduler, "Scheduler that places the pods, such as volcano");
    pods.AddOption("--secret NAME", job.secret,
                   "Use this Secret, with the entries key (of the ranks) and keys (of clients), "
                   "instead of writing one");
    const Command serve = command.Group("Kubernetes, with serve");
    serve.ShowDefaults().AddNumber("--replicas N", job.replicas, 1, 1000,
                                   "Number of servers, each on all --nodes nodes");
    serve.AddOption(
        "--api-keys FILE", flags.api_key_file,
        "Store this file of 'weft key new' in the job's Secret; clients need one of its keys");
    serve.ShowDefaults().AddChoice("--service-type", job.service,
                                   {"ClusterIP", "NodePort", "LoadBalancer"},
                                   "Type of the Service for clients");
    const Command ssh = command.Group("ssh");
    ssh.AddOption("--hosts", flags.hosts, "HOST or USER@HOST of each node, separated by commas");
    ssh.AddOption("--hostfile", flags.hostfile, "File with one HOST or USER@HOST per line");
    ssh.ShowDefaults().AddNumber("--port", job.port, 1, 65'535,
                                 "Port of the first host at which the ranks meet");
}

}  // namespace

void AddSubmit(const Command& app, int& status) {
    const auto flags = std::make_shared<SubmitFlags>();
    submit::JobSpec& job = flags->job;
    const Command command =
        app.AddCommand("submit", "Submit a command as a job to Slurm, Ray, Kubernetes or ssh hosts",
                       kSubmitFooter);
    const Command shown = command.ShowDefaults();
    command
        .AddOption("--to", flags->to,
                   "Engine: slurm, ray[:URL], kuberay[:NAMESPACE], k8s[:NAMESPACE], ssh[:CLUSTER]")
        .Suggest({"slurm", "ray", "kuberay", "k8s", "ssh"})
        .Required();
    shown.AddOption("-N,--nodes", job.nodes, "Number of nodes; each node runs one rank");
    command.AddOption("--name", job.name, "Name of the job (default: the command and the time)");
    command.AddFlag("--dry-run", flags->dry_run, "Print the job file, and submit nothing");
    shown.AddNumber("--cpus", job.cpus, 0, 10'000, "Cores per rank (0: all cores of a node)");
    command.AddOption("--memory", job.memory,
                      "Memory per rank, in the engine's notation: 32Gi, 32G");
    command.AddOption("--folder DIR", job.folder,
                      "Working folder of the ranks (default: the engine's)");
    shown.AddOption("--program", job.program, "Path of the weft program on the nodes");
    shown.AddNumber(
        "--restarts N", job.restarts, 0, 1000,
        "Restart the ranks after a lost rank or a preemption, at most N times (not with ssh)");
    AddEngineOptions(command, job, *flags);
    AddJson(command, flags->json);
    command.AddOption("COMMAND", job.command, "Arguments of 'weft' on each rank, after --");
    SetCallback(command, flags, flags->json, status, RunSubmit);
}

void AddJob(const Command& app, int& status) {
    const auto flags = std::make_shared<JobFlags>();
    const Command jobs = app.AddCommand("job", "Show or end jobs of 'weft submit'", kJobFooter);
    jobs.NeedsCommand();
    const Command list = AddJobCommand(jobs, flags, "list",
                                       "List the jobs submitted from this host, with their states",
                                       status, ListJobs);
    AddJson(list, flags->json);
    AddJobCommand(jobs, flags, "status", "Show the state of a job", status, ShowStatus);
    const Command logs =
        AddJobCommand(jobs, flags, "logs", "Print the output of the first rank", status, ShowLogs);
    logs.AddFlag("-f,--follow", flags->follow, "Follow the log as it grows");
    const Command cancel = AddJobCommand(jobs, flags, "cancel", "Cancel a job", status, Cancel);
    cancel.AddFlag("--forget", flags->forget,
                   "Also forget the job, even if the engine reports an error");
}

}  // namespace weft::cli
